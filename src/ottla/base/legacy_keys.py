"""Old keys: their new names, or the reason why they have no effect. Each use logs one warning.

Old tutorials and appliances use many of them. They do not stop the broker, except where ignoring one would run it
differently from what the file requests (TLS).
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Final

from ottla.base.broker_keys.cluster import NODE_ID_DEFAULT
from ottla.base.setting_types import trim
from ottla.base.settings import SettingsError

PORT_DEFAULT: Final = "9092"

RENAMED: Final = {
    "delegation.token.master.key": "delegation.token.secret.key",
    "log.file.size": "log.segment.bytes",
    "log.index.max.size.bytes": "log.index.size.max.bytes",
    "max.message.bytes": "message.max.bytes",
    "max.message.size": "message.max.bytes",
    "max.socket.request.bytes": "socket.request.max.bytes",
    "socket.receive.buffer": "socket.receive.buffer.bytes",
    "socket.send.buffer": "socket.send.buffer.bytes",
}
# Keys whose translation depends on other keys.
REPLACED: Final = frozenset({"advertised.host.name", "advertised.port", "host.name", "port", "ssl.mode.enable"})

_CLIENT = "it is a setting of clients"
_FORMAT = "there is one message format"
_QUOTAS = "Kafka has retired it: give the default client id a quota"
_ZOOKEEPER = "the connection to ZooKeeper has no such setting"
RETIRED: Final = {
    "control.plane.listener.name": "there is no separate control plane",
    "enable.idempotence": _CLIENT,
    "enable.zookeeper": "it is set by zookeeper.connect alone",
    "group.id": _CLIENT,
    "inter.broker.protocol.version": "brokers speak one version",
    "log.cleanup.interval.mins": "use log.retention.check.interval.ms",
    "log.default.flush.scheduler.interval.ms": "use log.flush.scheduler.interval.ms",
    "log.flush.interval": "use log.flush.interval.messages",
    "log.message.downconversion.enable": _FORMAT,
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "max.in.flight.requests.per.connection": _CLIENT,
    "offsets.commit.required.acks": "an offset commit always waits for all in-sync replicas",
    "replica.lag.max.messages": "use replica.lag.time.max.ms",
    "request.required.acks": _CLIENT,
    "security.protocol": _CLIENT,
}
RETIRED_PREFIXES: Final = {
    "quota.consumer.": _QUOTAS,
    "quota.producer.": _QUOTAS,
    "zookeeper.": _ZOOKEEPER,
}


class _SettingsFile:
    """The texts of a file while its old keys are translated."""

    def __init__(self, texts: MutableMapping[str, str], places: MutableMapping[str, str], warnings: list[str]) -> None:
        self.texts = texts
        self.places = places
        self.warnings = warnings

    def warn(self, name: str, message: str) -> None:
        self.warnings.append(f"{self.places[name]}: {message}")

    def put(self, name: str, value: str, instead_of: str) -> None:
        if name not in self.texts:
            self.texts[name] = value
            self.places[name] = self.places[instead_of]


def translate_legacy_keys(
    texts: MutableMapping[str, str], places: MutableMapping[str, str], warnings: list[str], known: Collection[str]
) -> None:
    """Replace old keys in `texts` by current ones; add a warning for each of them and for each unknown key."""
    file = _SettingsFile(texts, places, warnings)
    _reject_unsupported(file)
    _translate_addresses(file, "host.name", "port", "listeners")
    _translate_addresses(file, "advertised.host.name", "advertised.port", "advertised.listeners")
    _translate_names(file)
    _translate_node_id(file)
    _tell_about_lonely_keys(file, known)
    for name in [name for name in texts if name not in known and not name.startswith("listener.name.")]:
        _warn_about_unknown(file, name, known)


def is_known_key(name: str, known: Collection[str]) -> bool:
    """Whether a name is, or once was, a broker key."""
    return (
        name in known
        or name in RENAMED
        or name in REPLACED
        or name.startswith("listener.name.")
        or _retired_reason(name) is not None
    )


def nearest_key(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown key: a similar key, or an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415 - slow to load and hardly ever needed

    guesses = get_close_matches(name.lower().replace("_", "."), known, 1, 0.75)
    return f": did you mean {guesses[0]}?" if guesses else ""


def _reject_unsupported(file: _SettingsFile) -> None:
    if trim(file.texts.pop("ssl.mode.enable", "false")).lower() == "true":
        raise SettingsError(
            f"{file.places['ssl.mode.enable']}: ssl.mode.enable=true asks for TLS: remove the line, "
            "and give listeners one with SSL:// or SASL_SSL://, and ssl.keystore.location its certificate"
        )


def _translate_addresses(file: _SettingsFile, host_name: str, port: str, listeners: str) -> None:
    given = [name for name in (host_name, port) if name in file.texts]
    if not given:
        return
    host = trim(file.texts.pop(host_name, ""))
    number = trim(file.texts.pop(port, "")) or trim(file.texts.get("port", "")) or PORT_DEFAULT
    address = f"PLAINTEXT://{f'[{host}]' if ':' in host else host}:{number}"
    if listeners in file.texts:
        file.warn(given[0], f"{' and '.join(given)}: not used, because {listeners} is set")
    else:
        file.put(listeners, address, instead_of=given[0])
        file.warn(given[0], f"{' and '.join(given)}: old, taken as {listeners}={address}")


def _translate_names(file: _SettingsFile) -> None:
    for old, new in RENAMED.items():
        if old in file.texts:
            file.put(new, file.texts.pop(old), instead_of=old)
            file.warn(old, f"{old}: old, taken as {new}")
    if "log.dir" in file.texts and "log.dirs" not in file.texts:
        file.warn("log.dir", "log.dir: old, better write log.dirs")


def _translate_node_id(file: _SettingsFile) -> None:
    """`node.id` and `broker.id` are synonyms, as in Kafka.

    A node without an id gets the default, unless it belongs to a cluster: then ZooKeeper assigns one.
    """
    if "broker.id" in file.texts and trim(file.texts["broker.id"]) != "-1":
        file.put("node.id", file.texts["broker.id"], instead_of="broker.id")
    if "node.id" in file.texts:
        file.put("broker.id", file.texts["node.id"], instead_of="node.id")
    elif not trim(file.texts.get("zookeeper.connect", "")):
        file.texts["node.id"] = file.texts["broker.id"] = str(NODE_ID_DEFAULT)


def _tell_about_lonely_keys(file: _SettingsFile, known: Collection[str]) -> None:
    """Warn about ZooKeeper's time-outs that stay in a file without `zookeeper.connect`."""
    if not trim(file.texts.get("zookeeper.connect", "")):
        for name in file.texts:
            if name.startswith("zookeeper.") and name in known:
                file.warn(name, f"{name}: has no effect, because no zookeeper.connect is set")


def _warn_about_unknown(file: _SettingsFile, name: str, known: Collection[str]) -> None:
    reason = _retired_reason(name)
    if reason is not None:
        file.warn(name, f"{name}: has no effect, because {reason}")
        return
    hint = nearest_key(name, known) or ": it is not a key of Kafka's brokers"
    file.warn(name, f"{name}: unknown key, ignored{hint}")


def _retired_reason(name: str) -> str | None:
    if name in RETIRED:
        return RETIRED[name]
    return next((reason for prefix, reason in RETIRED_PREFIXES.items() if name.startswith(prefix)), None)

"""BrokerSettings: everything that `server.properties` and later changes say, typed, checked and unchangeable.

    settings = load_broker_settings("server.properties", {"log.dirs": "/data"})
    settings.num_partitions, settings.listeners, settings.warnings

Four layers, the first that has a key wins: what was changed on this broker while it runs, what was changed for all
brokers, the file with its overrides, and the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, environ, fspath
from typing import Any, Final

from ottla.base.broker_checks import broker_problems, broker_warnings
from ottla.base.broker_keys.audit import AuditKeys
from ottla.base.broker_keys.balancing import BalancingKeys
from ottla.base.broker_keys.cleaner import CleanerKeys
from ottla.base.broker_keys.cluster import ClusterKeys
from ottla.base.broker_keys.groups import GroupKeys
from ottla.base.broker_keys.healing import HealingKeys
from ottla.base.broker_keys.log import LogKeys
from ottla.base.broker_keys.maintenance import MaintenanceKeys
from ottla.base.broker_keys.measurement import MeasurementKeys
from ottla.base.broker_keys.network import NetworkKeys
from ottla.base.broker_keys.oauth import OAuthKeys
from ottla.base.broker_keys.own import OwnKeys
from ottla.base.broker_keys.replication import ReplicationKeys
from ottla.base.broker_keys.security import SecurityKeys
from ottla.base.broker_keys.share_groups import ShareGroupKeys
from ottla.base.broker_keys.streams_groups import StreamsGroupKeys
from ottla.base.broker_keys.tiered import TieredStorageKeys
from ottla.base.broker_keys.tls import TlsKeys
from ottla.base.broker_keys.topics import TopicDefaultKeys
from ottla.base.broker_keys.transactions import TransactionKeys
from ottla.base.broker_keys.zookeeper import ZooKeeperKeys
from ottla.base.environment import settings_of_container, settings_of_script
from ottla.base.legacy_keys import is_heard_of, nearest_key, translate_legacy_keys
from ottla.base.listener_keys import listener_key, split_listener_key, without_mechanism
from ottla.base.setting_types import BadValueError
from ottla.base.settings import Setting, SettingsError
from ottla.base.settings_file import read_settings_file, secret_file_warnings
from ottla.base.value_references import ProviderError, fill_in

_NOTHING: Mapping[str, str] = {}
# Keys that say the same: a layer that sets one of them is stronger than an earlier layer that sets another.
_SAME = (
    ("broker.id", "node.id"),
    ("log.dir", "log.dirs"),
    ("listeners", "host.name", "port"),
    ("advertised.listeners", "advertised.host.name", "advertised.port"),
)
OTHER_NAMES: Final = {name: names for names in _SAME for name in names}


class BrokerSettings(
    NetworkKeys,
    ClusterKeys,
    TopicDefaultKeys,
    LogKeys,
    CleanerKeys,
    ReplicationKeys,
    HealingKeys,
    BalancingKeys,
    GroupKeys,
    ShareGroupKeys,
    StreamsGroupKeys,
    TransactionKeys,
    TieredStorageKeys,
    TlsKeys,
    SecurityKeys,
    OAuthKeys,
    MeasurementKeys,
    OwnKeys,
    AuditKeys,
    MaintenanceKeys,
    ZooKeeperKeys,
):
    """What one broker runs with. `explicit` is what its file set, `warnings` what a person should know about it."""

    explicit: Mapping[str, str]
    cluster_default: Mapping[str, str]
    own: Mapping[str, str]
    warnings: tuple[str, ...]

    def __init__(
        self,
        explicit: Mapping[str, str] = _NOTHING,
        cluster_default: Mapping[str, str] = _NOTHING,
        own: Mapping[str, str] = _NOTHING,
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__({**explicit, **cluster_default, **own})
        self.__dict__.update(explicit=explicit, cluster_default=cluster_default, own=own, warnings=warnings)

    def with_dynamic(self, cluster_default: Mapping[str, str], own: Mapping[str, str]) -> BrokerSettings:
        """The same file under other run-time changes; a stored value that is not usable (any more) does not count."""
        return BrokerSettings(self.explicit, _usable(cluster_default), _usable(own), self.warnings)

    def with_node_id(self, node_id: int) -> BrokerSettings:
        """The same, for a broker that was given its number when it started."""
        number = {"node.id": str(node_id), "broker.id": str(node_id)}
        return BrokerSettings({**self.explicit, **number}, self.cluster_default, self.own, self.warnings)

    def of_listener(self, listener: str, base: str) -> Any:
        """A value that one listener may have for itself; else it is the broker's."""
        name = listener_key(listener, base)
        key = self.keys[base]
        return key.value(self.texts[name]) if name in self.texts else key.effective(self)

    def __repr__(self) -> str:
        changes = len(self.cluster_default) + len(self.own)
        return f"<BrokerSettings node {self.node_id}: {len(self.explicit)} set, {changes} changed at run time>"


def find_key(name: str) -> Setting[Any] | None:
    """The declaration of a broker's key or, for one of a single listener, of the key that it stands for."""
    key = BrokerSettings.keys.get(name)
    if key is None:
        of_listener = split_listener_key(name)
        return BrokerSettings.keys.get(without_mechanism(of_listener.base)) if of_listener is not None else None
    return key


def load_broker_settings(
    path: str | PathLike[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] = _NOTHING,
    is_container: bool = False,
) -> BrokerSettings:
    """Read and check a properties file; the environment wins over it, `overrides` (the command line) over both.

    Of the environment only what Kafka's start script reads counts, unless `is_container`: then every KAFKA_ variable
    that names a key. Raises SettingsError.
    """
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    warnings: list[str] = []
    if path is not None:
        read_settings_file(fspath(path), texts, places, warnings)
    _read_environment(environment, is_container, texts, places, warnings)
    _put_layer(texts, places, [(name, value, f"--override {name}") for name, value in (overrides or {}).items()])
    translate_legacy_keys(texts, places, warnings, BrokerSettings.keys)
    _fill_in(texts, places)
    _check_values(texts, places)
    settings = BrokerSettings(texts)
    problems = broker_problems(settings)
    if problems:
        raise SettingsError(*(f"{path or 'settings'}: {problem}" for problem in problems))
    if path is not None and any(key is not None and key.is_sensitive for key in map(find_key, texts)):
        warnings.extend(secret_file_warnings(fspath(path)))
    return BrokerSettings(texts, warnings=(*warnings, *broker_warnings(settings)))


def _read_environment(
    environment: Mapping[str, str],
    is_container: bool,
    texts: dict[str, str],
    places: dict[str, str],
    warnings: list[str],
) -> None:
    layer = []
    for name, value, variable in (settings_of_container if is_container else settings_of_script)(environment):
        if is_heard_of(name, BrokerSettings.keys):
            layer.append((name, value, f"environment variable {variable}"))
        else:
            hint = nearest_key(name, BrokerSettings.keys)
            warnings.append(f"environment variable {variable}: no key is called {name}, ignored{hint}")
    _put_layer(texts, places, layer)


def _put_layer(texts: dict[str, str], places: dict[str, str], layer: Sequence[tuple[str, str, str]]) -> None:
    """Values that win over those before them, also over those that are written under another name of the same key."""
    for name in {name for name, _, _ in layer}:
        for other in OTHER_NAMES.get(name, ()):
            texts.pop(other, None)
    for name, value, place in layer:
        texts[name] = value
        places[name] = place


def _fill_in(texts: dict[str, str], places: Mapping[str, str]) -> None:
    problems = []
    for name, text in texts.items():
        try:
            texts[name] = fill_in(text, environ)
        except ProviderError as problem:
            problems.append(f"{places.get(name, 'settings')}: {name}: {problem}")
    if problems:
        raise SettingsError(*problems)


def _check_values(texts: Mapping[str, str], places: Mapping[str, str]) -> None:
    problems = []
    for name, text in texts.items():
        key = find_key(name)
        if key is None:
            continue
        try:
            key.value(text)
        except BadValueError as bad:
            problems.append(f"{places[name]}: {bad}{_cure(key)}")
    if problems:
        raise SettingsError(*problems)


def _cure(key: Setting[object]) -> str:
    default = key.shown(None)
    return f" (the default is {default})" if default else ""


def _usable(texts: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in texts.items() if _is_usable(name, text)}


def _is_usable(name: str, text: str) -> bool:
    key = find_key(name)
    if key is None:
        return False
    try:
        key.value(text)
    except BadValueError:
        return False
    return True

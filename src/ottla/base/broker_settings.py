"""BrokerSettings: all settings from `server.properties` and later changes, typed, checked and immutable.

    settings = load_broker_settings("server.properties", {"log.dirs": "/data"})
    settings.num_partitions, settings.listeners, settings.warnings

There are four layers; the first that has a key wins: dynamic settings of this broker, dynamic defaults of the cluster,
the file with its overrides, and the defaults.

Reading a settings file from disk; each problem is one line with its cure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike, environ, fspath
from typing import Any, Final

from ottla.base.broker_checks import broker_problems, broker_warnings
from ottla.base.broker_keys.cluster import ClusterKeys, MeasurementKeys
from ottla.base.broker_keys.coordinators import GroupKeys, TransactionKeys
from ottla.base.broker_keys.extensions import ExtensionKeys
from ottla.base.broker_keys.log import CleanerKeys, LogKeys, TopicDefaultKeys
from ottla.base.broker_keys.network import NetworkKeys
from ottla.base.broker_keys.replication import BalancingKeys, HealingKeys, MaintenanceKeys, ReplicationKeys
from ottla.base.broker_keys.security import AuditKeys, OAuthKeys, SecurityKeys, TlsKeys
from ottla.base.broker_keys.unused import UnusedKeys
from ottla.base.broker_keys.zookeeper import ZooKeeperKeys
from ottla.base.config_provider import ProviderError, resolve_references
from ottla.base.environment import settings_of_container, settings_of_script
from ottla.base.legacy_keys import is_known_key, nearest_key, translate_legacy_keys
from ottla.base.listeners import listener_key, split_listener_key, without_mechanism
from ottla.base.password_encoder import decode_password, is_encoded
from ottla.base.properties import PropertiesError, parse_properties
from ottla.base.setting_types import BadValueError
from ottla.base.settings import Mode, Setting, SettingsError

_NOTHING: Mapping[str, str] = {}
# Synonyms: a layer that sets one of them overrides a lower layer that sets the other.
_SYNONYMS = (
    ("broker.id", "node.id"),
    ("log.dir", "log.dirs"),
    ("listeners", "host.name", "port"),
    ("advertised.listeners", "advertised.host.name", "advertised.port"),
)
OTHER_NAMES: Final = {name: names for names in _SYNONYMS for name in names}


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
    TransactionKeys,
    TlsKeys,
    SecurityKeys,
    OAuthKeys,
    MeasurementKeys,
    ExtensionKeys,
    AuditKeys,
    MaintenanceKeys,
    ZooKeeperKeys,
    UnusedKeys,
):
    """The settings of one broker. `explicit` holds what the file sets, `warnings` messages for the operator."""

    explicit: Mapping[str, str]
    cluster_default: Mapping[str, str]
    broker_overrides: Mapping[str, str]
    warnings: tuple[str, ...]

    def __init__(
        self,
        explicit: Mapping[str, str] = _NOTHING,
        cluster_default: Mapping[str, str] = _NOTHING,
        own: Mapping[str, str] = _NOTHING,
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__({**explicit, **cluster_default, **own})
        self.__dict__.update(
            explicit=explicit, cluster_default=cluster_default, broker_overrides=own, warnings=warnings
        )

    def with_dynamic(self, cluster_default: Mapping[str, str], own: Mapping[str, str]) -> BrokerSettings:
        """The same file with other dynamic settings; stored values that are not valid (any more) are ignored."""
        return BrokerSettings(self.explicit, _usable(cluster_default), _usable(self.decoded(own)), self.warnings)

    def decoded(self, stored: Mapping[str, str]) -> Mapping[str, str]:
        """This broker's stored settings with decrypted secrets.

        Secrets that neither password.encoder.secret nor the old secret decrypts are left out.
        """
        encoded = {name: text for name, text in stored.items() if is_encoded(text) and is_password(name)}
        if not encoded:
            return stored
        plain = {name: self._decoded(text) for name, text in encoded.items()}
        return {name: text for name in stored if (text := plain.get(name, stored[name])) is not None}

    def _decoded(self, text: str) -> str | None:
        secrets = filter(None, (self.password_encoder_secret, self.password_encoder_old_secret))
        return next(filter(lambda each: each is not None, (decode_password(text, each) for each in secrets)), None)

    def with_node_id(self, node_id: int) -> BrokerSettings:
        """The same settings, for a broker that receives its id at the start."""
        number = {"node.id": str(node_id), "broker.id": str(node_id)}
        return BrokerSettings({**self.explicit, **number}, self.cluster_default, self.broker_overrides, self.warnings)

    def of_listener(self, listener: str, base: str) -> Any:
        """A listener's own value of a key, else the broker's."""
        name = listener_key(listener, base)
        key = self.keys[base]
        return key.value(self.texts[name]) if name in self.texts else key.effective(self)

    def __repr__(self) -> str:
        changes = len(self.cluster_default) + len(self.broker_overrides)
        return f"<BrokerSettings node {self.node_id}: {len(self.explicit)} set, {changes} changed at run time>"


_PASSWORD_ENDS: Final = tuple(f".{name}" for name, key in BrokerSettings.keys.items() if key.is_sensitive)


def find_key(name: str) -> Setting[Any] | None:
    """The declaration of a broker key; for a key of one listener, that of the key that it overrides."""
    key = BrokerSettings.keys.get(name)
    if key is None:
        of_listener = split_listener_key(name)
        return BrokerSettings.keys.get(without_mechanism(of_listener.base)) if of_listener is not None else None
    return key


def is_password(name: str) -> bool:
    """Also of a listener or mechanism that is not known: `listener.name.inner.ldap.sasl.jaas.config`."""
    key = find_key(name)
    return key.is_sensitive if key is not None else name.endswith(_PASSWORD_ENDS)


def load_broker_settings(
    path: str | PathLike[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] = _NOTHING,
    is_container: bool = False,
) -> BrokerSettings:
    """Read and check a properties file. The environment overrides the file, `overrides` (the command line) both.

    Only the variables of Kafka's start script are read, unless `is_container` is set: then every KAFKA_ variable that
    names a key. Raises SettingsError.
    """
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    warnings: list[str] = []
    if path is not None:
        read_settings_file(fspath(path), texts, places, warnings)
    _read_environment(environment, is_container, texts, places, warnings)
    _put_layer(texts, places, [(name, value, f"--override {name}") for name, value in (overrides or {}).items()])
    translate_legacy_keys(texts, places, warnings, BrokerSettings.keys)
    _resolve_references(texts, places)
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
        if is_known_key(name, BrokerSettings.keys):
            layer.append((name, value, f"environment variable {variable}"))
        else:
            hint = nearest_key(name, BrokerSettings.keys)
            warnings.append(f"environment variable {variable}: no key is called {name}, ignored{hint}")
    _put_layer(texts, places, layer)


def _put_layer(texts: dict[str, str], places: dict[str, str], layer: Sequence[tuple[str, str, str]]) -> None:
    """Values of a layer override the earlier ones, including those under a synonym of the same key."""
    for name in {name for name, _, _ in layer}:
        for other in OTHER_NAMES.get(name, ()):
            texts.pop(other, None)
    for name, value, place in layer:
        texts[name] = value
        places[name] = place


def _resolve_references(texts: dict[str, str], places: Mapping[str, str]) -> None:
    problems = []
    for name, text in texts.items():
        try:
            texts[name] = resolve_references(text, environ)
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
            problems.append(f"{places[name]}: {bad}{_default_hint(key)}")
    if problems:
        raise SettingsError(*problems)


def _default_hint(key: Setting[object]) -> str:
    default = key.display_value(None)
    return f" (the default is {default})" if default else ""


def _usable(texts: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in texts.items() if _is_usable(name, text)}


def _is_usable(name: str, text: str) -> bool:
    key = find_key(name)
    if key is None:
        return True  # it is shown, and nothing acts on it
    if BrokerSettings.keys.get(name) is key and key.mode is Mode.READ_ONLY:
        return False  # also one that was stored before it was known
    try:
        key.value(text)
    except BadValueError:
        return False
    return True


FILE_BYTES_MAX: Final = 1 << 20
READABLE_BY_OTHERS: Final = 0o044


def read_settings_file(path: str, texts: dict[str, str], places: dict[str, str], warnings: list[str]) -> None:
    """Add a file's keys to `texts`, and the place of each to `places`."""
    try:
        for name, value, line in parse_properties(_read_text(path)):
            if name in texts:
                warnings.append(f"{path}:{line}: {name} was set before ({places[name]}): the last value counts")
            texts[name] = value
            places[name] = f"{path}:{line}"
    except PropertiesError as error:
        raise SettingsError(f"{path}:{error.line}: {error.cause}") from None


def secret_file_warnings(path: str) -> list[str]:
    """Warns if other users can read a file that holds a password."""
    if os.stat(path).st_mode & READABLE_BY_OTHERS:
        return [f"{path}: holds a password and can be read by other users: chmod 600 {path}"]
    return []


def _read_text(path: str) -> str:
    data = _read_bytes(path)
    if len(data) > FILE_BYTES_MAX:
        raise SettingsError(f"{path}: larger than {FILE_BYTES_MAX} bytes: this is no settings file")
    if b"\0" in data:
        raise SettingsError(f"{path}: holds binary data: give a text file with lines of key=value")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # Java reads such files as Latin-1, too


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file: give the path of a server.properties") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: is a folder: give the settings file in it") from None
    except PermissionError:
        raise SettingsError(f"{path}: may not be read by this user: change its owner or mode") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise SettingsError(f"{path!r}: is no file name") from None

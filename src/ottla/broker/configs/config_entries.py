"""Entries of DescribeConfigs: keys with values, sources and synonyms (Kafka's ConfigHelper).

Pure: settings in, entries out. The order of sources is Kafka's, and so are its omissions (a topic's retention.ms that
comes from the broker's log.retention.hours is shown as a default without synonyms).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.listeners import split_listener_key
from ottla.base.resource_keys import ClientMetricsKeys, GroupResourceKeys, inherited_by_groups
from ottla.base.setting_types import ConfigType, format_value
from ottla.base.settings import Mode, Setting
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys, topic_value
from ottla.protocol.messages.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_ROLL: Final = ("log.roll.ms", "log.roll.hours")
_JITTER: Final = ("log.roll.jitter.ms", "log.roll.jitter.hours")
BROKER_CHAINS: Final = {
    **dict.fromkeys(_RETENTION, _RETENTION),
    **dict.fromkeys(_ROLL, _ROLL),
    **dict.fromkeys(_JITTER, _JITTER),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


class Source(IntEnum):
    """Source of a value (Kafka's ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class EntrySelection(NamedTuple):
    """The entries of a resource that a request selects."""

    names: frozenset[str] = frozenset()  # empty: all
    synonyms: bool = False
    documentation: bool = False

    def includes(self, name: str) -> bool:
        return not self.names or name in self.names


def broker_entries(settings: BrokerSettings, wanted: EntrySelection) -> list[DescribeConfigsResourceResult]:
    """Return all public keys of a broker and all explicit settings."""
    shown = [name for name, key in settings.keys.items() if not key.is_internal or name in settings.texts]
    strange = [name for name in settings.texts if name not in settings.keys]
    return [_broker_entry(settings, name, wanted) for name in (*shown, *strange) if wanted.includes(name)]


def cluster_default_entries(settings: BrokerSettings, wanted: EntrySelection) -> list[DescribeConfigsResourceResult]:
    """Return the dynamic defaults of all brokers."""
    only_default = BrokerSettings(cluster_default=settings.cluster_default)
    names = [name for name in settings.cluster_default if wanted.includes(name)]
    return [_cluster_default_entry(only_default, name, wanted) for name in names]


def topic_entries(
    settings: BrokerSettings, overrides: Mapping[str, str], wanted: EntrySelection
) -> list[DescribeConfigsResourceResult]:
    """Return all public keys of a topic and all explicit settings."""
    shown = (name for name, key in TopicKeys.keys.items() if not key.is_internal or name in overrides)
    return [_topic_entry(settings, overrides, name, wanted) for name in shown if wanted.includes(name)]


def group_entries(
    settings: BrokerSettings, overrides: Mapping[str, str], wanted: EntrySelection
) -> list[DescribeConfigsResourceResult]:
    """Return all keys of a group; the broker's "group." settings are the defaults."""
    return [_group_entry(settings, overrides, name, wanted) for name in GroupResourceKeys.keys if wanted.includes(name)]


def client_metrics_entries(overrides: Mapping[str, str], wanted: EntrySelection) -> list[DescribeConfigsResourceResult]:
    """Return all keys of a client metrics subscription."""
    entries = []
    for name, key in ClientMetricsKeys.keys.items():
        if wanted.includes(name):
            value = key.display_value(overrides.get(name))
            own = DescribeConfigsSynonym(name=name, value=value, source=Source.CLIENT_METRICS)
            entries.append(_entry(key, value, [own] if name in overrides else [], wanted))
    return entries


def logger_entries(levels: Mapping[str, str], wanted: EntrySelection) -> list[DescribeConfigsResourceResult]:
    """Return all loggers with their levels."""
    source = Source.DYNAMIC_BROKER_LOGGER
    return [
        DescribeConfigsResourceResult(name=name, value=level, config_source=source, documentation="")
        for name, level in levels.items()
        if wanted.includes(name)
    ]


def _broker_entry(settings: BrokerSettings, name: str, wanted: EntrySelection) -> DescribeConfigsResourceResult:
    key = find_key(name)
    synonyms = _synonyms(settings, name)
    if key is None:
        return _unknown_entry(name, synonyms, wanted)
    of_listener = split_listener_key(name)
    if of_listener is None:
        return _entry(
            key, key.display_value(settings.texts.get(name)), synonyms, wanted, read_only=key.mode is Mode.READ_ONLY
        )
    synonyms += _synonyms(settings, of_listener.base)
    entry = _entry(key, key.display_value(settings.texts[name]), synonyms, wanted, read_only=True)
    entry.name = name
    return entry


def _cluster_default_entry(
    settings: BrokerSettings, name: str, wanted: EntrySelection
) -> DescribeConfigsResourceResult:
    entry = _broker_entry(settings, name, wanted)
    entry.synonyms = [item for item in entry.synonyms if item.source == Source.DYNAMIC_DEFAULT_BROKER]
    if not entry.is_sensitive:
        entry.value = settings.cluster_default[name]  # as it was set
    return entry


def _topic_entry(
    settings: BrokerSettings, overrides: Mapping[str, str], name: str, wanted: EntrySelection
) -> DescribeConfigsResourceResult:
    value = format_value(topic_value(settings, overrides, name))
    synonyms = _synonyms(settings, BROKER_SYNONYMS[name][0][0]) if name in BROKER_SYNONYMS else []
    if name in overrides:
        synonyms.insert(0, DescribeConfigsSynonym(name=name, value=value, source=Source.TOPIC))
    return _entry(TopicKeys.keys[name], value, synonyms, wanted)


def _group_entry(
    settings: BrokerSettings, overrides: Mapping[str, str], name: str, wanted: EntrySelection
) -> DescribeConfigsResourceResult:
    key = GroupResourceKeys.keys[name]
    value = format_value(inherited_by_groups(name, settings))
    if f"group.{name}" in settings.keys:
        synonyms = _synonyms(settings, f"group.{name}")
    else:
        synonyms = [DescribeConfigsSynonym(name=name, value=value, source=Source.DEFAULT)]
    if name in overrides:
        value = key.display_value(overrides[name])
        synonyms.insert(0, DescribeConfigsSynonym(name=name, value=value, source=Source.GROUP))
    return _entry(key, value, synonyms, wanted)


def _entry(
    key: Setting[Any],
    value: str | None,
    synonyms: list[DescribeConfigsSynonym],
    wanted: EntrySelection,
    *,
    read_only: bool = False,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=value,
        read_only=read_only,
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms if wanted.synonyms else [],
        config_type=key.kind,
        documentation=key.note if wanted.documentation else None,
    )


def _unknown_entry(
    name: str, synonyms: list[DescribeConfigsSynonym], wanted: EntrySelection
) -> DescribeConfigsResourceResult:
    """Return the entry of an unknown key without its value, which may be a secret."""
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        read_only=True,
        config_source=synonyms[0].source if synonyms else Source.DEFAULT,
        is_sensitive=True,
        synonyms=synonyms if wanted.synonyms else [],
        config_type=ConfigType.UNKNOWN,
    )


def _synonyms(settings: BrokerSettings, name: str) -> list[DescribeConfigsSynonym]:
    """Return all values for a key and the coarser keys of its chain; the effective one comes first."""
    found = list(_all_synonyms(settings, BROKER_CHAINS.get(name, (name,))))
    first = next((index for index, item in enumerate(found) if item.name == name), len(found))
    return found[first:]


def _all_synonyms(settings: BrokerSettings, names: Iterable[str]) -> Iterator[DescribeConfigsSynonym]:
    layers = (
        (settings.broker_overrides, Source.DYNAMIC_BROKER),
        (settings.cluster_default, Source.DYNAMIC_DEFAULT_BROKER),
        (settings.explicit, Source.STATIC_BROKER),
    )
    for texts, source in layers:
        for name in names:
            if name in texts:
                key = find_key(name)
                value = None if key is None or key.is_sensitive else texts[name]
                yield DescribeConfigsSynonym(name=name, value=value, source=source)
    for name in names:
        key = settings.keys.get(name)
        default = None if key is None or key.is_internal else key.display_value(None)
        if default is not None:
            yield DescribeConfigsSynonym(name=name, value=default, source=Source.DEFAULT)

"""The monitor's YAML configuration file. Every error is one readable sentence.

Names are Burrow's where it has one. Secrets are references: `${env:NAME}`, `${file:PATH}`. The file is small and has no
anchors, which could expand it without bounds; unknown names are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from ottla.base.config_provider import ProviderError, resolve_references
from ottla.base.regular_expressions import OPERATOR, PatternError, compile_pattern
from ottla.monitor.alerts.alert_manager import AlertSettings
from ottla.monitor.alerts.alert_states import Condition
from ottla.monitor.alerts.rule_entries import (
    ChannelEntry,
    ConfigError,
    RuleEntry,
    SilenceEntry,
    channel_of,
    duration_ms,
    rule_of,
    silence_of,
)
from ottla.monitor.cluster_monitor import ClusterSettings, GroupFilter
from ottla.monitor.offset_store import HistoryLimits

FILE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 20
PORT: Final = 8000  # Burrow's
_OPENING: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSING: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


class _Entry(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Base of all sections: kebab-case names, unknown fields are errors."""


class ClusterEntry(_Entry):
    bootstrap_server: str
    command_config: str = ""
    brokers: list[int] = []


class HttpEntry(_Entry):
    host: str = "127.0.0.1"
    port: int = PORT
    allow_hosts: list[str] = []
    insecure: bool = False


class FileEntry(_Entry):
    clusters: dict[str, ClusterEntry] = {}
    http: HttpEntry = msgspec.field(default_factory=HttpEntry)
    intervals: int = 10
    min_distance: float = 1.0
    expire_group: str | int = "7d"
    minimum_complete: float = 0.0
    offset_refresh: str | int = "10s"
    topic_refresh: str | int = "5s"
    group_allowlist: str = ""
    group_denylist: str = ""
    state: str = ""
    pipelines: list[str] = []
    alerts: list[RuleEntry] = []
    silences: list[SilenceEntry] = []
    channels: dict[str, ChannelEntry] = {}


class MonitorConfig(NamedTuple):
    """All settings; `state` is None without persistence."""

    http: HttpEntry
    clusters: tuple[ClusterSettings, ...]
    alerts: AlertSettings
    state: Path | None


LoadProperties = Callable[[str], Mapping[str, str]]


def read_config(text: bytes, environment: Mapping[str, str]) -> FileEntry:
    """Raises ConfigError."""
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"the file is larger than {FILE_BYTES_MAX} bytes")
    try:
        _check_shape(text)
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise ConfigError(f"{place}invalid YAML: {getattr(problem, 'problem', None) or 'not readable'}") from None
    try:
        return msgspec.convert(_resolve_references(document or {}, environment), FileEntry)
    except msgspec.ValidationError as problem:
        raise ConfigError(str(problem).replace(" - at `$.", " in `").replace(" - at `$`", "")) from None
    except ProviderError as problem:
        raise ConfigError(str(problem)) from None
    except RecursionError:
        raise ConfigError("it is nested too deeply") from None


def _check_shape(text: bytes) -> None:
    """Reject aliases and deep nesting, with which a small file could take unbounded time."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.AliasToken):
            raise ConfigError("anchors and aliases (*name) are not allowed here: quote a pattern such as '*'")
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if depth > DEPTH_MAX:
            raise ConfigError("invalid YAML: it is nested too deeply")


def settings_of(
    entry: FileEntry, clusters: Mapping[str, ClusterEntry], load_properties: LoadProperties
) -> MonitorConfig:
    """The settings from the file and the command line. Raises ConfigError."""
    rules = tuple(
        rule_of(item.name, item.cluster, item, entry.channels, has_pipelines=bool(entry.pipelines))
        for item in entry.alerts
    )
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise ConfigError(f"two alerts are called {next(name for name in names if names.count(name) > 1)}")
    kinds = {rule.kind for rule in rules}
    if entry.intervals < 2 or entry.intervals > 1_000:
        raise ConfigError("intervals must be between 2 and 1000")
    limits = HistoryLimits(
        entry.intervals,
        int(entry.min_distance * 1000),
        duration_ms("expire-group", entry.expire_group),
        entry.minimum_complete,
    )
    pattern = GroupFilter(_expression("group-allowlist", entry), _expression("group-denylist", entry))
    offset_refresh_ms = _refresh("offset-refresh", entry.offset_refresh)
    topic_refresh_ms = _refresh("topic-refresh", entry.topic_refresh)
    made = tuple(
        ClusterSettings(
            name,
            item.bootstrap_server,
            load_properties(item.command_config) if item.command_config else {},
            limits,
            offset_refresh_ms,
            topic_refresh_ms,
            pattern,
            tuple(rule.topic for rule in rules if rule.kind is Condition.DEAD_LETTERS),
            Condition.DISK in kinds,
            Condition.UNDER_MIN_ISR in kinds,
        )
        for name, item in clusters.items()
    )
    alerts = AlertSettings(
        rules,
        {name: channel_of(name, item) for name, item in entry.channels.items()},
        tuple(silence_of(item) for item in entry.silences),
        tuple(Path(folder).expanduser() for folder in entry.pipelines),
        {name: item.brokers for name, item in clusters.items()},
    )
    state = Path(entry.state).expanduser() if entry.state else None
    if rules and state is None:
        raise ConfigError("alerts need a file for their state: state: monitor.db")
    return MonitorConfig(entry.http, made, alerts, state)


def _refresh(name: str, text: str | int) -> int:
    found = duration_ms(name, text)
    if not 100 <= found <= 3_600_000:
        raise ConfigError(f"{name} must be between 100ms and 1h")
    return found


def _expression(name: str, entry: FileEntry) -> Any:
    text = getattr(entry, name.replace("-", "_"))
    if not text:
        return None
    try:
        return compile_pattern(text, limits=OPERATOR)
    except PatternError as problem:
        raise ConfigError(f"{name}: {problem}") from None


def _resolve_references(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return resolve_references(value, environment)
    if isinstance(value, dict):
        return {str(key): _resolve_references(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve_references(item, environment) for item in value]
    return value

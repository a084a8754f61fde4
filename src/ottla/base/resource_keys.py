"""Keys of two smaller resources: groups and client metrics subscriptions.

Checks of the settings of groups and client metrics subscriptions. Pure; codes and messages are Kafka's. Matching of
clients to client metrics subscriptions (KIP-714).

A matcher is a list of `name=pattern`. All patterns must match, each the whole text. An empty list matches every client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.base.broker_keys.unused import NO_SHARE_GROUPS, NO_STREAMS_GROUPS
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.regular_expressions import compile_pattern
from ottla.base.setting_types import BadValueError, invalid_value, one_of, trim
from ottla.base.settings import Boolean, Int, Items, Settings, Text

INTERVAL_MS: Final = 300_000
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000


def offset_reset(name: str, value: object) -> str | None:
    if value in ("latest", "earliest") or str(value).startswith("by_duration:P"):
        return None
    return invalid_value(
        name,
        value,
        f"Invalid value `{value}` for configuration {name}. "
        "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    )


class GroupResourceKeys(Settings):
    """The settings of a group; a key that the broker has under "group." falls back to it."""

    consumer_assignment_interval_ms = Int(
        1000, at_least=0, note="Minimum time between two assignments of this consumer group."
    )
    consumer_heartbeat_interval_ms = Int(
        5000, at_least=1, note="Heartbeat interval for members of this consumer group."
    )
    consumer_session_timeout_ms = Int(
        45_000,
        at_least=1,
        note="Time without a heartbeat after which a member of this consumer group is removed.",
    )
    share_assignment_interval_ms = Int(
        1000, at_least=0, unused=NO_SHARE_GROUPS, note="Minimum time between two assignments of this share group."
    )
    share_auto_offset_reset = Text(
        "latest",
        check=offset_reset,
        unused=NO_SHARE_GROUPS,
        note="Start position of a share group in a new partition: latest, earliest or by_duration:PT1H.",
    )
    share_delivery_count_limit = Int(
        5,
        at_least=2,
        unused=NO_SHARE_GROUPS,
        note="Number of deliveries after which a record is considered undeliverable.",
    )
    share_heartbeat_interval_ms = Int(
        5000, at_least=1, unused=NO_SHARE_GROUPS, note="Heartbeat interval for members of this share group."
    )
    share_isolation_level = Text(
        "read_uncommitted",
        check=one_of("read_committed", "read_uncommitted"),
        unused=NO_SHARE_GROUPS,
        note="Whether records of open and aborted transactions are delivered.",
    )
    share_partition_max_record_locks = Int(
        2000,
        at_least=100,
        unused=NO_SHARE_GROUPS,
        note="Maximum number of records per partition that may be acquired by consumers and not yet acknowledged.",
    )
    share_record_lock_duration_ms = Int(
        30_000, at_least=1000, unused=NO_SHARE_GROUPS, note="Time within which a consumer must acknowledge a record."
    )
    share_renew_acknowledge_enable = Boolean(
        True, unused=NO_SHARE_GROUPS, note="Whether consumers may request more time for a record."
    )
    share_session_timeout_ms = Int(
        45_000,
        at_least=1,
        unused=NO_SHARE_GROUPS,
        note="Time without a heartbeat after which a member of this share group is removed.",
    )
    streams_assignment_interval_ms = Int(
        1000, at_least=0, unused=NO_STREAMS_GROUPS, note="Minimum time between two assignments of this streams group."
    )
    streams_heartbeat_interval_ms = Int(
        5000,
        at_least=1,
        unused=NO_STREAMS_GROUPS,
        note="Heartbeat interval for members of this streams group.",
    )
    streams_initial_rebalance_delay_ms = Int(
        3000,
        at_least=0,
        unused=NO_STREAMS_GROUPS,
        note="Time for which a new streams group waits for more members before its first assignment.",
    )
    streams_num_standby_replicas = Int(
        0, at_least=0, unused=NO_STREAMS_GROUPS, note="Standby copies of each task's state."
    )
    streams_session_timeout_ms = Int(
        45_000,
        at_least=1,
        unused=NO_STREAMS_GROUPS,
        note="Time without a heartbeat after which a member of this streams group is removed.",
    )


class ClientMetricsKeys(Settings):
    """The settings of a client metrics subscription."""

    interval_ms = Int(INTERVAL_MS, note="Time between two pushes of metrics by a client.")
    match = Items(note="Clients to which the subscription applies, as name=pattern.")
    metrics = Items(note="Prefixes of the names of the requested metrics; * is all.")


TEXT_LENGTH_MAX: Final = 1_024  # longer texts, which clients choose, match no pattern
MATCH_NAMES: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

Matcher = Mapping[str, Any]


def parse_matcher(items: Sequence[str]) -> Matcher:
    """Return the patterns by name; the last one of a name is used. Raises BadValueError with Kafka's message."""
    patterns = {}
    for item in items:
        name, is_pair, pattern = item.partition("=")
        try:
            if not is_pair or trim(name) not in MATCH_NAMES:
                raise ValueError(name)
            patterns[trim(name)] = compile_pattern(trim(pattern))
        except ValueError:  # includes PatternError
            raise BadValueError(f"Illegal client matching pattern: {item}") from None
    return patterns


def matches(matcher: Matcher, client: Mapping[str, str]) -> bool:
    return all(
        len(text := client.get(name, "")) <= TEXT_LENGTH_MAX and pattern.fullmatch(text)
        for name, pattern in matcher.items()
    )


KINDS_OF_GROUPS = ("consumer", "share", "streams")
# The broker key with the bounds has the group key's name, except for this one.
BOUNDED_BY = {"streams.num.standby.replicas": "standby.replicas"}


def check_client_metrics(name: str, new: Mapping[str, str]) -> None:
    """Check the complete new settings of one subscription. Raises KafkaError."""
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Subscription name can't be empty")
    for key in new:
        if key not in ClientMetricsKeys.keys:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        values = {key: ClientMetricsKeys.keys[key].value(text) for key, text in new.items()}
        parse_matcher(values.get("match", ()))
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
    interval_ms = values.get("interval.ms", INTERVAL_MS_MAX)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
        )


def check_group(name: str, new: Mapping[str, str], settings: BrokerSettings) -> None:
    """Check the complete new settings of one group against the broker's bounds. Raises KafkaError."""
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "Default group resources are not allowed.")
    for key in new:
        if key not in GroupResourceKeys.keys:
            raise KafkaError(Error.INVALID_CONFIG, f"Unknown group config name: {key}")
    try:
        own = {key: GroupResourceKeys.keys[key].value(text) for key, text in new.items()}
    except BadValueError as bad:
        raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
    values = {key: own.get(key, inherited_by_groups(key, settings)) for key in GroupResourceKeys.keys}
    for key, value in values.items():
        _check_bounds(key, value, settings)
    for kind in KINDS_OF_GROUPS:
        if values[f"{kind}.session.timeout.ms"] <= values[f"{kind}.heartbeat.interval.ms"]:
            _refuse(f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms")


def inherited_by_groups(key: str, settings: BrokerSettings) -> Any:
    """Return the value of a group that does not set the key itself."""
    of_broker = settings.keys.get(f"group.{key}")
    return getattr(settings, of_broker.attribute) if of_broker else GroupResourceKeys.keys[key].default


def _check_bounds(key: str, value: Any, settings: BrokerSettings) -> None:
    kind, _, rest = key.partition(".")
    rest = BOUNDED_BY.get(key, rest)
    least, most = (settings.keys.get(f"group.{kind}.{bound}.{rest}") for bound in ("min", "max"))
    if least is not None and value < getattr(settings, least.attribute):
        _refuse(f"{key} must be greater than or equal to {least.name}")
    if most is not None and value > getattr(settings, most.attribute):
        _refuse(f"{key} must be less than or equal to {most.name}")


def _refuse(sentence: str) -> None:
    raise KafkaError(Error.INVALID_CONFIG, sentence)

"""Keys of the two smaller things that have settings: groups, and subscriptions to client metrics.

Those of groups are kept and shown, and take effect with the groups themselves.
"""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.words import NO_SHARE_GROUPS, NO_STREAMS_GROUPS
from ottla.base.setting_types import invalid_value, one_of
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
    """What a group may set; a key that the broker has under "group." falls back to it."""

    consumer_assignment_interval_ms = Int(
        1000, at_least=0, note="Shortest time between two assignments of this consumer group."
    )
    consumer_heartbeat_interval_ms = Int(
        5000, at_least=1, note="Heartbeat interval that members of this consumer group are told."
    )
    consumer_session_timeout_ms = Int(
        45_000,
        at_least=1,
        note="Time without a heartbeat after which a member of this consumer group is out.",
    )
    share_assignment_interval_ms = Int(
        1000, at_least=0, unused=NO_SHARE_GROUPS, note="Shortest time between two assignments of this share group."
    )
    share_auto_offset_reset = Text(
        "latest",
        check=offset_reset,
        unused=NO_SHARE_GROUPS,
        note="Where a share group begins in a new partition: latest, earliest or by_duration:PT1H.",
    )
    share_delivery_count_limit = Int(
        5, at_least=2, unused=NO_SHARE_GROUPS, note="Times a record is handed out before it counts as undeliverable."
    )
    share_heartbeat_interval_ms = Int(
        5000, at_least=1, unused=NO_SHARE_GROUPS, note="Heartbeat interval that members of this share group are told."
    )
    share_isolation_level = Text(
        "read_uncommitted",
        check=one_of("read_committed", "read_uncommitted"),
        unused=NO_SHARE_GROUPS,
        note="Whether records of open and aborted transactions are handed out.",
    )
    share_partition_max_record_locks = Int(
        2000,
        at_least=100,
        unused=NO_SHARE_GROUPS,
        note="Records of one partition that may be handed out and not yet acknowledged.",
    )
    share_record_lock_duration_ms = Int(
        30_000, at_least=1000, unused=NO_SHARE_GROUPS, note="Time a consumer has to acknowledge a record."
    )
    share_renew_acknowledge_enable = Boolean(
        True, unused=NO_SHARE_GROUPS, note="Whether consumers may ask for more time for a record."
    )
    share_session_timeout_ms = Int(
        45_000,
        at_least=1,
        unused=NO_SHARE_GROUPS,
        note="Time without a heartbeat after which a member of this share group is out.",
    )
    streams_assignment_interval_ms = Int(
        1000, at_least=0, unused=NO_STREAMS_GROUPS, note="Shortest time between two assignments of this streams group."
    )
    streams_heartbeat_interval_ms = Int(
        5000,
        at_least=1,
        unused=NO_STREAMS_GROUPS,
        note="Heartbeat interval that members of this streams group are told.",
    )
    streams_initial_rebalance_delay_ms = Int(
        3000,
        at_least=0,
        unused=NO_STREAMS_GROUPS,
        note="Time a new streams group waits for more members before its first assignment.",
    )
    streams_num_standby_replicas = Int(
        0, at_least=0, unused=NO_STREAMS_GROUPS, note="Standby copies of each task's state."
    )
    streams_session_timeout_ms = Int(
        45_000,
        at_least=1,
        unused=NO_STREAMS_GROUPS,
        note="Time without a heartbeat after which a member of this streams group is out.",
    )


class ClientMetricsKeys(Settings):
    """What a subscription to client metrics may set."""

    interval_ms = Int(INTERVAL_MS, note="Time between two pushes of metrics by a client.")
    match = Items(note="Which clients the subscription is for, as name=pattern.")
    metrics = Items(note="Prefixes of the names of the metrics that are wanted; * is all.")

"""The broker settings of groups."""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupTimes(NamedTuple):
    """Settings that a consumer group may override."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


class GroupSettings(NamedTuple):
    """Kafka's `group.*` and `offsets.*` keys; the defaults are Kafka's."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    size_max: int = 2**31 - 1
    offset_metadata_bytes_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_check_interval_ms: int = 600_000
    consumer_times: ConsumerGroupTimes = ConsumerGroupTimes()
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: str = "bidirectional"
    metadata_bytes_max: int = 128 << 20  # ottla's own: the limit of all groups of this broker
    regex_refresh_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = 300_000  # a constant in Kafka: maximum wait for the first rebalance

"""The numbers that a broker's settings give to its groups."""

from __future__ import annotations

from typing import NamedTuple


class ConsumerTimes(NamedTuple):
    """What a group of the new protocol may have for itself."""

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
    consumer_times: ConsumerTimes = ConsumerTimes()
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: str = "bidirectional"
    new_member_join_timeout_ms: int = 300_000  # not a setting of Kafka either: how long a first join may wait

"""What a topic's settings come to: typed values, ready for use by the log and the replicas.

The names, ranges and sources that people see stand in `settings.py`; this is the result of reading them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Rates:
    """What may go in and out in a second."""

    produce_bytes: float = inf
    produce_messages: float = inf
    fetch_bytes: float = inf
    fetch_messages: float = inf


@dataclass(frozen=True, slots=True)
class TopicQuota:
    """How fast a topic and each of its partitions may be used on one broker, and what becomes of who is faster."""

    topic: Rates
    partition: Rates
    is_rejecting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Effective settings of one topic; the defaults are Kafka's."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER_MS
    flush_ms: int = NEVER_MS
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = NEVER_MS
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = NEVER_MS
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    quota: TopicQuota | None = None
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @property
    def reserved_segment_bytes(self) -> int:
        """The room on disk that a new segment gets at once."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

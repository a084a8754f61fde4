"""The effective settings of a topic: typed values for the log and the replicas.

`settings.py` declares names, ranges and sources; this is the parsed result.

Valid names of cleanup.policy: Kafka's own, and custom policies of installed packages.

A package offers a policy as an entry point of the group `ottla.cleanup_policies`. Only the names are looked up here.
The package is imported when a log is cleaned, and then in the cleaner's process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Final

from ottla.base.setting_types import one_of

NEVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Rates:
    """Limits of the bytes in and out per second."""

    produce_bytes: float = inf
    produce_messages: float = inf
    fetch_bytes: float = inf
    fetch_messages: float = inf


@dataclass(frozen=True, slots=True)
class TopicQuota:
    """Rate limits of a topic and of each of its partitions on one broker, and what happens above them."""

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
        """The disk space that is preallocated for a new segment."""
        return self.segment_bytes if self.preallocate else 0

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy


ENTRY_POINT_GROUP: Final = "ottla.cleanup_policies"
COMPACT: Final = "compact"
DELETE: Final = "delete"


def known_policies(name: str, value: object) -> str | None:
    """The check of cleanup.policy; packages are searched only for names that are not Kafka's."""
    problem = one_of(COMPACT, DELETE)(name, value)
    return problem and one_of(COMPACT, DELETE, *custom_policy_names())(name, value)


@cache
def custom_policy_names() -> tuple[str, ...]:
    """Read once per process: a package that is installed later needs a restart."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (a tenth of the start-up time, and rarely needed)

    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)} - {COMPACT, DELETE}))


def is_custom(policy: str) -> bool:
    return policy not in (COMPACT, DELETE)

"""Compaction: keeping only the newest record of each key."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE
from ottla.base.setting_types import DOUBLE_MAX, LONG_MAX
from ottla.base.settings import Boolean, Double, Int, Long, Settings


class CleanerKeys(Settings):
    """Compaction: keeping only the newest record of each key."""

    log_cleaner_backoff_ms = Long(
        15_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Wait of the cleaner when there is nothing to compact.",
    )
    log_cleaner_dedupe_buffer_size = Long(
        134_217_728,
        mode=CLUSTER_WIDE,
        note="Memory of all cleaners together for the newest offset of each key; each one uses 64 MiB at most.",
    )
    log_cleaner_delete_retention_ms = Long(
        86_400_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="How long a tombstone stays after compaction; the default of delete.retention.ms.",
    )
    log_cleaner_enable = Boolean(True, note="Whether topics with cleanup policy compact are compacted.")
    log_cleaner_io_buffer_load_factor = Double(
        0.9,
        mode=CLUSTER_WIDE,
        note="Share of the cleaner's memory that may be filled before another round is needed.",
    )
    log_cleaner_io_buffer_size = Int(
        524_288,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Memory of all cleaners together for reading and writing.",
    )
    log_cleaner_io_max_bytes_per_second = Double(
        DOUBLE_MAX,
        mode=CLUSTER_WIDE,
        note="Most bytes a second that cleaners read and write together.",
    )
    log_cleaner_max_compaction_lag_ms = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Longest time a record may wait for compaction; the default of max.compaction.lag.ms.",
    )
    log_cleaner_min_cleanable_ratio = Double(
        0.5,
        at_least=0,
        at_most=1,
        mode=CLUSTER_WIDE,
        note="Share of not yet compacted bytes that starts a compaction; the default of min.cleanable.dirty.ratio.",
    )
    log_cleaner_min_compaction_lag_ms = Long(
        0,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Time for which a record is surely not compacted away; the default of min.compaction.lag.ms.",
    )
    log_cleaner_threads = Int(
        1, at_least=0, mode=CLUSTER_WIDE, note="Processes that compact, each with a log of its own."
    )

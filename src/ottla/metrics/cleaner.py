"""Counters of compaction."""

from __future__ import annotations

from collections.abc import Collection

from ottla.base.names import TopicPartition


class CleanerCounters:
    """Updated by the cleaner, read by the metrics."""

    def __init__(self) -> None:
        self.runs = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self.seconds = 0.0
        self.last_recopy = 0.0  # of the last run: bytes written per byte read
        self.last_seconds = 0.0
        self.max_dirty_ratio = 0.0  # the highest share of uncompacted bytes at the last check
        self.checked_ms = 0  # time of the last check; 0: never
        self.uncleanable: Collection[TopicPartition] = ()  # logs that are skipped after an error

    def record_check(self, dirtiest: float, now_ms: int) -> None:
        self.max_dirty_ratio = dirtiest
        self.checked_ms = now_ms

    def record_run(
        self, *, bytes_read: int, bytes_written: int, records_read: int, records_kept: int, seconds: float
    ) -> None:
        self.runs += 1
        self.bytes_read += bytes_read
        self.bytes_written += bytes_written
        self.records_read += records_read
        self.records_kept += records_kept
        self.seconds += seconds
        self.last_recopy = bytes_written / bytes_read if bytes_read else 0.0
        self.last_seconds = seconds

    def __repr__(self) -> str:
        return f"<CleanerCounters {self.runs} runs, {self.records_read - self.records_kept} records removed>"

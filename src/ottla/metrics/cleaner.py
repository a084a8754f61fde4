"""What compaction has done, as plain numbers."""

from __future__ import annotations

from collections.abc import Collection

from ottla.base.names import TopicPartition


class CleanerCounters:
    """Written by the cleaner, read by whoever shows metrics."""

    def __init__(self) -> None:
        self.runs = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self.seconds = 0.0
        self.last_recopy = 0.0  # of the last run: bytes written for each byte read
        self.last_seconds = 0.0
        self.dirtiest = 0.0  # of the logs that were looked at last: the share that is not clean
        self.looked_ms = 0  # when; 0: never
        self.uncleanable: Collection[TopicPartition] = ()  # logs that are not tried any more

    def note_look(self, dirtiest: float, now_ms: int) -> None:
        self.dirtiest = dirtiest
        self.looked_ms = now_ms

    def note_run(
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

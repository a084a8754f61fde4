"""What became of the events of the audit trail, as plain numbers."""

from __future__ import annotations


class AuditCounters:
    """Written by the trail and its writer, read by whoever shows metrics."""

    def __init__(self) -> None:
        self.written = 0
        self.lost = 0  # events that were never written: the queue was full, or the broker stopped
        self.failed_writes = 0  # attempts that were repeated
        self.waiting = 0  # events that are not written yet

    def __repr__(self) -> str:
        return f"<AuditCounters {self.written} written, {self.waiting} waiting, {self.lost} lost>"

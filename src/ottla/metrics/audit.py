"""Counters of the audit trail."""

from __future__ import annotations


class AuditCounters:
    """Updated by the trail and its writer, read by the metrics."""

    def __init__(self) -> None:
        self.written = 0
        self.lost = 0  # never written: the queue was full, or the broker stopped
        self.failed_writes = 0  # attempts that were retried
        self.waiting = 0  # queued events

    def __repr__(self) -> str:
        return f"<AuditCounters {self.written} written, {self.waiting} waiting, {self.lost} lost>"

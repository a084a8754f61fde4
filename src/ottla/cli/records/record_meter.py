"""A bar on a terminal that shows how many of a known number of records are done; nothing at all in a pipe."""

from __future__ import annotations

from ottla.cli.meter import ByteMeter


class RecordMeter(ByteMeter):
    """`with RecordMeter("writing", total) as meter: meter.reach(count so far)`"""

    def reach(self, count: int) -> None:
        self.add(count - self.done_bytes)

    def line(self, now: float) -> str:
        return f"{super().line(now).rpartition('  ')[0]}  {self.done_bytes:,} records"

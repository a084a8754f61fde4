"""Progress bars on a terminal; nothing is drawn into a pipe."""

from __future__ import annotations

import sys
import time
from typing import Self

from ottla.cli.terminal import is_terminal

WIDTH = 32
REDRAW_SECONDS = 0.1


class ByteProgressBar:
    """A bar for a known number of bytes: `with ByteMeter("copying", total) as meter: meter.add(count)`"""

    def __init__(self, label: str, total_bytes: int) -> None:
        self.label = label
        self.total_bytes = max(total_bytes, 1)
        self.done_bytes = 0
        self._is_shown = is_terminal(sys.stderr)
        self._started = self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def clear(self) -> None:
        """Erase the bar so that other lines can be printed; the next add() redraws it."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def add(self, count: int) -> None:
        self.done_bytes += count
        now = time.monotonic()
        if self._is_shown and now - self._drawn > REDRAW_SECONDS:
            self._drawn = now
            print(f"\r\x1b[K{self.line(now)}", end="", file=sys.stderr, flush=True)

    def line(self, now: float) -> str:
        """`copying [########............]  40 %  312 MB/s`"""
        share = min(self.done_bytes / self.total_bytes, 1.0)
        filled = int(share * WIDTH)
        speed = self.done_bytes / max(now - self._started, 0.001) / 1e6
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"{self.label} [{bar}] {share * 100:3.0f} %  {speed:.0f} MB/s"

    def __repr__(self) -> str:
        return f"<ByteProgressBar {self.label} {self.done_bytes} of {self.total_bytes}>"


class RecordProgressBar(ByteProgressBar):
    """A bar for a known number of records: `with RecordMeter("writing", total) as meter: meter.reach(count)`"""

    def set_count(self, count: int) -> None:
        self.add(count - self.done_bytes)

    def line(self, now: float) -> str:
        return f"{super().line(now).rpartition('  ')[0]}  {self.done_bytes:,} records"

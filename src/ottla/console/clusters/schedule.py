"""When which part of a cluster is read again, and how many requests may be sent. Pure: times come in.

Rules:
1. Each part has a period, counted from the end of its last reading. Whoever has just changed something hurries parts.
   What changes slowly is read seldom where it costs much.
2. Requests come from a bucket that fills slowly: a small cluster is read at once, a large one at PER_SECOND. With what
   the monitor asks for besides, a broker that is alone gets no more than five a second.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.console.clusters.snapshot import Part

PERIODS_MS = {
    Part.METADATA: 2_500,
    Part.ENDS: 4_000,
    Part.GROUPS: 4_000,
    Part.COMMITS: 4_000,
    Part.STARTS: 20_000,
    Part.SIZES: 20_000,
}
FAILED_MS = 1_000  # a part that could not be read is tried again this soon
BURST = 40
PER_SECOND = 3.0
DEBT_MAX = 10.0  # who did not wait, for somebody's sake, makes up for it; but a broker that dies is seen in time
SLOW = (Part.STARTS, Part.SIZES)
SLOW_MS_PER_REQUEST = 6_000


class Schedule:
    """What is due next."""

    def __init__(self) -> None:
        self.due_ms = dict.fromkeys(PERIODS_MS, 0)
        self.hurried: set[Part] = set()  # since their last reading began

    def next(self) -> tuple[Part, int]:
        """The part that is due first, and when."""
        part = min(self.due_ms, key=lambda each: self.due_ms[each])  # ties: metadata first, as they are listed
        return part, self.due_ms[part]

    def wait(self, part: Part, now_ms: int) -> None:
        self.due_ms[part] = now_ms + FAILED_MS

    def begin(self, part: Part) -> None:
        self.hurried.discard(part)

    def read(self, part: Part, now_ms: int, requests: int = 1, *, failed: bool = False) -> None:
        """It has been read, with so many requests."""
        period_ms = max(PERIODS_MS[part], requests * SLOW_MS_PER_REQUEST if part in SLOW else 0)
        is_hurried = part in self.hurried and not failed  # what was read may be from before the change
        self.due_ms[part] = 0 if is_hurried else now_ms + (FAILED_MS if failed else period_ms)
        if failed and part is not Part.METADATA:
            self.due_ms[Part.METADATA] = now_ms  # a broker may have gone: who leads now?

    def hurry(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self.due_ms[part] = 0
            self.hurried.add(part)

    def __repr__(self) -> str:
        return f"<Schedule {self.due_ms}>"


class Bucket:
    """How many requests may be sent now."""

    def __init__(self, now_ms: int) -> None:
        self.tokens = float(BURST)
        self.filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Take one; how long to wait before it may be used."""
        self.tokens = min(float(BURST), self.tokens + (now_ms - self.filled_ms) / 1000 * PER_SECOND)
        self.filled_ms = now_ms
        self.tokens = max(-DEBT_MAX, self.tokens - 1)
        return 0 if self.tokens >= 0 else round(-self.tokens / PER_SECOND * 1000)

    def spend(self, count: int) -> None:
        """So many more were sent than were asked for: the next ones wait for that."""
        self.tokens = max(-DEBT_MAX, self.tokens - count)

    def __repr__(self) -> str:
        return f"<Bucket {self.tokens:.1f}>"

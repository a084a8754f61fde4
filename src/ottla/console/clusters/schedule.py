"""When which part of a cluster is read again, and how many requests may be sent. Pure: times come in.

Rules:
1. Each part has a period, counted from the end of its last reading. Whoever has just changed something hurries parts.
2. Requests come from a bucket that fills slowly: a small cluster is read at once, a large one at PER_SECOND.
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
PER_SECOND = 4.0


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

    def read(self, part: Part, now_ms: int, *, failed: bool = False) -> None:
        is_hurried = part in self.hurried and not failed  # what was read may be from before the change
        self.due_ms[part] = 0 if is_hurried else now_ms + (FAILED_MS if failed else PERIODS_MS[part])
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
        self.tokens -= 1
        return 0 if self.tokens >= 0 else round(-self.tokens / PER_SECOND * 1000)

    def __repr__(self) -> str:
        return f"<Bucket {self.tokens:.1f}>"

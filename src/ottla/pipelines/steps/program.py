"""What a step does with the rows of one key, one after the other in the order of their time. Pure: no Spark, no clock.

A program is handed the rows that the watermark has passed, and what it has kept of the key; it hands back rows that it
makes, what it wants to keep, and when it wants to be woken without a row. A batch hands it all rows at once, a stream a
few at a time: the same comes out.

Rules:
1. Rows come in the order of their time, and none comes that is not after the watermark of the call before.
2. What is made in one call is in the order of its time, and not after the watermark.
3. `watermark_ms` None is the end of time: all rows of a batch have been handed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

Row = dict[str, Any]


class Arrived(NamedTuple):
    """A row; `instant` in microseconds since 1970; `flags` has a 0 or 1 for each condition that was asked."""

    instant: int
    row: Row
    flags: str = ""


class Made(NamedTuple):
    """A row that comes out; or, with `problem`, one that died: then `source` is its number among those handed over."""

    instant: int
    row: Row | None
    problem: str | None = None
    source: int | None = None


class Ran(NamedTuple):
    """`memory` None: nothing is kept of the key."""

    made: list[Made]
    memory: str | None
    wake_ms: int | None


class Program(Protocol):
    """Travels to Spark's processes."""

    def run(self, rows: list[Arrived], memory: str | None, watermark_ms: int | None) -> Ran: ...


def ceil_ms(instant: int) -> int:
    """In milliseconds, up: nothing is let go before its time."""
    return -(-instant // 1000)

"""A, then B (then C …) within a time: which rows of one key are such a sequence. Pure.

Every row that fulfils the first condition may begin an attempt; an attempt waits for the next condition, and whatever
else comes in between does not matter. It ends

    matched     with the row that fulfils the last condition, if that is not later than `within` after the first row
    timed_out   when that time has passed without it; a row exactly at its end still counts
    (nothing)   with a row that fulfils `without`

A row is first offered to the attempts that are open, `without` before anything else, then it may begin one itself: "A
then A" is every row with the one before it. One row may end several attempts. Each row begins at most one, and each
attempt gives at most one result.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ottla.pipelines.steps.packing import pack, unpack
from ottla.pipelines.steps.program import Arrived, Made, Ran, Row, ceil_ms

OUTCOME = "outcome"

Several = Literal["each", "first", "newest"]
Emit = Literal["matched", "timed_out", "both"]


class Attempt(NamedTuple):
    deadline: int  # microseconds
    seen: tuple[Row, ...]


class Sequences(NamedTuple):
    """`prefixes`: one for each condition; `by`: columns that all rows of a key share."""

    by: tuple[str, ...]
    prefixes: tuple[str, ...]
    within_us: int
    several: Several = "each"
    emit: Emit = "matched"
    open_max: int = 1000
    label: str = ""  # of the step, for what goes wrong

    def run(self, rows: list[Arrived], memory: str | None, watermark_ms: int | None) -> Ran:
        attempts = [Attempt(deadline, tuple(seen)) for deadline, seen in (unpack(memory) if memory else ())]
        made: list[Made] = []
        for row in rows:
            attempts = self._expired(attempts, row.instant - 1, made)
            attempts = self._offered(attempts, row, made)
            if row.flags[0] == "1":
                attempts = self._begun(attempts, row)
        end = None if watermark_ms is None else watermark_ms * 1000
        attempts = self._expired(attempts, end, made)
        if not attempts:
            return Ran(made, None, None)
        kept = pack([[each.deadline, list(each.seen)] for each in attempts])
        return Ran(made, kept, ceil_ms(attempts[0].deadline))

    def _expired(self, attempts: list[Attempt], now: int | None, made: list[Made]) -> list[Attempt]:
        """Attempts are in the order of their deadlines."""
        count = sum(now is None or each.deadline <= now for each in attempts)
        if self.emit != "matched":
            made += [Made(each.deadline, self._result(each.seen, "timed_out")) for each in attempts[:count]]
        return attempts[count:]

    def _offered(self, attempts: list[Attempt], row: Arrived, made: list[Made]) -> list[Attempt]:
        steps = len(self.prefixes)
        if len(row.flags) > steps and row.flags[steps] == "1":  # `without`
            return []
        kept: list[Attempt] = []
        for attempt in attempts:
            if row.flags[len(attempt.seen)] != "1":
                kept.append(attempt)
                continue
            seen = (*attempt.seen, row.row)
            if len(seen) < steps:
                kept.append(Attempt(attempt.deadline, seen))
            elif self.emit != "timed_out":
                made.append(Made(row.instant, self._result(seen, "matched")))
        return kept

    def _begun(self, attempts: list[Attempt], row: Arrived) -> list[Attempt]:
        if attempts and self.several == "first":
            return attempts
        new = Attempt(row.instant + self.within_us, (row.row,))
        if self.several == "newest":
            return [new]
        if len(attempts) >= self.open_max:
            key = ", ".join(f"{name} {row.row[name]!r}" for name in self.by)
            raise RuntimeError(
                f"{self.label}: {key}: more than {self.open_max} rows wait for what follows them; take several: "
                "first or newest, a shorter within, or a greater open_max"
            )
        return [*attempts, new]

    def _result(self, seen: tuple[Row, ...], outcome: str) -> Row:
        made: Row = {OUTCOME: outcome} | {name: seen[0][name] for name in self.by}
        for prefix, row in zip(self.prefixes, seen, strict=False):
            made |= {f"{prefix}{name}": value for name, value in row.items() if name not in self.by}
        return made

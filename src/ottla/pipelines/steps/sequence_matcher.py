"""Matches sequences of rows of one key: A, then B (then C …) within a time. Pure.

Every row that matches the first condition may open a sequence; an open sequence waits for the next condition and
ignores other rows. It ends

    matched     with the row that matches the last condition, if that is at most `within` after the first row
    timed_out   when that time has passed; a row exactly at the end still counts
    (nothing)   with a row that matches `without`

A row first advances the open sequences, `without` before anything else, and then may open one: "A then A" pairs every
row with the previous one. One row may end several sequences. Each row opens at most one, and each sequence has at most
one result.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ottla.pipelines.steps.key_program import InputRow, OutputRow, ProgramResult, Row, ceil_ms, pack, unpack

OUTCOME = "outcome"

Several = Literal["each", "first", "newest"]
Emit = Literal["matched", "timed_out", "both"]


class OpenSequence(NamedTuple):
    deadline: int  # microseconds
    seen: tuple[Row, ...]


class SequenceMatcher(NamedTuple):
    """`prefixes`: one per condition; `by`: columns that all rows of a key share."""

    by: tuple[str, ...]
    prefixes: tuple[str, ...]
    within_us: int
    several: Several = "each"
    emit: Emit = "matched"
    open_max: int = 1000
    label: str = ""  # of the step, for error messages

    def run(self, rows: list[InputRow], memory: str | None, watermark_ms: int | None) -> ProgramResult:
        attempts = [OpenSequence(deadline, tuple(seen)) for deadline, seen in (unpack(memory) if memory else ())]
        made: list[OutputRow] = []
        for row in rows:
            attempts = self._expire(attempts, row.instant - 1, made)
            attempts = self._advance(attempts, row, made)
            if row.flags[0] == "1":
                attempts = self._open(attempts, row)
        end = None if watermark_ms is None else watermark_ms * 1000
        attempts = self._expire(attempts, end, made)
        if not attempts:
            return ProgramResult(made, None, None)
        kept = pack([[each.deadline, list(each.seen)] for each in attempts])
        return ProgramResult(made, kept, ceil_ms(attempts[0].deadline))

    def _expire(self, attempts: list[OpenSequence], now: int | None, made: list[OutputRow]) -> list[OpenSequence]:
        """Open sequences are ordered by deadline."""
        count = sum(now is None or each.deadline <= now for each in attempts)
        if self.emit != "matched":
            made += [OutputRow(each.deadline, self._result(each.seen, "timed_out")) for each in attempts[:count]]
        return attempts[count:]

    def _advance(self, attempts: list[OpenSequence], row: InputRow, made: list[OutputRow]) -> list[OpenSequence]:
        steps = len(self.prefixes)
        if len(row.flags) > steps and row.flags[steps] == "1":  # `without`
            return []
        kept: list[OpenSequence] = []
        for attempt in attempts:
            if row.flags[len(attempt.seen)] != "1":
                kept.append(attempt)
                continue
            seen = (*attempt.seen, row.row)
            if len(seen) < steps:
                kept.append(OpenSequence(attempt.deadline, seen))
            elif self.emit != "timed_out":
                made.append(OutputRow(row.instant, self._result(seen, "matched")))
        return kept

    def _open(self, attempts: list[OpenSequence], row: InputRow) -> list[OpenSequence]:
        if attempts and self.several == "first":
            return attempts
        new = OpenSequence(row.instant + self.within_us, (row.row,))
        if self.several == "newest":
            return [new]
        if len(attempts) >= self.open_max:
            key = ", ".join(f"{name} {row.row[name]!r}" for name in self.by)
            raise RuntimeError(
                f"{self.label}: {key}: more than {self.open_max} rows wait for the next condition; use several: "
                "first or newest, a shorter within, or a greater open_max"
            )
        return [*attempts, new]

    def _result(self, seen: tuple[Row, ...], outcome: str) -> Row:
        made: Row = {OUTCOME: outcome} | {name: seen[0][name] for name in self.by}
        for prefix, row in zip(self.prefixes, seen, strict=False):
            made |= {f"{prefix}{name}": value for name, value in row.items() if name not in self.by}
        return made

"""Runs user code for each key: `on_row` for each row, `on_timer` for each timer that it has set. Pure.

Rows come in time order. A timer fires once, when the watermark has passed it: after the rows that are not later and
before those that are; timers fire in order. The state of a key without rows for `forget_after` is removed with its
timers, so code that keeps setting timers stops eventually.

An exception or invalid result of `on_row` kills that row and reverts its state changes. An exception of `on_timer` ends
the run, because there is no row to kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ottla.pipelines.steps.arrow_values import build_value_check
from ottla.pipelines.steps.key_program import (
    MICROSECOND,
    InputRow,
    OutputRow,
    ProgramResult,
    Row,
    ceil_ms,
    from_micros,
    pack,
    to_micros,
    unpack,
)
from ottla.pipelines.steps.user_functions import error_text

TIMERS_MAX = 1000
TIMERS_FIRED_MAX = 100_000
MADE_MAX = 100_000
REASON_CHARACTERS_MAX = 300


class State:
    """The state of a key: the columns that the step declares, by name; initially None.

    `key` has the columns of `by`; `time` is that of the current row or timer.
    """

    def __init__(self, key: Row, values: Row, timers: set[int], instant: int, has_on_timer: bool) -> None:
        self._values = values
        self._timers = timers
        self._instant = instant
        self._has_on_timer = has_on_timer
        self.key = key

    def __repr__(self) -> str:
        return f"State({self._values}, {len(self._timers)} timers)"

    @property
    def time(self) -> datetime:
        return from_micros(self._instant)

    def __getitem__(self, name: str) -> Any:
        return self._values[self._known(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[self._known(name)] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def set_timer(self, when: datetime | timedelta) -> None:
        """At a time, or after a time span; the same time twice is one timer."""
        if not self._has_on_timer:
            raise TypeError("a timer is set, and there is no on_timer")
        instant = self._instant_of(when)
        if instant <= self._instant:
            raise ValueError(f"the timer {from_micros(instant).isoformat()} is not after {self.time.isoformat()}")
        self._timers.add(ceil_ms(instant))
        if len(self._timers) > TIMERS_MAX:
            raise ValueError(f"more than {TIMERS_MAX} timers of one key")

    def delete_timer(self, when: datetime | timedelta) -> None:
        self._timers.discard(ceil_ms(self._instant_of(when)))

    def forget(self) -> None:
        """Reset the key: no values, no timers."""
        self._values.update(dict.fromkeys(self._values))
        self._timers.clear()

    def _instant_of(self, when: datetime | timedelta) -> int:
        return self._instant + when // MICROSECOND if isinstance(when, timedelta) else to_micros(when)

    def _known(self, name: str) -> str:
        if name not in self._values:
            raise KeyError(f"{name} is not declared in `state`")
        return name


@dataclass
class KeyState:
    """The stored state of one key."""

    key: Row
    values: Row
    timers: set[int] = field(default_factory=set)
    last_ms: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.timers and all(value is None for value in self.values.values())


@dataclass
class UserProgram:
    """`state` and `result` are the declared Arrow types; `label` names the step."""

    by: tuple[str, ...]
    on_row: Callable[[Row, State], Any]
    on_timer: Callable[[datetime, State], Any] | None
    state: pa.DataType
    result: pa.DataType
    forget_after_ms: int
    label: str

    def run(self, rows: list[InputRow], memory: str | None, watermark_ms: int | None) -> ProgramResult:
        kept = KeyState(*unpack(memory)) if memory else None
        if kept is not None:
            kept.timers = set(kept.timers)
        made: list[OutputRow] = []
        for number, row in enumerate(rows):
            kept = self._fire_due_timers(kept, ceil_ms(row.instant) - 1, made)
            kept = self._run_row(kept, number, row, made)
        kept = self._fire_due_timers(kept, watermark_ms, made)
        if kept is None or kept.is_empty:
            return ProgramResult(made, None, None)
        wake_ms = min((*kept.timers, kept.last_ms + self.forget_after_ms))
        return ProgramResult(made, pack([kept.key, kept.values, sorted(kept.timers), kept.last_ms]), wake_ms)

    def _run_row(self, kept: KeyState | None, number: int, row: InputRow, made: list[OutputRow]) -> KeyState:
        if kept is None:
            kept = KeyState({name: row.row[name] for name in self.by}, self._empty_state())
        kept.last_ms = ceil_ms(row.instant)
        try:
            results, values, timers = self._call_user_code(self.on_row, row.row, kept, row.instant)
        except Exception as error:  # # noqa: BLE001 (user code: any exception concerns this row)
            reason = str(error) if isinstance(error, MisfitError) else error_text(error, _function(self.on_row))
            made.append(OutputRow(row.instant, None, reason[:REASON_CHARACTERS_MAX], number))
            return kept
        kept.values, kept.timers = values, timers
        made += [OutputRow(row.instant, each) for each in results]
        return kept

    def _fire_due_timers(self, kept: KeyState | None, now_ms: int | None, made: list[OutputRow]) -> KeyState | None:
        """Fire the timers up to then, and remove expired state."""
        fired = 0
        while kept is not None:
            forgotten_ms = kept.last_ms + self.forget_after_ms
            next_ms = min((*kept.timers, forgotten_ms))
            if now_ms is not None and next_ms > now_ms:
                return kept
            if next_ms not in kept.timers:
                return None
            fired += 1
            if fired > TIMERS_FIRED_MAX:
                raise RuntimeError(
                    f"{self.label}: {kept.key}: more than {TIMERS_FIRED_MAX:,} timers fired without a row"
                )
            kept.timers.discard(next_ms)
            self._fire_timer(kept, next_ms, made)
        return kept

    def _fire_timer(self, kept: KeyState, at_ms: int, made: list[OutputRow]) -> None:
        instant = at_ms * 1000
        on_timer = self.on_timer
        if on_timer is None:  # the code has changed since the timer was set
            raise RuntimeError(f"{self.label}: a timer has come, and there is no on_timer")
        try:
            results, kept.values, kept.timers = self._call_user_code(on_timer, from_micros(instant), kept, instant)
        except Exception as error:  # noqa: BLE001 (user code)
            reason = str(error) if isinstance(error, MisfitError) else error_text(error, _function(on_timer))
            raise RuntimeError(f"{self.label}, on_timer: {reason}") from None
        made += [OutputRow(instant, each) for each in results]

    def _call_user_code(
        self, function: Callable[[Any, State], Any], given: Any, kept: KeyState, instant: int
    ) -> tuple[list[Row], Row, set[int]]:
        """Return the rows, the new values and the new timers; the stored state does not change."""
        values, timers = unpack(pack(kept.values)), set(kept.timers)
        state = State(dict(kept.key), values, timers, instant, self.on_timer is not None)
        results = [self._result(kept.key, each) for each in _result_rows(function(given, state))]
        return results, _to_declared_types([values], self.state, "state")[0], timers

    def _result(self, key: Row, made: Mapping[str, Any]) -> Row:
        names = [each.name for each in self.result]
        unknown = made.keys() - set(names)
        if unknown:
            raise MisfitError(f"the code returned an unknown column {min(map(str, unknown))!r}")
        missing = [name for name in names if name not in made]
        if missing:
            raise MisfitError(f"the code did not return the column {missing[0]!r}")
        return key | _to_declared_types([dict(made)], self.result, "row")[0]

    def _empty_state(self) -> Row:
        return {each.name: None for each in self.state}


class MisfitError(ValueError):
    """The result does not match the declared types; the text has the reason."""


def _result_rows(made: Any) -> Iterator[Mapping[str, Any]]:
    """None, a row, or several."""
    if made is None:
        return
    several: Iterable[Any] = [made] if isinstance(made, Mapping) else made
    if isinstance(made, str | bytes) or not isinstance(several, Iterable):
        raise MisfitError(f"the code returned {type(made).__name__}, not a dict or a list of them")
    for number, each in enumerate(several):
        if not isinstance(each, Mapping):
            raise MisfitError(f"the code returned {type(each).__name__} among its rows, not a dict")
        if number >= MADE_MAX:
            raise MisfitError(f"the code made more than {MADE_MAX:,} rows of one")
        yield each


def _to_declared_types(rows: list[Row], wanted: pa.DataType, what: str) -> list[Row]:
    """Convert values like Spark would: an integer in a double column becomes a double."""
    misfit = build_value_check(wanted)
    for row in rows:
        problem = misfit(row)
        if problem is not None:
            raise MisfitError(f"a value of the {what} does not fit its type: {problem}")
    try:
        found: list[Row] = pa.array(rows, type=wanted).to_pylist()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise MisfitError(f"a value of the {what} does not fit its type: {error}") from None
    return found


def _function(code: Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(code, "__func__", code)
    return found

"""The user's own code for each key: `on_row` for each row, `on_timer` when a time that it has set has come. Pure.

Rows come in the order of their time. A timer fires once, when the watermark has passed it: after the rows that are not
later than it and before those that are; timers fire in their order. A key for which no row came for `forget_after` is
forgotten, with its timers: so what sets its own timer again and again comes to an end.

What `on_row` raises, or makes that does not fit, kills that row, and what it has changed is taken back. What `on_timer`
raises ends the run: there is no row that could die for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ottla.pipelines.steps.made_values import misfits
from ottla.pipelines.steps.packing import MICROSECOND, instant_of, moment, pack, unpack
from ottla.pipelines.steps.program import Arrived, Made, Ran, Row, ceil_ms
from ottla.pipelines.steps.python_code import told

TIMERS_MAX = 1000
FIRINGS_MAX = 100_000
MADE_MAX = 100_000
REASON_CHARACTERS_MAX = 300


class State:
    """What the code keeps of a key: the columns that the step declares, by name; None at first.

    `key` has the columns of `by`, `time` is that of the row or timer at hand."""

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
        return moment(self._instant)

    def __getitem__(self, name: str) -> Any:
        return self._values[self._known(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[self._known(name)] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def set_timer(self, when: datetime | timedelta) -> None:
        """At a time, or so long after now; the same time twice is one timer."""
        if not self._has_on_timer:
            raise TypeError("a timer is set, and there is no on_timer")
        instant = self._instant_of(when)
        if instant <= self._instant:
            raise ValueError(f"the timer {moment(instant).isoformat()} is not after {self.time.isoformat()}")
        self._timers.add(ceil_ms(instant))
        if len(self._timers) > TIMERS_MAX:
            raise ValueError(f"more than {TIMERS_MAX} timers of one key")

    def delete_timer(self, when: datetime | timedelta) -> None:
        self._timers.discard(ceil_ms(self._instant_of(when)))

    def forget(self) -> None:
        """As if no row had ever come: no values, no timers."""
        self._values.update(dict.fromkeys(self._values))
        self._timers.clear()

    def _instant_of(self, when: datetime | timedelta) -> int:
        return self._instant + when // MICROSECOND if isinstance(when, timedelta) else instant_of(when)

    def _known(self, name: str) -> str:
        if name not in self._values:
            raise KeyError(f"{name} is not declared in `state`")
        return name


@dataclass
class Kept:
    """Of one key."""

    key: Row
    values: Row
    timers: set[int] = field(default_factory=set)
    last_ms: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.timers and all(value is None for value in self.values.values())


@dataclass
class UserProgram:
    """`state` and `result` are Arrow's types of what is declared; `label` names the step."""

    by: tuple[str, ...]
    on_row: Callable[[Row, State], Any]
    on_timer: Callable[[datetime, State], Any] | None
    state: pa.DataType
    result: pa.DataType
    forget_after_ms: int
    label: str

    def run(self, rows: list[Arrived], memory: str | None, watermark_ms: int | None) -> Ran:
        kept = Kept(*unpack(memory)) if memory else None
        if kept is not None:
            kept.timers = set(kept.timers)
        made: list[Made] = []
        for number, row in enumerate(rows):
            kept = self._timed(kept, ceil_ms(row.instant) - 1, made)
            kept = self._fed(kept, number, row, made)
        kept = self._timed(kept, watermark_ms, made)
        if kept is None or kept.is_empty:
            return Ran(made, None, None)
        wake_ms = min((*kept.timers, kept.last_ms + self.forget_after_ms))
        return Ran(made, pack([kept.key, kept.values, sorted(kept.timers), kept.last_ms]), wake_ms)

    def _fed(self, kept: Kept | None, number: int, row: Arrived, made: list[Made]) -> Kept:
        if kept is None:
            kept = Kept({name: row.row[name] for name in self.by}, self._nothing())
        kept.last_ms = ceil_ms(row.instant)
        try:
            results, values, timers = self._called(self.on_row, row.row, kept, row.instant)
        except Exception as error:  # noqa: BLE001 (it is the user's code: whatever it raises is about this row)
            reason = str(error) if isinstance(error, MisfitError) else told(error, _function(self.on_row))
            made.append(Made(row.instant, None, reason[:REASON_CHARACTERS_MAX], number))
            return kept
        kept.values, kept.timers = values, timers
        made += [Made(row.instant, each) for each in results]
        return kept

    def _timed(self, kept: Kept | None, now_ms: int | None, made: list[Made]) -> Kept | None:
        """Timers that have come by then, and the end of what is forgotten."""
        fired = 0
        while kept is not None:
            forgotten_ms = kept.last_ms + self.forget_after_ms
            next_ms = min((*kept.timers, forgotten_ms))
            if now_ms is not None and next_ms > now_ms:
                return kept
            if next_ms not in kept.timers:
                return None
            fired += 1
            if fired > FIRINGS_MAX:
                raise RuntimeError(f"{self.label}: {kept.key}: more than {FIRINGS_MAX:,} timers fired without a row")
            kept.timers.discard(next_ms)
            self._fire(kept, next_ms, made)
        return kept

    def _fire(self, kept: Kept, at_ms: int, made: list[Made]) -> None:
        instant = at_ms * 1000
        on_timer = self.on_timer
        if on_timer is None:  # the code had one when the timer was set
            raise RuntimeError(f"{self.label}: a timer has come, and there is no on_timer")
        try:
            results, kept.values, kept.timers = self._called(on_timer, moment(instant), kept, instant)
        except Exception as error:  # noqa: BLE001 (it is the user's code)
            reason = str(error) if isinstance(error, MisfitError) else told(error, _function(on_timer))
            raise RuntimeError(f"{self.label}, on_timer: {reason}") from None
        made += [Made(instant, each) for each in results]

    def _called(
        self, function: Callable[[Any, State], Any], given: Any, kept: Kept, instant: int
    ) -> tuple[list[Row], Row, set[int]]:
        """The rows that it made, and what it has left; what is kept does not change."""
        values, timers = unpack(pack(kept.values)), set(kept.timers)
        state = State(dict(kept.key), values, timers, instant, self.on_timer is not None)
        results = [self._result(kept.key, each) for each in _rows(function(given, state))]
        return results, _fitted([values], self.state, "state")[0], timers

    def _result(self, key: Row, made: Mapping[str, Any]) -> Row:
        names = [each.name for each in self.result]
        unknown = made.keys() - set(names)
        if unknown:
            raise MisfitError(f"the code made an unknown column {min(map(str, unknown))!r}")
        missing = [name for name in names if name not in made]
        if missing:
            raise MisfitError(f"the code left out the column {missing[0]!r}")
        return key | _fitted([dict(made)], self.result, "row")[0]

    def _nothing(self) -> Row:
        return {each.name: None for each in self.state}


class MisfitError(ValueError):
    """What the code made does not fit what the step declares; the text says why."""


def _rows(made: Any) -> Iterator[Mapping[str, Any]]:
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


def _fitted(rows: list[Row], wanted: pa.DataType, what: str) -> list[Row]:
    """As Spark would give them back: a whole number in a column of doubles is a double."""
    misfit = misfits(wanted)
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

"""Steps that put two streams together, in plain Python: joins in time, what was valid at the time, unions.

The other stream has a topic of its own. Where times bound what may match, everything is kept here for ever: what the
pipeline forgets must be what can match nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.pipelines.random.rows import Count, Moment, Row, Values
from tests.pipelines.random.steps import Marking, Parse, Step, Timed, millis

OTHER = "other"  # stream of what is joined
MORE = "more"  # stream of what is added: the same columns as the main one
OTHER_COLUMNS = ("w", "since")


class TwoStreams(Step):
    """`side` is the other stream's name."""

    side = OTHER

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        raise NotImplementedError(f"{label} needs two streams")

    def apply_two(self, rows: list[Row], others: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        raise NotImplementedError


@dataclass
class ParseOther(Parse):
    """The same for the other stream's columns."""

    def written(self) -> dict[str, Any]:
        return {"format": "json", "schema": "k string, w long, since timestamp", "tombstone": self.tombstone}

    def values_of(self, found: dict[str, Any]) -> Values:
        values: Values = {name: found.get(name) for name in ("k", "w", "since")}
        if values["w"] is not None and not isinstance(values["w"], int):
            raise ValueError
        values["since"] = None if values["since"] is None else millis(values["since"])
        return values


@dataclass
class WatermarkOther(Marking):
    """Its own time, and its own delay."""

    delay_s: int
    name = "watermark"

    def written(self) -> dict[str, Any]:
        return {"time": "since", "delay": f"{self.delay_s} seconds"}

    def judge(self, row: Row) -> Values | None:
        if row.values["since"] is None:
            raise ValueError
        return row.values

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        living, count = super().apply(rows, moment, label)
        moment.see(label, [row.values["since"] for row in living], self.delay_s)
        return living, count


@dataclass
class Union(TwoStreams):
    """All rows of both; nothing tells which is the later. `lacking`: columns that only one of them has."""

    lacking: tuple[str, ...] = ()
    name = "union"
    side = MORE

    def written(self) -> dict[str, Any]:
        return {"with_stream": MORE}

    def apply_two(self, rows: list[Row], others: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        made = [row.having(dict.fromkeys(self.lacking) | row.values) for row in (*rows, *others)]
        return made, Count(len(made), len(made), made=len(made))


class Timely(TwoStreams, Timed):
    """Drops what is late on both sides."""

    has_state = True
    merges = True

    def both(self, rows: list[Row], others: list[Row], moment: Moment, label: str) -> tuple[list[Row], list[Row], int]:
        ours = [row for row in rows if row.values["at"] > moment.late_before]
        theirs = [row for row in others if row.values["since"] > moment.late_before]
        late = [row for row in rows if row.values["at"] <= moment.late_before]
        late += [row for row in others if row.values["since"] <= moment.late_before]
        moment.late += [(row.place, label) for row in late if row.place is not None]
        return ours, theirs, len(late)


@dataclass
class JoinStreams(Timely):
    """Rows of one key that are near each other in time."""

    kind: str
    span_s: int
    is_after: bool
    columns: list[str]  # ours
    ours: list[list[Any]] = field(default_factory=list)  # row, whether it has met another
    theirs: list[list[Any]] = field(default_factory=list)
    name = "join"

    def written(self) -> dict[str, Any]:
        bound = {"after" if self.is_after else "within": f"{self.span_s} seconds"}
        return {"with_stream": OTHER, "on": ["k"], "kind": self.kind, **bound}

    def apply_two(self, rows: list[Row], others: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        known, strange, filtered = known_first(
            rows, others, self.kind in ("left", "full"), self.kind in ("right", "full")
        )
        mine, theirs, late = self.both(known, strange, moment, label)
        new_ours = [[row, False] for row in mine if row.values["k"] is not None]
        new_theirs = [[row, False] for row in theirs]
        made = [self._row(row.values, None) for row in mine if row.values["k"] is None]  # nothing is waited for
        for ours, against in ((new_ours, [*self.theirs, *new_theirs]), (self.ours, new_theirs)):
            for one in ours:
                for other in against:
                    if self._fits(one[0].values, other[0].values):
                        if self.kind != "semi" or not one[1]:
                            made.append(self._row(one[0].values, other[0].values))
                        one[1] = other[1] = True
        self.ours, lonely_ours = parted(self.ours + new_ours, "at", moment.watermark - self.span_s * 1000)
        bound_ms = 0 if self.is_after else self.span_s * 1000
        self.theirs, lonely_theirs = parted(self.theirs + new_theirs, "since", moment.watermark - bound_ms)
        if self.kind in ("left", "full"):
            made += [self._row(row.values, None) for row in lonely_ours]
        if self.kind in ("right", "full"):
            made += [self._row(None, row.values) for row in lonely_theirs]
        came = len(rows) + len(others)
        return made, Count(came, came - late - filtered, filtered, late, 0, len(made))

    def _fits(self, ours: Values, theirs: Values) -> bool:
        away = theirs["since"] - ours["at"]
        least = 0 if self.is_after else -self.span_s * 1000
        return ours["k"] is not None and ours["k"] == theirs["k"] and least <= away <= self.span_s * 1000

    def _row(self, ours: Values | None, theirs: Values | None) -> Row:
        values = dict.fromkeys(self.columns) if ours is None else dict(ours)
        if ours is None and theirs is not None:
            values["k"] = theirs["k"]
        if self.kind != "semi":
            values |= {name: theirs and theirs[name] for name in OTHER_COLUMNS}
        return Row(values, None)


@dataclass
class JoinAsOf(Timely):
    """The newest of the others that is not after the row."""

    kind: str
    held: list[Row] = field(default_factory=list)
    versions: list[Row] = field(default_factory=list)
    name = "join"

    def written(self) -> dict[str, Any]:
        return {"as_of": OTHER, "on": ["k"], "kind": self.kind}

    def apply_two(self, rows: list[Row], others: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        known, strange, filtered = known_first(rows, others, self.kind == "left", False)
        mine, theirs, late = self.both(known, strange, moment, label)
        self.held += mine
        self.versions += theirs
        made = []
        for row in self.held:
            if row.values["at"] > moment.watermark:
                continue
            valid = [
                each
                for each in self.versions
                if each.values["k"] == row.values["k"] and each.values["since"] <= row.values["at"]
            ]
            newest = max(valid, key=lambda each: (each.values["since"], each.place), default=None)
            if newest is not None or self.kind == "left":
                more = {name: newest and newest.values[name] for name in OTHER_COLUMNS}
                made.append(Row({**row.values, **more}, None, (row.values["at"],)))
        self.held = [row for row in self.held if row.values["at"] > moment.watermark]
        came = len(rows) + len(others)
        return made, Count(came, came - late - filtered, filtered, late, 0, len(made))


def known_first(
    rows: list[Row], others: list[Row], keeps: bool, keeps_others: bool
) -> tuple[list[Row], list[Row], int]:
    """Without rows that can match nothing, where nothing else becomes of them: they are filtered."""
    ours = [row for row in rows if keeps or row.values["k"] is not None]
    theirs = [row for row in others if keeps_others or row.values["k"] is not None]
    return ours, theirs, len(rows) + len(others) - len(ours) - len(theirs)


def parted(rows: list[list[Any]], time: str, bound_ms: int) -> tuple[list[list[Any]], list[Row]]:
    """Those that may still meet another, and those that never met one and will not."""
    staying = [each for each in rows if each[0].values[time] >= bound_ms]
    return staying, [each[0] for each in rows if each[0].values[time] < bound_ms and not each[1]]

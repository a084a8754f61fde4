"""Steps in plain Python: their form in a file, and their result for the rows of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.pipelines.random.rows import Condition, Count, Moment, Row, Values

SCHEMA = "id long, k string, n long, at timestamp, tags array<string>"
CITIES = {"a": "Oslo", "b": "Bergen", "c": "Oslo", "ä☃": "Tromsø"}


class Step:
    """`has_state` matters for changes between runs."""

    name = ""
    has_state = False
    merges = False  # records are not known behind it

    def written(self) -> dict[str, Any]:
        raise NotImplementedError

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        raise NotImplementedError


class Marking(Step):
    """Judges rows one by one: `judge` gives the new values, None to filter, or raises ValueError to kill."""

    def judge(self, row: Row) -> Values | None:
        raise NotImplementedError

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        count, living = Count(came=len(rows)), []
        for row in rows:
            try:
                values = self.judge(row)
            except ValueError:
                count.dead += 1
                if row.place is not None:
                    moment.dead.append((row.place, label))
                continue
            if values is None:
                count.filtered += 1
            else:
                living.append(row.having(values))
        count.kept = count.made = len(living)
        return living, count


@dataclass
class Parse(Marking):
    """JSON of one schema. What makes a record die stands in docs/pipeline-steps.md."""

    required: bool
    tombstone: str
    name = "parse"

    def written(self) -> dict[str, Any]:
        more: dict[str, Any] = {"required": ["id"]} if self.required else {}
        return {"format": "json", "schema": SCHEMA, **more, "tombstone": self.tombstone}

    def judge(self, row: Row) -> Values | None:
        text = row.values["value"]
        if text is None:
            if self.tombstone == "filter":
                return None
            raise ValueError
        found = json.loads(text)  # raises ValueError
        if not isinstance(found, dict):
            raise ValueError
        return self.values_of(found)

    def values_of(self, found: dict[str, Any]) -> Values:
        values: Values = {name: found.get(name) for name in ("id", "k", "n", "at", "tags")}
        if any(values[name] is not None and not isinstance(values[name], int) for name in ("id", "n")):
            raise ValueError
        if values["at"] is not None:
            values["at"] = millis(values["at"])
        if self.required and values["id"] is None:
            raise ValueError
        return values


@dataclass
class Filter(Marking):
    """`where`."""

    condition: Condition
    name = "filter"

    def written(self) -> dict[str, Any]:
        return {"where": self.condition.sql}

    def judge(self, row: Row) -> Values | None:
        return row.values if self.condition.holds(row.values) else None


@dataclass
class Rule(Marking):
    """One rule."""

    condition: Condition
    name = "rule"

    def written(self) -> dict[str, Any]:
        return {"holds": self.condition.sql}

    def judge(self, row: Row) -> Values | None:
        if not self.condition.holds(row.values):
            raise ValueError
        return row.values


@dataclass
class Derive(Marking):
    """A new column `m`."""

    sql: str
    value: Callable[[Values], Any]
    name = "derive"

    def written(self) -> dict[str, Any]:
        return {"m": self.sql}

    def judge(self, row: Row) -> Values | None:
        return {**row.values, "m": self.value(row.values)}


@dataclass
class Select(Marking):
    """These columns and no others."""

    columns: list[str]
    name = "select"

    def written(self) -> Any:
        return list(self.columns)

    def judge(self, row: Row) -> Values | None:
        return {name: row.values[name] for name in self.columns}


@dataclass
class RowFunction(Marking):
    """`python` with `each: row`: functions.py beside the file does the same."""

    columns: list[str]
    types: dict[str, str]
    name = "python"

    def written(self) -> dict[str, Any]:
        return {
            "function": "functions:change",
            "each": "row",
            "schema": {name: self.types[name] for name in self.types},
        }

    def judge(self, row: Row) -> Values | None:
        values = row.values
        if values["n"] == 5:
            return None
        if values["n"] == 6:
            raise ValueError
        return {**values, "n": None if values["n"] is None else values["n"] + 1}


FUNCTIONS = """\
def change(row):
    if row["n"] == 5:
        return None
    if row["n"] == 6:
        raise RuntimeError("six")
    return {**row, "n": None if row["n"] is None else row["n"] + 1}
"""


@dataclass
class Explode(Step):
    """A row of every tag."""

    keep_empty: bool
    name = "explode"

    def written(self) -> dict[str, Any]:
        return {"column": "tags", "into": "tag", "keep_empty": self.keep_empty}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        made, empty = [], 0
        for row in rows:
            others = {name: value for name, value in row.values.items() if name != "tags"}
            tags = row.values["tags"] or ([None] if self.keep_empty else [])
            made += [Row({**others, "tag": tag}, row.place, (*row.order, at)) for at, tag in enumerate(tags)]
            empty += not tags
        return made, Count(came=len(rows), kept=len(rows) - empty, filtered=empty, made=len(made))


@dataclass
class JoinTable(Step):
    """With cities.csv: a city for some of the keys."""

    kind: str
    source: str = "table"  # or newest_of: the stream `cities`
    known: dict[str, str] = field(default_factory=lambda: dict(CITIES))  # that of the stream changes between runs
    name = "join"

    def written(self) -> dict[str, Any]:
        place = {"table": "cities.csv"} if self.source == "table" else {"newest_of": "cities"}
        return {**place, "on": ["k"], "kind": self.kind}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        made = []
        for row in rows:
            city = self.known.get(row.values["k"])
            if city is not None or self.kind == "left":
                more = {} if self.kind == "semi" else {"city": city}
                made.append(row.having({**row.values, **more}))
        return made, Count(came=len(rows), kept=len(rows), made=len(made))


@dataclass
class Sql(Step):
    """One SELECT with a WHERE."""

    columns: list[str]
    condition: Condition
    name = "sql"
    merges = True

    def written(self) -> dict[str, Any]:
        return {"query": f"SELECT {', '.join(self.columns)} FROM stream WHERE {self.condition.sql}"}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        chosen = [row for row in rows if self.condition.holds(row.values)]
        made = [Row({name: row.values[name] for name in self.columns}, None) for row in chosen]
        return made, Count(came=len(rows), kept=len(made), filtered=len(rows) - len(made), made=len(made))


@dataclass
class Watermark(Marking):
    """Time is `at`; the watermark moves in whole seconds."""

    delay_s: int
    name = "watermark"

    def written(self) -> dict[str, Any]:
        return {"time": "at", "delay": f"{self.delay_s} seconds"}

    def judge(self, row: Row) -> Values | None:
        if row.values["at"] is None:
            raise ValueError
        return row.values

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        living, count = super().apply(rows, moment, label)
        moment.see(label, [row.values["at"] for row in living], self.delay_s)
        return living, count


class Timed(Step):
    """Keeps state, and drops rows that come after the watermark."""

    has_state = True

    def timely(self, rows: list[Row], moment: Moment, label: str) -> list[Row]:
        late = [row for row in rows if self.last_chance(row) <= moment.late_before]
        moment.late += [(row.place, label) for row in late if row.place is not None]
        return [row for row in rows if self.last_chance(row) > moment.late_before]

    def last_chance(self, row: Row) -> int:
        """A watermark that has come so far makes the row late."""
        return int(row.values["at"])


@dataclass
class Deduplicate(Timed):
    """Repetitions are equal in all columns: which one passes is not visible."""

    delay_s: int
    seen: dict[int, int] = field(default_factory=dict)  # id -> when it may be forgotten
    name = "deduplicate"

    def written(self) -> dict[str, Any]:
        return {"by": ["id"]}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        made = []
        timely = self.timely(rows, moment, label)
        for row in timely:
            identity = row.values["id"]
            if identity is not None and identity in self.seen:
                continue
            if identity is not None:
                self.seen[identity] = row.values["at"] + self.delay_s * 1000
            made.append(row)
        self.seen = {each: until for each, until in self.seen.items() if until > moment.watermark}
        late = len(rows) - len(timely)
        return made, Count(len(rows), len(made), len(timely) - len(made), late, 0, len(made))


@dataclass
class Window(Timed):
    """Counts and sums; `size_s` is 0 for totals that go on for ever."""

    size_s: int
    slide_s: int
    by: list[str]
    groups: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)  # start, keys -> rows, total, greatest
    name = "window"
    merges = True

    def written(self) -> dict[str, Any]:
        span: dict[str, Any] = {"total": True}
        if self.size_s:
            span = {"size": f"{self.size_s} seconds"}
            span |= {"slide": f"{self.slide_s} seconds"} if self.slide_s != self.size_s else {}
        return {**span, "by": self.by, "count": "rows", "sum": {"total": "n"}, "max": {"greatest": "n"}}

    def last_chance(self, row: Row) -> int:
        return max(self.starts(row)) + self.size_s * 1000

    def starts(self, row: Row) -> list[int]:
        at, size, slide = row.values["at"], self.size_s * 1000, self.slide_s * 1000
        last = at - at % slide
        return list(range(last, at - size, -slide))

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        is_dropping = bool(self.size_s) and moment.output != "complete"
        timely = self.timely(rows, moment, label) if is_dropping else rows
        changed = set()
        for row in timely:
            keys = tuple(row.values[name] for name in self.by)
            for start in self.starts(row) if self.size_s else [0]:
                if not is_dropping or start + self.size_s * 1000 > moment.late_before:
                    self._add((start, *keys), row.values["n"])
                    changed.add((start, *keys))
        made = [self._row(group) for group in self._told(moment, changed)]
        if is_dropping:
            self.groups = {key: each for key, each in self.groups.items() if self._end(key) > moment.watermark}
        late = len(rows) - len(timely)
        return made, Count(len(rows), len(timely), 0, late, 0, len(made))

    def _add(self, group: tuple[Any, ...], n: int | None) -> None:
        state = self.groups.setdefault(group, [0, None, None])
        state[0] += 1
        if n is not None:
            state[1] = n if state[1] is None else state[1] + n
            state[2] = n if state[2] is None else max(state[2], n)

    def _told(self, moment: Moment, changed: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        if moment.output == "complete":
            return list(self.groups)
        if moment.output == "update":
            return list(changed)
        return [key for key in self.groups if self._end(key) <= moment.watermark]

    def _end(self, group: tuple[Any, ...]) -> int:
        return int(group[0]) + self.size_s * 1000

    def _row(self, group: tuple[Any, ...]) -> Row:
        span = {"window_start": group[0], "window_end": self._end(group)} if self.size_s else {}
        keys = dict(zip(self.by, group[1:], strict=True))
        rows, total, greatest = self.groups[group]
        return Row({**span, **keys, "rows": rows, "total": total, "greatest": greatest}, None)


@dataclass
class Order(Timed):
    """Rows wait for the watermark."""

    by: list[str]
    held: list[Row] = field(default_factory=list)
    name = "order"
    merges = True

    def written(self) -> dict[str, Any]:
        return {"by": self.by} if self.by else {}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        timely = self.timely(rows, moment, label)
        self.held += timely
        ready = [row for row in self.held if row.values["at"] <= moment.watermark]
        self.held = [row for row in self.held if row.values["at"] > moment.watermark]
        made = [Row(row.values, None, (row.values["at"],)) for row in ready]
        return made, Count(len(rows), len(timely), 0, len(rows) - len(timely), 0, len(made))


def millis(text: str) -> int:
    """Raises ValueError for what is no text of a time."""
    if not isinstance(text, str):
        raise ValueError(text)
    return round(datetime.fromisoformat(text).timestamp() * 1000)

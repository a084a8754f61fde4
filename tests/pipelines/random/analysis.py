"""Steps over windows and series in plain Python: the simplest implementation, not the fastest."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, median
from typing import Any

from tests.pipelines.random.rows import Condition, Count, Moment, Row, Values
from tests.pipelines.random.steps import Timed, Window

Session = list[Any]  # start, end, values of n


@dataclass
class Sessions(Timed):
    """Windows that end after a pause."""

    gap_s: int
    by: list[str]
    open: dict[tuple[Any, ...], list[Session]] = field(default_factory=dict)
    name = "window"
    merges = True

    def written(self) -> dict[str, Any]:
        aggregates = {"count": "rows", "sum": {"total": "n"}, "max": {"greatest": "n"}}
        return {"session": f"{self.gap_s} seconds", "by": self.by, **aggregates}

    def last_chance(self, row: Row) -> int:
        return int(row.values["at"]) + self.gap_s * 1000

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        timely = self.timely(rows, moment, label)
        for row in timely:
            keys = tuple(row.values[name] for name in self.by)
            new: Session = [row.values["at"], self.last_chance(row), [row.values["n"]]]
            apart = []
            for old in self.open.get(keys, []):
                if old[0] <= new[1] and new[0] <= old[1]:
                    new = [min(old[0], new[0]), max(old[1], new[1]), old[2] + new[2]]
                else:
                    apart.append(old)
            self.open[keys] = [*apart, new]
        made = [
            self._row(keys, each) for keys, found in self.open.items() for each in found if each[1] <= moment.watermark
        ]
        self.open = {keys: [each for each in found if each[1] > moment.watermark] for keys, found in self.open.items()}
        return made, Count(len(rows), len(timely), 0, len(rows) - len(timely), 0, len(made))

    def _row(self, keys: tuple[Any, ...], session: Session) -> Row:
        numbers = [n for n in session[2] if n is not None]
        figures = {"rows": len(session[2]), "total": sum(numbers) if numbers else None}
        values = {"window_start": session[0], "window_end": session[1], **dict(zip(self.by, keys, strict=True))}
        return Row({**values, **figures, "greatest": max(numbers, default=None)}, None)


class InWindows(Timed):
    """What comes once, when a window is over: `told` says what of its rows."""

    merges = True
    size_s: int
    slide_s: int
    windows: dict[int, list[Values]]  # by their start

    def told(self, rows: list[Values]) -> list[Values]:
        raise NotImplementedError

    def takes_part(self, row: Row) -> bool:
        return True

    def last_chance(self, row: Row) -> int:
        return max(self.starts(row)) + self.size_s * 1000

    def starts(self, row: Row) -> list[int]:
        at, size, slide = row.values["at"], self.size_s * 1000, self.slide_s * 1000
        return list(range(at - at % slide, at - size, -slide))

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        chosen = [row for row in rows if self.takes_part(row)]
        timely = self.timely(chosen, moment, label)
        for row in timely:
            for start in self.starts(row):
                if start + self.size_s * 1000 > moment.late_before:
                    self.windows.setdefault(start, []).append(row.values)
        made = []
        for start in [each for each in self.windows if each + self.size_s * 1000 <= moment.watermark]:
            span = {"window_start": start, "window_end": start + self.size_s * 1000}
            made += [Row({**span, **values}, None) for values in self.told(self.windows.pop(start))]
        late = len(chosen) - len(timely)
        return made, Count(len(rows), len(timely), len(rows) - len(chosen), late, 0, len(made))


@dataclass
class Top(InWindows):
    """The keys with the most rows, or with the greatest sum."""

    size_s: int
    slide_s: int
    of: list[str]
    by: list[str]
    most: int
    weight: str | None
    windows: dict[int, list[Values]] = field(default_factory=dict)
    name = "top"

    def written(self) -> dict[str, Any]:
        more: dict[str, Any] = {"weight": self.weight} if self.weight else {}
        more |= {"by": self.by} if self.by else {}
        more |= {"slide": f"{self.slide_s} seconds"} if self.slide_s != self.size_s else {}
        return {"of": self.of, "k": self.most, "size": f"{self.size_s} seconds", **more}

    def told(self, rows: list[Values]) -> list[Values]:
        counts: dict[tuple[Any, ...], dict[tuple[Any, ...], int]] = {}
        for row in rows:
            group = counts.setdefault(tuple(row[name] for name in self.by), {})
            key = tuple(row[name] for name in self.of)
            group[key] = group.get(key, 0) + (1 if self.weight is None else row[self.weight] or 0)
        made = []
        for group_key, group in counts.items():
            best = sorted(group, key=lambda key: (-group[key], *((part is not None, part or "") for part in key)))
            for rank, key in enumerate(best[: self.most], start=1):
                names = {**dict(zip(self.by, group_key, strict=True)), "rank": rank}
                made.append({**names, **dict(zip(self.of, key, strict=True)), "count": group[key]})
        return made


@dataclass
class Associations(InWindows):
    """By looking at every set of items there can be: there are few."""

    size_s: int
    slide_s: int
    support: float
    confidence: float
    windows: dict[int, list[Values]] = field(default_factory=dict)
    name = "associations"

    def written(self) -> dict[str, Any]:
        limits: dict[str, Any] = {"support": self.support, "confidence": self.confidence}
        limits |= {"slide": f"{self.slide_s} seconds"} if self.slide_s != self.size_s else {}
        return {"basket": "k", "item": "tag", "size": f"{self.size_s} seconds", **limits}

    def takes_part(self, row: Row) -> bool:
        return row.values["k"] is not None and row.values["tag"] is not None

    def told(self, rows: list[Values]) -> list[Values]:
        baskets: dict[str, set[str]] = {}
        for row in rows:
            baskets.setdefault(row["k"], set()).add(row["tag"])
        total, items = len(baskets), sorted({row["tag"] for row in rows})

        def count(wanted: tuple[str, ...]) -> int:
            return sum(set(wanted) <= basket for basket in baskets.values())

        made = []
        for size in range(2, len(items) + 1):
            for chosen in combinations(items, size):
                together = count(chosen)
                if together < 1 or together / total < self.support - 1e-9:
                    continue
                for then in chosen:
                    when = tuple(item for item in chosen if item != then)
                    confidence = together / count(when)
                    if confidence < self.confidence:
                        continue
                    figures = {"together": together, "support": together / total, "confidence": confidence}
                    figures |= {"lift": confidence * total / count((then,)), "baskets": total, "sampled": total}
                    made.append({"when": when, "then": then, **figures})
        return made


@dataclass
class Anomalies(Timed):
    """Each value against the last ones of its key, in the order of time."""

    by: list[str]
    history: int
    warm_up: int
    held: list[Row] = field(default_factory=list)
    before: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)
    name = "anomalies"
    merges = True

    def written(self) -> dict[str, Any]:
        return {"value": "n", "by": self.by, "history": self.history, "warm_up": self.warm_up}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        timely = self.timely(rows, moment, label)
        self.held += timely
        ready = [row for row in self.held if row.values["at"] <= moment.watermark]
        self.held = [row for row in self.held if row.values["at"] > moment.watermark]
        # The order of two rows of the same time is not specified, but it is deterministic.
        ready.sort(
            key=lambda row: (
                row.values["at"],
                repr(tuple(0 if name == "at" else value for name, value in row.values.items())),
            )
        )
        made = [Row({**row.values, **self._judged(row.values)}, None, (row.values["at"],)) for row in ready]
        return made, Count(len(rows), len(timely), 0, len(rows) - len(timely), 0, len(made))

    def _judged(self, row: Values) -> Values:
        nothing = {"score": None, "expected": None}
        if row["n"] is None:
            return {**nothing, "verdict": "no value"}
        values = self.before.setdefault(tuple(row[name] for name in self.by), [])
        known, value = values[-self.history :], float(row["n"])
        values.append(value)
        if len(known) < self.warm_up:
            return {**nothing, "verdict": "warming up"}
        middle = median(known)
        away = [abs(each - middle) for each in known]
        spread = 1.4826 * median(away) or 1.2533 * fmean(away)
        if value == middle:
            score = 0.0
        elif spread == 0:
            score = 1e6 if value > middle else -1e6
        else:
            score = (value - middle) / spread
        return {"score": score, "expected": middle, "verdict": "anomaly" if abs(score) >= 3.5 else "normal"}


@dataclass
class SqlTotals(Window):
    """`sql` with aggregates: totals for ever, or windows of Spark's own."""

    condition: Condition | None = None
    name = "sql"

    def written(self) -> dict[str, Any]:
        figures = "count(*) AS rows, sum(n) AS total, max(n) AS greatest"
        where = f" WHERE {self.condition.sql}" if self.condition else ""
        keys = ", ".join(self.by)
        if not self.size_s:
            return {"query": f"SELECT {keys}, {figures} FROM stream{where} GROUP BY {keys}"}
        span = f"window(at, '{self.size_s} seconds')"
        names = f"window.start AS window_start, window.end AS window_end, {keys}"
        return {"query": f"SELECT {names}, {figures} FROM stream{where} GROUP BY {span}, {keys}"}

    def apply(self, rows: list[Row], moment: Moment, label: str) -> tuple[list[Row], Count]:
        chosen = [row for row in rows if self.condition is None or self.condition.holds(row.values)]
        made, count = super().apply(chosen, moment, label)
        count.came, count.filtered = len(rows), len(rows) - len(chosen)
        return made, count

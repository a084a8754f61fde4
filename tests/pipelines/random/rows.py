"""The data of the oracle: rows, conditions in two languages, and the fate of rows in a step of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Values = dict[str, Any]
Place = tuple[str, int, int]  # topic, partition, offset

TIMES = ("at", "window_start", "window_end", "since")  # milliseconds since 1970 here
LISTS = ("tags", "when")
FRACTIONS = ("score", "expected", "support", "confidence", "lift")


@dataclass(frozen=True)
class Row:
    """`order`: what tells the later of two rows; `place` is that of the record, None where rows were merged."""

    values: Values
    place: Place | None
    order: tuple[Any, ...] = ()

    def having(self, values: Values) -> Row:
        return replace(self, values=values)


class Condition(NamedTuple):
    """The same in SQL and in Python; Python says None for null."""

    sql: str
    holds: Callable[[Values], bool | None]
    columns: tuple[str, ...]


@dataclass
class Count:
    """Rows of one step in one batch."""

    came: int = 0
    kept: int = 0
    filtered: int = 0
    late: int = 0
    dead: int = 0
    made: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(**{name: getattr(self, name) + getattr(other, name) for name in vars(self)})


@dataclass
class Moment:
    """One batch, for the steps. `late_before` is the watermark of the batch before, in milliseconds."""

    watermark: int
    late_before: int
    output: str
    dead: list[tuple[Place, str]] = field(default_factory=list)  # record and step
    late: list[tuple[Place, str]] = field(default_factory=list)
    seen: dict[str, int | None] = field(default_factory=dict)  # watermark step -> how far it would move the watermark

    def see(self, label: str, times: list[int], delay_s: int) -> None:
        self.seen[label] = max((time // 1000 * 1000 - delay_s * 1000 for time in times), default=None)


def conditions() -> list[Condition]:
    """Over the columns of every case, and over those that steps make."""

    def compared(name: str, test: Callable[[Any], bool]) -> Callable[[Values], bool | None]:
        return lambda row: None if row[name] is None else test(row[name])

    return [
        Condition("n > 3", compared("n", lambda n: n > 3), ("n",)),
        Condition("n % 2 = 0", compared("n", lambda n: n % 2 == 0), ("n",)),
        Condition("n IS NULL OR n < 8", lambda row: row["n"] is None or row["n"] < 8, ("n",)),
        Condition("k IS NOT NULL", lambda row: row["k"] is not None, ("k",)),
        Condition("k <> 'b'", compared("k", lambda k: k != "b"), ("k",)),
        Condition("m <> 7", compared("m", lambda m: m != 7), ("m",)),
        Condition("tag = 'red'", compared("tag", lambda tag: tag == "red"), ("tag",)),
        Condition("rows > 1", compared("rows", lambda rows: rows > 1), ("rows",)),
        Condition("total IS NOT NULL", lambda row: row["total"] is not None, ("total",)),
        Condition("city <> 'Oslo'", compared("city", lambda city: city != "Oslo"), ("city",)),
        Condition("plan = 'gold'", compared("plan", lambda plan: plan == "gold"), ("plan",)),
        Condition("seen > 1", compared("seen", lambda seen: seen > 1), ("seen",)),
        Condition("w > 4", compared("w", lambda w: w > 4), ("w",)),
        Condition("rank = 1", compared("rank", lambda rank: rank == 1), ("rank",)),
        Condition("verdict <> 'normal'", compared("verdict", lambda verdict: verdict != "normal"), ("verdict",)),
        Condition("together > 1", compared("together", lambda together: together > 1), ("together",)),
    ]

"""`top`: the k keys of each window with the most rows, or with the greatest sum of a column.

    top: {of: [page], k: 10, size: 1 minute}                         # rank 1 to 10 of every minute
    top: {of: [page], by: [country], k: 3, size: 1 hour, weight: bytes}

Exact: every key of a window is counted, then the best k are selected, so no task holds more. Equal counts are ordered
by key. With `approximate: true` at most ITEMS_TRACKED keys per window are tracked (a frequent-items sketch): for very
many keys, few of them frequent; counts are then lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import RowOrder, unique_by
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.event_time import WINDOW_END, WINDOW_START, WINDOW_TIME
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import StepKind
from ottla.pipelines.steps.window import WINDOW, Aggregates, span_problems, window_span, with_window_columns

K_MAX = 10_000
ITEMS_TRACKED = 10_000
BEST = "_best"
RANK = "rank"


@dataclass(frozen=True, kw_only=True)
class Top:
    """Find the k most frequent keys of each window."""

    of: list[str] = field(metadata={"doc": "key columns"})
    size: Duration = field(metadata={"doc": "length of a window, e.g. 1 minute"})
    k: int = field(default=10, metadata={"doc": "how many"})
    slide: Duration | None = field(default=None, metadata={"doc": "time from one window's start to the next's (size)"})
    by: list[str] = field(default_factory=list, metadata={"doc": "group columns, each group with its own ranks"})
    weight: str | None = field(default=None, metadata={"doc": "column to add up instead of counting rows"})
    as_: str = field(default="count", metadata={"doc": "name of the column with the count or sum"})
    approximate: bool = field(default=False, metadata={"doc": "bounded memory for very many keys"})
    KIND: ClassVar[StepKind] = "merges"
    ORDER_MATTERS: ClassVar[str] = "only with `approximate`, where a window has more keys than the sketch remembers"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 1 <= self.k <= K_MAX:
            yield "k", f"must be from 1 to {K_MAX}", ""
        if not self.of:
            yield "of", "names no column", "name the key columns"
        if self.approximate and (len(self.of) != 1 or self.weight):
            yield "approximate", "counts the values of one column", "give one column in `of`, and no weight"
        names = [WINDOW_START, WINDOW_END, *self.by, RANK, *self.of, self.as_]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "", f"{name!r} would be in the result twice", "name the count with `as_`, or choose other columns"
        yield from span_problems(self.size, self.slide)

    def apply(self, frame: Frame) -> Frame:
        frame, span = window_span(frame, self.size, self.slide)
        if self.approximate:
            best = F.expr(f"approx_top_k({quoted(self.of[0])}, {self.k}, {ITEMS_TRACKED})")
            grouped = frame.rows.groupBy(span.alias(WINDOW), *self.by).agg(best.alias(BEST))
            frame = with_window_columns(frame.stateful(1), grouped, self.by)
            return frame.merged(self._ranked(frame.rows, [("item", self.of[0]), ("count", self.as_)]), WINDOW_END)
        counts = frame.rows.groupBy(span.alias(WINDOW), *self.by, *self.of).agg(self._measure(frame).alias(self.as_))
        frame = with_window_columns(frame.stateful(2), counts, [*self.by, *self.of])
        best = F.min_by(F.struct(*self.of, self.as_), self._order(), self.k)
        rows = frame.rows.groupBy(WINDOW_START, WINDOW_END, *self.by).agg(best.alias(BEST))
        pairs = [(name, name) for name in (*self.of, self.as_)]
        return frame.merged(self._ranked(self._sorted(rows), pairs), WINDOW_END)

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        ranked = ([RANK], self.of)
        return unique_by(*([*self.by, end, *each] for end in (WINDOW_START, WINDOW_END) for each in ranked))

    def _measure(self, frame: Frame) -> Column:
        if self.weight is None:
            return F.count(F.lit(1))
        return F.coalesce(Aggregates(sum={"sum": self.weight}).columns(frame, F.col(WINDOW_TIME))[0], F.lit(0))

    def _order(self) -> Column:
        """The greatest first; equal counts by key."""
        return F.struct((-F.col(self.as_)).alias("less"), *self.of)

    def _sorted(self, rows: DataFrame) -> DataFrame:
        ordered = F.transform(
            BEST, lambda one: F.struct((-one[self.as_]).alias("less"), *(one[name].alias(name) for name in self.of))
        )
        back = F.transform(
            F.array_sort(ordered),
            lambda one: F.struct(*(one[name].alias(name) for name in self.of), (-one["less"]).alias(self.as_)),
        )
        return rows.withColumn(BEST, back)

    def _ranked(self, rows: DataFrame, names: list[tuple[str, str]]) -> DataFrame:
        before = [WINDOW_START, WINDOW_END, *self.by]
        spread = rows.select(*before, F.posexplode(BEST).alias(RANK, BEST))
        found = [F.col(f"{BEST}.{old}").alias(new) for old, new in names]
        return spread.select(*before, (F.col(RANK) + 1).alias(RANK), *found)

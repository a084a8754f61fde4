"""`window`: aggregates over time: tumbling, sliding and session windows, and running totals.

    window: {size: 1 minute, by: [page], count: views}                  # tumbling
    window: {size: 1 hour, slide: 5 minutes, by: [page], count: views}  # sliding
    window: {session: 30 minutes, by: [user], count: clicks}            # ends after a pause of that length
    window: {total: true, by: [page], count: views}                     # emitted at every change

The result has window_start, window_end, the columns of `by` and the aggregates. It is emitted once, when the watermark
has passed the end of the window (`output: update`: at every change). Its time is window_end, so another window, a join
or a deduplication may follow. Rows with null keys form a group of their own.

    count: views                      sum: {bytes: size}                first: {landing: page}
    percentile: {p95: ms, p50: ms}    aggregates: {spread: "max(ms) - min(ms)"}

The short forms ignore NaN and infinity like nulls: one of them would spoil the whole window. A sum that overflows its
type is null. `first` and `last` use the time, not the order of arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.texts import check_expression, column_of_sql
from ottla.pipelines.model.row_order import RowOrder, unique_by
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.event_time import (
    RECORD_TIME,
    WINDOW_END,
    WINDOW_START,
    WINDOW_TIME,
    tick_ms,
    with_watermark_metadata,
    with_window_time,
)
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import observe_window_ends
from ottla.pipelines.steps.step import StepError, StepKind

PERCENTILE = re.compile(r"p(\d{1,2})(?:_.+)?")
PERCENTILE_ACCURACY = 10_000
NUMERIC = {
    "sum": F.try_sum,
    "avg": F.try_avg,
    "deviation": F.stddev_samp,
}  # fmt: skip

NewColumns = dict[str, str]

WINDOW = "_span"
GROUP_ALL = "_everything"
WINDOWS_PER_ROW_MAX = 1000  # maximum number of windows of one row


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """The aggregate fields of windows and totals."""

    count: str | None = field(default=None, metadata={"doc": "name of a column with the number of rows"})
    sum: NewColumns = field(default_factory=dict, metadata={"doc": "new column: column to add up"})
    avg: NewColumns = field(default_factory=dict, metadata={"doc": "new column: column to average"})
    min: NewColumns = field(default_factory=dict, metadata={"doc": "new column: column to take the minimum of"})
    max: NewColumns = field(default_factory=dict, metadata={"doc": "new column: column to take the maximum of"})
    deviation: NewColumns = field(
        default_factory=dict, metadata={"doc": "new column: column to take the standard deviation of"}
    )
    first: NewColumns = field(
        default_factory=dict, metadata={"doc": "new column: column to take the earliest value of"}
    )
    last: NewColumns = field(default_factory=dict, metadata={"doc": "new column: column to take the latest value of"})
    distinct: NewColumns = field(
        default_factory=dict, metadata={"doc": "new column: column to count distinct values of (about 2 %)"}
    )
    percentile: NewColumns = field(
        default_factory=dict, metadata={"doc": "new column: column; the name says which: p95, p50_ms"}
    )
    aggregates: NewColumns = field(default_factory=dict, metadata={"doc": "new column: SQL with aggregate functions"})

    def new_columns(self) -> list[str]:
        forms = (self.sum, self.avg, self.min, self.max, self.deviation, self.first, self.last, self.distinct)
        named = [name for form in (*forms, self.percentile, self.aggregates) for name in form]
        return [self.count or "count", *named] if self.count or not named else named

    def aggregate_problems(self, taken: list[str]) -> Iterator[tuple[str, str, str]]:
        names = [*taken, *self.new_columns()]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "", f"{name!r} would be in the result twice", "give one of them another name"
        for name in self.percentile:
            if not PERCENTILE.fullmatch(name):
                yield "percentile", f"{name!r} names no percentile", "begin with p and a number: p95, p50_ms"
        for name, text in self.aggregates.items():
            problem = check_expression(text)
            if problem:
                yield "aggregates", f"{name}: {problem}", ""
        for name in names:
            if name.startswith("_"):
                yield "", f"{name!r} begins with an underscore", "such names are reserved"

    def columns(self, frame: Frame, time: Column) -> list[Column]:
        """The aggregate columns over rows of this frame; `time` orders first and last."""
        made = (
            [F.count(F.lit(1)).alias(self.count or "count")] if self.new_columns()[0] == (self.count or "count") else []
        )
        for name, function in NUMERIC.items():
            made += [function(_number(frame, old, name)).alias(new) for new, old in getattr(self, name).items()]
        made += [F.min(_finite(frame, old)).alias(new) for new, old in self.min.items()]
        made += [F.max(_finite(frame, old)).alias(new) for new, old in self.max.items()]
        made += [F.min_by(F.col(old), _order(time, old)).alias(new) for new, old in self.first.items()]
        made += [F.max_by(F.col(old), _order(time, old)).alias(new) for new, old in self.last.items()]
        made += [F.approx_count_distinct(old, 0.02).alias(new) for new, old in self.distinct.items()]
        made += [_percentile(frame, new, old) for new, old in self.percentile.items()]
        return made + [column_of_sql(sql).alias(new) for new, sql in self.aggregates.items()]


def _order(time: Column, old: str) -> Column:
    """Rows of the same time are ordered by value, so the order of arrival does not matter."""
    return F.when(F.col(old).isNotNull(), F.struct(time, F.col(old).cast("string")))


def _percentile(frame: Frame, new: str, old: str) -> Column:
    match = PERCENTILE.fullmatch(new)
    assert match is not None
    share = int(match[1]) / 100
    return F.percentile_approx(_number(frame, old, "percentile"), share, PERCENTILE_ACCURACY).alias(new)


def _number(frame: Frame, name: str, form: str) -> Column:
    kind = _kind(frame, name, form)
    if isinstance(kind, T.StringType):
        return _only_finite(F.col(name).cast("double"))
    if not isinstance(kind, T.NumericType):
        raise StepError(f"{name} is {kind.simpleString()}, not a number", "cast it before, or use SQL", form)
    return _finite(frame, name)


def _finite(frame: Frame, name: str) -> Column:
    is_float = isinstance(_kind(frame, name, ""), T.FloatType | T.DoubleType)
    return _only_finite(F.col(name)) if is_float else F.col(name)


def _only_finite(value: Column) -> Column:
    return F.when(F.abs(value) < F.lit(float("inf")), value)  # NaN sorts last in Spark


def _kind(frame: Frame, name: str, form: str) -> T.DataType:
    kinds: dict[str, T.DataType] = {each.name: each.dataType for each in frame.rows.schema.fields}
    if name not in kinds:
        raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", form)
    return kinds[name]


@dataclass(frozen=True, kw_only=True)
class Window(Aggregates):
    """Aggregate over time windows, or without end."""

    size: Duration | None = field(default=None, metadata={"doc": "length of a window, e.g. 1 minute"})
    slide: Duration | None = field(default=None, metadata={"doc": "time from one window's start to the next's (size)"})
    session: Duration | None = field(default=None, metadata={"doc": "pause that ends a session, e.g. 30 minutes"})
    total: bool = field(default=False, metadata={"doc": "running totals, without window"})
    offset: Duration = field(
        default=Duration(0), metadata={"doc": "windows start this long after the full hour, day, …"}
    )
    by: list[str] = field(default_factory=list, metadata={"doc": "group columns"})
    KIND: ClassVar[StepKind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if sum((self.size is not None, self.session is not None, self.total)) != 1:
            yield "", "needs exactly one window type", "set size, session or total"
            return
        yield from self.aggregate_problems([*self.by, *([] if self.total else [WINDOW_START, WINDOW_END])])
        yield from span_problems(self.size, self.slide)
        if self.session is not None and self.session < 1:
            yield "session", "must be at least a millisecond", ""

    @property
    def output(self) -> str:
        """The output mode that Spark requires."""
        return "update" if self.total else "append"

    def apply(self, frame: Frame) -> Frame:
        if self.total:
            return self._totals(frame)
        if self.session is not None:
            frame, span = session_span(frame, self.session)
        else:
            assert self.size is not None
            frame, span = window_span(frame, self.size, self.slide, self.offset)
        grouped = frame.rows.groupBy(span.alias(WINDOW), *self.by).agg(*self.columns(frame, F.col(WINDOW_TIME)))
        return with_window_columns(frame.stateful(1), grouped, self.by)

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        if self.total:
            return unique_by(self.by)
        return unique_by([*self.by, WINDOW_START], [*self.by, WINDOW_END])

    def _totals(self, frame: Frame) -> Frame:
        name = frame.event_time or (RECORD_TIME if RECORD_TIME in frame.rows.columns else None)
        time = F.col(f"`{name}`") if name else F.current_timestamp()
        # Without a group, Spark would emit a total in every batch, even without new rows.
        groups = [F.col(f"`{name}`") for name in self.by] or [F.lit(True).alias(GROUP_ALL)]
        rows = frame.rows.groupBy(*groups).agg(*self.columns(frame, time)).drop(GROUP_ALL)
        return replace(frame.stateful(1).merged(rows), watermark_ms=None)


def span_problems(size: Duration | None, slide: Duration | None) -> Iterator[tuple[str, str, str]]:
    """The rules for `size` and `slide` of any step."""
    if size is not None and size < 1:
        yield "size", "must be at least a millisecond", ""
    elif slide is not None and size is None:
        yield "slide", "belongs to windows with a size", ""
    elif slide is not None and size is not None and not size / WINDOWS_PER_ROW_MAX <= slide <= size:
        yield "slide", "must not be longer than the window", f"nor shorter than 1/{WINDOWS_PER_ROW_MAX} of it"


def window_span(frame: Frame, size: Duration, slide: Duration | None, offset: int = 0) -> tuple[Frame, Column]:
    """The frame with MOMENT, observed for late rows, and the column to group by."""
    frame = replace(frame, rows=with_window_time(frame))
    step_ms = int(slide or size)
    millis = F.unix_millis(WINDOW_TIME)
    last_end = millis - F.pmod(millis - F.lit(int(offset)), F.lit(step_ms)) + F.lit(int(size))
    frame = observe_window_ends(frame, last_end)
    return frame, F.window(WINDOW_TIME, size.sql, (slide or size).sql, f"{int(offset)} milliseconds")


def session_span(frame: Frame, gap: Duration) -> tuple[Frame, Column]:
    frame = replace(frame, rows=with_window_time(frame))
    tick_us = tick_ms(frame.watermark_ms or 0) * 1000
    end = F.unix_micros(WINDOW_TIME) + F.lit(int(gap) * 1000)
    # rounded up to the next tick of the watermark
    frame = observe_window_ends(frame, (end + F.pmod(-end, F.lit(tick_us))) / 1000)
    return frame, F.session_window(WINDOW_TIME, gap.sql)


def with_window_columns(frame: Frame, grouped: DataFrame, by: list[str]) -> Frame:
    """The result of grouping by SPAN, with window_start and window_end instead of it."""
    start = F.col(f"{WINDOW}.start").alias(WINDOW_START)
    end = with_watermark_metadata(F.col(f"{WINDOW}.end"), WINDOW_END, frame.watermark_ms or 0)
    values = [name for name in grouped.columns if name not in (WINDOW, *by)]
    return frame.merged(grouped.select(start, end, *by, *values), WINDOW_END)

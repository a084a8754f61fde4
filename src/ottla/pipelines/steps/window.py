"""`window`: aggregates over time. Tumbling, sliding and session windows, and totals that never end.

    window: {size: 1 minute, by: [page], count: views}                  # tumbling
    window: {size: 1 hour, slide: 5 minutes, by: [page], count: views}  # sliding
    window: {session: 30 minutes, by: [user], count: clicks}            # until a user pauses for so long
    window: {total: true, by: [page], count: views}                     # told at every change

The result has window_start, window_end, the columns of `by` and the aggregates. It comes once, when the watermark has
passed the end of the window (`output: update`: at every change). Its time is window_end, so that another window, a join
or a deduplication may follow. Rows without a key form a group of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.fields import Duration
from ottla.pipelines.model.row_order import RowOrder, one_row_for_each
from ottla.pipelines.steps.aggregates import Aggregates
from ottla.pipelines.steps.event_time import MOMENT, RECORD_TIME, WINDOW_END, WINDOW_START, moment_of, tick_ms, timed
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import watch_ends
from ottla.pipelines.steps.step import Kind

SPAN = "_span"
EVERYTHING = "_everything"
SLICES_MAX = 1000  # windows to which one row may belong


@dataclass(frozen=True, kw_only=True)
class Window(Aggregates):
    """Aggregate over windows of time, or for ever."""

    size: Duration | None = field(default=None, metadata={"doc": "length of a window, e.g. 1 minute"})
    slide: Duration | None = field(default=None, metadata={"doc": "time from one window's start to the next's (size)"})
    session: Duration | None = field(default=None, metadata={"doc": "pause that ends a session, e.g. 30 minutes"})
    total: bool = field(default=False, metadata={"doc": "totals that go on for ever, without window"})
    offset: Duration = field(
        default=Duration(0), metadata={"doc": "windows start this long after the full hour, day, …"}
    )
    by: list[str] = field(default_factory=list, metadata={"doc": "columns that make groups"})
    KIND: ClassVar[Kind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if sum((self.size is not None, self.session is not None, self.total)) != 1:
            yield "", "is one of three things", "give size, session or total"
            return
        yield from self.aggregate_problems([*self.by, *([] if self.total else [WINDOW_START, WINDOW_END])])
        yield from span_problems(self.size, self.slide)
        if self.session is not None and self.session < 1:
            yield "session", "must be at least a millisecond", ""

    @property
    def output(self) -> str:
        """The output mode without which Spark refuses the query."""
        return "update" if self.total else "append"

    def apply(self, frame: Frame) -> Frame:
        if self.total:
            return self._totals(frame)
        if self.session is not None:
            frame, span = session_span(frame, self.session)
        else:
            assert self.size is not None
            frame, span = window_span(frame, self.size, self.slide, self.offset)
        grouped = frame.rows.groupBy(span.alias(SPAN), *self.by).agg(*self.columns(frame, F.col(MOMENT)))
        return spanned(frame.stateful(1), grouped, self.by)

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        if self.total:
            return one_row_for_each(self.by)
        return one_row_for_each([*self.by, WINDOW_START], [*self.by, WINDOW_END])

    def _totals(self, frame: Frame) -> Frame:
        name = frame.event_time or (RECORD_TIME if RECORD_TIME in frame.rows.columns else None)
        time = F.col(f"`{name}`") if name else F.current_timestamp()
        # Without any group Spark would tell a total in every batch, also where no row came to it.
        groups = [F.col(f"`{name}`") for name in self.by] or [F.lit(True).alias(EVERYTHING)]
        rows = frame.rows.groupBy(*groups).agg(*self.columns(frame, time)).drop(EVERYTHING)
        return replace(frame.stateful(1).merged(rows), watermark_ms=None)


def span_problems(size: Duration | None, slide: Duration | None) -> Iterator[tuple[str, str, str]]:
    """What `size` and `slide` of any step must fulfil."""
    if size is not None and size < 1:
        yield "size", "must be at least a millisecond", ""
    elif slide is not None and size is None:
        yield "slide", "belongs to windows with a size", ""
    elif slide is not None and size is not None and not size / SLICES_MAX <= slide <= size:
        yield "slide", "must not be longer than the window", f"nor shorter than 1/{SLICES_MAX} of it"


def window_span(frame: Frame, size: Duration, slide: Duration | None, offset: int = 0) -> tuple[Frame, Column]:
    """The frame with MOMENT, watched for late rows, and the column to group by."""
    frame = replace(frame, rows=moment_of(frame))
    step_ms = int(slide or size)
    millis = F.unix_millis(MOMENT)
    last_end = millis - F.pmod(millis - F.lit(int(offset)), F.lit(step_ms)) + F.lit(int(size))
    frame = watch_ends(frame, last_end)
    return frame, F.window(MOMENT, size.sql, (slide or size).sql, f"{int(offset)} milliseconds")


def session_span(frame: Frame, gap: Duration) -> tuple[Frame, Column]:
    frame = replace(frame, rows=moment_of(frame))
    tick_us = tick_ms(frame.watermark_ms or 0) * 1000
    end = F.unix_micros(MOMENT) + F.lit(int(gap) * 1000)
    frame = watch_ends(frame, (end + F.pmod(-end, F.lit(tick_us))) / 1000)  # up to the next tick of the watermark
    return frame, F.session_window(MOMENT, gap.sql)


def spanned(frame: Frame, grouped: DataFrame, by: list[str]) -> Frame:
    """What came of grouping by SPAN, with window_start and window_end instead of it."""
    start = F.col(f"{SPAN}.start").alias(WINDOW_START)
    end = timed(F.col(f"{SPAN}.end"), WINDOW_END, frame.watermark_ms or 0)
    values = [name for name in grouped.columns if name not in (SPAN, *by)]
    return frame.merged(grouped.select(start, end, *by, *values), WINDOW_END)

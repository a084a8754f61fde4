"""Event time: the column with the time of an event, its watermark, and the step `watermark`.

Spark stores a column's watermark in the column's metadata, and recomputing the column loses it. The frame keeps name
and delay, so stateful steps restore the metadata (`rows_with_watermark`).

The watermark moves in whole ticks (a second, if the delay is in whole seconds). So the number of late rows follows from
row counts per tick, without reading the rows again: see lateness.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step import StepError, StepKind

WATERMARK = "spark.watermarkDelayMs"  # the metadata key that Spark uses
TICKS_MS = (1000, 100, 10, 1)
WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_TIME = "_moment"  # temporary column
RECORD_TIME = "_timestamp"

EPOCH = "1970-01-01T00:00:00Z"
MISSING_WATERMARK = "needs the time of the rows"
WATERMARK_CURE = "put `- watermark: {time: COLUMN, delay: 10 seconds}` before it"


def tick_ms(delay_ms: int) -> int:
    """The granularity of a watermark with this delay."""
    return next(tick for tick in TICKS_MS if delay_ms % tick == 0)


def time_column(frame: Frame, name: str) -> str:
    """The column of that name, or the record's own time if `timestamp` was not kept."""
    if (
        name not in frame.rows.columns
        and name == "timestamp"
        and frame.has_origin
        and RECORD_TIME in frame.rows.columns
    ):
        return RECORD_TIME
    if name not in frame.rows.columns:
        raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", "time")
    kind = frame.rows.schema[name].dataType.simpleString()
    if kind != "timestamp":
        raise StepError(f"{name} is {kind}, not a timestamp", "read it as timestamp, or cast it before", "time")
    return name


def is_before_epoch(name: str) -> Column:
    """Spark's watermark starts at EPOCH: rows at or before it would be late immediately."""
    return F.unix_micros(f"`{name}`") <= 0


def with_watermark(frame: Frame, name: str, delay_ms: int) -> Frame:
    """The time column must not contain nulls. In a batch nothing is late: only name and delay are stored."""
    timed = replace(frame, event_time=name, watermark_ms=delay_ms)
    if not frame.is_streaming:
        return timed
    tick = tick_ms(delay_ms)
    millis = F.unix_millis(name)
    ticking = frame.rows.withColumn(WINDOW_TIME, F.timestamp_millis(millis - F.pmod(millis, F.lit(tick))))
    moving = ticking.withWatermark(WINDOW_TIME, f"{delay_ms} milliseconds").drop(WINDOW_TIME)
    return replace(timed, rows=rows_with_watermark(replace(timed, rows=moving)))


def require_event_time(frame: Frame) -> str:
    """The event time that an earlier step set. Raises StepError."""
    if frame.event_time is None or frame.watermark_ms is None:
        raise StepError(MISSING_WATERMARK, WATERMARK_CURE)
    if frame.event_time not in frame.rows.columns:
        raise StepError(f"the time {frame.event_time!r} is no longer among the columns", "keep it under its name")
    return frame.event_time


def rows_with_watermark(frame: Frame) -> DataFrame:
    """The rows with the watermark metadata restored on their event time."""
    name = require_event_time(frame)
    others = [F.col(f"`{other}`") for other in frame.rows.columns if other != name]
    return frame.rows.select(*others, with_watermark_metadata(F.col(f"`{name}`"), name, frame.watermark_ms or 0))


def with_watermark_metadata(column: Column, name: str, delay_ms: int) -> Column:
    return column.alias(name, metadata={WATERMARK: delay_ms})


def without_watermark_metadata(column: Column, name: str) -> Column:
    """Without watermark metadata: a following step must find only one watermark."""
    return column.alias(name, metadata={})


def with_window_time(frame: Frame) -> DataFrame:
    """The rows with MOMENT, the time for windows: a window's result belongs to the microsecond before its end."""
    rows, name = rows_with_watermark(frame), require_event_time(frame)
    moment = F.col(f"`{name}`")
    if name == WINDOW_END:
        moment = moment - F.expr("INTERVAL 1 MICROSECOND")
    return rows.withColumn(WINDOW_TIME, with_watermark_metadata(moment, WINDOW_TIME, frame.watermark_ms or 0))


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """Select the time column, and how long to wait for rows that arrive out of order.

    The watermark is the newest time seen, minus the delay. Rows older than the watermark are late: windows, joins and
    similar steps no longer wait for them. A batch run sees all rows at once, so nothing is late.
    """

    time: str = field(default="timestamp", metadata={"doc": "timestamp column (the record's own time)"})
    delay: Duration = field(metadata={"doc": "how long to wait for rows that arrive out of order, e.g. 10 seconds"})
    ahead: Duration | None = field(
        default=None, metadata={"doc": "rows whose time is further ahead of their record's time than this die"}
    )
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if self.time.startswith("_"):
            yield "time", f"{self.time} is a reserved name", "leave time out to use the record's own time"

    def apply(self, frame: Frame) -> Frame:
        if frame.event_time is not None:
            raise StepError("the stream has a watermark already", "keep one of them: Spark knows one per stream")
        name = time_column(frame, self.time)
        is_null, reason = F.col(f"`{name}`").isNull(), F.lit(f"{self.time} is null: no time, no place in any window")
        is_useless = is_null
        if frame.context.has_watermark:
            too_old = f"{self.time} is not after {EPOCH}, where the watermark of a stream begins"
            is_useless, reason = is_null | is_before_epoch(name), F.when(is_null, reason).otherwise(F.lit(too_old))
        frame = frame.mark_dead(is_useless, reason)
        if self.ahead is not None and frame.has_origin:
            ahead = F.unix_millis(f"`{name}`") - F.unix_millis(RECORD_TIME) > int(self.ahead)
            frame = frame.mark_dead(ahead, f"{self.time} is too far ahead of the record's own time")
        # Dropped rows must not move the watermark, so they are removed first.
        return with_watermark(frame.drop_marked(), name, int(self.delay))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

"""Event time: the column that says when something happened, and how far Spark has come in it.

Spark keeps a column's watermark in the column's metadata, and a step that computes a column anew loses it. The frame
remembers name and delay, so stateful steps put the metadata back (`timed_rows`).

The watermark moves in whole ticks (a second, where the delay is one of whole seconds). So "is this row late?" can be
answered from counts of rows per tick, without looking at the rows again: see lateness.py.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step import StepError

WATERMARK = "spark.watermarkDelayMs"  # Spark's name for it in a column's metadata
TICKS_MS = (1000, 100, 10, 1)
WINDOW_START = "window_start"
WINDOW_END = "window_end"
MOMENT = "_moment"  # while a step is at work
RECORD_TIME = "_timestamp"

EPOCH = "1970-01-01T00:00:00Z"
NO_WATERMARK = "needs the time of the rows"
WATERMARK_CURE = "put `- watermark: {time: COLUMN, delay: 10 seconds}` before it"


def tick_ms(delay_ms: int) -> int:
    """The steps in which a watermark with this delay moves."""
    return next(tick for tick in TICKS_MS if delay_ms % tick == 0)


def time_column(frame: Frame, name: str) -> str:
    """The column of that name, or the record's own time where `timestamp` was not kept."""
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


def before_watermarks(name: str) -> Column:
    """Spark's watermark begins at EPOCH, before any row was seen: what is not after it would be late at once."""
    return F.unix_micros(f"`{name}`") <= 0


def with_watermark(frame: Frame, name: str, delay_ms: int) -> Frame:
    """Time must not be null in the rows. In a batch nothing is late, so nothing is done but to remember."""
    timed = replace(frame, event_time=name, watermark_ms=delay_ms)
    if not frame.is_streaming:
        return timed
    tick = tick_ms(delay_ms)
    millis = F.unix_millis(name)
    ticking = frame.rows.withColumn(MOMENT, F.timestamp_millis(millis - F.pmod(millis, F.lit(tick))))
    moving = ticking.withWatermark(MOMENT, f"{delay_ms} milliseconds").drop(MOMENT)
    return replace(timed, rows=timed_rows(replace(timed, rows=moving)))


def needed_time(frame: Frame) -> str:
    """The event time that an earlier step set. Raises StepError."""
    if frame.event_time is None or frame.watermark_ms is None:
        raise StepError(NO_WATERMARK, WATERMARK_CURE)
    if frame.event_time not in frame.rows.columns:
        raise StepError(f"the time {frame.event_time!r} is no longer among the columns", "keep it under its name")
    return frame.event_time


def timed_rows(frame: Frame) -> DataFrame:
    """The rows, with the watermark put back on their event time."""
    name = needed_time(frame)
    others = [F.col(f"`{other}`") for other in frame.rows.columns if other != name]
    return frame.rows.select(*others, timed(F.col(f"`{name}`"), name, frame.watermark_ms or 0))


def timed(column: Column, name: str, delay_ms: int) -> Column:
    return column.alias(name, metadata={WATERMARK: delay_ms})


def untimed(column: Column, name: str) -> Column:
    """Without its watermark: a following step must find only one."""
    return column.alias(name, metadata={})


def moment_of(frame: Frame) -> DataFrame:
    """The rows with MOMENT, the time that windows go by: a result of a window belongs to the moment before its end."""
    rows, name = timed_rows(frame), needed_time(frame)
    moment = F.col(f"`{name}`")
    if name == WINDOW_END:
        moment = moment - F.expr("INTERVAL 1 MICROSECOND")
    return rows.withColumn(MOMENT, timed(moment, MOMENT, frame.watermark_ms or 0))

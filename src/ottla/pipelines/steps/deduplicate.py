"""`deduplicate`: of several rows with the same id, one goes on. The others are counted as filtered.

An id is remembered for as long as the watermark's delay, counted from its first row's time; so `within` is the delay
(it makes the watermark where no step before did). Two rows with the same id no further apart than that never both go
on. Rows without any id all go on, for nothing says that they are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.fields import Duration
from ottla.pipelines.model.row_order import SOURCE_ORDER, RowOrder
from ottla.pipelines.steps.event_time import before_watermarks, needed_time, time_column, timed_rows, with_watermark
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import watch_late
from ottla.pipelines.steps.step import Kind, StepError

EARLIER = "_earlier"
NOBODY = "_nobody"  # tells rows without any id apart


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """Let only one of several rows with the same id go on."""

    by: list[str] = field(metadata={"doc": "columns that make the id"})
    within: Duration | None = field(
        default=None, metadata={"doc": "how far apart duplicates may be (the watermark's delay)"}
    )
    time: str = field(default="timestamp", metadata={"doc": "timestamp column, where no watermark step says it"})
    KIND: ClassVar[Kind] = "opaque"  # rows that do not come out were filtered
    ORDER_MATTERS: ClassVar[str] = (
        "of rows with the same id but other values, the one that arrives first goes on (in a batch: the oldest); "
        "a row that repeats an id after more than `within` may go on or not"
    )

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not self.by:
            yield "by", "names no column", "name the columns that make the id"

    def apply(self, frame: Frame) -> Frame:
        frame = watch_late(self._timed(frame))
        if not frame.is_streaming:
            return replace(frame, rows=self._in_batch(frame), needs_count=True)
        rows = timed_rows(frame).withColumn(NOBODY, self._nobody(frame))
        kept = rows.dropDuplicatesWithinWatermark([*self.by, NOBODY]).drop(NOBODY)
        return replace(frame.stateful(1), rows=kept, needs_count=True)

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

    def _nobody(self, frame: Frame) -> Column:
        """The record that the row is of; where that is not known any more a number that no other row has."""
        place = [F.col(name) for name in SOURCE_ORDER if name in frame.rows.columns]
        has_none = reduce(Column.__and__, (F.col(name).isNull() for name in self.by))
        return F.when(has_none, F.concat_ws(":", *place) if place else F.uuid())

    def _timed(self, frame: Frame) -> Frame:
        if frame.event_time is None:
            if self.within is None:
                raise StepError("how far apart may duplicates be?", "give within, or a watermark before", "within")
            name = time_column(frame, self.time)
            is_timed = F.col(f"`{name}`").isNotNull()
            if frame.around.has_watermark:
                is_timed = ~before_watermarks(name)
            living = replace(frame, rows=frame.rows.filter(is_timed))
            return with_watermark(living, name, int(self.within))
        if self.within is not None and self.within > (frame.watermark_ms or 0):
            raise StepError("ids are remembered for the watermark's delay", "make that as long as within", "within")
        return frame

    def _in_batch(self, frame: Frame) -> DataFrame:
        time = F.col(f"`{needed_time(frame)}`")
        order = [time, *(F.col(name) for name in SOURCE_ORDER if name in frame.rows.columns)]
        earlier: Column = F.lag(time).over(Over.partitionBy(*self.by, NOBODY).orderBy(*order))
        apart = F.unix_micros(time) - F.unix_micros(EARLIER)
        is_new = F.col(EARLIER).isNull() | (apart > F.lit((frame.watermark_ms or 0) * 1000))
        rows = frame.rows.withColumn(NOBODY, self._nobody(frame))
        return rows.withColumn(EARLIER, earlier).filter(is_new).drop(EARLIER, NOBODY)

"""`deduplicate`: of several rows with the same id, one passes. The others count as filtered.

An id is kept for the watermark's delay, counted from the time of its first row; so `within` is the delay (it creates
the watermark if no earlier step did). Of two rows with the same id no further apart than that, only one passes. Rows
whose id columns are all null always pass, because nothing shows that they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import SOURCE_ORDER, RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.event_time import (
    is_before_epoch,
    require_event_time,
    rows_with_watermark,
    time_column,
    with_watermark,
)
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import track_late_rows
from ottla.pipelines.steps.step import StepError, StepKind

PREVIOUS_TIME = "_earlier"
MISSING_ID = "_nobody"  # distinguishes rows without any id; the name is part of the checkpoint


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """Let only one of several rows with the same id pass."""

    by: list[str] = field(metadata={"doc": "columns of the id"})
    within: Duration | None = field(
        default=None, metadata={"doc": "how far apart duplicates may be (the watermark's delay)"}
    )
    time: str = field(default="timestamp", metadata={"doc": "timestamp column, without a watermark step"})
    KIND: ClassVar[StepKind] = "opaque"  # missing rows count as filtered
    ORDER_MATTERS: ClassVar[str] = (
        "of rows with the same id but other values, the one that arrives first passes (in a batch: the oldest); "
        "a row that repeats an id after more than `within` may pass or not"
    )

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not self.by:
            yield "by", "names no column", "name the columns of the id"

    def apply(self, frame: Frame) -> Frame:
        frame = track_late_rows(self._with_event_time(frame))
        if not frame.is_streaming:
            return replace(frame, rows=self._in_batch(frame), needs_count=True)
        rows = rows_with_watermark(frame).withColumn(MISSING_ID, self._missing_id(frame))
        kept = rows.dropDuplicatesWithinWatermark([*self.by, MISSING_ID]).drop(MISSING_ID)
        return replace(frame.stateful(1), rows=kept, needs_count=True)

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

    def _missing_id(self, frame: Frame) -> Column:
        """The source record of the row, if known; otherwise a unique number."""
        place = [F.col(name) for name in SOURCE_ORDER if name in frame.rows.columns]
        has_none = reduce(Column.__and__, (F.col(name).isNull() for name in self.by))
        return F.when(has_none, F.concat_ws(":", *place) if place else F.uuid())

    def _with_event_time(self, frame: Frame) -> Frame:
        if frame.event_time is None:
            if self.within is None:
                raise StepError(
                    "the maximum distance of duplicates is missing", "set within, or a watermark before", "within"
                )
            name = time_column(frame, self.time)
            is_timed = F.col(f"`{name}`").isNotNull()
            if frame.context.has_watermark:
                is_timed = ~is_before_epoch(name)
            living = replace(frame, rows=frame.rows.filter(is_timed))
            return with_watermark(living, name, int(self.within))
        if self.within is not None and self.within > (frame.watermark_ms or 0):
            raise StepError(
                "ids are kept for the watermark's delay", "make the delay at least as long as within", "within"
            )
        return frame

    def _in_batch(self, frame: Frame) -> DataFrame:
        time = F.col(f"`{require_event_time(frame)}`")
        order = [time, *(F.col(name) for name in SOURCE_ORDER if name in frame.rows.columns)]
        earlier: Column = F.lag(time).over(Over.partitionBy(*self.by, MISSING_ID).orderBy(*order))
        apart = F.unix_micros(time) - F.unix_micros(PREVIOUS_TIME)
        is_new = F.col(PREVIOUS_TIME).isNull() | (apart > F.lit((frame.watermark_ms or 0) * 1000))
        rows = frame.rows.withColumn(MISSING_ID, self._missing_id(frame))
        return rows.withColumn(PREVIOUS_TIME, earlier).filter(is_new).drop(PREVIOUS_TIME, MISSING_ID)

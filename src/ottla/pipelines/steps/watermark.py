"""`watermark`: which column is the time of a row, and how long to wait for rows that come out of order.

The watermark is the newest time seen, less the delay. What is older than the watermark is late: windows, joins and
their like no longer wait for it. A batch run sees everything at once: there nothing is late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.fields import Duration
from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.steps.event_time import EPOCH, RECORD_TIME, before_watermarks, time_column, with_watermark
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.step import Kind, StepError


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """Say which column is the time, and how long to wait for rows that are late."""

    time: str = field(default="timestamp", metadata={"doc": "timestamp column (the record's own time)"})
    delay: Duration = field(metadata={"doc": "how long to wait for rows that come out of order, e.g. 10 seconds"})
    ahead: Duration | None = field(
        default=None, metadata={"doc": "rows whose time is further ahead of their record's time than this die"}
    )
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if self.time.startswith("_"):
            yield "time", f"{self.time} is a reserved name", "leave time out to use the record's own time"

    def apply(self, frame: Frame) -> Frame:
        if frame.event_time is not None:
            raise StepError("the stream has a watermark already", "keep one of them: Spark knows one per stream")
        name = time_column(frame, self.time)
        is_null, reason = F.col(f"`{name}`").isNull(), F.lit(f"{self.time} is null: no time, no place in any window")
        is_useless = is_null
        if frame.around.has_watermark:
            too_old = f"{self.time} is not after {EPOCH}, where the watermark of a stream begins"
            is_useless, reason = is_null | before_watermarks(name), F.when(is_null, reason).otherwise(F.lit(too_old))
        frame = frame.kill(is_useless, reason)
        if self.ahead is not None and frame.has_origin:
            ahead = F.unix_millis(f"`{name}`") - F.unix_millis(RECORD_TIME) > int(self.ahead)
            frame = frame.kill(ahead, f"{self.time} is too far ahead of the record's own time")
        # A row that an earlier step has dropped must not move the watermark, so they go first.
        return with_watermark(frame.settle(), name, int(self.delay))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

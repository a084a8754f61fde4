"""`order`: rows in the order of their time: collect, sort, write.

    order: {}                # all rows in one line
    order: {by: [sensor]}    # the rows of each sensor in order

A stream's rows are held until the watermark has passed them, so the order is strict across batches, too, and comes
`delay` later. Without `by` one task does all the work, and a topic keeps the order only if it has one partition; with
`by`, write with the same columns as key. A batch run sorts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import INSTANT, RowOrder
from ottla.pipelines.steps.event_time import needed_time, timed_rows
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, plain_schema
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import watch_late
from ottla.pipelines.steps.step import Kind

LINE = "_line"  # the key of all rows, where there is none


@dataclass(frozen=True, kw_only=True)
class Order:
    """Put rows in the order of their time."""

    by: list[str] = field(
        default_factory=list, metadata={"doc": "columns: order is kept for each of their values (all rows)"}
    )
    KIND: ClassVar[Kind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        time = needed_time(frame)
        frame = watch_late(frame)
        names = frame.columns if time in frame.columns else [*frame.columns, time]
        rows = timed_rows(frame).select(*(f"`{name}`" for name in names), F.unix_micros(f"`{time}`").alias(INSTANT))
        if not frame.is_streaming:
            ties = [F.col(f"`{name}`").cast("string") for name in names if name != time]
            return frame.merged(rows.orderBy(f"`{time}`", *ties), time, (INSTANT,))
        timely = rows.withColumn(LINE, F.lit(0))
        schema = plain_schema(timely)
        holder = InOrder(timely.columns, schema)
        line = timely.groupBy(*(self.by or [LINE]))
        made = line.transformWithState(holder, schema, "Append", "EventTime", eventTimeColumnName=time)
        return frame.stateful(1).merged(made.drop(LINE), time, (INSTANT,))

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return RowOrder((INSTANT,))  # the order of time, also from batch to batch


class InOrder(EventTimeBuffer):
    """Lets the rows go as they are."""

    def released(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        return rows

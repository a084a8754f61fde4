"""`order`: rows in time order.

    order: {}                # all rows in one sequence
    order: {by: [sensor]}    # the rows of each sensor in order

A stream's rows are held until the watermark has passed them, so the order is strict across batches, at the cost of
`delay`.
Without `by` one task does all the work, and a topic keeps the order only if it has one partition; with `by`, write with
the same columns as key. A batch run sorts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import TIME_MICROS, RowOrder
from ottla.pipelines.steps.event_time import require_event_time, rows_with_watermark
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, schema_without_metadata
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import track_late_rows
from ottla.pipelines.steps.step import StepKind

LINE = "_line"  # the constant key of all rows without `by`


@dataclass(frozen=True, kw_only=True)
class Order:
    """Put rows in time order."""

    by: list[str] = field(
        default_factory=list, metadata={"doc": "columns: rows of each key are ordered separately (all rows)"}
    )
    KIND: ClassVar[StepKind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        time = require_event_time(frame)
        frame = track_late_rows(frame)
        names = frame.columns if time in frame.columns else [*frame.columns, time]
        rows = rows_with_watermark(frame).select(
            *(f"`{name}`" for name in names), F.unix_micros(f"`{time}`").alias(TIME_MICROS)
        )
        if not frame.is_streaming:
            ties = [F.col(f"`{name}`").cast("string") for name in names if name != time]
            return frame.merged(rows.orderBy(f"`{time}`", *ties), time, (TIME_MICROS,))
        timely = rows.withColumn(LINE, F.lit(0))
        schema = schema_without_metadata(timely)
        holder = InOrder(timely.columns, schema)
        line = timely.groupBy(*(self.by or [LINE]))
        made = line.transformWithState(holder, schema, "Append", "EventTime", eventTimeColumnName=time)
        return frame.stateful(1).merged(made.drop(LINE), time, (TIME_MICROS,))

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return RowOrder((TIME_MICROS,))  # time order, also across batches


class InOrder(EventTimeBuffer):
    """Releases the rows unchanged."""

    def process_rows(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        return rows

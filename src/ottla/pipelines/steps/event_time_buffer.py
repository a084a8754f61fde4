"""Holds rows until the watermark has passed them, then releases them in time order.

A processor for Spark's transformWithState: per key a list of rows, and a timer for the oldest. Rows released in one
batch are not after the watermark, and later arrivals are after it (or late, and dropped by Spark). So the whole output
of a key is ordered, regardless of the order of arrival. Rows of the same time are ordered by content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row, StructField, StructType

from ottla.pipelines.model.row_order import TIME_MICROS
from ottla.pipelines.spark.zone import use_utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Values = tuple[Any, ...]


class EventTimeBuffer(StatefulProcessor):
    """Holds rows of these columns, INSTANT among them; `released` processes them."""

    def __init__(self, columns: Sequence[str], schema: StructType) -> None:
        self.columns = list(columns)
        self.schema = schema
        self.time = self.columns.index(TIME_MICROS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.columns)})"

    def process_rows(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:
        """Rows of this key in order; called without rows when a timer of the subclass fires."""
        raise NotImplementedError

    def output(self) -> list[str]:
        return self.columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        use_utc()  # an external Spark may run its workers in another time zone
        self.handle = handle
        self.held = handle.getListState("held", self.schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        new = [tuple(row[name] for name in self.columns) for row in rows]
        if new:
            self.held.appendList(new)
            self.handle.registerTimer(_ceil_ms(min(row[self.time] for row in new)))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803, ARG002
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        ready = self._take_due_rows(watermark_ms)
        for values in self.process_rows(tuple(key), ready, watermark_ms):
            yield Row(**dict(zip(self.output(), values, strict=True)))

    def close(self) -> None:
        pass

    def _take_due_rows(self, watermark_ms: int) -> list[Values]:
        if not self.held.exists():
            return []
        ready: list[Values] = []
        rest: list[Values] = []
        for row in self.held.get():
            (ready if _ceil_ms(row[self.time]) <= watermark_ms else rest).append(tuple(row))
        if ready and rest:
            self.held.put(rest)
            self.handle.registerTimer(_ceil_ms(min(row[self.time] for row in rest)))
        elif ready:
            self.held.clear()
        return sort_by_time(ready, self.time)


def schema_without_metadata(rows: DataFrame) -> StructType:
    """Without metadata: Spark sets the watermark on the result's time itself."""
    return StructType([StructField(each.name, each.dataType) for each in rows.schema.fields])


def sort_by_time(rows: list[Values], time: int) -> list[Values]:
    return sorted(rows, key=lambda row: (row[time], repr(row)))


def _ceil_ms(instant: int) -> int:
    """Milliseconds, rounded up: no row is released before its time."""
    return -(-instant // 1000)

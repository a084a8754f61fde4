"""Rows held until the watermark has passed them, then let go in the order of their time.

A processor for Spark's transformWithState: per key a list of rows, and a timer for the oldest. What is released in one
batch is not after the watermark, and what comes later is after it (else it is late, and Spark drops it): so the whole
output of a key is in order, whatever the order of arrival was. Rows of the same time are ordered by their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row, StructField, StructType

from ottla.pipelines.model.row_order import INSTANT
from ottla.pipelines.spark.zone import use_utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Values = tuple[Any, ...]


class EventTimeBuffer(StatefulProcessor):
    """Holds rows of these columns, INSTANT among them; `released` says what becomes of them."""

    def __init__(self, columns: Sequence[str], schema: StructType) -> None:
        self.columns = list(columns)
        self.schema = schema
        self.time = self.columns.index(INSTANT)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.columns)})"

    def released(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:
        """Rows of this key, in order; called with none when a timer of the processor's own has come."""
        raise NotImplementedError

    def output(self) -> list[str]:
        return self.columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        use_utc()  # a Spark that others have started may run its workers in another zone
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
        ready = self._take(watermark_ms)
        for values in self.released(tuple(key), ready, watermark_ms):
            yield Row(**dict(zip(self.output(), values, strict=True)))

    def close(self) -> None:
        pass

    def _take(self, watermark_ms: int) -> list[Values]:
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
        return in_order(ready, self.time)


def plain_schema(rows: DataFrame) -> StructType:
    """Without metadata: Spark puts the watermark on the result's time itself."""
    return StructType([StructField(each.name, each.dataType) for each in rows.schema.fields])


def in_order(rows: list[Values], time: int) -> list[Values]:
    return sorted(rows, key=lambda row: (row[time], repr(row)))


def _ceil_ms(instant: int) -> int:
    """In milliseconds, up: no row is let go before its time."""
    return -(-instant // 1000)

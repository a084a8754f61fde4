"""`anomalies`: is this value unusual for its key? Each row gets score, expected and verdict.

    anomalies: {value: temperature, by: [sensor]}
    anomalies: {value: views, by: [page], season: hour of week, history: 8, warm_up: 4}

A value is compared with the last `history` values of its key (with `season`: of its key at that hour). Rows are judged
in the order of their time, when the watermark has passed them: so the verdict does not depend on the order of arrival.
`verdict` is normal, anomaly, "warming up" before `warm_up` values were seen, or "no value" (null, NaN, infinite). A key
that was silent for `forget` starts anew, and its state is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.fields import Duration
from ottla.pipelines.model.row_order import INSTANT, RowOrder
from ottla.pipelines.steps.event_time import needed_time, timed_rows
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, in_order, plain_schema
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.lateness import watch_late
from ottla.pipelines.steps.order import LINE
from ottla.pipelines.steps.scoring import Method, Rules, Score, judge
from ottla.pipelines.steps.step import Kind, StepError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

HISTORY_MAX = 10_000
HOUR_US = 3_600_000_000
VALUE = "_number"
RESULT = ("score", "expected", "verdict")
RESULT_SCHEMA = (
    T.StructType().add("score", T.DoubleType()).add("expected", T.DoubleType()).add("verdict", T.StringType())
)  # fmt: skip

Season = Literal["hour of day", "hour of week", "day of week"]
Slots = dict[int, list[float]]


@dataclass(frozen=True, kw_only=True)
class Anomalies:
    """Judge whether values are unusual for their key."""

    value: str = field(metadata={"doc": "column to judge"})
    by: list[str] = field(default_factory=list, metadata={"doc": "columns that make the key (one key for all)"})
    method: Method = field(default="robust", metadata={"doc": "robust (median) or ewma (weighted mean)"})
    season: Season | None = field(
        default=None, metadata={"doc": "compare with the same hour of day, hour of week, day of week"}
    )
    threshold: float = field(default=3.5, metadata={"doc": "score from which a value is an anomaly"})
    history: int = field(
        default=100, metadata={"doc": "how many values are compared with (of each hour, with a season)"}
    )
    warm_up: int = field(default=20, metadata={"doc": "values before the first verdict"})
    forget: Duration = field(
        default=Duration(30 * 86_400_000), metadata={"doc": "a key that is silent for so long starts anew"}
    )
    KIND: ClassVar[Kind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 2 <= self.history <= HISTORY_MAX:
            yield "history", f"must be from 2 to {HISTORY_MAX}", ""
        if not 2 <= self.warm_up <= self.history:
            yield "warm_up", "must be from 2 to history", ""
        if not 0 < self.threshold < float("inf"):
            yield "threshold", "must be above 0", ""
        if self.forget < 1:
            yield "forget", "must be at least a millisecond", ""

    def apply(self, frame: Frame) -> Frame:
        time = needed_time(frame)
        frame = watch_late(frame)
        names = frame.columns if time in frame.columns else [*frame.columns, time]
        for name in RESULT:
            if name in names:
                raise StepError(f"there is a column {name!r} already", "rename it before")
        number = F.col(f"`{self.value}`").cast("double").alias(VALUE)
        line = F.lit(0).alias(LINE)
        instant = F.unix_micros(f"`{time}`").alias(INSTANT)
        rows = timed_rows(frame).select(*(f"`{name}`" for name in names), number, instant, line)
        made = self._streaming(rows, time) if frame.is_streaming else self._in_batch(rows)
        return frame.stateful(1).merged(made.drop(VALUE, LINE), time, (INSTANT,))

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return RowOrder((INSTANT,))  # the order of time, also from batch to batch

    def _streaming(self, rows: DataFrame, time: str) -> DataFrame:
        judge_ = Judge(self, rows.columns, plain_schema(rows))
        schema = T.StructType([*plain_schema(rows).fields, *RESULT_SCHEMA.fields])
        keyed = rows.groupBy(*(self.by or [LINE]))
        return keyed.transformWithState(judge_, schema, "Append", "EventTime", eventTimeColumnName=time)

    def _in_batch(self, rows: DataFrame) -> DataFrame:
        schema = T.StructType([*plain_schema(rows).fields, *RESULT_SCHEMA.fields])
        return rows.groupBy(*(self.by or [LINE])).applyInArrow(lambda table: judged(table, self), schema)


class Memory:
    """What is known of one key: values by season, and the time of the last one."""

    def __init__(self, spec: Anomalies, last_ms: int | None = None) -> None:
        self.spec = spec
        self.rules = Rules(spec.method, spec.threshold, spec.history, spec.warm_up)
        self.slots: Slots = {}
        self.last_ms = last_ms

    def __repr__(self) -> str:
        return f"Memory({len(self.slots)} slots, last {self.last_ms})"

    def judge(self, instant: int, value: float | None) -> Score:
        """Called in the order of time."""
        now_ms = instant // 1000
        if self.is_forgotten(now_ms):
            self.forget()
        self.last_ms = now_ms
        return judge(value, self.slot(self.number(instant)), self.rules)

    def is_forgotten(self, now_ms: int) -> bool:
        return self.last_ms is not None and now_ms - self.last_ms >= self.spec.forget

    def forget(self) -> None:
        self.slots.clear()

    def slot(self, number: int) -> list[float]:
        return self.slots.setdefault(number, [])

    def number(self, instant: int) -> int:
        """Which season it is, in UTC."""
        if self.spec.season is None:
            return 0
        hours = instant // HOUR_US
        return {"hour of day": hours % 24, "hour of week": hours % 168, "day of week": hours // 24 % 7}[
            self.spec.season
        ]


class Judge(EventTimeBuffer):
    """Holds rows until the watermark has passed them, then judges them."""

    def __init__(self, spec: Anomalies, columns: list[str], schema: T.StructType) -> None:
        super().__init__(columns, schema)
        self.spec = spec
        self.value = columns.index(VALUE)

    def output(self) -> list[str]:
        return [*self.columns, *RESULT]

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.last = handle.getValueState("last", "last_ms bigint")
        self.kept = handle.getMapState("kept", "slot int", "numbers array<double>")

    def released(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        stored = self.last.get() if self.last.exists() else None
        memory = Memory(self.spec, stored[0] if stored else None)
        if not rows:
            self._clean(memory, watermark_ms)
            return []
        made = []
        for row in rows:
            self._load(memory, row[self.time])
            made.append((*row, *memory.judge(row[self.time], row[self.value])))
        self._store(memory, stored[0] if stored else None)
        return made

    def _load(self, memory: Memory, instant: int) -> None:
        number = memory.number(instant)
        if memory.is_forgotten(instant // 1000):
            self.kept.clear()  # of all seasons: those that are not loaded, too
        elif number not in memory.slots:
            found = self.kept.getValue((number,))
            memory.slots[number] = list(found[0]) if found else []

    def _store(self, memory: Memory, before_ms: int | None) -> None:
        assert memory.last_ms is not None
        if before_ms is not None:
            self.handle.deleteTimer(before_ms + int(self.spec.forget))
        for number, numbers in memory.slots.items():
            self.kept.updateValue((number,), (numbers,))
        self.last.update((memory.last_ms,))
        self.handle.registerTimer(memory.last_ms + int(self.spec.forget))

    def _clean(self, memory: Memory, watermark_ms: int) -> None:
        if memory.is_forgotten(watermark_ms):
            self.kept.clear()
            self.last.clear()


def judged(table: pa.Table, spec: Anomalies) -> pa.Table:
    """All rows of a key at once."""
    import pyarrow as pa  # noqa: PLC0415 (in Spark's processes only)

    rows = [tuple(row.values()) for row in table.to_pylist()]
    columns = table.column_names
    time, value = columns.index(INSTANT), columns.index(VALUE)
    memory = Memory(spec)
    made = [(*row, *memory.judge(row[time], row[value])) for row in in_order(rows, time)]
    schema = table.schema
    for name, kind in zip(RESULT, (pa.float64(), pa.float64(), pa.string()), strict=True):
        schema = schema.append(pa.field(name, kind))
    return pa.Table.from_arrays(
        [pa.array([row[at] for row in made], each.type) for at, each in enumerate(schema)], schema=schema
    )

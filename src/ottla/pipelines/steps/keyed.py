"""A program (program.py) for each key, on Spark: rows are held until the watermark has passed them, then handed over.

In a stream by Spark's transformWithState (event_time_buffer.py), with what the program keeps in the state store and a
timer for when it wants to be woken; in a batch once, with all rows of a key. Rows travel as text (packing.py), so that
both see the same. Rows of the same time come in the order of their partition, or of their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import INSTANT, POSITION, SOURCE_ORDER
from ottla.pipelines.steps.event_time import needed_time, timed_rows
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, in_order
from ottla.pipelines.steps.packing import moment, pack, unpack
from ottla.pipelines.steps.parsing.binaries import to_structs
from ottla.pipelines.steps.parsing.reader import arrow_function, quoted
from ottla.pipelines.steps.program import Arrived, Made, Program
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from ottla.pipelines.steps.frame import Frame

PLACE, ROW, FLAGS, MADE, PROBLEM = "_0_place", "_row", "_flags", "_made", "_problem"
KEY = "_by_"  # columns of the key, for Spark: the program finds them in the row


@dataclass(frozen=True)
class Keyed:
    """`by`: the key, none of it null; `conditions`: what Spark tells the program of each row; `carried`: a column that
    what dies takes along; `time`: the name of the time in what comes out."""

    program: Program
    by: Sequence[str]
    time: str
    conditions: Sequence[Column] = ()
    carried: str | None = None

    def applied(self, frame: Frame) -> DataFrame:
        """Rows with the time, INSTANT, MADE (a row as text, null for what died), PROBLEM, and `carried` of the dead."""
        rows = self._handed_over(frame)
        keys = [f"{KEY}{at}" for at in range(len(self.by))]
        held = [PLACE, INSTANT, ROW, FLAGS, *([self.carried] if self.carried else [])]
        schema = T.StructType([T.StructField(name, rows.schema[name].dataType) for name in held])
        result = self._result(schema)
        program = self.program
        if rows.isStreaming:
            holder = KeyedBuffer(held, schema, program, result.names)
            keyed = rows.groupBy(*keys)
            return keyed.transformWithState(holder, result, "Append", "EventTime", eventTimeColumnName=self.time)

        def over(table: pa.Table) -> pa.Table:
            lines = in_order([tuple(row.values()) for row in table.select(held).to_pylist()], held.index(INSTANT))
            made = made_lines(program.run(arrived(lines), None, None).made, lines, len(result))
            structs = to_structs([dict(zip(result.names, line, strict=True)) for line in made], result)
            return pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])

        return rows.groupBy(*keys).applyInArrow(over, result)

    def _handed_over(self, frame: Frame) -> DataFrame:
        time = needed_time(frame)
        flags = [F.when(F.coalesce(each, F.lit(False)), F.lit("1")).otherwise("0") for each in self.conditions]
        row = F.struct(*(F.col(quoted(name)) for name in frame.columns))
        timely = timed_rows(frame)
        return timely.select(
            place_of(timely).alias(PLACE),
            F.unix_micros(quoted(time)).alias(INSTANT),
            arrow_function(_packed, T.StringType())(row).alias(ROW),
            F.concat(*flags).alias(FLAGS) if flags else F.lit("").alias(FLAGS),
            *(F.col(quoted(name)).alias(f"{KEY}{at}") for at, name in enumerate(self.by)),
            *([F.col(self.carried)] if self.carried else []),
            F.col(quoted(time)).alias(self.time) if time != self.time else F.col(quoted(time)),
        )

    def _result(self, held: T.StructType) -> T.StructType:
        fields = [
            T.StructField(self.time, T.TimestampType()),
            T.StructField(INSTANT, T.LongType()),
            T.StructField(MADE, T.StringType()),
            T.StructField(PROBLEM, T.StringType()),
        ]
        return T.StructType([*fields, *([held[self.carried]] if self.carried else [])])


class KeyedBuffer(EventTimeBuffer):
    """Holds rows until the watermark has passed them, then hands them to the program."""

    def __init__(self, columns: Sequence[str], schema: T.StructType, program: Program, result: list[str]) -> None:
        super().__init__(columns, schema)
        self.program = program
        self.result = result

    def output(self) -> list[str]:
        return self.result

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.memory = handle.getValueState("memory", "memory string")

    def released(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        before: str | None = self.memory.get()[0] if self.memory.exists() else None  # type: ignore[index]
        ran = self.program.run(arrived(rows), before, watermark_ms)
        if ran.memory is None:
            self.memory.clear()
        elif ran.memory != before:
            self.memory.update((ran.memory,))
        if ran.wake_ms is not None:
            self.handle.registerTimer(ran.wake_ms)
        return made_lines(ran.made, rows, len(self.result))


def unpacked(text: Column, schema: T.StructType) -> Column:
    """The struct that a row of the program is."""

    def over(texts: pa.Array) -> pa.Array:
        rows = [None if each is None else unpack(each) for each in texts.to_pylist()]
        return to_structs(rows, T.StructType([*schema.fields, T.StructField(PROBLEM, T.StringType())]))

    return arrow_function(over, T.StructType([*schema.fields, T.StructField(PROBLEM, T.StringType())]))(text)


def place_of(rows: DataFrame) -> Column:
    """Text that sorts as the rows lie in their partition, elements of one record as they lie in it; a hash of the
    content where that does not tell them apart."""
    names = sorted(name for name in rows.columns if name not in SOURCE_ORDER)
    parts = [F.md5(F.to_json(F.struct(*(F.col(quoted(name)) for name in names))))]
    if POSITION in rows.columns:
        numbers = F.transform(POSITION, lambda number: F.format_string("%010d", number))
        parts.insert(0, F.concat_ws(":", numbers))
    if all(name in rows.columns for name in SOURCE_ORDER):
        topic, partition, offset = map(F.col, SOURCE_ORDER)
        parts.insert(0, F.concat_ws(":", F.hex(topic), F.format_string("%010d:%020d", partition, offset)))
    return F.concat_ws(":", *parts)


def time_of_results(frame: Frame, by: Sequence[str]) -> str:
    """The name of the time of what comes out; the record's own time becomes visible. Raises StepError."""
    time = needed_time(frame)
    if time in by:
        raise StepError(f"{time} is the time of the rows, and cannot be their key", "", "by")
    return time.lstrip("_")


def arrived(lines: list[Values]) -> list[Arrived]:
    return [Arrived(line[1], unpack(line[2]), line[3]) for line in lines]


def made_lines(made: list[Made], lines: list[Values], width: int) -> Iterator[Values]:
    """As `_result` has them; what died takes along the last value of its line."""
    for each in made:
        text = None if each.row is None else pack(each.row)
        line: list[Any] = [moment(each.instant), each.instant, text, each.problem]
        if len(line) < width:
            line.append(None if each.source is None else lines[each.source][-1])
        yield tuple(line)


def _packed(rows: pa.Array) -> pa.Array:
    return pa.array([None if row is None else pack(row) for row in rows.to_pylist()], pa.string())

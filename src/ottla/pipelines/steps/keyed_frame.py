"""Runs a key program (key_program.py) on Spark: rows are held until the watermark has passed them.

A stream uses transformWithState (event_time_buffer.py), with the program's state in the state store and a timer for its
next call; a batch calls it once with all rows of a key. Rows are passed as text, so both see the same values. Rows of
the same time are in the order of their partition, or of their content.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.model.row_order import ELEMENT_POSITION, SOURCE_ORDER, TIME_MICROS
from ottla.pipelines.steps.event_time import require_event_time, rows_with_watermark
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, sort_by_time
from ottla.pipelines.steps.key_program import InputRow, OutputRow, Program, from_micros, pack, unpack
from ottla.pipelines.steps.parsing.reader import arrow_function, quoted, to_structs
from ottla.pipelines.steps.step import StepError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from ottla.pipelines.steps.frame import Frame

PLACE, ROW, FLAGS, MADE, PROBLEM = "_0_place", "_row", "_flags", "_made", "_problem"
KEY = "_by_"  # key columns for grouping; the program reads the key from the row


@dataclass(frozen=True)
class KeyedProgram:
    """`by`: key columns without nulls; `conditions`: their results are passed as flags; `carried`: a column that
    dead rows keep; `time`: the name of the output time."""

    program: Program
    by: Sequence[str]
    time: str
    conditions: Sequence[Column] = ()
    carried: str | None = None

    def apply(self, frame: Frame) -> DataFrame:
        """Rows with the time, INSTANT, MADE (a row as text, null for dead ones), PROBLEM, and `carried` of dead
        rows."""
        rows = self._input_rows(frame)
        keys = [f"{KEY}{at}" for at in range(len(self.by))]
        held = [PLACE, TIME_MICROS, ROW, FLAGS, *([self.carried] if self.carried else [])]
        schema = T.StructType([T.StructField(name, rows.schema[name].dataType) for name in held])
        result = self._result(schema)
        program = self.program
        if rows.isStreaming:
            holder = KeyedBuffer(held, schema, program, result.names)
            keyed = rows.groupBy(*keys)
            return keyed.transformWithState(holder, result, "Append", "EventTime", eventTimeColumnName=self.time)

        def over(table: pa.Table) -> pa.Table:
            lines = sort_by_time(
                [tuple(row.values()) for row in table.select(held).to_pylist()], held.index(TIME_MICROS)
            )
            made = to_output_rows(program.run(to_input_rows(lines), None, None).made, lines, len(result))
            structs = to_structs([dict(zip(result.names, line, strict=True)) for line in made], result)
            return pa.Table.from_batches([pa.RecordBatch.from_struct_array(structs)])

        return rows.groupBy(*keys).applyInArrow(over, result)

    def _input_rows(self, frame: Frame) -> DataFrame:
        time = require_event_time(frame)
        flags = [F.when(F.coalesce(each, F.lit(False)), F.lit("1")).otherwise("0") for each in self.conditions]
        row = F.struct(*(F.col(quoted(name)) for name in frame.columns))
        timely = rows_with_watermark(frame)
        return timely.select(
            position_text(timely).alias(PLACE),
            F.unix_micros(quoted(time)).alias(TIME_MICROS),
            arrow_function(_pack_rows, T.StringType())(row).alias(ROW),
            F.concat(*flags).alias(FLAGS) if flags else F.lit("").alias(FLAGS),
            *(F.col(quoted(name)).alias(f"{KEY}{at}") for at, name in enumerate(self.by)),
            *([F.col(self.carried)] if self.carried else []),
            F.col(quoted(time)).alias(self.time) if time != self.time else F.col(quoted(time)),
        )

    def _result(self, held: T.StructType) -> T.StructType:
        fields = [
            T.StructField(self.time, T.TimestampType()),
            T.StructField(TIME_MICROS, T.LongType()),
            T.StructField(MADE, T.StringType()),
            T.StructField(PROBLEM, T.StringType()),
        ]
        return T.StructType([*fields, *([held[self.carried]] if self.carried else [])])


class KeyedBuffer(EventTimeBuffer):
    """Holds rows until the watermark has passed them, then passes them to the program."""

    def __init__(self, columns: Sequence[str], schema: T.StructType, program: Program, result: list[str]) -> None:
        super().__init__(columns, schema)
        self.program = program
        self.result = result

    def output(self) -> list[str]:
        return self.result

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.memory = handle.getValueState("memory", "memory string")

    def process_rows(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        before: str | None = self.memory.get()[0] if self.memory.exists() else None  # type: ignore[index]
        ran = self.program.run(to_input_rows(rows), before, watermark_ms)
        if ran.state is None:
            self.memory.clear()
        elif ran.state != before:
            self.memory.update((ran.state,))
        if ran.wake_ms is not None:
            self.handle.registerTimer(ran.wake_ms)
        return to_output_rows(ran.made, rows, len(self.result))


def unpack_struct(text: Column, schema: T.StructType) -> Column:
    """The row as a struct."""

    def over(texts: pa.Array) -> pa.Array:
        rows = [None if each is None else unpack(each) for each in texts.to_pylist()]
        return to_structs(rows, T.StructType([*schema.fields, T.StructField(PROBLEM, T.StringType())]))

    return arrow_function(over, T.StructType([*schema.fields, T.StructField(PROBLEM, T.StringType())]))(text)


def position_text(rows: DataFrame) -> Column:
    """Text that sorts like the rows in their partition, and elements of one record like in the record; a hash of the
    content if the position is unknown."""
    names = sorted(name for name in rows.columns if name not in SOURCE_ORDER)
    parts = [F.md5(F.to_json(F.struct(*(F.col(quoted(name)) for name in names))))]
    if ELEMENT_POSITION in rows.columns:
        numbers = F.transform(ELEMENT_POSITION, lambda number: F.format_string("%010d", number))
        parts.insert(0, F.concat_ws(":", numbers))
    if all(name in rows.columns for name in SOURCE_ORDER):
        topic, partition, offset = map(F.col, SOURCE_ORDER)
        parts.insert(0, F.concat_ws(":", F.hex(topic), F.format_string("%010d:%020d", partition, offset)))
    return F.concat_ws(":", *parts)


def result_time_column(frame: Frame, by: Sequence[str]) -> str:
    """The name of the output time; the record's own time becomes visible. Raises StepError."""
    time = require_event_time(frame)
    if time in by:
        raise StepError(f"{time} is the time of the rows, and cannot be their key", "", "by")
    return time.lstrip("_")


def to_input_rows(lines: list[Values]) -> list[InputRow]:
    return [InputRow(line[1], unpack(line[2]), line[3]) for line in lines]


def to_output_rows(made: list[OutputRow], lines: list[Values], width: int) -> Iterator[Values]:
    """Rows in the form of `_result`; a dead row keeps the last value of its input row."""
    for each in made:
        text = None if each.row is None else pack(each.row)
        line: list[Any] = [from_micros(each.instant), each.instant, text, each.problem]
        if len(line) < width:
            line.append(None if each.input_index is None else lines[each.input_index][-1])
        yield tuple(line)


def _pack_rows(rows: pa.Array) -> pa.Array:
    return pa.array([None if row is None else pack(row) for row in rows.to_pylist()], pa.string())

"""`python`: a function of your own.

each: frame   gets Spark's DataFrame of the living rows and returns one. Anything is possible.
each: batch   gets pandas DataFrames, one after the other, and returns one for each.
each: row     gets a dict and returns a dict with all columns of the result, or None to filter the record. What it
              raises kills that record, with file, line and the exception's text as the reason; the query goes on. So
              does a column that it leaves out: a null is written None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)
from pyspark.sql.pandas.types import to_arrow_type

from ottla.pipelines.steps.frame import Frame, Passage
from ottla.pipelines.steps.made_values import misfits
from ottla.pipelines.steps.parsing.binaries import PROBLEM, REASON_CHARACTERS_MAX, Row, to_structs
from ottla.pipelines.steps.parsing.reader import arrow_function, quoted
from ottla.pipelines.steps.parsing.schemas import SchemaError, read_schema
from ottla.pipelines.steps.python_code import CodeError, find_function, name_problem, told
from ottla.pipelines.steps.step import Kind, StepError

MADE = "_made"
IS_FILTERED = "_is_filtered"
LEFT_OUT = "the function left out the column"


@dataclass(frozen=True, kw_only=True)
class Python:
    """Rows through a function of your own."""

    function: str | Callable[..., Any] = field(metadata={"doc": "module:function beside the pipeline, or a function"})
    each: Literal["frame", "batch", "row"] = field(default="frame", metadata={"doc": "what it gets: frame, batch, row"})
    schema: str | dict[str, object] | None = field(
        default=None, metadata={"doc": "columns that come out of batch and row (those that went in)"}
    )
    KIND: ClassVar[Kind] = "opaque"

    def __post_init__(self) -> None:
        if self.each == "row":  # it keeps every record and marks some
            object.__setattr__(self, "KIND", "marks")

    def problems(self) -> Iterator[tuple[str, str, str]]:
        problem = name_problem(self.function) if isinstance(self.function, str) else None
        if problem:
            yield "function", problem, ""
        if self.each == "frame" and self.schema is not None:
            yield "schema", "means nothing for each: frame", "the DataFrame has its own"

    def apply(self, frame: Frame) -> Frame:
        try:
            function = (
                find_function(self.function, frame.around.folder) if isinstance(self.function, str) else self.function
            )
        except CodeError as problem:
            raise StepError(str(problem), field="function") from None
        if self.each == "row":
            return _by_row(frame, function, self._schema(frame))
        made = self._made(frame, function)
        if not isinstance(made, DataFrame):
            raise StepError(f"the function returned {type(made).__name__}, not a DataFrame", field="function")
        event_time = frame.event_time if frame.event_time in made.columns else None
        return frame.merged(made, event_time)

    def _made(self, frame: Frame, function: Callable[..., Any]) -> Any:
        rows = frame.rows.select(*map(quoted, frame.columns))
        if self.each == "batch":
            return _by_batch(rows, function, self._schema(frame), frame.passages[-1])
        try:
            return function(rows)
        except Exception as error:  # it is the user's code
            raise StepError(told(error, function), field="function") from error

    def _schema(self, frame: Frame) -> T.StructType:
        if self.schema is None:
            return T.StructType([frame.rows.schema[name] for name in frame.columns])
        try:
            return read_schema(self.schema, frame.around.folder)[0]
        except SchemaError as problem:
            raise StepError(str(problem), field="schema") from None


def _by_batch(rows: DataFrame, function: Callable[..., Any], schema: T.StructType, step: Passage) -> DataFrame:
    """What the function raises ends the query: nobody knows which of the rows it was about."""
    times = [each.name for each in schema.fields if isinstance(each.dataType, T.TimestampType | T.DateType)]
    calling = batch_caller(function, schema.names, times, f"{step.stream}, step {step.number}, {step.step}")

    def over(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield calling(batch)

    return rows.mapInPandas(over, schema)


def _by_row(frame: Frame, function: Callable[..., Any], schema: T.StructType) -> Frame:
    result = T.StructType(
        [*schema.fields, T.StructField(PROBLEM, T.StringType()), T.StructField(IS_FILTERED, T.BooleanType())]
    )
    calling = caller(function, schema.names, misfits(to_arrow_type(schema, timezone="UTC")))

    def over(rows: pa.Array) -> pa.Array:
        return to_structs([None if row is None else calling(row) for row in rows.to_pylist()], result)

    given = frame.alive(F.struct(*(F.col(quoted(name)) for name in frame.columns)))
    made = frame.rows.withColumn(MADE, arrow_function(over, result)(given))
    parts = F.col(MADE)
    marked = replace(frame, rows=made).kill(parts.getField(PROBLEM).isNotNull(), parts.getField(PROBLEM))
    marked = marked.keep(~F.coalesce(parts.getField(IS_FILTERED), F.lit(False)))
    chosen = marked.select({name: parts.getField(name) for name in schema.names})
    return chosen if chosen.event_time in (None, *schema.names) else replace(chosen, event_time=None)


def batch_caller(function: Callable[[Any], Any], names: list[str], times: list[str], step: str) -> Callable[[Any], Any]:
    """The function, with what goes wrong in it told with the step, in a line."""

    def call(batch: Any) -> Any:
        try:
            made = function(batch)
        except Exception as error:  # noqa: BLE001 (it is the user's code)
            raise RuntimeError(f"{step}: {told(error, function)}") from None
        if not hasattr(made, "columns"):
            raise RuntimeError(f"{step}: the function returned {type(made).__name__}, not a pandas DataFrame")
        missing = [name for name in names if name not in made.columns]
        if missing:
            raise RuntimeError(f"{step}: {LEFT_OUT} {missing[0]!r}")
        for name in times:
            if made[name].dtype.kind in "iuf" and made[name].notna().any():  # Arrow would take them for microseconds
                raise RuntimeError(f"{step}: column {name!r} has numbers, and shall be a time: use pandas.to_datetime")
        return made

    return call


def caller(
    function: Callable[[Row], Any], names: list[str], misfit: Callable[[Row], str | None]
) -> Callable[[Row], Row]:
    """The function, with what goes wrong in it as a value."""
    known = set(names)

    def call(row: Row) -> Row:
        try:
            made = function(row)
        except Exception as error:  # noqa: BLE001 (it is the user's code: whatever it raises is about this row)
            return {PROBLEM: told(error, function)[:REASON_CHARACTERS_MAX]}
        if made is None:
            return {IS_FILTERED: True}
        if not isinstance(made, Mapping):
            return {PROBLEM: f"the function returned {type(made).__name__}, not a dict"}
        unknown = made.keys() - known
        if unknown:
            return {PROBLEM: f"the function returned an unknown column {min(unknown)!r}"}
        missing = [name for name in names if name not in made]
        problem = f"{LEFT_OUT} {missing[0]!r}" if missing else misfit(dict(made))
        return {PROBLEM: problem[:REASON_CHARACTERS_MAX]} if problem else dict(made)

    return call

"""`python`: a function of your own.

each: frame   gets Spark's DataFrame of the living rows and returns one, without restrictions.
each: batch   gets pandas DataFrames, one after the other, and returns one for each.
each: row     gets a dict and returns a dict with all columns of the result, or None to filter the record. An exception
kills
              that record, with file, line and message as the reason; the query continues. A missing column kills the
              record as well: write None for null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)
from pyspark.sql.pandas.types import to_arrow_type

from ottla.pipelines.steps.arrow_values import build_value_check
from ottla.pipelines.steps.frame import AppliedStep, Frame
from ottla.pipelines.steps.parsing.reader import PROBLEM, REASON_CHARACTERS_MAX, Row, arrow_function, quoted, to_structs
from ottla.pipelines.steps.parsing.schemas import SchemaError, read_schema, schema_file
from ottla.pipelines.steps.step import StepError, StepKind
from ottla.pipelines.steps.user_functions import CodeError, error_text, find_function, module_file, name_problem

MADE = "_made"
IS_FILTERED = "_is_filtered"
MISSING_COLUMN = "the function did not return the column"


@dataclass(frozen=True, kw_only=True)
class Python:
    """Process rows with a function of your own."""

    function: str | Callable[..., Any] = field(metadata={"doc": "module:function beside the pipeline, or a function"})
    each: Literal["frame", "batch", "row"] = field(default="frame", metadata={"doc": "argument: frame, batch, row"})
    schema: str | dict[str, object] | None = field(
        default=None, metadata={"doc": "result columns of batch and row (the input columns)"}
    )
    KIND: ClassVar[StepKind] = "opaque"

    def __post_init__(self) -> None:
        if self.each == "row":  # it keeps every record and marks some
            object.__setattr__(self, "KIND", "marks")

    def problems(self) -> Iterator[tuple[str, str, str]]:
        problem = name_problem(self.function) if isinstance(self.function, str) else None
        if problem:
            yield "function", problem, ""
        if self.each == "frame" and self.schema is not None:
            yield "schema", "means nothing for each: frame", "the DataFrame has its own"

    def files(self) -> Iterator[tuple[str, str]]:
        yield from (("function", file) for file in module_file(self.function))
        yield from (("schema", file) for file in schema_file(self.schema))

    def apply(self, frame: Frame) -> Frame:
        try:
            function = (
                find_function(self.function, frame.context.folder) if isinstance(self.function, str) else self.function
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
            return _by_batch(rows, function, self._schema(frame), frame.applied_steps[-1])
        try:
            return function(rows)
        except Exception as error:  # it is the user's code
            raise StepError(error_text(error, function), field="function") from error

    def _schema(self, frame: Frame) -> T.StructType:
        if self.schema is None:
            return T.StructType([frame.rows.schema[name] for name in frame.columns])
        try:
            return read_schema(self.schema, frame.context.folder)[0]
        except SchemaError as problem:
            raise StepError(str(problem), field="schema") from None


def _by_batch(rows: DataFrame, function: Callable[..., Any], schema: T.StructType, step: AppliedStep) -> DataFrame:
    """An exception of the function ends the query, because the affected rows are unknown."""
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
    calling = row_caller(function, schema.names, build_value_check(to_arrow_type(schema, timezone="UTC")))

    def over(rows: pa.Array) -> pa.Array:
        return to_structs([None if row is None else calling(row) for row in rows.to_pylist()], result)

    given = frame.if_alive(F.struct(*(F.col(quoted(name)) for name in frame.columns)))
    made = frame.rows.withColumn(MADE, arrow_function(over, result)(given))
    parts = F.col(MADE)
    marked = replace(frame, rows=made).mark_dead(parts.getField(PROBLEM).isNotNull(), parts.getField(PROBLEM))
    marked = marked.mark_filtered_unless(~F.coalesce(parts.getField(IS_FILTERED), F.lit(False)))
    chosen = marked.select({name: parts.getField(name) for name in schema.names})
    return chosen if chosen.event_time in (None, *schema.names) else replace(chosen, event_time=None)


def batch_caller(function: Callable[[Any], Any], names: list[str], times: list[str], step: str) -> Callable[[Any], Any]:
    """Call the function; errors name the step, in one line."""

    def call(batch: Any) -> Any:
        try:
            made = function(batch)
        except Exception as error:  # noqa: BLE001 (it is the user's code)
            raise RuntimeError(f"{step}: {error_text(error, function)}") from None
        if not hasattr(made, "columns"):
            raise RuntimeError(f"{step}: the function returned {type(made).__name__}, not a pandas DataFrame")
        missing = [name for name in names if name not in made.columns]
        if missing:
            raise RuntimeError(f"{step}: {MISSING_COLUMN} {missing[0]!r}")
        for name in times:
            # Arrow would interpret them as microseconds
            if made[name].dtype.kind in "iuf" and made[name].notna().any():
                raise RuntimeError(f"{step}: column {name!r} has numbers, but must be a time: use pandas.to_datetime")
        return made

    return call


def row_caller(
    function: Callable[[Row], Any], names: list[str], misfit: Callable[[Row], str | None]
) -> Callable[[Row], Row]:
    """Call the function and return errors as values."""
    known = set(names)

    def call(row: Row) -> Row:
        try:
            made = function(row)
        except Exception as error:  # # noqa: BLE001 (user code: any exception concerns this row)
            return {PROBLEM: error_text(error, function)[:REASON_CHARACTERS_MAX]}
        if made is None:
            return {IS_FILTERED: True}
        if not isinstance(made, Mapping):
            return {PROBLEM: f"the function returned {type(made).__name__}, not a dict"}
        unknown = made.keys() - known
        if unknown:
            return {PROBLEM: f"the function returned an unknown column {min(unknown)!r}"}
        missing = [name for name in names if name not in made]
        problem = f"{MISSING_COLUMN} {missing[0]!r}" if missing else misfit(dict(made))
        return {PROBLEM: problem[:REASON_CHARACTERS_MAX]} if problem else dict(made)

    return call

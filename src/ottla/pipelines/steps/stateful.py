"""`stateful`: user code for each key, with state and timers.

    stateful: {by: [user], code: "visits:Visit", state: {pages: int, since: timestamp}, schema: {pages: int}}

`code` is a class with `on_row(row, state)` and, if it sets timers, `on_timer(time, state)`, or a function for rows.
Each returns a dict with the columns of `schema`, several, or None. Output rows have the columns of `by`, those of
`schema`, and the time of the row or timer. Rows come in time order after the watermark has passed them, so batch and
stream give the same result; rows with null keys are filtered. See stateful_program.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)
from pyspark.sql.pandas.types import to_arrow_type

from ottla.pipelines.model.row_order import TIME_MICROS, RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.columns import require_columns
from ottla.pipelines.steps.frame import SOURCE_RECORD, Frame
from ottla.pipelines.steps.keyed_frame import MADE, PROBLEM, KeyedProgram, result_time_column, unpack_struct
from ottla.pipelines.steps.lateness import track_late_rows
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.parsing.schemas import SchemaError, read_schema, schema_file
from ottla.pipelines.steps.stateful_program import State, UserProgram
from ottla.pipelines.steps.step import StepError, StepKind
from ottla.pipelines.steps.user_functions import CodeError, error_text, find_function, module_file, name_problem

Handler = Callable[[Any, State], Any]


@dataclass(frozen=True, kw_only=True)
class Stateful:
    """Process the rows of a key with code that has state and timers."""

    code: str | Callable[..., Any] = field(
        metadata={"doc": "module:Class beside the pipeline (on_row, on_timer), or a function for rows"}
    )
    by: list[str] = field(metadata={"doc": "key columns"})
    state: str | dict[str, object] = field(metadata={"doc": "state of a key: names and types"})
    schema: str | dict[str, object] = field(metadata={"doc": "result columns, besides those of by and the time"})
    forget_after: Duration = field(
        default=Duration(30 * 86_400_000),
        metadata={"doc": "state of a key without rows for this time is removed (30 days)"},
    )
    KIND: ClassVar[StepKind] = "merges"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        problem = name_problem(self.code) if isinstance(self.code, str) else None
        if problem:
            yield "code", problem, ""
        if not self.by:
            yield "by", "names no column", ""
        if self.forget_after < 1:
            yield "forget_after", "must be at least a millisecond", ""
        for name in ("state", "schema"):
            given = getattr(self, name)
            if isinstance(given, dict) and not given:
                yield name, "names no column", ""

    def files(self) -> Iterator[tuple[str, str]]:
        yield from (("code", file) for file in module_file(self.code))
        yield from ((name, file) for name in ("state", "schema") for file in schema_file(getattr(self, name)))

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.by, "by")
        time = result_time_column(frame, self.by)
        result = self._schema("schema", frame)
        taken = {name.lower() for name in (*self.by, time)} & {name.lower() for name in result.names}
        if taken:
            cure = "leave it out: the step gives the columns of by, and the time"
            raise StepError(f"there would be two columns {min(taken)!r}", cure, "schema")
        key = [T.StructField(name, frame.rows.schema[name].dataType) for name in self.by]
        whole = T.StructType([*key, *result.fields])
        program = self._program(frame, result)
        known = reduce(Column.__and__, (F.col(quoted(name)).isNotNull() for name in self.by))
        frame = track_late_rows(frame.filter_counted(known)).with_source_record()
        letter = SOURCE_RECORD if SOURCE_RECORD in frame.rows.columns else None
        rows = KeyedProgram(program, self.by, time, carried=letter).apply(frame)
        made = rows.withColumn(MADE, unpack_struct(F.col(MADE), whole))
        chosen = made.select(
            *(F.col(MADE).getField(name).alias(name) for name in whole.names),
            *(quoted(name) for name in (time, TIME_MICROS, PROBLEM, *([letter] if letter else []))),
        )
        merged = frame.stateful(1).marking_new_rows_dead().merged(chosen, time, (TIME_MICROS, SOURCE_RECORD))
        return merged.mark_dead(F.col(PROBLEM).isNotNull(), F.col(PROBLEM)).without_column(PROBLEM)

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        return RowOrder((TIME_MICROS,))  # time order, also across batches

    def _program(self, frame: Frame, result: T.StructType) -> UserProgram:
        on_row, on_timer = self._handlers(frame.context.folder)
        step = frame.applied_steps[-1]
        return UserProgram(
            tuple(self.by),
            on_row,
            on_timer,
            to_arrow_type(self._schema("state", frame), timezone="UTC"),
            to_arrow_type(result, timezone="UTC"),
            int(self.forget_after),
            f"{step.stream}, step {step.number}, {step.step}",
        )

    def _handlers(self, folder: str) -> tuple[Handler, Handler | None]:
        """Raises StepError."""
        try:
            code = find_function(self.code, folder) if isinstance(self.code, str) else self.code
        except CodeError as problem:
            raise StepError(str(problem), field="code") from None
        if not inspect.isclass(code):
            return _checked(code, "the function", "(row, state)"), None
        try:
            made = code()
        except Exception as error:  # it is the user's code
            raise StepError(f"{code.__name__}() cannot be created: {error_text(error)}", field="code") from error
        on_row, on_timer = getattr(made, "on_row", None), getattr(made, "on_timer", None)
        if not callable(on_row):
            raise StepError(f"{code.__name__} has no on_row(self, row, state)", field="code")
        checked = None if on_timer is None else _checked(on_timer, "on_timer", "(self, time, state)")
        return _checked(on_row, "on_row", "(self, row, state)"), checked

    def _schema(self, name: str, frame: Frame) -> T.StructType:
        try:
            return read_schema(getattr(self, name), frame.context.folder)[0]
        except SchemaError as problem:
            raise StepError(str(problem), field=name) from None


def _checked(function: Any, name: str, form: str) -> Handler:
    """Raises StepError unless the function takes two arguments and returns synchronously."""
    if not callable(function):
        raise StepError(f"{name} is {type(function).__name__}, not a function", field="code")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise StepError(f"{name} is asynchronous", "write it without async", "code")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise StepError(f"{name} does not take {form}", field="code") from None
    except ValueError:  # not written in Python
        pass
    return function  # type: ignore[no-any-return]

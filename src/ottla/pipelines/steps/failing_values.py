"""`on_error`: what becomes of a row with which an SQL expression fails.

A row is dead for an expression exactly when Spark in ANSI mode raises an error for this expression on this row alone.
`raises` finds that out inside the plan, for any expression: `try_add` of a date and a number evaluates both in
Catalyst's TryEval, which gives null if one of them raises. docs/decisions/failing-values.md has the alternatives.

    dead   the row dies, with the expression and its input as the reason (default)
    null   the value of the expression is null
    fail   the error ends the run
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.texts import asks_the_time, column_of_sql, keeps_something, names_in, words_of_spark
from ottla.pipelines.model.specs import OnError
from ottla.pipelines.steps.frame import ALIVE, FATE, SOURCE_RECORD, Frame
from ottla.pipelines.steps.parsing.reader import first_true, quoted, shown
from ottla.pipelines.steps.step import StepError

NO_RECORD = (
    "on_error: dead: rows behind a step that merges rows have no record that could become a dead letter",
    "write on_error: null, or on_error: fail",
    "on_error",
)
SOME_DATE = date(2000, 1, 1)
HAS_FAILED = "_has_failed_"
TEXT_MAX = 200  # characters of an expression in a reason
INPUTS_MAX = 5  # columns in a reason
REMEMBERING = ("deduplicate", "join")  # the result depends on other rows than those of the batch
WORD = re.compile(r"\w+")
SHOWN_TYPES = (T.StringType, T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True)
class Expression:
    """`text` is shown in reasons; `value` is Spark's expression if the text is none, `sql` then the SQL in it."""

    text: str
    value: Column | None = None
    sql: str = ""

    @property
    def user_sql(self) -> str:
        return self.text if self.value is None else self.sql

    @property
    def column(self) -> Column:
        return column_of_sql(self.text) if self.value is None else self.value


def raises(value: Column) -> Column:
    """Whether evaluating this expression raises an error. It may not contain Python functions.

    Each part prevents Spark from evaluating the expression outside TryEval, or not at all:
    * `array` accepts every type, and the size of an array is not simplified; `value IS NULL` would be, for an
      expression that is never null.
    * The condition on the partition is always true, but Spark cannot know it. So it neither merges this projection
      with others (the condition is not deterministic), nor moves a part that several expressions share in front of
      them (a branch may not be evaluated).
    """
    tried = F.try_add(F.lit(SOME_DATE), F.size(F.array(value)))
    return F.when(F.spark_partition_id() >= 0, tried.isNull()).otherwise(F.lit(False))


def compute(frame: Frame, columns: Mapping[str, Expression], on_error: OnError | None) -> Frame:
    """Add columns for living rows. An expression may not use an added column; see `independent`."""
    for each in columns.values():
        _check_words(frame, each)
    handled = {name: handling(frame, each, on_error) for name, each in columns.items()}
    if any(handled[name] == "dead" and _may_differ(frame, each) for name, each in columns.items()):
        frame = frame.with_source_record()
    guarded = [name for name, each in columns.items() if handled[name] != "fail" and not _is_column(frame, each)]
    flags = {name: f"{HAS_FAILED}{number}" for number, name in enumerate(guarded)}
    frame = _with_flags(frame, {flags[name]: columns[name] for name in guarded})
    values = {
        name: F.when(~F.col(flags[name]), each.column) if name in flags and handled[name] == "null" else each.column
        for name, each in columns.items()
    }
    deadly = [name for name in guarded if handled[name] == "dead"]
    shown_columns = _shown_columns(frame) if deadly else []
    reasons = [(F.col(flags[name]), _reason(shown_columns, columns[name])) for name in deadly]
    if reasons:
        is_dead = reduce(Column.__or__, [flag for flag, _ in reasons])
        frame = frame.mark_dead(is_dead, first_true(reasons), values)
    else:
        frame = frame.with_columns(values)
    return frame if not flags else replace(frame, rows=frame.rows.drop(*flags.values()))


def independent(columns: Mapping[str, Expression]) -> Iterator[dict[str, Expression]]:
    """Groups of SQL expressions that use no column of their own group, in order. In doubt a new group begins."""
    group: dict[str, Expression] = {}
    for name, each in columns.items():
        if names_in(each.text) & {earlier.lower() for earlier in group}:
            yield group
            group = {}
        group[name] = each
    if group:
        yield group


def handling(frame: Frame, expression: Expression, on_error: OnError | None) -> OnError:
    """The step's choice, or the pipeline's where a dead row becomes a letter at no cost. Raises StepError."""
    chosen = on_error or frame.context.on_error
    if chosen == "fail":
        return chosen
    if expression.user_sql and keeps_something(expression.user_sql):
        if on_error is None:
            return "fail"
        cause = f"on_error: {on_error}: {expression.text!r} calls a function that keeps something between rows"
        raise StepError(
            cause, "compute what can fail in a column of its own before, or write on_error: fail", "on_error"
        )
    if chosen == "null":
        return chosen
    if not (frame.has_origin and {"_offset", SOURCE_RECORD} & set(frame.rows.columns)):
        if on_error is None:
            return "fail"
        raise StepError(*NO_RECORD)
    return "fail" if on_error is None and _may_differ(frame, expression) else "dead"


def _check_words(frame: Frame, expression: Expression) -> None:
    """Raises StepError where Spark would find no column, and take its name for the clock or the session's user."""
    known = {name.lower() for name in frame.columns}
    words = words_of_spark(expression.user_sql) if expression.user_sql else set()
    for word in sorted(words):
        if word.lower() not in known:
            raise StepError(f"there is no column {word!r}", f"there are: {', '.join(frame.columns)}")


def _is_column(frame: Frame, expression: Expression) -> bool:
    """A column as it is: nothing can fail."""
    text = expression.text.strip()
    name = text if WORD.fullmatch(text) else text[1:-1] if quoted(text[1:-1]) == text else ""
    return expression.value is None and name in frame.columns


def _may_differ(frame: Frame, expression: Expression) -> bool:
    """Whether other rows may be dead when the batch is read again for its dead letters."""
    if SOURCE_RECORD in frame.rows.columns:  # it is not read again
        return False
    is_behind_memory = any(each.step in REMEMBERING for each in frame.applied_steps)
    return is_behind_memory or (expression.value is None and asks_the_time(expression.text))


def _with_flags(frame: Frame, expressions: Mapping[str, Expression]) -> Frame:
    flags = {flag: (F.col(FATE) == ALIVE) & raises(each.column) for flag, each in expressions.items()}
    return replace(frame, rows=frame.rows.withColumns(flags)) if flags else frame


def _shown_columns(frame: Frame) -> list[str]:
    """Columns whose values can be part of a reason. The schema costs Spark an analysis: once for all expressions."""
    kinds = {each.name: each.dataType for each in frame.rows.schema.fields}
    return [name for name in frame.columns if isinstance(kinds[name], SHOWN_TYPES)]


def _reason(shown_columns: list[str], expression: Expression) -> Column:
    """The expression, and the values of the columns whose names are in it."""
    text = " ".join(expression.text.split())
    told = F.lit(f"{text if len(text) <= TEXT_MAX else f'{text[:TEXT_MAX]}…'} fails")
    words = {word.lower() for word in WORD.findall(expression.text)}
    used = [name for name in shown_columns if name.lower() in words]
    inputs = [
        F.concat(F.lit(f"{name} = "), F.coalesce(shown(F.col(quoted(name)).cast("string")), F.lit("null")))
        for name in used[:INPUTS_MAX]
    ]
    return F.concat(told, F.lit(" with "), F.concat_ws(", ", *inputs)) if inputs else told

"""What windows and totals compute: short forms for what is usual, SQL for everything else.

    count: views                      sum: {bytes: size}                first: {landing: page}
    percentile: {p95: ms, p50: ms}    aggregates: {spread: "max(ms) - min(ms)"}

Not-a-number and infinite values are left out by the short forms, as nulls are: one of them would spoil the whole
window. A sum that does not fit its type is null. `first` and `last` go by time, not by order of arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.sql_safety import check_expression
from ottla.pipelines.steps.step import StepError

PERCENTILE = re.compile(r"p(\d{1,2})(?:_.+)?")
PERCENTILE_ACCURACY = 10_000
NUMERIC = {
    "sum": F.try_sum,
    "avg": F.try_avg,
    "deviation": F.stddev_samp,
}  # fmt: skip

New = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """The fields that windows and totals share."""

    count: str | None = field(default=None, metadata={"doc": "name of a column with the number of rows"})
    sum: New = field(default_factory=dict, metadata={"doc": "new column: column to add up"})
    avg: New = field(default_factory=dict, metadata={"doc": "new column: column whose average is wanted"})
    min: New = field(default_factory=dict, metadata={"doc": "new column: column whose smallest value is wanted"})
    max: New = field(default_factory=dict, metadata={"doc": "new column: column whose greatest value is wanted"})
    deviation: New = field(
        default_factory=dict, metadata={"doc": "new column: column whose standard deviation is wanted"}
    )
    first: New = field(default_factory=dict, metadata={"doc": "new column: column whose earliest value is wanted"})
    last: New = field(default_factory=dict, metadata={"doc": "new column: column whose latest value is wanted"})
    distinct: New = field(
        default_factory=dict, metadata={"doc": "new column: column whose different values are counted (about 2 %)"}
    )
    percentile: New = field(
        default_factory=dict, metadata={"doc": "new column: column; the name says which: p95, p50_ms"}
    )
    aggregates: New = field(default_factory=dict, metadata={"doc": "new column: SQL with aggregate functions"})

    def new_columns(self) -> list[str]:
        forms = (self.sum, self.avg, self.min, self.max, self.deviation, self.first, self.last, self.distinct)
        named = [name for form in (*forms, self.percentile, self.aggregates) for name in form]
        return [self.count or "count", *named] if self.count or not named else named

    def aggregate_problems(self, taken: list[str]) -> Iterator[tuple[str, str, str]]:
        names = [*taken, *self.new_columns()]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "", f"{name!r} would stand in the result twice", "give one of them another name"
        for name in self.percentile:
            if not PERCENTILE.fullmatch(name):
                yield "percentile", f"{name!r} does not say which", "begin with p and a number: p95, p50_ms"
        for name, text in self.aggregates.items():
            problem = check_expression(text)
            if problem:
                yield "aggregates", f"{name}: {problem}", ""
        for name in names:
            if name.startswith("_"):
                yield "", f"{name!r} begins with an underscore", "such names are reserved"

    def columns(self, frame: Frame, time: Column) -> list[Column]:
        """The aggregates, over rows of this frame; `time` orders first and last."""
        made = (
            [F.count(F.lit(1)).alias(self.count or "count")] if self.new_columns()[0] == (self.count or "count") else []
        )
        for name, function in NUMERIC.items():
            made += [function(_number(frame, old, name)).alias(new) for new, old in getattr(self, name).items()]
        made += [F.min(_finite(frame, old)).alias(new) for new, old in self.min.items()]
        made += [F.max(_finite(frame, old)).alias(new) for new, old in self.max.items()]
        made += [F.min_by(F.col(old), _order(time, old)).alias(new) for new, old in self.first.items()]
        made += [F.max_by(F.col(old), _order(time, old)).alias(new) for new, old in self.last.items()]
        made += [F.approx_count_distinct(old, 0.02).alias(new) for new, old in self.distinct.items()]
        made += [_percentile(frame, new, old) for new, old in self.percentile.items()]
        return made + [F.expr(sql).alias(new) for new, sql in self.aggregates.items()]


def _order(time: Column, old: str) -> Column:
    """Rows of the same time are told apart by their value: any order of arrival gives the same result."""
    return F.when(F.col(old).isNotNull(), F.struct(time, F.col(old).cast("string")))


def _percentile(frame: Frame, new: str, old: str) -> Column:
    match = PERCENTILE.fullmatch(new)
    assert match is not None
    share = int(match[1]) / 100
    return F.percentile_approx(_number(frame, old, "percentile"), share, PERCENTILE_ACCURACY).alias(new)


def _number(frame: Frame, name: str, form: str) -> Column:
    kind = _kind(frame, name, form)
    if isinstance(kind, T.StringType):
        return _only_finite(F.col(name).cast("double"))
    if not isinstance(kind, T.NumericType):
        raise StepError(f"{name} is {kind.simpleString()}, not a number", "cast it before, or use SQL", form)
    return _finite(frame, name)


def _finite(frame: Frame, name: str) -> Column:
    is_float = isinstance(_kind(frame, name, ""), T.FloatType | T.DoubleType)
    return _only_finite(F.col(name)) if is_float else F.col(name)


def _only_finite(value: Column) -> Column:
    return F.when(F.abs(value) < F.lit(float("inf")), value)  # NaN is greater than anything in Spark


def _kind(frame: Frame, name: str, form: str) -> T.DataType:
    kinds: dict[str, T.DataType] = {each.name: each.dataType for each in frame.rows.schema.fields}
    if name not in kinds:
        raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", form)
    return kinds[name]

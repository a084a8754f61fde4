"""`filter`, `rule`, `sample`: which records stay. Filtered records are counted; records that break a rule die.

`filter` takes an SQL condition, a regular expression on a column, column values, the verdict of a trained model, or
several of these. Regular expressions use RE2 through Arrow: unlike Java's, no text can make them run forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.texts import check_condition, column_of_sql
from ottla.pipelines.model.row_order import SOURCE_ORDER, RowOrder
from ottla.pipelines.model.specs import ON_ERROR, OnError
from ottla.pipelines.steps.classifier import Classifier, keep_class
from ottla.pipelines.steps.columns import require_columns
from ottla.pipelines.steps.failing_values import Expression, compute
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.patterns import check_pattern, to_re2
from ottla.pipelines.steps.parsing.reader import arrow_function, first_true, quoted
from ottla.pipelines.steps.step import StepError, StepKind

CONDITION = "_condition_"  # temporary columns
BUCKETS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Keep the records for which all given conditions are true."""

    where: str | None = field(default=None, metadata={"doc": "SQL condition"})
    matches: dict[str, str] = field(default_factory=dict, metadata={"doc": "column: regular expression found in it"})
    equals: dict[str, object] = field(default_factory=dict, metadata={"doc": "column: value, or list of values"})
    classifier: Classifier | None = field(default=None, metadata={"doc": "a trained model, and the classes to keep"})
    on_error: OnError | None = field(default=None, metadata=ON_ERROR)
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not (self.where or self.matches or self.equals or self.classifier):
            yield "", "keeps everything", "give where, matches, equals or classifier"
        problem = check_condition(self.where) if self.where else None
        if problem:
            yield "where", f"{self.where!r} {problem}", ""
        for column, pattern in self.matches.items():
            problem = check_pattern(to_re2(pattern))
            if problem:
                yield "matches", f"{column}: {pattern!r} is not a regular expression: {problem}", ""

    def files(self) -> Iterator[tuple[str, str]]:
        if self.classifier is not None:
            yield "classifier", self.classifier.model

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, [*self.matches], "matches")
        require_columns(frame, [*self.equals], "equals")
        # Outside the computed expression: they call Python.
        conditions = [
            contains_match(F.col(quoted(column)).cast("string"), pattern) for column, pattern in self.matches.items()
        ]
        computed = self._computed()
        if computed is not None:
            frame = compute(frame, {CONDITION: computed}, self.on_error)
            conditions.insert(0, F.col(CONDITION))
        if conditions:
            frame = frame.mark_filtered_unless(reduce(Column.__and__, conditions))
        frame = replace(frame, rows=frame.rows.drop(CONDITION))
        return keep_class(frame, self.classifier) if self.classifier else frame

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

    def _computed(self) -> Expression | None:
        """`where` and `equals` as one expression: in a row that the first part filters, nothing else is evaluated."""
        found = [(self.where, column_of_sql(self.where))] if self.where else []
        for column, wanted in self.equals.items():
            values = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
            found.append((f"{column} equals {wanted}", F.col(quoted(column)).isin(values)))
        if not found:
            return None
        whole = reduce(Column.__and__, (condition for _, condition in found))
        return Expression(" and ".join(text for text, _ in found), whole, self.where or "")


def contains_match(text: Column, pattern: str) -> Column:
    """Whether the expression matches part of the text; null for null."""
    wanted = to_re2(pattern)

    def over(texts: pa.Array) -> pa.Array:
        return pc.match_substring_regex(texts, pattern=wanted)

    return arrow_function(over, T.BooleanType())(text)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Records for which one of these conditions is not true die, with the name of the rule as the reason."""

    rules: dict[str, str] = field(metadata={"doc": "name: SQL condition"})
    on_error: OnError | None = field(default=None, metadata=ON_ERROR)
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not self.rules:
            yield "rules", "names no rule", "write `rule: {name: condition}`"
        for name, text in self.rules.items():
            problem = check_condition(text)
            if problem:
                yield "rules", f"{name}: {text!r} {problem}", ""

    def apply(self, frame: Frame) -> Frame:
        made = {f"{CONDITION}{number}": Expression(text) for number, text in enumerate(self.rules.values())}
        frame = compute(frame, made, self.on_error)
        broken = [
            (~F.coalesce(F.col(column), F.lit(False)), F.lit(f"rule broken: {name}"))
            for name, column in zip(self.rules, made, strict=True)
        ]
        frame = frame.mark_dead(reduce(Column.__or__, [condition for condition, _ in broken]), first_true(broken))
        return replace(frame, rows=frame.rows.drop(*made))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Keep a part of the records, always the same ones: selected by a hash, not at random."""

    fraction: float = field(metadata={"doc": "between 0 and 1"})
    by: list[str] = field(
        default_factory=list, metadata={"doc": "columns: records with equal values are kept or dropped together"}
    )
    seed: int = field(default=0, metadata={"doc": "another number is another sample"})
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 0 <= self.fraction <= 1:
            yield "fraction", f"{self.fraction} is not between 0 and 1", ""

    def apply(self, frame: Frame) -> Frame:
        require_columns(frame, self.by, "by")
        if not self.by and not set(SOURCE_ORDER) <= set(frame.rows.columns):
            raise StepError("these rows have no offset to choose by", "give `by`", "by")
        chosen = [F.col(quoted(name)) for name in self.by or SOURCE_ORDER]
        return frame.mark_filtered_unless(
            F.pmod(F.xxhash64(F.lit(self.seed), *chosen), F.lit(BUCKETS)) < round(self.fraction * BUCKETS)
        )

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

"""`filter`: keep the records for which something is true; the others are counted as filtered.

A condition in SQL, a regular expression on a column, values of attributes, the verdict of a trained model, or several
of these together. Regular expressions are RE2's, applied by Arrow: no text can make them run for ever, as Java's can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.steps.classifier import Classifier, keep_class
from ottla.pipelines.steps.columns import need_columns
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.patterns import check_pattern, for_re2
from ottla.pipelines.steps.parsing.reader import arrow_function, quoted
from ottla.pipelines.steps.sql_safety import check_condition
from ottla.pipelines.steps.step import Kind


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Keep the records for which everything said here is true."""

    where: str | None = field(default=None, metadata={"doc": "SQL condition"})
    matches: dict[str, str] = field(default_factory=dict, metadata={"doc": "column: regular expression found in it"})
    equals: dict[str, object] = field(default_factory=dict, metadata={"doc": "column: value, or list of values"})
    classifier: Classifier | None = field(default=None, metadata={"doc": "a trained model, and the classes to keep"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not (self.where or self.matches or self.equals or self.classifier):
            yield "", "keeps everything", "give where, matches, equals or classifier"
        problem = check_condition(self.where) if self.where else None
        if problem:
            yield "where", f"{self.where!r} {problem}", ""
        for column, pattern in self.matches.items():
            problem = check_pattern(for_re2(pattern))
            if problem:
                yield "matches", f"{column}: {pattern!r} is no regular expression: {problem}", ""

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, [*self.matches], "matches")
        need_columns(frame, [*self.equals], "equals")
        conditions = list(self._conditions())
        if conditions:
            frame = frame.keep(reduce(Column.__and__, conditions))
        return keep_class(frame, self.classifier) if self.classifier else frame

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

    def _conditions(self) -> Iterator[Column]:
        if self.where:
            yield F.expr(self.where)
        for column, wanted in self.equals.items():
            yield F.col(quoted(column)).isin(list(wanted) if isinstance(wanted, list | tuple) else [wanted])
        for column, pattern in self.matches.items():
            yield contains_match(F.col(quoted(column)).cast("string"), pattern)


def contains_match(text: Column, pattern: str) -> Column:
    """Whether the expression is found in the text; null where there is none."""
    wanted = for_re2(pattern)

    def over(texts: pa.Array) -> pa.Array:
        return pc.match_substring_regex(texts, pattern=wanted)

    return arrow_function(over, T.BooleanType())(text)

"""`rule`: what must be true of every record. Those that break it die, and the name of the rule is the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import first_of
from ottla.pipelines.steps.sql_safety import check_condition
from ottla.pipelines.steps.step import Kind


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Records for which one of these conditions is not true die."""

    rules: dict[str, str] = field(metadata={"doc": "name: SQL condition"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not self.rules:
            yield "rules", "names no rule", "write `rule: {name: condition}`"
        for name, text in self.rules.items():
            problem = check_condition(text)
            if problem:
                yield "rules", f"{name}: {text!r} {problem}", ""

    def apply(self, frame: Frame) -> Frame:
        broken = [
            (~F.coalesce(F.expr(text), F.lit(False)), F.lit(f"rule broken: {name}"))
            for name, text in self.rules.items()
        ]
        return frame.kill(reduce(Column.__or__, [condition for condition, _ in broken]), first_of(broken))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

"""`sample`: a part of the records, always the same ones: chosen by a hash, not by chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import SOURCE_ORDER, RowOrder
from ottla.pipelines.steps.columns import need_columns
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import Kind, StepError

PARTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Keep a part of the records."""

    fraction: float = field(metadata={"doc": "between 0 and 1"})
    by: list[str] = field(default_factory=list, metadata={"doc": "all records with the same values, or none of them"})
    seed: int = field(default=0, metadata={"doc": "another number is another sample"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if not 0 <= self.fraction <= 1:
            yield "fraction", f"{self.fraction} is not between 0 and 1", ""

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, self.by, "by")
        if not self.by and not set(SOURCE_ORDER) <= set(frame.rows.columns):
            raise StepError("these rows have no offset to choose by", "give `by`", "by")
        chosen = [F.col(quoted(name)) for name in self.by or SOURCE_ORDER]
        return frame.keep(F.pmod(F.xxhash64(F.lit(self.seed), *chosen), F.lit(PARTS)) < round(self.fraction * PARTS))

    def row_order(self, before: RowOrder) -> RowOrder:
        return before

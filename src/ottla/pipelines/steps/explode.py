"""`explode`: one row for each element of a list or entry of a map. They keep the origin of their record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import POSITION, RowOrder
from ottla.pipelines.steps.columns import need_columns
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import Kind, StepError

AT = "_at"  # the element's number, while the step is at work


@dataclass(frozen=True, kw_only=True)
class Explode:
    """Make a row of every element of a list, or entry of a map."""

    column: str = field(metadata={"doc": "list or map"})
    into: str | None = field(default=None, metadata={"doc": "name for the element (the column's)"})
    key: str = field(default="key", metadata={"doc": "name for the key of a map's entry"})
    position: str | None = field(default=None, metadata={"doc": "name for the element's number, from 0"})
    keep_empty: bool = field(default=False, metadata={"doc": "records without elements stay, with null"})
    KIND: ClassVar[Kind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, [self.column], "column")
        kind = frame.rows.schema[self.column].dataType
        if not isinstance(kind, T.ArrayType | T.MapType):
            raise StepError(f"{self.column!r} is {kind.simpleString()}, no list or map", field="column")
        element = self.into or self.column
        new = [name for name in (self.position, self.key if isinstance(kind, T.MapType) else None, element) if name]
        others = [name for name in frame.columns if name != self.column]
        clash = {name.lower() for name in new} & {name.lower() for name in others}
        if clash or len(set(new)) < len(new):
            raise StepError(f"there would be two columns {min(clash or set(new))!r}", "give `into` or `key`", "into")
        if not self.keep_empty:
            frame = frame.taking_part(F.size(quoted(self.column)) > 0)  # the others give no row: filtered
        made = self._made().alias(AT, *(name for name in new if name != self.position))
        rows = frame.rows.select(*map(quoted, others), *frame.hidden, made)
        position: list[Column | str] = [F.col(AT).alias(self.position)] if self.position else []
        visible = [*map(quoted, others), *position, *(quoted(name) for name in new if name != self.position)]
        hidden = [name for name in frame.hidden if name != POSITION]
        return replace(frame, rows=rows.select(*visible, *hidden, _position(frame)), needs_count=True)

    def row_order(self, before: RowOrder) -> RowOrder:
        return RowOrder((*before.columns, POSITION) if before.columns else ())

    def _made(self) -> Column:
        column = F.col(quoted(self.column))
        return F.posexplode_outer(column) if self.keep_empty else F.posexplode(column)


def _position(frame: Frame) -> Column:
    """The way to the element: that of the row that was exploded, and its own number."""
    number = F.array(F.col(AT))
    return (F.concat(F.col(POSITION), number) if POSITION in frame.hidden else number).alias(POSITION)

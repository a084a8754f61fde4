"""`union`: the rows of another stream beside those of this one. Columns are matched by name; a missing one is null."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ottla.pipelines.steps.frame import LETTER, Frame
from ottla.pipelines.steps.step import Kind


@dataclass(frozen=True, kw_only=True)
class Union:
    """Add the rows of another stream."""

    with_stream: str = field(metadata={"doc": "the other stream"})
    KIND: ClassVar[Kind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        other = frame.around.stream(self.with_stream).settle()
        if LETTER in (*frame.rows.columns, *other.rows.columns):  # what dies behind the union is looked for there alone
            frame, other = frame.with_letters(), other.with_letters()
        event_time = frame.event_time if frame.event_time == other.event_time else None
        rows = frame.rows.unionByName(other.rows, allowMissingColumns=True)
        both = frame.joined(other, rows, event_time)
        if not (frame.has_origin and other.has_origin):
            return both
        return replace(both, rows=rows, has_origin=True)

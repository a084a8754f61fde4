"""`union`: the rows of another stream beside those of this one. Columns are matched by name; a missing one is null."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyspark.sql.types import NullType, StringType

from ottla.pipelines.steps.columns import lose_digits
from ottla.pipelines.steps.frame import LETTER, Frame
from ottla.pipelines.steps.step import Kind, StepError


@dataclass(frozen=True, kw_only=True)
class Union:
    """Add the rows of another stream."""

    with_stream: str = field(metadata={"doc": "the other stream"})
    KIND: ClassVar[Kind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        other = frame.around.stream(self.with_stream).settle()
        if LETTER in (*frame.rows.columns, *other.rows.columns):  # what dies behind the union is looked for there alone
            frame, other = frame.with_letters(), other.with_letters()
        _check_types(frame, other, self.with_stream)
        event_time = frame.event_time if frame.event_time == other.event_time else None
        rows = frame.rows.unionByName(other.rows, allowMissingColumns=True)
        both = frame.joined(other, rows, event_time)
        if not (frame.has_origin and other.has_origin):
            return both
        return replace(both, rows=rows, has_origin=True)


def _check_types(frame: Frame, other: Frame, name: str) -> None:
    """Spark would make numbers and times of texts, "7" of "007", and end the run where a text is none. Decimals it
    would round where one has many digits before the point, and the other behind it."""
    for column in frame.columns:
        if column in other.columns:
            ours, theirs = (each.rows.schema[column].dataType for each in (frame, other))
            is_text = ours != theirs and StringType() in (ours, theirs) and NullType() not in (ours, theirs)
            if is_text or lose_digits(ours, theirs):
                cause = f"{column} is {ours.simpleString()}, and in stream {name} {theirs.simpleString()}"
                raise StepError(cause, "cast one of them before", "with_stream")

"""The first rows after each step, from the current records of the topics: nothing is written, committed or kept.

The records are read once, as a batch: every window is closed and nothing is late. Joins with a table read its whole
topic, as in a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.base.names import TopicPartition
from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.problems import Path
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.source_options import Ranges
from ottla.pipelines.running.starting import find_ranges
from ottla.pipelines.source.offset_ranges import limit_offsets
from ottla.pipelines.steps.event_time import Watermark
from ottla.pipelines.steps.frame import ALIVE, FATE, REASON, Frame
from ottla.pipelines.steps.step import Step

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Look(NamedTuple):
    """The rows after a step; number 0 is the source."""

    stream: str
    number: int
    step: str
    columns: list[str]
    rows: list[tuple[Any, ...]]
    living: int
    filtered: int
    dead: int
    reason: str  # of the first dead row

    @property
    def title(self) -> str:
        return f"{self.stream}, {self.number} {self.step}" if self.number else f"{self.stream}, {self.step}"


@dataclass
class PreviewBuilder(Builder):
    """Keeps the frame after each step, by stream and number."""

    frames: dict[tuple[str, int], Frame] = field(default_factory=dict)
    read: dict[Path, DataFrame] = field(default_factory=dict)

    def _read(self, source: TopicSource, path: Path) -> DataFrame:
        if self.ranges is None:  # the table of a join
            return super()._read(source, path)
        if path not in self.read:
            self.read[path] = super()._read(source, path).persist()  # every step sees the same records
        return self.read[path]

    def _applied(self, step: Step, frame: Frame) -> Frame:
        last = frame.applied_steps[-1]
        made = step.apply(frame)
        if self.ranges is not None:
            self.frames.setdefault((last.stream, last.number), made)
        return made

    def close(self) -> None:
        for rows in self.read.values():
            rows.unpersist()


def preview(
    spark: SparkSession, pipeline: Pipeline, choices: Choices, rows_max: int, records_max: int
) -> Iterator[Look]:
    """In the order of the file. Raises PipelineError, SourceError, PySparkException."""
    choices = Choices(choices.starting, choices.connector, is_counting=False)
    known: dict[tuple[str, int], Look] = {}
    for query in pipeline.queries():
        ranges = limited(find_ranges(pipeline, query, choices.starting), records_max)
        builder = PreviewBuilder(spark, pipeline, is_streaming=False, choices=choices, ranges=ranges)
        try:
            builder.query(query.name)
            for stream in reversed(pipeline.ancestry(query)):
                if stream.path in builder.read and (stream.name, 0) not in known:
                    known[stream.name, 0] = _source_look(stream.name, builder.read[stream.path], rows_max)
                    yield known[stream.name, 0]
                for number, step in enumerate(stream.steps, start=1):
                    place = (stream.name, number)
                    if place in builder.frames and place not in known:
                        look = _look(*place, step.name, builder.frames[place], rows_max)
                        known[place] = _with_settled(look, known.get(_before(pipeline, stream, number)), step.spec)
                        yield known[place]
        finally:
            builder.close()


def limited(ranges: Ranges, records_max: int) -> dict[str, dict[int, tuple[int, int]]]:
    """At most about this many records of all partitions together, from the start of each."""
    starts = {TopicPartition(topic, n): ends[0] for topic, each in ranges.items() for n, ends in each.items()}
    ends = {TopicPartition(topic, n): ends[1] for topic, each in ranges.items() for n, ends in each.items()}
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for place, end in limit_offsets(starts, ends, records_max).items():
        found.setdefault(place.topic, {})[place.partition] = (starts[place], end)
    return found


def _before(pipeline: Pipeline, stream: Stream, number: int) -> tuple[str, int]:
    """The input frames of a step."""
    if number > 1 or not isinstance(stream.origin, str):
        return stream.name, number - 1
    parent = pipeline.streams[stream.origin]
    return _before(pipeline, parent, len(parent.steps) + 1)


def _with_settled(look: Look, before: Look | None, spec: object) -> Look:
    """`watermark` drops its dead rows: missing rows died there."""
    if before is None or not isinstance(spec, Watermark):
        return look
    return look._replace(dead=before.living - look.living, reason=f"{spec.time} is null, or too far ahead")


def _source_look(stream: str, rows: DataFrame, rows_max: int) -> Look:
    text = [F.col(name).cast("string").alias(name) for name in ("key", "value")]
    shown = rows.select("topic", "partition", "offset", *_in_utc(rows, ["timestamp"]), *text)
    first = [tuple(row) for row in shown.limit(rows_max).collect()]
    return Look(stream, 0, "from", shown.columns, first, rows.count(), 0, 0, "")


def _in_utc(rows: DataFrame, names: list[str]) -> list[Column]:
    """Times as text in the session's zone: Python would convert them to the local zone."""
    times = {each.name for each in rows.schema.fields if each.dataType.typeName() == "timestamp"}
    columns = {name: F.col(f"`{name}`") for name in names}
    return [(column.cast("string") if name in times else column).alias(name) for name, column in columns.items()]


def _look(stream: str, number: int, step: str, frame: Frame, rows_max: int) -> Look:
    mark = next((each.mark for each in frame.applied_steps if (each.stream, each.number) == (stream, number)), 0)
    fate, died = F.col(FATE), F.col(FATE) == -mark
    figures = frame.rows.agg(
        F.count_if(fate == ALIVE).alias("living"),
        F.count_if(fate == mark).alias("filtered"),
        F.count_if(died).alias("dead"),
        F.min(F.when(died, F.col(REASON))).alias("reason"),
    ).collect()[0]
    living = frame.rows.filter(fate == ALIVE).select(*_in_utc(frame.rows, frame.columns))
    rows = [tuple(row) for row in living.limit(rows_max).collect()]
    living_count, filtered, dead, reason = figures
    return Look(stream, number, step, frame.columns, rows, living_count, filtered, dead, reason or "")

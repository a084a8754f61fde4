"""Translates the model to Spark: the frames of a pipeline's streams.

One builder per query: observation names are unique within a query, and a stream that is used twice in one query is read
twice, as Spark does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.pipelines.model.pipeline import Pipeline, Stream, TopicSource
from ottla.pipelines.model.problems import Path
from ottla.pipelines.model.specs import OnError
from ottla.pipelines.running.file_access import check_reads
from ottla.pipelines.running.laid_aside import Place, lay_aside, lay_late_aside
from ottla.pipelines.running.problem_location import ProblemLocation
from ottla.pipelines.running.sink_checks import check_sinks, sink_order
from ottla.pipelines.running.source_options import Offsets, Ranges, part_of, source_format, source_options
from ottla.pipelines.running.special_times import refuse_special_times
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.source import register
from ottla.pipelines.steps.frame import FATE, REASON, SOURCE_RECORD, AppliedStep, Frame, source_frame
from ottla.pipelines.steps.lateness import late_reason
from ottla.pipelines.steps.step import Step, StepError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key string, value binary>>"
)


@dataclass
class Choices:
    """Command-line settings for the sources of any pipeline."""

    starting: str | None = None  # instead of what the file says
    connector: str | None = None
    is_counting: bool = True
    counts_filtered: bool = True


@dataclass
class Builder:
    """`ranges` bounds a batch run: topic -> partition -> (first offset, offset after the last)."""

    spark: SparkSession
    pipeline: Pipeline
    is_streaming: bool = True
    choices: Choices = field(default_factory=Choices)
    ranges: Ranges | None = None
    marked: list[tuple[DataFrame, list[AppliedStep]]] = field(default_factory=list)  # for dead letters
    # None in a stream, whose progress reports them
    observations: dict[str, Observation | None] = field(default_factory=dict)
    starting: Offsets = field(default_factory=dict)  # instead of what the file says
    loss_folder: str = ""  # folder in which the sources report data loss
    forgives_loss: bool = False  # overrides fail_on_data_loss
    late_before_ms: int | None = None  # a watermark: the rows that it makes late are collected, in a batch
    late: list[tuple[DataFrame, list[AppliedStep]]] = field(default_factory=list)
    aside_folder: str = ""  # for dead letters that cannot stay with the rows
    aside: list[Place] = field(default_factory=list)
    late_folder: str = ""  # the same for late rows
    late_aside: list[Place] = field(default_factory=list)
    checkpoint: str = ""  # of a query that sends late rows
    looks_again: bool = False  # reads batches of a stream again, for dead letters

    @property
    def folder(self) -> str:
        return self.pipeline.folder

    @property
    def registry(self) -> RegistryAddress | None:
        return self.pipeline.fields.registry_address

    @property
    def on_error(self) -> OnError:
        return self.pipeline.fields.on_error

    @property
    def is_counting(self) -> bool:
        return self.choices.is_counting

    @property
    def counts_filtered(self) -> bool:
        return self.choices.is_counting and self.choices.counts_filtered

    @property
    def has_watermark(self) -> bool:
        return self.is_streaming or self.looks_again

    def frame(self, name: str) -> Frame:
        """The stream after its last step, settled. Raises PipelineError."""
        return self._built(self.pipeline.streams[name]).drop_marked()

    def query(self, name: str) -> tuple[Frame, DataFrame]:
        """The frame, and its rows after a check of the sinks' requirements: visible columns, hidden order columns
        that a sink needs, and dead rows with a source record. Raises PipelineError."""
        stream = self.pipeline.streams[name]
        frame = self._built(stream).drop_marked(keeps_letters=self.pipeline.dead_letter_topic is not None)
        check_sinks(frame.rows.select(*(F.col(f"`{column}`") for column in frame.columns)), stream)
        order = sink_order(self.pipeline, stream)
        if SOURCE_RECORD in frame.rows.columns and self.pipeline.dead_letter_topic is not None:
            order = (*order, SOURCE_RECORD, FATE, REASON)
        return frame, frame.rows.select(*(F.col(f"`{column}`") for column in (*frame.columns, *order)))

    def stream(self, name: str) -> Frame:
        return self.frame(name)

    def table(self, name: str) -> Frame:
        """A stream as a table, for joins: all records of its topic when the batch runs."""
        choices = Choices(starting="earliest", connector=self.choices.connector, is_counting=False)
        whole = replace(self, is_streaming=False, choices=choices, ranges=None, marked=[], observations={}, starting={})
        alone = replace(whole, loss_folder="", forgives_loss=False, aside_folder="", checkpoint="", looks_again=False)
        return replace(alone, late_before_ms=None)._built(self.pipeline.streams[name])

    def observe(self, rows: DataFrame, figures: list[Column]) -> tuple[str, DataFrame]:
        name = f"ottla{len(self.observations)}"
        observation = None if self.is_streaming else Observation(name)
        observed = rows.observe(observation or name, *figures)
        self.observations[name] = observation
        return name, observed

    def collect_marked(self, rows: DataFrame, marking: list[AppliedStep]) -> None:
        self.marked.append((rows, marking))

    @property
    def sends_late(self) -> bool:
        return self.pipeline.fields.late_rows is not None

    def collect_late(self, rows: DataFrame, end_ms: Column, passage: AppliedStep) -> DataFrame:
        if self.late_before_ms is None:
            return (
                self._lay_late_aside(rows, end_ms, passage)
                if self.checkpoint and SOURCE_RECORD in rows.columns
                else rows
            )
        is_late = F.coalesce(end_ms <= F.lit(self.late_before_ms), F.lit(False))
        marked = rows.filter(is_late).withColumn(FATE, F.lit(-passage.mark))
        self.late.append((marked.withColumn(REASON, F.lit(late_reason(self.late_before_ms))), [passage]))
        return rows.filter(~is_late)

    def _lay_late_aside(self, rows: DataFrame, end_ms: Column, passage: AppliedStep) -> DataFrame:
        """A second read would not find them: an earlier step performed lookups, whose answers may change."""
        checkpoint = local_path(self.checkpoint)
        if checkpoint is None or not self.late_folder:
            cause = (
                "its late rows cannot be sent (late_rows): behind enrich they are kept in files beside the checkpoint"
            )
            raise StepError(cause, "leave late_rows out, or keep checkpoints in a folder (--state)")
        place = (len(self.late_aside), (passage,))
        self.late_aside.append(place)
        return lay_late_aside(rows, end_ms, FilePath(self.late_folder), place, checkpoint)

    def lay_aside(self, rows: DataFrame, passages: tuple[AppliedStep, ...]) -> DataFrame:
        if not self.aside_folder or self.pipeline.dead_letter_topic is None:
            return rows
        self.aside.append((len(self.aside), passages))
        return lay_aside(rows, FilePath(self.aside_folder), self.aside[-1][0])

    def _built(self, stream: Stream) -> Frame:
        if isinstance(stream.origin, str):
            frame = self._built(self.pipeline.streams[stream.origin])
        else:
            frame = source_frame(self._read(stream.origin, stream.path), self, stream.name)
        for number, (name, spec) in enumerate(stream.steps, start=1):
            step: Step = spec  # type: ignore[assignment]
            with ProblemLocation((*stream.path, "steps", number - 1, name)):
                if step.KIND != "marks":
                    frame = frame.drop_marked()
                check_reads(self.pipeline, step)
                frame = self._applied(step, frame.begin(stream.name, number, name, step.KIND))
                refuse_special_times(frame.rows)
        return frame

    def _applied(self, step: Step, frame: Frame) -> Frame:
        return step.apply(frame)

    def _read(self, source: TopicSource, path: Path) -> DataFrame:
        connector = self.choices.connector or source.connector or "ottla"
        if connector == "ottla":
            register(self.spark)
        ranges = None if self.ranges is None else part_of(source, self.ranges)
        if ranges is not None and not ranges:
            return self.spark.createDataFrame([], SCHEMA)
        kept = part_of(source, self.starting)
        options = source_options(self.pipeline.fields, source, self.choices.starting, kept, ranges)
        options |= self._loss_options(connector)
        reader = self.spark.readStream if self.is_streaming else self.spark.read
        with ProblemLocation((*path, "from")):
            return reader.format(source_format(connector)).options(**options).load()

    def _loss_options(self, connector: str) -> dict[str, str]:
        """The folder is always set, so that a pipeline file cannot choose it."""
        options = {"lossFolder": self.loss_folder} if connector == "ottla" else {}
        return options | ({"failOnDataLoss": "false"} if self.forgives_loss else {})

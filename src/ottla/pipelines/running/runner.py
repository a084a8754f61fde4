"""Runs a pipeline: one query per stream with sinks, started one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.sink_specs import TopicSink, is_at_least_once
from ottla.pipelines.running.accounting import Account
from ottla.pipelines.running.batch_query import BatchQuery
from ottla.pipelines.running.beginning import Beginning, name_of, settle
from ottla.pipelines.running.belonging import refuse_gone_topic
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.dead_letters import DeadLetters, loss_folder
from ottla.pipelines.running.delivery import Delivery, for_frame
from ottla.pipelines.running.failures import plain_failure
from ottla.pipelines.running.followed_query import FollowedQuery
from ottla.pipelines.running.laid_aside import LATE_FOLDER, aside_folder
from ottla.pipelines.running.progress import is_batch
from ottla.pipelines.running.query_state import QueryState
from ottla.pipelines.running.realtime import check_realtime, start_realtime
from ottla.pipelines.running.topic_notes import check_same_topics, note_topics
from ottla.pipelines.running.topics import make_topics, missing_topics
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.spark.class_archive import note_work
from ottla.pipelines.spark.masters import runs_here
from ottla.pipelines.spark.settings import ANSI, LOCAL_CHECKPOINT, SUBSTITUTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROGRESS_KEPT = 1_000
GRACE_SECONDS = 10.0
SOURCES_SECONDS_MAX = 30.0


@dataclass
class RunOptions:
    """`folder` holds checkpoints and staged rows: a path, or an address on a file system that Spark supports."""

    folder: str
    is_once: bool = False
    is_batch: bool = False
    is_fresh: bool = False  # rows of earlier queries may be repeated
    choices: Choices = field(default_factory=Choices)


class Runner:
    """Start once, poll until nothing is active, stop."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, options: RunOptions) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.options = options
        self.queries: list[FollowedQuery | BatchQuery] = []
        self.has_worked = False  # a batch has succeeded

    def __repr__(self) -> str:
        return f"Runner({self.pipeline.name}, {len(self.queries)} queries)"

    def start(self) -> None:
        """Raises PipelineError, CheckpointError, SinkError if it cannot or must not run; then nothing was written."""
        try:
            self._refuse_gone_topics()
            make_topics(self.pipeline)
            self.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(PROGRESS_KEPT))
            self.spark.conf.set(SUBSTITUTION, "false")  # also in a session of another program
            self.spark.conf.set(ANSI, "true")
            if local_path(self.options.folder) is not None and runs_here(self.spark):
                for key, value in LOCAL_CHECKPOINT.items():
                    self.spark.conf.set(key, value)
            for begin in [self._prepare(stream) for stream in self.pipeline.queries()]:
                self.queries.append(begin())
        except BaseException:
            self.stop()
            raise

    def poll(self) -> list[QueryState]:
        states = [query.poll() for query in self.queries]
        if not self.has_worked and any(is_batch(report) for state in states for report in state.progress):
            self.has_worked = True
            note_work(self.spark)
        return states

    @property
    def is_active(self) -> bool:
        return any(query.is_active for query in self.queries)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Let current batches end; interrupted ones are repeated at the next start."""
        for query in self.queries:
            query.stop(grace_seconds)

    def _refuse_gone_topics(self) -> None:
        """A missing topic would be created empty while its query continues. Raises CheckpointError."""
        if self.options.is_batch:
            return
        gone = {topic for topics in missing_topics(self.pipeline).values() for topic in topics}
        for stream in self.pipeline.queries() if gone else ():
            folder = stream_folder(self.options.folder, self.pipeline, stream)
            if Checkpoint(self.spark, f"{folder}/checkpoint").newest_planned() >= 0:
                for sink in stream.sinks:
                    if isinstance(sink, TopicSink) and not is_at_least_once(sink) and sink.topic in gone:
                        refuse_gone_topic(name_of(self.pipeline, stream), sink.topic)

    def _prepare(self, stream: Stream) -> Callable[[], FollowedQuery | BatchQuery]:
        """Finds all problems before any query of the pipeline is started."""
        folder = stream_folder(self.options.folder, self.pipeline, stream)
        choices = self.options.choices
        is_realtime = self.pipeline.fields.latency == "realtime"
        if is_realtime:
            choices = replace(choices, connector="jvm")
        if self.options.is_batch:
            return lambda: BatchQuery(self.spark, self.pipeline, stream, folder, choices)
        beginning = settle(self.spark, self.pipeline, stream, folder, choices.starting, self.options.is_fresh)
        topics = check_same_topics(self.pipeline, stream, beginning.kept)
        if is_realtime:
            check_realtime(self.spark, self.pipeline, stream, beginning.start)
        losses = loss_folder(beginning.kept)
        builder = Builder(
            self.spark,
            self.pipeline,
            choices=choices,
            starting=beginning.start,
            loss_folder=losses,
            aside_folder=aside_folder(beginning.kept),
            late_folder=aside_folder(beginning.kept, LATE_FOLDER),
            # in complete mode nothing is late
            checkpoint="" if stream.output == "complete" else beginning.checkpoint.folder,
        )
        frame, rows = builder.query(stream.name)
        changes = beginning.check_state(frame.applied_steps)
        delivery = for_frame(beginning.delivery, self.pipeline, stream, frame, builder)

        def start() -> StreamingQuery:
            if is_realtime:
                return start_realtime(rows, self.pipeline, stream, beginning.checkpoint.folder)
            return self._start_batches(rows, stream, beginning, delivery)

        def begin() -> FollowedQuery:
            beginning.note(frame.applied_steps)
            note_topics(beginning.kept, topics)
            letters = DeadLetters(
                self.spark,
                self.pipeline,
                stream,
                beginning.kept,
                self.options.choices,
                beginning.checkpoint,
                beginning.committed,
            )
            account = Account(frame.applied_steps, frame.sources)
            query = FollowedQuery(self.pipeline, stream, start, account, beginning.kept, letters, taken=delivery.taken)
            query.warnings += [f"{stream.name}: {change}" for change in changes]
            query.wait_for_sources(SOURCES_SECONDS_MAX)
            return query

        return begin

    def _start_batches(
        self, rows: DataFrame, stream: Stream, beginning: Beginning, delivery: Delivery
    ) -> StreamingQuery:
        writer = rows.writeStream.queryName(f"{self.pipeline.name}.{stream.name}").outputMode(output_mode(stream))
        writer = writer.option("checkpointLocation", beginning.checkpoint.folder).foreachBatch(delivery)
        if self.options.is_once:
            writer = writer.trigger(availableNow=True)
        elif self.pipeline.fields.every:
            writer = writer.trigger(processingTime=self.pipeline.fields.every.sql)
        try:
            query = writer.start()
        except PySparkException as error:
            raise PipelineError([plain_failure(error, stream.path)]) from error
        if str(query.id) != beginning.query_id:
            query.stop()
            raise CheckpointError(f"Spark does not see {beginning.checkpoint.folder}: choose a place that it reaches")
        return query


def output_mode(stream: Stream) -> str:
    """The file's mode; running totals can only be emitted at every change."""
    needs_update = any(getattr(step.spec, "output", "") == "update" for step in stream.steps)
    return "update" if needs_update and stream.output == "append" else stream.output


def stream_folder(folder: str, pipeline: Pipeline, stream: Stream) -> str:
    return f"{folder.rstrip('/')}/{pipeline.name}/{stream.name}"

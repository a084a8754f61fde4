"""Runs a pipeline: one query per stream that goes somewhere, started one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.accounting import Account
from ottla.pipelines.running.batch_query import BatchQuery
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.checkpoint import Checkpoint
from ottla.pipelines.running.dead_letters import DeadLetters, loss_folder
from ottla.pipelines.running.delivery import Delivery, kept_by_sinks, make_delivery
from ottla.pipelines.running.failures import plain_failure
from ottla.pipelines.running.followed_query import FollowedQuery
from ottla.pipelines.running.query_state import QueryState
from ottla.pipelines.running.realtime import check_realtime, start_realtime
from ottla.pipelines.running.shape import check_shape
from ottla.pipelines.running.starting import settle_start
from ottla.pipelines.running.topics import make_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROGRESS_KEPT = 1_000
GRACE_SECONDS = 10.0
SOURCES_SECONDS_MAX = 30.0


@dataclass
class RunOptions:
    """`folder` is where checkpoints and staged rows live: a path, or an address that Spark's file systems know."""

    folder: str
    is_once: bool = False
    is_batch: bool = False
    choices: Choices = field(default_factory=Choices)


class Runner:
    """Start once, poll until nothing is active, stop."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, options: RunOptions) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.options = options
        self.queries: list[FollowedQuery | BatchQuery] = []

    def __repr__(self) -> str:
        return f"Runner({self.pipeline.name}, {len(self.queries)} queries)"

    def start(self) -> None:
        """Raises PipelineError for a pipeline that cannot run; then nothing runs."""
        make_topics(self.pipeline)
        self.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(PROGRESS_KEPT))
        try:
            for stream in self.pipeline.queries():
                self.queries.append(self._start(stream))
        except BaseException:
            self.stop()
            raise

    def poll(self) -> list[QueryState]:
        return [query.poll() for query in self.queries]

    @property
    def is_active(self) -> bool:
        return any(query.is_active for query in self.queries)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Batches that are at work may end; what is cut off is done again at the next start."""
        for query in self.queries:
            query.stop(grace_seconds)

    def _start(self, stream: Stream) -> FollowedQuery | BatchQuery:
        folder = stream_folder(self.options.folder, self.pipeline, stream)
        choices = self.options.choices
        if self.pipeline.head.latency == "realtime":
            choices = replace(choices, connector="jvm")
        if self.options.is_batch:
            return BatchQuery(self.spark, self.pipeline, stream, folder, choices)
        checkpoint = Checkpoint(self.spark, f"{folder}/checkpoint")
        is_new = checkpoint.query_id() is None
        checkpoint.check()
        committed = checkpoint.committed()
        kept = kept_by_sinks(self.pipeline, stream) if is_new else {}
        starting = settle_start(self.pipeline, stream, folder, choices.starting, kept if is_new else None)
        if self.pipeline.head.latency == "realtime":
            check_realtime(self.spark, self.pipeline, stream, starting)
        delivery = make_delivery(self.pipeline, stream, folder, started_at=kept)
        builder = Builder(
            self.spark, self.pipeline, choices=choices, starting=starting, loss_folder=loss_folder(folder)
        )
        frame, rows = builder.query(stream.name)
        check_shape(self.pipeline, stream, frame.passages, folder, is_new)
        letters = DeadLetters(self.spark, self.pipeline, stream, folder, self.options.choices, committed)
        letters.check()

        def start() -> StreamingQuery:
            if self.pipeline.head.latency == "realtime":
                return start_realtime(rows, self.pipeline, stream, f"{folder}/checkpoint")
            return self._start_batches(rows, stream, delivery, folder)

        query = FollowedQuery(self.pipeline, stream, start, Account(frame.passages, frame.sources), folder, letters)
        query.wait_for_sources(SOURCES_SECONDS_MAX)
        return query

    def _start_batches(self, rows: DataFrame, stream: Stream, delivery: Delivery, folder: str) -> StreamingQuery:
        writer = rows.writeStream.queryName(f"{self.pipeline.name}.{stream.name}").outputMode(output_mode(stream))
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint").foreachBatch(delivery)
        if self.options.is_once:
            writer = writer.trigger(availableNow=True)
        elif self.pipeline.head.every:
            writer = writer.trigger(processingTime=self.pipeline.head.every.sql)
        try:
            return writer.start()
        except PySparkException as error:
            raise PipelineError([plain_failure(error, stream.path)]) from error


def output_mode(stream: Stream) -> str:
    """As the file says; totals that never end can only be told at every change."""
    needs_update = any(getattr(step.spec, "output", "") == "update" for step in stream.steps)
    return "update" if needs_update and stream.output == "append" else stream.output


def stream_folder(folder: str, pipeline: Pipeline, stream: Stream) -> str:
    return f"{folder.rstrip('/')}/{pipeline.name}/{stream.name}"

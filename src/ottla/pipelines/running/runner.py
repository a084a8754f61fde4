"""Runs a pipeline: one streaming query per stream that goes somewhere, and what follows each of its batches.

After a batch was committed: its figures are added to the account, its offsets are committed as a consumer group, and
if rows died in it they are sent to the dead-letter topic. All of that runs in `poll`, on the caller's thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from ottla.client.errors import ClientError
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.accounting import Account
from ottla.pipelines.running.batch_query import BatchQuery
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.checkpoint import Checkpoint, Ends, parse_ends
from ottla.pipelines.running.dead_letters import DeadLetters, loss_folder
from ottla.pipelines.running.delivery import Delivery, kept_by_sinks, make_delivery
from ottla.pipelines.running.failures import first_cause, plain_failure
from ottla.pipelines.running.query_state import Progress, QueryState
from ottla.pipelines.running.realtime import check_realtime, start_realtime
from ottla.pipelines.running.shape import check_shape
from ottla.pipelines.running.starting import settle_start
from ottla.pipelines.running.topics import make_topics
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.losses import SourceError, collect_losses
from ottla.pipelines.source.progress import commit_progress
from ottla.pipelines.steps.lateness import late_rows, watermark_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PROGRESS_KEPT = 1_000
GRACE_SECONDS = 10.0


@dataclass
class RunOptions:
    """`folder` is where checkpoints and staged rows live: a path, or an address that Spark's file systems know."""

    folder: str
    is_once: bool = False
    is_batch: bool = False
    choices: Choices = field(default_factory=Choices)
    commits_progress: bool = True


class Runner:
    """Start once, poll until nothing is active, stop."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, options: RunOptions) -> None:
        self.pipeline = pipeline
        self.spark = spark
        self.options = options
        self.queries: list[FollowedQuery | BatchQuery] = []
        self.made_topics: list[str] = []

    def __repr__(self) -> str:
        return f"Runner({self.pipeline.name}, {len(self.queries)} queries)"

    def start(self) -> None:
        """Raises PipelineError for a pipeline that cannot run; then nothing runs."""
        self.made_topics = make_topics(self.pipeline)
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
        if self.pipeline.head.latency == "realtime":
            started = start_realtime(rows, self.pipeline, stream, f"{folder}/checkpoint")
        else:
            started = self._start_batches(rows, stream, delivery, folder)
        return FollowedQuery(self, stream, started, Account(frame.passages), folder, letters)

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


class FollowedQuery:
    """A query and what follows its batches."""

    def __init__(
        self,
        runner: Runner,
        stream: Stream,
        query: StreamingQuery,
        account: Account,
        folder: str,
        dead_letters: DeadLetters,
    ) -> None:
        self.pipeline = runner.pipeline
        self.options = runner.options
        self.stream = stream
        self.query = query
        self.account = account
        self.last_seen: tuple[int, str] = (-1, "")
        self.warnings: list[str] = []
        self.watermark_ms: int | None = None  # of the last batch that was followed
        self.ends: Ends = {}  # of the same
        self.checkpoint = Checkpoint(runner.spark, f"{folder}/checkpoint")
        self.loss_folder = loss_folder(folder)
        self.dead_letters = dead_letters
        self.is_behind = dead_letters.committed >= 0  # what follows a batch may not have followed the last ones
        self.problem = ""  # why it is behind

    def __repr__(self) -> str:
        return f"FollowedQuery({self.stream.name}, {'active' if self.is_active else 'ended'}, {self.last_seen[0]})"

    @property
    def is_active(self) -> bool:
        return self.query.isActive

    def poll(self) -> QueryState:
        is_active = self.query.isActive  # asked first: what ends in between is seen next time
        news = self._news()
        self._follow([progress for progress in news if is_a_batch(progress)])
        error = None if is_active else self.query.exception()
        failure = None if error is None else plain_failure(error, self.stream.path).text()
        if not is_active and failure is None and self.is_behind:
            failure = f"{self.problem}; the next run makes up for it"
        self.warnings += [f"{self.stream.name}: {lost}; going on" for lost in collect_losses(self.loss_folder)]
        warnings, self.warnings = self.warnings, []
        return QueryState(self.stream.name, news, self.account.steps(), is_active, failure, warnings)

    def stop(self, grace_seconds: float) -> None:
        """The batch at work may end."""
        deadline = time.monotonic() + grace_seconds
        before = self._latest()
        while self.query.isActive and self.query.status["isTriggerActive"] and self._latest() == before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.query.stop()

    def _news(self) -> list[Progress]:
        read = [json.loads(progress.json) for progress in self.query.recentProgress]
        news = [each for each in read if (each["batchId"], each["timestamp"]) > self.last_seen]
        if news:
            self.last_seen = (news[-1]["batchId"], news[-1]["timestamp"])
        return news

    def _latest(self) -> tuple[int, str]:
        latest = self.query.lastProgress
        return (-1, "") if latest is None else (latest["batchId"], latest["timestamp"])

    def _follow(self, batches: list[Progress]) -> None:
        for progress in batches:
            late = late_rows(self.account.passages, progress, self._watermark_before(progress))
            self.account.add(progress.get("observedMetrics") or {}, late)
            self.watermark_ms = watermark_ms(progress)
        self.is_behind = self.is_behind or bool(batches)
        if batches:
            self.ends = progress_ends(batches[-1])
        if not self.is_behind:
            return
        try:
            self.dead_letters.after_batches(batches)
            if self.options.commits_progress:
                self._commit(self.ends or self._ends_before())
            self.is_behind = False
        except (ClientError, SinkError, SourceError, PySparkException, OSError) as problem:  # tried again next time
            self.problem = first_cause(str(problem))
            self.warnings.append(f"{self.stream.name}: {self.problem}")

    def _watermark_before(self, progress: Progress) -> int:
        """That of the batch before; after a restart the checkpoint knows it."""
        if self.watermark_ms is None:
            before = self.checkpoint.planned(int(progress["batchId"]) - 1)
            return 0 if before is None else before.watermark_ms
        return self.watermark_ms

    def _ends_before(self) -> Ends:
        """Where the earlier runs have ended."""
        planned = self.checkpoint.planned(self.dead_letters.committed)
        return {} if planned is None else joined_ends(planned.ends)

    def _commit(self, ends: Ends) -> None:
        head = self.pipeline.head
        commit_progress(head.bootstrap_servers, self.pipeline.group_of(self.stream), ends, head.client)


def progress_ends(progress: Progress) -> Ends:
    return joined_ends(parse_ends(source.get("endOffset")) for source in progress["sources"])


def joined_ends(sources: Iterable[Ends | None]) -> Ends:
    ends: Ends = {}
    for source in sources:
        for topic, partitions in (source or {}).items():
            ends.setdefault(topic, {}).update(partitions)
    return ends


def output_mode(stream: Stream) -> str:
    """As the file says; totals that never end can only be told at every change."""
    needs_update = any(getattr(step.spec, "output", "") == "update" for step in stream.steps)
    return "update" if needs_update and stream.output == "append" else stream.output


def is_a_batch(progress: Progress) -> bool:
    """Spark also reports that nothing is to be done; such a report has no batch duration."""
    return "addBatch" in progress.get("durationMs", {})


def stream_folder(folder: str, pipeline: Pipeline, stream: Stream) -> str:
    return f"{folder.rstrip('/')}/{pipeline.name}/{stream.name}"

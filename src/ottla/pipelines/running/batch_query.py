"""A stream over its whole history, as one batch: `--from beginning --once`.

All records that exist at the start are read, every window is closed, nothing is late. No state is kept: each run has
its own identity. To its observer it looks like a query of one batch.
"""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.operations.pipeline_runs.progress_text import dead_letters_text
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.accounting import Account, letters_in
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.dead_letters import dead_letter_sink, letters_of, own_streams
from ottla.pipelines.running.delivery import for_frame, make_delivery
from ottla.pipelines.running.failed_record import NamedError, find_failed_record, is_of_value
from ottla.pipelines.running.failures import first_cause, plain_failure
from ottla.pipelines.running.followed_query import FAILURES
from ottla.pipelines.running.laid_aside import aside_folder
from ottla.pipelines.running.owed import Owed
from ottla.pipelines.running.query_state import Progress, QueryState
from ottla.pipelines.running.starting import find_ranges
from ottla.pipelines.sinks.batch import Batch, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ID = 0
LOOK_SECONDS = 0.1


class BatchQuery:
    """Runs in its own thread; `poll` reports when it is done."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, stream: Stream, folder: str, choices: Choices) -> None:
        self.pipeline = pipeline
        self.stream = stream
        self.identity = uuid.uuid4().hex
        self.folder = f"{folder}/runs/{self.identity}"
        self.ranges = find_ranges(pipeline, stream, choices.starting)
        self.builder = Builder(
            spark,
            pipeline,
            is_streaming=False,
            choices=choices,
            ranges=self.ranges,
            aside_folder=aside_folder(self.folder),
        )
        frame, self.rows = self.builder.query(stream.name)
        delivery = make_delivery(pipeline, stream, self.folder, self.identity)
        self.delivery = for_frame(delivery, pipeline, stream, frame, self.builder)
        self.letter_sink = dead_letter_sink(pipeline)
        self.account = Account(frame.applied_steps, frame.sources)
        self.news: list[Progress] = []
        self.failure: str | None = None
        self.warnings: list[str] = []
        self.unsent = 0
        self.is_stopped = False
        self.thread = threading.Thread(target=self._run, name=f"batch {stream.name}", daemon=True)
        self.thread.start()

    def __repr__(self) -> str:
        return f"BatchQuery({self.stream.name}, {'active' if self.is_active else 'ended'})"

    @property
    def is_active(self) -> bool:
        return self.thread.is_alive()

    def poll(self) -> QueryState:
        is_active = self.is_active
        news, self.news = self.news, []
        warnings, self.warnings = self.warnings, []
        return QueryState(
            self.stream.name,
            news,
            self.account.steps(),
            is_active,
            self.failure,
            warnings,
            self.unsent,
            records=self.account.records(),
        )

    def stop(self, grace_seconds: float) -> None:
        """A batch that does not end in time ends with the process; exactly-once sinks keep nothing of it."""
        self.is_stopped = True
        self.thread.join(grace_seconds)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self.delivery(self.rows, BATCH_ID)
            self.account.add_taken(self.stream, self.delivery.taken())
            observed = self._observed()
            self.account.add(observed)
            if self.letter_sink is not None:
                self.unsent = letters_in(observed, self.account.passages, own_streams(self.pipeline, self.stream))
            self.news.append(self._progress(observed, int((time.monotonic() - started) * 1000)))
            if self.unsent:
                self._send_patiently()
        except FAILURES as error:
            self.failure = self._failure_text(error)

    def _failure_text(self, error: BaseException) -> str:
        problem = plain_failure(error, self.stream.path)
        named = NamedError(error)
        if is_of_value(named, self.pipeline) and not self.is_stopped:
            builder = self.builder
            found = find_failed_record(builder.spark, self.pipeline, self.stream, self.ranges, builder.choices)
            if found is not None:
                problem = found.named_in(problem)
        return problem.text()

    def _observed(self) -> dict[str, dict[str, int]]:
        return {name: each.get for name, each in self.builder.observations.items() if each is not None}

    def _send_patiently(self) -> None:
        """The rows are delivered, and only this run has the dead letters: it waits for an unavailable broker."""
        owed = Owed(is_owed=True)
        while owed.is_owed:
            try:
                self._send_dead_letters()
                owed.settle()
                self.unsent = 0
            except FAILURES as problem:
                owed.end(time.monotonic(), self.is_stopped)
                owed.fail(time.monotonic(), first_cause(str(problem)))
                if not owed.is_waited_for(time.monotonic()):
                    raise SinkError(f"{dead_letters_text(self.unsent)} not sent: {owed.problem}") from None
                late = f"{dead_letters_text(self.unsent)} not sent yet: {owed.problem}; it is tried again"
                self.warnings.append(f"{self.stream.name}: {late}")
            while owed.is_owed and not owed.is_due(time.monotonic()):
                time.sleep(LOOK_SECONDS)

    def _send_dead_letters(self) -> None:
        found = letters_of(self.builder.marked, self.pipeline, own_streams(self.pipeline, self.stream))
        if self.letter_sink is not None and found is not None:
            query = f"{self.pipeline.name}.{self.stream.name}.dead-letters.{self.identity}"
            self.letter_sink.write(found, Batch(query, BATCH_ID, f"{self.folder}/dead-letters"))

    def _progress(self, observed: dict[str, dict[str, int]], duration_ms: int) -> Progress:
        """The progress report in the form of a stream's."""
        count = sum(end - start for each in self.ranges.values() for start, end in each.values())
        seconds = max(duration_ms, 1) / 1000
        return {
            "name": f"{self.pipeline.name}.{self.stream.name}",
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "batchId": BATCH_ID,
            "batchDuration": duration_ms,
            "numInputRows": count,
            "inputRowsPerSecond": count / seconds,
            "processedRowsPerSecond": count / seconds,
            "durationMs": {"addBatch": duration_ms, "triggerExecution": duration_ms},
            "stateOperators": [],
            "sources": [self._source()],
            "observedMetrics": observed,
        }

    def _source(self) -> dict[str, Any]:
        ends = {topic: {str(n): bounds[1] for n, bounds in each.items()} for topic, each in self.ranges.items()}
        return {"description": "batch", "startOffset": None, "endOffset": ends, "latestOffset": ends}

"""A streaming query and the work after each of its batches.

After a batch is committed, its figures are added to the account, its offsets are committed for a consumer group, and
its dead letters are sent. All of this runs in `poll`, on the caller's thread: batches seen by one call are processed by
the next, so they can be reported first. Failures are retried (owed.py), and the query counts as active until everything
is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ottla.client.errors import ClientError
from ottla.operations.pipeline_runs.progress_text import dead_letters_text
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.accounting import Account, Taken, letters_in
from ottla.pipelines.running.checkpoint import CheckpointError, Ends, parse_ends
from ottla.pipelines.running.dead_letters import DeadLetters, loss_folder
from ottla.pipelines.running.failed_record import FailedRecord, find_failed_record, is_of_value, ranges_of_batch
from ottla.pipelines.running.failures import first_cause, plain_failure
from ottla.pipelines.running.late_letters import LateLetters
from ottla.pipelines.running.owed import Owed
from ottla.pipelines.running.progress import is_batch
from ottla.pipelines.running.progress_reports import NOTHING_SEEN, new_reports, place_of
from ottla.pipelines.running.query_state import Progress, QueryState
from ottla.pipelines.running.starting import noted_start
from ottla.pipelines.running.waiting import AWAY, Waiting, takes_connections
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.cluster import commit_progress
from ottla.pipelines.source.data_loss import SourceError, take_reported_losses
from ottla.pipelines.steps.lateness import late_rows, watermark_ms

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RESTARTS_MAX = 5
# for example a worker that died
FAILURES = (ClientError, SinkError, SourceError, PySparkException, Py4JJavaError, OSError)
PASSING = "Python worker failed to connect back"  # Spark waits for 10 s; there is no setting


class FollowedQuery:
    """A query and the work after its batches."""

    def __init__(
        self,
        pipeline: Pipeline,
        stream: Stream,
        start: Callable[[], StreamingQuery],
        account: Account,
        folder: str,
        dead_letters: DeadLetters,
        seconds: Callable[[], float] = time.monotonic,
        taken: Callable[[], Iterable[Taken]] = tuple,
    ) -> None:
        self.pipeline = pipeline
        self.stream = stream
        self.start = start
        self.restarts_left = RESTARTS_MAX
        self.late_letters = LateLetters(dead_letters)
        self.late_letters.check()
        self.query = start()
        self.account = account
        self.last_seen = NOTHING_SEEN
        self.batches: list[Progress] = []  # seen, but not processed yet
        self.warnings: list[str] = []
        self.watermark_ms: int | None = None  # of the last processed batch
        self.ends: Ends = {}  # of the same batch
        self.checkpoint = dead_letters.checkpoint
        self.loss_folder = loss_folder(folder)
        self.dead_letters = dead_letters
        self.late: set[int] = set()  # batches with unsent late rows
        self.newest = dead_letters.committed  # newest batch known to be committed
        self.seconds = seconds
        self.taken = taken  # returns the rows that sinks have written since the last call
        self.owed = Owed(dead_letters.committed >= 0)  # the work after the last batches may be incomplete
        self.unsent = 0  # dead letters of this run
        self.is_stopped = False
        self.failure: str | None = None
        self.waiting = Waiting(lambda: takes_connections(pipeline.fields.bootstrap_servers))
        self.doing = ""
        self.seen = 0  # batches

    def __repr__(self) -> str:
        return f"FollowedQuery({self.stream.name}, {'active' if self.is_active else 'ended'}, {self.last_seen[0]})"

    @property
    def is_active(self) -> bool:
        return self.query.isActive

    def poll(self) -> QueryState:
        is_active = self.query.isActive  # read first: a batch that ends in between is seen next time
        self._catch_up()
        news = self._news()
        self._count([progress for progress in news if is_batch(progress)])
        error = None if is_active else self.query.exception()
        if error is not None and self.restarts_left and PASSING in str(error):
            self._start_again()
            is_active, error = True, None
        if not is_active:
            self.owed.end(self.seconds(), is_hurried=self.is_stopped or error is not None)
            is_active = self.owed.is_waited_for(self.seconds())
        failures = [] if error is None else [self._failure_text(error)]
        if not is_active and self.owed.is_owed:
            failures.append(self._given_up())
        self.warnings += [f"{self.stream.name}: {lost}; going on" for lost in take_reported_losses(self.loss_folder)]
        self.account.add_taken(self.stream, self.taken())
        doing = self._doing()
        warnings, self.warnings = self.warnings, []
        failure = "; ".join(failures) if failures and not is_active else None
        return QueryState(
            self.stream.name,
            news,
            self.account.steps(),
            is_active,
            failure,
            warnings,
            self.unsent,
            doing,
            self.account.records(),
        )

    def _failure_text(self, error: BaseException) -> str:
        """Why the query ended; for a bad value, which record it was, determined once."""
        if self.failure is None:
            problem = plain_failure(error, self.stream.path)
            found = self._failed_record() if is_of_value(error, self.pipeline) and not self.is_stopped else None
            self.failure = (problem if found is None else found.named_in(problem)).text()
        return self.failure

    def _failed_record(self) -> FailedRecord | None:
        letters = self.dead_letters
        try:
            ranges = ranges_of_batch(self.checkpoint, noted_start(letters.folder))
        except CheckpointError:
            return None
        return find_failed_record(letters.spark, self.pipeline, self.stream, ranges, letters.choices)

    def stop(self, grace_seconds: float) -> None:
        """Let the current batch end."""
        self.is_stopped = True
        deadline = time.monotonic() + grace_seconds
        before = self._latest()
        while self.query.isActive and self.query.status["isTriggerActive"] and self._latest() == before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.query.stop()

    def wait_for_sources(self, seconds: float) -> None:
        """Wait until Spark has started the source processes: starting many at once may fail."""
        deadline = time.monotonic() + seconds
        while self.query.isActive and time.monotonic() < deadline:
            if not str(self.query.status["message"]).startswith("Initializing"):
                return
            time.sleep(0.05)

    def _start_again(self) -> None:
        """The checkpoint determines the start."""
        self.restarts_left -= 1
        self.warnings.append(f"{self.stream.name}: the machine is too busy for Spark's Python workers; started again")
        self.query = self.start()

    def _news(self) -> list[Progress]:
        news = new_reports(self.query, self.last_seen)
        if news:
            self.last_seen = place_of(news[-1])
        return news

    def _latest(self) -> tuple[int, str]:
        latest = self.query.lastProgress
        return NOTHING_SEEN if latest is None else (latest["batchId"], latest["timestamp"])

    def _count(self, batches: list[Progress]) -> None:
        for progress in batches:
            observed = progress.get("observedMetrics") or {}
            late = late_rows(self.account.passages, progress, self._watermark_before(progress))
            self.account.add(observed, late)
            self.newest = int(progress["batchId"])
            self.late |= {self.newest} if late else set()
            self.watermark_ms = watermark_ms(progress)
            if self.dead_letters.sink is not None:
                self.unsent += letters_in(observed, self.account.passages, self.dead_letters.own_streams)
        if batches:
            self.ends = progress_ends(batches[-1])
            self.batches += batches
            self.seen += len(batches)
            self.owed.add()

    def _catch_up(self) -> None:
        """The work after the batches that were seen."""
        if not self.owed.is_due(self.seconds()):
            return
        batches, self.batches = self.batches, []
        had_problem = bool(self.owed.problem)
        try:
            self.dead_letters.after_batches(batches)
            if had_problem and self.unsent:
                self.warnings.append(f"{self.stream.name}: {dead_letters_text(self.unsent)} sent after all")
            self.unsent = 0
            self.late_letters.after_batches(self.newest, self.late)
            self.late.clear()
            self._commit(self.ends or self._ends_before())
            self.owed.settle()
        except FAILURES as problem:
            self.owed.fail(self.seconds(), first_cause(str(problem)))
            late = f"{dead_letters_text(self.unsent)} not sent yet: " if self.unsent else ""
            self.warnings.append(f"{self.stream.name}: {late}{self.owed.problem}; it is tried again")

    def _doing(self) -> str:
        """The activity to show while nothing happens."""
        if self.owed.problem:
            return self.owed.problem
        if not self.query.isActive:
            return ""
        before, self.doing = self.doing, self.waiting.look(self.query.status["message"], self.seen, self.seconds())
        if self.doing.startswith(AWAY) and not before.startswith(AWAY):
            self.warnings.append(f"{self.stream.name}: the broker takes no connection; waiting for it")
        return self.doing

    def _given_up(self) -> str:
        if self.unsent:
            return f"{dead_letters_text(self.unsent)} not sent: {self.owed.problem}; the next run sends them"
        return f"{self.owed.problem}; the next run makes up for it"

    def _watermark_before(self, progress: Progress) -> int:
        """The watermark of the previous batch; after a restart it is read from the checkpoint."""
        if self.watermark_ms is None:
            before = self.checkpoint.planned(int(progress["batchId"]) - 1)
            return 0 if before is None else before.watermark_ms
        return self.watermark_ms

    def _ends_before(self) -> Ends:
        """The end offsets of earlier runs."""
        planned = self.checkpoint.planned(self.dead_letters.committed)
        return {} if planned is None else joined_ends(planned.ends)

    def _commit(self, ends: Ends) -> None:
        head = self.pipeline.fields
        commit_progress(head.bootstrap_servers, self.pipeline.group_of(self.stream), ends, head.client)


def progress_ends(progress: Progress) -> Ends:
    return joined_ends(parse_ends(source.get("endOffset")) for source in progress["sources"])


def joined_ends(sources: Iterable[Ends | None]) -> Ends:
    ends: Ends = {}
    for source in sources:
        for topic, partitions in (source or {}).items():
            ends.setdefault(topic, {}).update(partitions)
    return ends

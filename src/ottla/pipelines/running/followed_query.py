"""A streaming query and what follows each of its batches.

After a batch was committed: its figures are added to the account, its offsets are committed as a consumer group, and
if rows died in it they are sent to the dead-letter topic. All of that runs in `poll`, on the caller's thread: what one
call has seen is followed by the next one, so that it can be told before. It is tried until it is done (owed.py), and
the query counts as active until then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ottla.client.errors import ClientError
from ottla.operations.pipeline_runs.progress_text import letters
from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.accounting import Account, Taken, letters_in
from ottla.pipelines.running.checkpoint import Ends, parse_ends
from ottla.pipelines.running.dead_letters import DeadLetters, loss_folder
from ottla.pipelines.running.failures import first_cause, plain_failure
from ottla.pipelines.running.late_letters import LateLetters
from ottla.pipelines.running.owed import Owed
from ottla.pipelines.running.progress import is_batch
from ottla.pipelines.running.query_state import Progress, QueryState
from ottla.pipelines.running.waiting import AWAY, Waiting, takes_connections
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.losses import SourceError, collect_losses
from ottla.pipelines.source.progress import commit_progress
from ottla.pipelines.steps.lateness import late_rows, watermark_ms

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RESTARTS_MAX = 5
FAILURES = (ClientError, SinkError, SourceError, PySparkException, Py4JJavaError, OSError)  # a worker that died, say
PASSING = "Python worker failed to connect back"  # Spark waits for 10 s, and no setting changes that


class FollowedQuery:
    """A query and what follows its batches."""

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
        self.last_seen: tuple[int, str] = (-1, "")
        self.batches: list[Progress] = []  # seen, and not followed yet
        self.warnings: list[str] = []
        self.watermark_ms: int | None = None  # of the last batch that was followed
        self.ends: Ends = {}  # of the same
        self.checkpoint = dead_letters.checkpoint
        self.loss_folder = loss_folder(folder)
        self.dead_letters = dead_letters
        self.late: set[int] = set()  # batches with late rows, until these are sent
        self.newest = dead_letters.committed  # batch that is known to be committed
        self.seconds = seconds
        self.taken = taken  # what sinks have done with rows since the last look
        self.owed = Owed(dead_letters.committed >= 0)  # what follows a batch may not have followed the last ones
        self.unsent = 0  # dead letters of this run
        self.is_stopped = False
        self.waiting = Waiting(lambda: takes_connections(pipeline.head.bootstrap_servers))
        self.doing = ""
        self.seen = 0  # batches

    def __repr__(self) -> str:
        return f"FollowedQuery({self.stream.name}, {'active' if self.is_active else 'ended'}, {self.last_seen[0]})"

    @property
    def is_active(self) -> bool:
        return self.query.isActive

    def poll(self) -> QueryState:
        is_active = self.query.isActive  # asked first: what ends in between is seen next time
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
        failures = [] if error is None else [plain_failure(error, self.stream.path).text()]
        if not is_active and self.owed.is_owed:
            failures.append(self._given_up())
        self.warnings += [f"{self.stream.name}: {lost}; going on" for lost in collect_losses(self.loss_folder)]
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

    def stop(self, grace_seconds: float) -> None:
        """The batch at work may end."""
        self.is_stopped = True
        deadline = time.monotonic() + grace_seconds
        before = self._latest()
        while self.query.isActive and self.query.status["isTriggerActive"] and self._latest() == before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.query.stop()

    def wait_for_sources(self, seconds: float) -> None:
        """Until Spark has started the processes that know the sources: many at once may be too many for it."""
        deadline = time.monotonic() + seconds
        while self.query.isActive and time.monotonic() < deadline:
            if not str(self.query.status["message"]).startswith("Initializing"):
                return
            time.sleep(0.05)

    def _start_again(self) -> None:
        """The checkpoint knows where to go on."""
        self.restarts_left -= 1
        self.warnings.append(f"{self.stream.name}: the machine is too busy for Spark's Python workers; started again")
        self.query = self.start()

    def _news(self) -> list[Progress]:
        read = [json.loads(progress.json) for progress in self.query.recentProgress]
        news = [each for each in read if (each["batchId"], each["timestamp"]) > self.last_seen]
        if news:
            self.last_seen = (news[-1]["batchId"], news[-1]["timestamp"])
        return news

    def _latest(self) -> tuple[int, str]:
        latest = self.query.lastProgress
        return (-1, "") if latest is None else (latest["batchId"], latest["timestamp"])

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
        """What follows the batches that were seen."""
        if not self.owed.is_due(self.seconds()):
            return
        batches, self.batches = self.batches, []
        had_problem = bool(self.owed.problem)
        try:
            self.dead_letters.after_batches(batches)
            if had_problem and self.unsent:
                self.warnings.append(f"{self.stream.name}: {letters(self.unsent)} sent after all")
            self.unsent = 0
            self.late_letters.after_batches(self.newest, self.late)
            self.late.clear()
            self._commit(self.ends or self._ends_before())
            self.owed.settle()
        except FAILURES as problem:
            self.owed.fail(self.seconds(), first_cause(str(problem)))
            late = f"{letters(self.unsent)} not sent yet: " if self.unsent else ""
            self.warnings.append(f"{self.stream.name}: {late}{self.owed.problem}; it is tried again")

    def _doing(self) -> str:
        """What the screen says where nothing happens."""
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
            return f"{letters(self.unsent)} not sent: {self.owed.problem}; the next run sends them"
        return f"{self.owed.problem}; the next run makes up for it"

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

"""The lifecycle of one pipeline in this process: start, run, savepoint, restart after a failure, end.

`ottla pipeline run` polls it, possibly together with others. A failure does not affect other pipelines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ottla.cli.pipelines.screen import Display
from ottla.cli.terminal import EXIT_FAILED, EXIT_USAGE, ToolError, UsageError
from ottla.client.errors import ClientError
from ottla.operations.pipeline_runs import requests
from ottla.operations.pipeline_runs.progress_text import dead_letters_text
from ottla.operations.pipeline_runs.requests import Answer, Request
from ottla.operations.pipeline_runs.snapshots import Snapshot
from ottla.operations.pipeline_runs.statuses import State, Status
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.checkpoint import CheckpointError
from ottla.pipelines.running.dead_limit import DeadLimit
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.loading import Loaded
from ottla.pipelines.running.restarting import Restarts
from ottla.pipelines.running.runner import Runner, RunOptions
from ottla.pipelines.running.savepoint import take_savepoint
from ottla.pipelines.running.status import RunFolder
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.data_loss import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRACE_SECONDS = 60.0
SPARK_GONE = (Py4JError, PySparkException, ConnectionError)
PASSING = (SourceError, SinkError, ToolError, ClientError, OSError)  # a transient failure


class Ending(NamedTuple):
    """The end of a pipeline; `lines` are problems of its file."""

    state: State
    reason: str
    code: int = 0
    lines: Sequence[str] = ()
    error: Exception | None = None  # the original text


class SparkOwner(Protocol):
    """Owns the Spark session that all pipelines of the process share."""

    def session(self) -> SparkSession:
        """The running session, or a new one. Raises ToolError."""

    def drop_dead(self) -> None:
        """Discard a session whose Java has ended; the next request starts a new one."""


class Life:
    """One pipeline; call `poll` until it has an `ending`."""

    def __init__(
        self,
        loaded: Loaded,
        folder: RunFolder,
        display: Display,
        spark: SparkOwner,
        options: RunOptions,
        restarts: Restarts,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.loaded = loaded
        self.pipeline = loaded.pipeline
        self.folder = folder
        self.display = display
        self.spark = spark
        self.options = options
        self.restarts = restarts
        self.seconds = seconds
        self.ending: Ending | None = None
        self.snapshots: Sequence[Snapshot] = ()
        self._runner: Runner | None = None
        self._following: Following | None = None
        self._has_run = False
        self._is_asked_to_stop = False
        self._is_stopping = False
        self._request: Request | None = None  # a savepoint, after the queries have stopped
        self._due_s = 0.0
        self._begun_s = 0.0
        self._told = 0

    def __repr__(self) -> str:
        return f"Life({self.pipeline.name}, {self.folder.status.state}, {self.restarts})"

    @property
    def status(self) -> Status:
        return self.folder.status._replace(queries=tuple(self.snapshots))

    @property
    def is_due(self) -> bool:
        """Whether it should be started now."""
        return self.ending is None and self._runner is None and self.seconds() >= self._due_s

    def begin(self) -> None:
        """Start it, for the first time or again."""
        self._begun_s = self.seconds()
        try:
            runner = Runner(self.pipeline, self.spark.session(), self.options)
            names = [stream.name for stream in self.pipeline.queries()]
            limit = DeadLimit(self.pipeline.fields.max_dead, self.pipeline.dead_letter_topic)
            self._following = Following(runner, names, self.folder, limit, self.snapshots)
            self._told = 0
            runner.start()
        except PipelineError as wrong:
            placed = self.loaded.placed(wrong).texts()
            self._end(Ending("failed", placed[0], EXIT_USAGE, placed))
        except CheckpointError as problem:  # a permanent failure
            self._end(Ending("failed", str(problem), EXIT_FAILED, error=ToolError(str(problem))))
        except (SourceError, SinkError) as problem:
            self._fail(str(problem))
        except SPARK_GONE as problem:
            self._fail(f"Spark has ended: {why_gone(problem)}")
        except UsageError as wrong:
            self._end(Ending("failed", str(wrong), EXIT_USAGE, error=wrong))
        except PASSING as problem:
            self._fail(str(problem), problem)
        else:
            self._runner, self._has_run = runner, True
            self._is_stopping = False
            self.folder.change("running")
            self.display.step("running")

    def poll(self, is_stop_asked: bool) -> None:
        self._is_asked_to_stop |= is_stop_asked
        if self.ending is not None:
            return
        self._take_request()
        if self._runner is None:
            self._wait()
            return
        try:
            self._follow(self._runner)
        except SPARK_GONE as problem:
            if self._is_asked_to_stop:
                self.display.warning("the signal also stopped Spark: the next run repeats the current batch")
                self._end_followed()
            else:
                self._fail(f"Spark has ended: {why_gone(problem)}")

    def interrupt(self, reason: str) -> None:
        """End immediately, because the process ends."""
        if self.ending is None:
            self.ending = Ending("stopped", reason)
            with suppress(OSError):
                self.folder.change("stopped", reason, self.snapshots)

    def _wait(self) -> None:
        """Whether it waits between a failure and the next start."""
        if self._is_asked_to_stop:
            self._end(Ending("stopped", "stop requested"))
        elif self._request is not None:
            self._save(self._request)

    def _follow(self, runner: Runner) -> None:
        following = self._following
        assert following is not None
        for snapshot in following.poll():
            self.display.batch(snapshot)
        self.snapshots = following.snapshots
        for warning in following.warnings[self._told :]:
            self.display.warning(warning)
        self._told = len(following.warnings)
        if not following.is_active:
            self._end_followed()
        elif (self._is_asked_to_stop or self._request or following.failures) and not self._is_stopping:
            self._is_stopping = True
            if self._is_asked_to_stop or following.failures:
                self.folder.change("stopping", queries=self.snapshots)
                self.display.step("stopping after the current batch (Ctrl-C again stops immediately)")
            runner.stop(GRACE_SECONDS)

    def _end_followed(self) -> None:
        """Handle the end of all queries."""
        following = self._following
        assert following is not None
        is_over = not following.errors and self._request is None
        dead = following.limit.problem(self.snapshots, is_over)
        if self._is_asked_to_stop and not dead:  # failures now are caused by the stop; the next run repeats the batch
            unsent = sum(snapshot.unsent for snapshot in self.snapshots)
            late = f"; {dead_letters_text(unsent)} not sent, the next run sends them" if unsent else ""
            self._end(Ending("stopped", f"stop requested{late}"))
        elif dead:
            self._end(Ending("failed", "; ".join([*following.errors, dead]), EXIT_FAILED))
        elif following.errors:
            self._fail("; ".join(following.errors))
        elif self._request is not None:
            self._runner = None
            self._save(self._request)
        else:
            self._end(Ending("stopped", "all was done"))

    def _fail(self, reason: str, error: Exception | None = None) -> None:
        """Handle a transient failure: restart if that is configured."""
        runner, self._runner = self._runner, None
        if runner is not None:
            with suppress(*SPARK_GONE):
                runner.stop(0)
        self.spark.drop_dead()
        is_wanted = self.restarts.are_wanted(self._has_run) and not self.options.is_batch
        if not is_wanted or self._is_asked_to_stop:
            self._end(Ending("failed", reason, EXIT_FAILED, error=error))
            return
        pause_s = self.restarts.next_pause_s(self.seconds() - self._begun_s)
        self._due_s = self.seconds() + pause_s
        self.snapshots = [snapshot._replace(is_active=False) for snapshot in self.snapshots]
        self.folder.restarted(self.restarts.count, reason)
        self.folder.change("restarting", reason, self.snapshots)
        self.display.warning(f"{reason}; started again in {pause_s:g} s")

    def _end(self, ending: Ending) -> None:
        self.ending = ending
        if self._request is not None:
            self._answer(self._request, problem=f"{self.pipeline.name} is {ending.state}: {ending.reason}")
        with suppress(OSError):  # a full disk must not hide the reason of the end
            self.folder.look()
            self.folder.change(ending.state, ending.reason, self.snapshots)
        if self._has_run:
            self.display.end(self.snapshots)

    def _take_request(self) -> None:
        found = requests.take_request(self.folder.folder)
        if found is not None and found.what == "stop":
            self._is_asked_to_stop = True
        elif found is not None:
            self._request = found

    def _save(self, request: Request) -> None:
        """Save all queries while none is running, then continue."""
        self._request = None
        if self.options.is_batch:
            self._answer(request, problem="a run over the whole history has no checkpoint, so there is nothing to save")
            return
        self.display.step("taking a savepoint")
        try:
            made = take_savepoint(self.options.folder, self.pipeline, Path(request.to))
        except (CheckpointError, SinkError, OSError) as problem:
            self._answer(request, problem=str(problem))
        else:
            self._answer(request, text=str(made.folder))

    def _answer(self, request: Request, text: str = "", problem: str = "") -> None:
        with suppress(OSError):
            requests.write_answer(self.folder.folder, Answer(request.number, text, problem))


def why_gone(problem: Exception) -> str:
    if isinstance(problem, PySparkException | Py4JJavaError):
        return first_cause(str(problem))
    return "its Java process has ended (killed, or out of memory?); the next run resumes after the last whole batch"

"""Operations of a pipeline written in Python without the command line: return its rows, start, run."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from ottla.operations.pipeline_runs.progress_text import batch_line, end_line, step_table
from ottla.operations.pipeline_runs.statuses import state_folder
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem, did_you_mean
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.dead_limit import DeadLimit
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.runner import GRACE_SECONDS, Runner, RunOptions
from ottla.pipelines.running.status import RunFolder, new_status
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.pipelines.running.query_state import QueryState

POLL_SECONDS = 0.2


def frame_of(pipeline: Pipeline, spark: SparkSession, stream: str | None, streaming: bool) -> DataFrame:
    """Raises PipelineError."""
    name = stream or next(reversed(pipeline.streams))
    if name not in pipeline.streams:
        cure = did_you_mean(name, list(pipeline.streams))
        raise PipelineError([Problem((), f"there is no stream {name!r}", cure)])
    frame = Builder(spark, pipeline, is_streaming=streaming, choices=Choices(is_counting=False)).frame(name)
    return frame.rows.select(*(f"`{column}`" for column in frame.columns))


class LockedRunner(Runner):
    """Holds the lock of the command from start to end: a second run would share checkpoint and rows."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, options: RunOptions) -> None:
        super().__init__(pipeline, spark, options)
        self._run_folder = _run_folder(pipeline, options)

    def start(self) -> None:
        """Raises AlreadyRunningError, and the errors of a Runner."""
        self._run_folder.lock()
        super().start()  # stops and releases the lock on failure
        weakref.finalize(self, self._run_folder.close)

    def poll(self) -> list[QueryState]:
        states = super().poll()
        if not any(state.is_active for state in states):
            self._run_folder.close()
        return states

    @property
    def is_active(self) -> bool:
        is_active = super().is_active
        if not is_active:
            self._run_folder.close()
        return is_active

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        super().stop(grace_seconds)
        self._run_folder.close()


def start(pipeline: Pipeline, spark: SparkSession, folder: str | None, once: bool) -> Runner:
    """Raises PipelineError, AlreadyRunningError."""
    runner = LockedRunner(pipeline, spark, _options(folder, once))
    runner.start()
    return runner


def _options(folder: str | None, once: bool) -> RunOptions:
    return RunOptions(folder=folder or str(state_folder()), is_once=once)


def _run_folder(pipeline: Pipeline, options: RunOptions) -> RunFolder:
    """The folder of the command's lock; local even for a remote checkpoint."""
    return RunFolder(local_path(options.folder) or state_folder(), new_status(pipeline.name, "", ""))


def run(pipeline: Pipeline, spark: SparkSession | None, folder: str | None, once: bool) -> None:
    """Print a line per batch and the table of steps. Raises PipelineError, AlreadyRunningError, SparkStartError,
    RuntimeError of a query."""
    options = _options(folder, once)
    run_folder = _run_folder(pipeline, options)
    run_folder.lock()  # until the dead letters of the last batch are sent
    own: SparkSession | None = None
    try:
        if spark is None:
            own = start_session(pipeline.name, settings=pipeline.fields.spark, work="streams", on_step=print)
        runner = Runner(pipeline, spark or own, options)  # type: ignore[arg-type]
        runner.start()
        _follow(pipeline, runner)
    finally:
        run_folder.close()
        if own is not None:
            own.stop()


def _follow(pipeline: Pipeline, runner: Runner) -> None:
    limit = DeadLimit(pipeline.fields.max_dead, pipeline.dead_letter_topic)
    following = Following(runner, [stream.name for stream in pipeline.queries()], limit=limit)
    try:
        while following.is_active and not following.failures:
            for snapshot in following.poll():
                print(batch_line(snapshot), flush=True)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        print("stopping", flush=True)
    finally:
        runner.stop()
    following.poll()
    while following.is_active:  # dead letters of the last batch are pending
        following.poll()
    print("\n".join([*following.warnings, "", *step_table(following.snapshots), "", end_line(following.snapshots)]))
    if following.failures:
        raise RuntimeError("; ".join(following.failures))

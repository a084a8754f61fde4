"""What a pipeline that was written in Python can do without the command line: give its rows, start, run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.operations.pipeline_runs.progress_text import batch_line, end_line, step_table
from ottla.operations.pipeline_runs.statuses import state_folder
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem, did_you_mean
from ottla.pipelines.running.builder import Builder, Choices
from ottla.pipelines.running.dead_limit import DeadLimit
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.runner import Runner, RunOptions
from ottla.pipelines.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_SECONDS = 0.2


def frame_of(pipeline: Pipeline, spark: SparkSession, stream: str | None, streaming: bool) -> DataFrame:
    """Raises PipelineError."""
    name = stream or next(reversed(pipeline.streams))
    if name not in pipeline.streams:
        cure = did_you_mean(name, list(pipeline.streams))
        raise PipelineError([Problem((), f"there is no stream {name!r}", cure)])
    frame = Builder(spark, pipeline, is_streaming=streaming, choices=Choices(is_counting=False)).frame(name)
    return frame.rows.select(*(f"`{column}`" for column in frame.columns))


def start(pipeline: Pipeline, spark: SparkSession, folder: str | None, once: bool) -> Runner:
    """Raises PipelineError."""
    runner = Runner(pipeline, spark, RunOptions(folder=folder or str(state_folder()), is_once=once))
    runner.start()
    return runner


def run(pipeline: Pipeline, spark: SparkSession | None, folder: str | None, once: bool) -> None:
    """Prints a line a batch and the table of steps. Raises PipelineError, SparkStartError, RuntimeError of a query."""
    own = None if spark else start_session(pipeline.name, settings=pipeline.head.spark, work="streams", on_step=print)
    session = spark or own
    assert session is not None
    try:
        runner = start(pipeline, session, folder, once)
        limit = DeadLimit(pipeline.head.max_dead, pipeline.dead_letter_topic)
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
        while following.is_active:  # letters of the last batch are sent
            following.poll()
        print("\n".join([*following.warnings, "", *step_table(following.snapshots), "", end_line(following.snapshots)]))
        if following.failures:
            raise RuntimeError("; ".join(following.failures))
    finally:
        if own is not None:
            own.stop()

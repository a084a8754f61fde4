"""`ottla pipeline run`: start Spark, run the queries of a pipeline, show how they do, stop in order.

Ctrl-C and SIGTERM let the current batch end; a second one does not wait. Either way nothing is lost: the next run goes
on where the last committed batch ended.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import accumulators
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from ottla.cli.pipelines.files import load, state_of, tell
from ottla.cli.pipelines.screen import Display, JsonDisplay, LiveDisplay, PlainDisplay
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, end_on_sigterm, is_terminal
from ottla.client.errors import ClientError
from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.sinks import FOLDERS, DeltaSink
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.checkpoints import begun, check_names, put_aside
from ottla.pipelines.running.dead_limit import DeadLimit
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.following import Following
from ottla.pipelines.running.loading import Loaded
from ottla.pipelines.running.metrics import MetricsServer
from ottla.pipelines.running.owed import letters
from ottla.pipelines.running.runner import Runner, RunOptions
from ottla.pipelines.running.sink_factory import check_places
from ottla.pipelines.running.source_options import starting_options
from ottla.pipelines.running.status import AlreadyRunningError, RunFolder, State, new_status
from ottla.pipelines.running.topic_check import check_topics
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.spark.places import SparkStartError
from ottla.pipelines.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.2
GRACE_SECONDS = 60.0
SPARK_GONE = (Py4JError, PySparkException, ConnectionError)


def run_run(options: argparse.Namespace) -> int:
    try:
        loaded = load(options)
    except PipelineError as wrong:
        return tell(wrong)
    status = new_status(loaded.pipeline.name, str(Path(options.file).resolve()), _master(options), options.metrics_port)
    with closing(RunFolder(state_of(options), status)) as folder:
        try:
            folder.lock()  # before anything is put aside: it may be in use
            _check_start(options, loaded.pipeline)
            check_topics(loaded.pipeline)
        except PipelineError as wrong:
            return tell(loaded.placed(wrong))
        except (SourceError, AlreadyRunningError) as problem:
            raise ToolError(str(problem)) from None
        folder.open()
        return _run(options, loaded, folder)


def start_spark(options: argparse.Namespace, pipeline: Pipeline, display: Display) -> SparkSession:
    """Raises ToolError."""
    sources = [stream.origin for stream in pipeline.streams.values() if isinstance(stream.origin, TopicSource)]
    is_jvm = "jvm" in [options.connector or source.connector for source in sources]
    is_jvm = is_jvm or pipeline.head.latency == "realtime"
    sinks = [sink for stream in pipeline.queries() for sink in stream.sinks]
    has_delta = any(isinstance(sink, DeltaSink) for sink in sinks)
    places = [str(getattr(sink, kind, "")) for sink in sinks for kind in FOLDERS]
    has_s3 = any(place.startswith("s3a://") for place in [*places, getattr(options, "checkpoint", None) or ""])
    silence_pyspark()
    try:
        return start_session(
            pipeline.name,
            options.master,
            "jvm" if is_jvm else "ottla",
            (*(["delta"] if has_delta else []), *(["s3"] if has_s3 else [])),
            pipeline.head.spark,
            on_step=display.step,
        )
    except SparkStartError as problem:
        raise ToolError(str(problem)) from None


def silence_pyspark() -> None:
    """It would print every mistake in a condition with a page of Java, and the end of Java with several of Python,
    before we tell it in a line."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    if not logging.getLogger().handlers:  # Py4J logs there, and would else make one that writes to the terminal
        logging.getLogger().addHandler(logging.NullHandler())
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _be_quiet  # type: ignore[assignment, method-assign]


def _be_quiet(_server: object, _request: object, _client: object) -> None:
    """Whoever waits for the answer hears of it."""


def choices_of(options: argparse.Namespace) -> Choices:
    return Choices(starting=getattr(options, "starting", None), connector=options.connector)


def _run(options: argparse.Namespace, loaded: Loaded, folder: RunFolder) -> int:
    """Whatever happens, the files say how it ended."""
    end_on_sigterm()
    following: Following | None = None
    state: State = "failed"
    reason = "ended before it was running"
    try:
        with _display(options, loaded.pipeline) as display, ExitStack() as ending:
            metrics = ending.enter_context(MetricsServer(loaded.pipeline.name, options.metrics_port))
            spark = start_spark(options, loaded.pipeline, display)
            ending.callback(_stop_spark, spark)
            runner = Runner(loaded.pipeline, spark, _run_options(options))
            limit = DeadLimit(loaded.pipeline.head.max_dead, loaded.pipeline.dead_letter_topic)
            following = Following(runner, [stream.name for stream in loaded.pipeline.queries()], folder, limit)
            metrics.source = display.source = lambda: following.snapshots
            runner.start()
            folder.change("running")
            display.step("running")
            state, reason = _follow(runner, following, display, folder)
    except PipelineError as wrong:
        placed = loaded.placed(wrong)
        reason = placed.texts()[0]
        return tell(placed)
    except (SourceError, SinkError) as problem:
        reason = str(problem)
        raise ToolError(reason) from None
    except SPARK_GONE as problem:
        reason = f"Spark is gone: {_why_gone(problem)}"
        raise ToolError(reason) from None
    except (ToolError, ClientError, OSError) as problem:
        reason = str(problem)
        raise
    except (KeyboardInterrupt, SystemExit):
        state, reason = "stopped", "interrupted"
        raise
    finally:
        with suppress(OSError):  # a full disk must not hide how it ended
            folder.change(state, reason, following.snapshots if following else ())
    if state == "failed":
        raise ToolError(reason, EXIT_FAILED)
    return 0


def _follow(runner: Runner, following: Following, display: Display, folder: RunFolder) -> tuple[State, str]:
    """Until all queries have ended, one has failed, or somebody asks to stop; the state and the reason."""
    with _stop_asked() as stop:
        try:
            _follow_to_the_end(runner, following, display, folder, stop)
        except SPARK_GONE:
            if not stop.is_set():
                raise
            display.warning("the signal has ended Spark, too: the next run does the current batch again")
    display.end(following.snapshots)
    if stop.is_set():  # what fails now was cut off, and is done again by the next run
        if following.too_many_dead:
            return "failed", following.too_many_dead
        unsent = sum(snapshot.unsent for snapshot in following.snapshots)
        late = f"; {letters(unsent)} not sent, the next run sends them" if unsent else ""
        return "stopped", f"asked to stop{late}"
    if following.failures:
        return "failed", "; ".join(following.failures)
    return "stopped", "all was done"


def _follow_to_the_end(
    runner: Runner, following: Following, display: Display, folder: RunFolder, stop: threading.Event
) -> None:
    told = 0
    while True:
        for snapshot in following.poll():
            display.batch(snapshot)
        for warning in following.warnings[told:]:
            display.warning(warning)
        told = len(following.warnings)
        if not following.is_active:
            return
        if stop.is_set() or following.failures:
            folder.change("stopping", queries=following.snapshots)
            display.step("stopping: the current batch may end (Ctrl-C again does not wait)")
            runner.stop(GRACE_SECONDS)
        else:
            stop.wait(POLL_SECONDS)


def _why_gone(problem: Exception) -> str:
    if isinstance(problem, PySparkException | Py4JJavaError):
        return first_cause(str(problem))
    return "its Java process has ended (killed, or out of memory?); the next run goes on after the last whole batch"


def _stop_spark(spark: SparkSession) -> None:
    with suppress(*SPARK_GONE):  # it may be gone before
        spark.stop()


@contextmanager
def _stop_asked() -> Iterator[threading.Event]:
    """Set by the first signal; the second ends everything at once. Spark has put its own handler in place before."""
    asked = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_options(options: argparse.Namespace) -> RunOptions:
    is_batch = options.once and options.starting is not None
    return RunOptions(_checkpoints(options), options.once, is_batch, options.fresh, choices_of(options))


def _checkpoints(options: argparse.Namespace) -> str:
    return options.checkpoint or str(state_of(options).resolve())


def _check_start(options: argparse.Namespace, pipeline: Pipeline) -> None:
    """A checkpoint goes before --from: whoever wants to begin elsewhere must say what becomes of it."""
    check_places(pipeline)
    if options.fresh:
        put_aside(_checkpoints(options), pipeline)
    if not (options.once and options.starting is not None):  # such a run has no checkpoint
        check_names(_checkpoints(options), pipeline)
    if options.starting is None:
        return
    check_starting(options.starting)
    known = [] if options.once else begun(_checkpoints(options), pipeline)
    if known and not options.once:
        raise UsageError(
            f"--from: {', '.join(known)} would go on from the checkpoint of earlier runs; "
            "--fresh puts that aside, --checkpoint PLACE uses another"
        )


def check_starting(starting: str | None) -> None:
    """Raises UsageError."""
    try:
        starting_options(starting or "earliest")
    except ValueError as wrong:
        raise UsageError(f"--from: {wrong}") from None


def _master(options: argparse.Namespace) -> str:
    return options.master or "local[*]"


def _display(options: argparse.Namespace, pipeline: Pipeline) -> Display:
    if options.json:
        return JsonDisplay(pipeline.name)
    if is_terminal(sys.stdout):
        try:
            return LiveDisplay(pipeline.name, _master(options))
        except ImportError:  # without rich: pip install 'ottla[cli]'
            return PlainDisplay(pipeline.name)
    return PlainDisplay(pipeline.name)

"""`ottla pipeline run`: starts Spark, runs pipelines, shows their progress, stops them in order.

Ctrl-C and SIGTERM stop after the current batch; a second signal stops immediately. Nothing is lost: the next run
resumes after the last committed batch. Several files share one Spark session; each has its own state and its own end.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import accumulators
from pyspark.logger import PySparkLogger

from ottla.cli.pipelines.files import load, state_of, tell
from ottla.cli.pipelines.life import SPARK_GONE, Life
from ottla.cli.pipelines.restoring import restore
from ottla.cli.pipelines.screen import Display, JsonDisplay, LiveDisplay, PlainDisplay
from ottla.cli.pipelines.signals import StopAsked
from ottla.cli.terminal import ToolError, UsageError, exit_on_sigterm, is_terminal, warn
from ottla.client.errors import ClientError
from ottla.pipelines.model.pipeline import Pipeline, TopicSource
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.model.sink_specs import FILE_SINKS, DeltaSink
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.checkpoints import begun, check_names, put_aside
from ottla.pipelines.running.loading import Loaded
from ottla.pipelines.running.metrics import MetricsServer
from ottla.pipelines.running.own_code import has_own_code
from ottla.pipelines.running.restarting import Policy, Restarts
from ottla.pipelines.running.runner import RunOptions
from ottla.pipelines.running.sink_factory import check_places
from ottla.pipelines.running.source_options import starting_options
from ottla.pipelines.running.status import AlreadyRunningError, RunFolder, new_status, places_of
from ottla.pipelines.running.topic_check import check_topics
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.spark.class_archive import Work
from ottla.pipelines.spark.launch import abandon_java
from ottla.pipelines.spark.places import SparkStartError
from ottla.pipelines.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.2


def run_run(options: argparse.Namespace) -> int:
    _check_together(options)
    named = [argparse.Namespace(**{**vars(options), "file": file}) for file in options.files]
    try:
        loads = [load(each) for each in named]
    except PipelineError as wrong:
        return tell(wrong)
    _check_names_differ(loads)
    _joined_settings([loaded.pipeline for loaded in loads])
    with ExitStack() as held:
        folders: list[RunFolder] = []
        for each, loaded in zip(named, loads, strict=True):
            status = new_status(loaded.pipeline.name, str(Path(each.file).resolve()), _master(options))
            status = status._replace(
                metrics_port=options.metrics_port, is_shared=len(named) > 1, places=places_of(loaded.pipeline)
            )
            folders.append(RunFolder(state_of(options), status, None if _is_batch(options) else _checkpoints(options)))
            held.callback(folders[-1].close)
        try:
            for folder, loaded in zip(folders, loads, strict=True):
                folder.lock()  # before anything is moved: it may be in use
                _check_start(options, loaded.pipeline)
                _check_topics(options, loaded.pipeline)
        except PipelineError as wrong:
            return tell(loaded.placed(wrong))
        except (SourceError, SinkError, AlreadyRunningError) as problem:
            raise ToolError(str(problem)) from None
        for folder in folders:
            folder.open()
        return _run(options, loads, folders)


class SharedSpark:
    """The shared session: started for the first pipeline, and again if its Java has ended."""

    def __init__(self, options: argparse.Namespace, pipelines: Sequence[Pipeline], display: Display) -> None:
        self.options = options
        self.pipelines = pipelines
        self.display = display
        self._session: SparkSession | None = None

    def __repr__(self) -> str:
        return f"SharedSpark({'started' if self._session else 'not started'})"

    def session(self) -> SparkSession:
        if self._session is None:
            self._session = start_spark(self.options, self.display, *self.pipelines, work="streams")
        return self._session

    def drop_dead(self) -> None:
        if self._session is not None and is_dead(self._session):
            self._session = None
            abandon_java()

    def stop(self) -> None:
        if self._session is not None:
            _stop_spark(self._session)


def start_spark(
    options: argparse.Namespace, display: Display, *pipelines: Pipeline, work: Work = "queries"
) -> SparkSession:
    """Create the session for all pipelines. Raises ToolError."""
    streams = [stream for pipeline in pipelines for stream in pipeline.streams.values()]
    sources = [stream.origin for stream in streams if isinstance(stream.origin, TopicSource)]
    is_jvm = "jvm" in [options.connector or source.connector for source in sources]
    is_jvm = is_jvm or "realtime" in [pipeline.fields.latency for pipeline in pipelines]
    sinks = [sink for pipeline in pipelines for stream in pipeline.queries() for sink in stream.sinks]
    has_delta = any(isinstance(sink, DeltaSink) for sink in sinks)
    places = [str(getattr(sink, kind, "")) for sink in sinks for kind in FILE_SINKS]
    has_s3 = any(place.startswith("s3a://") for place in [*places, getattr(options, "checkpoint", None) or ""])
    silence_pyspark()
    try:
        return start_session(
            " ".join(pipeline.name for pipeline in pipelines),
            options.master,
            "jvm" if is_jvm else "ottla",
            (*(["delta"] if has_delta else []), *(["s3"] if has_s3 else [])),
            _joined_settings(pipelines),
            is_lean=not any(map(has_own_code, pipelines)),
            work=work,
            on_step=display.step,
        )
    except SparkStartError as problem:
        raise ToolError(str(problem)) from None


def is_dead(spark: SparkSession) -> bool:
    """Whether it has ended by itself."""
    try:
        return not spark.version or bool(spark.sparkContext._jsc.sc().isStopped())
    except SPARK_GONE:
        return True


def silence_pyspark() -> None:
    """Silence Spark's loggers: each mistake in a condition would print a page of Java, and the end of Java several of
    Python, before the error in one line.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    if not logging.getLogger().handlers:  # otherwise Py4J creates a logger that writes to the terminal
        logging.getLogger().addHandler(logging.NullHandler())
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _be_quiet  # type: ignore[assignment, method-assign]


def _be_quiet(_server: object, _request: object, _client: object) -> None:
    """Report the failure to the requester of the savepoint."""


def choices_of(options: argparse.Namespace) -> Choices:
    return Choices(starting=getattr(options, "starting", None), connector=options.connector)


def _run(options: argparse.Namespace, loads: Sequence[Loaded], folders: Sequence[RunFolder]) -> int:
    """Record the end of each run in its files, in every case."""
    exit_on_sigterm()
    lives: list[Life] = []
    try:
        with ExitStack() as ending:
            displays = [ending.enter_context(_display(options, loaded.pipeline)) for loaded in loads]
            metrics = ending.enter_context(MetricsServer(options.metrics_port))
            spark = SharedSpark(options, [loaded.pipeline for loaded in loads], displays[0])
            ending.callback(spark.stop)
            for loaded, folder, display in zip(loads, folders, displays, strict=True):
                restarts = Restarts(_policy(options, loaded.pipeline))
                lives.append(Life(loaded, folder, display, spark, _run_options(options), restarts))
                display.source = lambda life=lives[-1]: life.snapshots  # type: ignore[misc]
            metrics.source = lambda: [life.status for life in lives]
            _follow(lives)
    except BaseException as problem:
        is_asked = isinstance(problem, KeyboardInterrupt | SystemExit)
        for life in lives:
            life.interrupt("interrupted" if is_asked else f"ended: {problem}")
        raise
    return _told(lives)


def _follow(lives: Sequence[Life]) -> None:
    """Poll until all have ended."""
    with StopAsked() as stop:
        while any(life.ending is None for life in lives):
            for life in lives:
                if life.is_due and not stop.event.is_set():
                    with stop.at_once():
                        life.begin()
                else:
                    life.poll(stop.event.is_set())
            if any(life.ending is None for life in lives):
                stop.event.wait(POLL_SECONDS)


def _told(lives: Sequence[Life]) -> int:
    """Print the reasons of failures; returns the exit code."""
    failed = [(life, life.ending) for life in lives if life.ending is not None and life.ending.code]
    if not failed:
        return 0
    for life, ending in failed:
        for line in ending.lines:
            warn(line)
        if not ending.lines and len(lives) == 1:
            raise ending.error or ToolError(ending.reason)
        if not ending.lines:
            warn(f"{life.pipeline.name}: {ending.reason}")
    return max(ending.code for _, ending in failed)


def _stop_spark(spark: SparkSession) -> None:
    with suppress(*SPARK_GONE):  # it may have ended already
        spark.stop()


def _run_options(options: argparse.Namespace) -> RunOptions:
    return RunOptions(_checkpoints(options), options.once, _is_batch(options), options.fresh, choices_of(options))


def _is_batch(options: argparse.Namespace) -> bool:
    return options.once and options.starting is not None


def _checkpoints(options: argparse.Namespace) -> str:
    return options.checkpoint or str(state_of(options).resolve())


def _policy(options: argparse.Namespace, pipeline: Pipeline) -> Policy:
    chosen: Policy = options.restart or pipeline.fields.restart
    return chosen


def _check_start(options: argparse.Namespace, pipeline: Pipeline) -> None:
    """Reject --from if a checkpoint exists, which would take precedence."""
    check_places(pipeline)
    if options.fresh:
        put_aside(_checkpoints(options), pipeline)
    if options.from_savepoint:
        restore(options, pipeline, _checkpoints(options))
    if not _is_batch(options):  # such a run has no checkpoint
        check_names(_checkpoints(options), pipeline)
    if options.starting is None:
        return
    check_starting(options.starting)
    known = [] if options.once else begun(_checkpoints(options), pipeline)
    if known and not options.once:
        raise UsageError(
            f"--from: {', '.join(known)} would resume from the checkpoint of earlier runs; "
            "--fresh discards it, --checkpoint PLACE uses another"
        )


def _check_topics(options: argparse.Namespace, pipeline: Pipeline) -> None:
    """Check a pipeline; waits for a broker with restarts. Raises PipelineError, SourceError, ClientError."""
    try:
        check_topics(pipeline)
    except (SourceError, ClientError):
        if _policy(options, pipeline) != "always":
            raise


def _check_together(options: argparse.Namespace) -> None:
    """Raises UsageError."""
    if not options.from_savepoint and (options.truncate_sinks or options.repeat):
        raise UsageError("--truncate-sinks and --repeat are for --from-savepoint")
    if options.from_savepoint and (options.fresh or options.starting is not None):
        raise UsageError("--from-savepoint defines where to start: omit --fresh and --from")
    if options.from_savepoint and len(options.files) > 1:
        raise UsageError("--from-savepoint needs exactly one file")


def _check_names_differ(loads: Sequence[Loaded]) -> None:
    """Raises UsageError."""
    names = [loaded.pipeline.name for loaded in loads]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two files are called {twice!r}: a pipeline runs once at a time")


def _joined_settings(pipelines: Sequence[Pipeline]) -> dict[str, str]:
    """Merge the Spark settings for the shared session. Raises UsageError if two differ."""
    found: dict[str, str] = {}
    for pipeline in pipelines:
        for key, value in pipeline.fields.spark.items():
            if found.setdefault(key, value) != value:
                raise UsageError(
                    f"{pipeline.name} has {key}={value}, another pipeline {found[key]}: run it in its own process"
                )
    return found


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
    is_one = len(options.files) == 1
    if is_terminal(sys.stdout) and is_one:
        try:
            return LiveDisplay(pipeline.name, _master(options))
        except ImportError:  # without rich: pip install 'ottla[cli]'
            return PlainDisplay(pipeline.name)
    return PlainDisplay(pipeline.name, "" if is_one else f"{pipeline.name}/")

"""`ottla pipeline check`: finds mistakes in a pipeline without running it.

Three stages, each only if the previous one found nothing: the file with the columns that it declares, the topics
(queries a broker), and with --spark all columns and conditions (Spark plans the queries). The last line names what was
and what was not checked.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.pipelines.files import load, tell
from ottla.cli.terminal import EXIT_FAILED, fail, print_line
from ottla.client.errors import ClientError
from ottla.pipelines.model.problems import Path, PipelineError, Problem, path_text
from ottla.pipelines.model.sink_specs import is_at_least_once
from ottla.pipelines.running.column_flow import check_columns
from ottla.pipelines.running.sink_factory import check_places
from ottla.pipelines.running.topic_check import check_topics
from ottla.pipelines.source.data_loss import SourceError

if TYPE_CHECKING:
    from ottla.pipelines.running.loading import Loaded


def run_check(options: argparse.Namespace) -> int:
    checked: list[str] = []
    try:
        loaded = load(options)
        checked.append("the file")
        check_places(loaded.pipeline)
        unknown = check_columns(loaded.pipeline)
        checked.append("declared columns")
        if not options.offline:
            check_topics(loaded.pipeline)
            checked.append("topics")
        if options.spark:
            checked += _check_plans(options, loaded)
    except PipelineError as wrong:
        return tell(loaded.placed(wrong) if checked else wrong)
    except (ClientError, SourceError) as problem:
        return fail("ottla pipeline check", f"{problem} (--offline checks without brokers)", EXIT_FAILED)
    left = _not_checked(options, unknown)
    print_line(f"{options.file}: {loaded.pipeline.name} is valid. Checked: {', '.join(checked)}.{left}")
    for line in repeated_lines(loaded):
        print_line(line)
    return 0


def repeated_lines(loaded: Loaded) -> list[str]:
    """Notes about sinks that are not exactly-once; their readers must expect duplicates."""
    cause = "at least once: rows of a batch that is repeated after a crash appear again"
    found = [
        Problem((*stream.path, "to", number), cause)
        for stream in loaded.pipeline.queries()
        for number, sink in enumerate(stream.sinks)
        if is_at_least_once(sink)
    ]
    return [problem.text(loaded.file, loaded.lines) for problem in found]


def _check_plans(options: argparse.Namespace, loaded: Loaded) -> list[str]:
    """Load and check the pipeline. Raises PipelineError."""
    from ottla.cli.pipelines.run import choices_of, start_spark  # noqa: PLC0415 (a second)
    from ottla.cli.pipelines.screen import PlainDisplay  # noqa: PLC0415
    from ottla.pipelines.running.builder import Builder  # noqa: PLC0415
    from ottla.pipelines.spark.session import is_running  # noqa: PLC0415

    display = PlainDisplay(loaded.pipeline.name)
    is_ours = not is_running()
    spark = start_spark(options, display, loaded.pipeline)
    try:
        for stream in loaded.pipeline.queries():
            Builder(spark, loaded.pipeline, choices=choices_of(options)).query(stream.name)
    finally:
        if is_ours:
            spark.stop()
    return ["columns and conditions, with Spark"]


def _not_checked(options: argparse.Namespace, unknown: Sequence[Path]) -> str:
    """Name the steps after which columns are not declared: mistakes there may remain undetected."""
    left = ["topics"] if options.offline else []
    if not options.spark:
        behind = [f"columns after {path_text(path)}" for path in unknown]
        left.append(f"{', '.join([*behind, 'what only Spark knows'])} (--spark)")
    return f" Not checked: {', '.join(left)}." if left else ""

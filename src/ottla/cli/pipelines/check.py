"""`ottla pipeline check`: what is wrong with a pipeline, as far as it can be known without running it.

Three looks, each only if the one before found nothing: the file itself and the columns that it declares, the topics (a
broker is asked), and with --spark all columns and conditions (Spark plans the queries, but runs nothing). What was
checked, and what was not, is said at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.pipelines.files import load, tell
from ottla.cli.terminal import EXIT_FAILED, fail, say
from ottla.client.errors import ClientError
from ottla.pipelines.model.problems import Path, PipelineError, Problem, place_name
from ottla.pipelines.model.sinks import is_repeated
from ottla.pipelines.running.column_flow import check_columns
from ottla.pipelines.running.sink_factory import check_places
from ottla.pipelines.running.topic_check import check_topics
from ottla.pipelines.source.losses import SourceError

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
    say(f"{options.file}: {loaded.pipeline.name} is right. Checked: {', '.join(checked)}.{left}")
    for line in repeated_lines(loaded):
        say(line)
    return 0


def repeated_lines(loaded: Loaded) -> list[str]:
    """What is not exactly once, and what that means: whoever reads such a place must know it."""
    cause = "at least once: rows of a batch that is done again after a crash come there again"
    found = [
        Problem((*stream.path, "to", number), cause)
        for stream in loaded.pipeline.queries()
        for number, sink in enumerate(stream.sinks)
        if is_repeated(sink)
    ]
    return [problem.text(loaded.file, loaded.lines) for problem in found]


def _check_plans(options: argparse.Namespace, loaded: Loaded) -> list[str]:
    """Raises PipelineError."""
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
    """Steps behind which the columns are not declared are named: there a mistake may wait."""
    left = ["topics"] if options.offline else []
    if not options.spark:
        behind = [f"columns behind {place_name(path)}" for path in unknown]
        left.append(f"{', '.join([*behind, 'what only Spark knows'])} (--spark)")
    return f" Not checked: {', '.join(left)}." if left else ""

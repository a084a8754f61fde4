"""`ottla pipeline preview`: shows the result of each step for existing records; writes nothing."""

from __future__ import annotations

import argparse
import json

from pyspark.errors import PySparkException

from ottla.cli.pipelines.files import load, tell
from ottla.cli.pipelines.run import check_starting, choices_of, start_spark
from ottla.cli.pipelines.screen import PlainDisplay
from ottla.cli.tables import padded
from ottla.cli.terminal import ToolError, print_line
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.failures import first_cause
from ottla.pipelines.running.loading import Loaded
from ottla.pipelines.running.preview import Look, preview
from ottla.pipelines.running.topic_check import check_topics
from ottla.pipelines.sinks.console import cell_text
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.spark.session import is_running


def run_preview(options: argparse.Namespace) -> int:
    loaded: Loaded | None = None
    try:
        check_starting(options.starting)
        loaded = load(options)
        check_topics(loaded.pipeline)
        return _preview(options, loaded)
    except PipelineError as wrong:
        return tell(loaded.placed(wrong) if loaded else wrong)
    except SourceError as problem:
        raise ToolError(str(problem)) from None
    except PySparkException as problem:
        raise ToolError(first_cause(str(problem))) from None


def _preview(options: argparse.Namespace, loaded: Loaded) -> int:
    is_ours = not is_running()
    spark = start_spark(options, PlainDisplay(loaded.pipeline.name), loaded.pipeline)
    try:
        for look in preview(spark, loaded.pipeline, choices_of(options), options.rows, options.records):
            if options.json:
                print(json.dumps(look._asdict(), default=cell_text, ensure_ascii=False), flush=True)
            else:
                _tell(look)
    finally:
        if is_ours:
            spark.stop()
    return 0


def _tell(look: Look) -> None:
    gone = [f"{look.filtered} filtered"] if look.filtered else []
    gone += [f"{look.dead} dead ({look.reason})"] if look.dead else []
    print_line(f"── {look.title}: {', '.join([f'{look.living} row' + ('' if look.living == 1 else 's'), *gone])}")
    if look.rows:
        for line in padded(look.columns, [[cell_text(value) for value in row] for row in look.rows]):
            print_line(line)
    if look.living > len(look.rows):
        print_line("…")
    print_line("")

"""`ottla pipeline reset`: discards the state of earlier runs, so that the next one starts again.

Checkpoint, notes and pinned rows of all streams are moved away together: a remaining one would stop the next run. With
--sinks the pipeline's output is deleted, too, as far as it belongs to the pipeline alone (sinks/forgetting.py). All
actions are printed first; if one of them is not allowed, none is executed.
"""

from __future__ import annotations

import argparse
import sys

from ottla.cli.pipelines.files import file_of, load, state_of, tell
from ottla.cli.terminal import ToolError, confirm, is_terminal, print_line
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.beginning import name_of
from ottla.pipelines.running.belonging import is_of_stream
from ottla.pipelines.running.checkpoints import planned_moves, put_aside
from ottla.pipelines.running.delivery import make_delivery
from ottla.pipelines.running.loading import Loaded
from ottla.pipelines.running.status import AlreadyRunningError, RunFolder, new_status
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.removal import Removal, plan_removal


def run_reset(options: argparse.Namespace) -> int:
    loaded: Loaded | None = None
    try:
        options.file = file_of(options)
        loaded = load(options)
        lock = RunFolder(state_of(options), new_status(loaded.pipeline.name, options.file, ""), options.checkpoint)
        lock.lock()
        try:
            return _reset(options, loaded.pipeline)
        finally:
            lock.close()
    except PipelineError as wrong:
        return tell(loaded.placed(wrong) if loaded else wrong)
    except (AlreadyRunningError, SinkError) as problem:
        raise ToolError(str(problem)) from None


def plan_removals(pipeline: Pipeline) -> list[Removal]:
    """The output of the pipeline, by sink. Raises PipelineError, SinkError."""
    names = [name_of(pipeline, stream) for stream in pipeline.queries()]

    def is_own(query: str) -> bool:
        return any(is_of_stream(query, name, with_runs=True) for name in names)

    routes = [route for stream in pipeline.queries() for route in make_delivery(pipeline, stream, "", "").routes]
    return [plan_removal(route.sink, is_own) for route in routes]


def _reset(options: argparse.Namespace, pipeline: Pipeline) -> int:
    checkpoints = options.checkpoint or str(state_of(options).resolve())
    moves = planned_moves(checkpoints, pipeline)
    removals = plan_removals(pipeline) if options.sinks else []
    refused = [removal for removal in removals if removal.is_rejected]
    if refused:
        raise ToolError(f"{refused[0].place}: {refused[0].text}. Nothing was done")
    for path, old in moves:
        print_line(f"{path.name}: put checkpoint, notes and staged rows aside: {old}")
    if not moves:
        print_line(f"{checkpoints} has no checkpoint of {pipeline.name}")
    for removal in removals:
        print_line(f"{removal.place}: {removal.text}")
    if options.dry_run:
        print_line("Nothing was done (--dry-run).")
        return 0
    if not _is_sure(options, f"Reset {pipeline.name}?"):
        print_line("Nothing was done.")
        return 1
    for removal in removals:
        removal.remove()
    put_aside(checkpoints, pipeline)
    kept = (
        ""
        if options.sinks
        else " Sinks keep their rows: sinks that remember batches need run --fresh, or reset --sinks."
    )
    print_line(f"{pipeline.name} is reset: the next run starts again.{kept}")
    return 0


def _is_sure(options: argparse.Namespace, question: str) -> bool:
    return options.yes or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or confirm(question)

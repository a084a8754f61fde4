"""Loads pipeline files for the sub-commands of `ottla pipeline` and prints their problems."""

from __future__ import annotations

import argparse
from pathlib import Path

from ottla.cli.arguments import closest_match
from ottla.cli.terminal import EXIT_USAGE, ToolError, UsageError, warn
from ottla.operations.pipeline_runs.statuses import Status, list_runs, read_status, state_folder
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.loading import Loaded, load_pipeline, parse_change

FILES = (".yaml", ".yml", ".py")


def load(options: argparse.Namespace) -> Loaded:
    """Load a pipeline. Raises PipelineError, UsageError."""
    try:
        changes = dict(parse_change(text) for text in options.set)
    except ValueError as wrong:
        raise UsageError(f"--set: {wrong}") from None
    if options.bootstrap_server:
        changes["bootstrap_servers"] = options.bootstrap_server
    loaded = load_pipeline(Path(options.file), changes, options.env)
    return loaded._replace(pipeline=loaded.pipeline._replace(roots=(*loaded.pipeline.roots, *options.root)))


def tell(wrong: PipelineError) -> int:
    """Print one line per problem, as compilers do; returns the exit code of an invalid pipeline."""
    for line in wrong.texts():
        warn(line)
    return EXIT_USAGE


def state_of(options: argparse.Namespace) -> Path:
    return Path(options.state) if options.state else state_folder()


def file_of(options: argparse.Namespace) -> str:
    """A file, or the file of the last run with this name."""
    given = Path(options.name)
    return options.name if given.suffix in FILES or given.is_file() else known_run(options).file


def known_run(options: argparse.Namespace) -> Status:
    folder = state_of(options)
    found = read_status(folder, options.name)
    if found is None:
        names = [run.name for run in list_runs(folder)]
        guess = closest_match(options.name, names)
        hint = f"; did you mean {guess}?" if guess else f"; known: {', '.join(names) or 'none'}"
        raise ToolError(f"there is no run of {options.name!r} in {folder}{hint}")
    return found

"""What the sub-commands of `ottla pipeline` that read a file have in common: loading it, and telling what is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path

from ottla.cli.terminal import EXIT_USAGE, UsageError, warn
from ottla.pipelines.model.problems import PipelineError
from ottla.pipelines.running.loading import Loaded, load_pipeline, parse_change
from ottla.pipelines.running.status import state_folder


def load(options: argparse.Namespace) -> Loaded:
    """Raises PipelineError, UsageError."""
    try:
        changes = dict(parse_change(text) for text in options.set)
    except ValueError as wrong:
        raise UsageError(f"--set: {wrong}") from None
    if options.bootstrap_server:
        changes["bootstrap_servers"] = options.bootstrap_server
    loaded = load_pipeline(Path(options.file), changes, options.env)
    return loaded._replace(pipeline=loaded.pipeline._replace(roots=tuple(options.root)))


def tell(wrong: PipelineError) -> int:
    """Every problem on a line of its own, as compilers do; the exit code of a wrong pipeline."""
    for line in wrong.texts():
        warn(line)
    return EXIT_USAGE


def state_of(options: argparse.Namespace) -> Path:
    return Path(options.state) if options.state else state_folder()

"""`ottla pipeline run --from-savepoint`: restores checkpoints from a savepoint, unless rows would be repeated."""

from __future__ import annotations

import argparse
from pathlib import Path

from ottla.cli.terminal import UsageError, warn
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.running.going_back import Allowed, cut_back, surplus
from ottla.pipelines.running.savepoint import SavepointError, open_savepoint, put_in_place


def restore(options: argparse.Namespace, pipeline: Pipeline, checkpoints: str) -> None:
    """Restore a savepoint. Raises UsageError if it is unusable, CheckpointError, SinkError for sinks that are ahead."""
    if "://" in checkpoints:
        raise UsageError(f"--from-savepoint: {checkpoints} is not on a path: copy the savepoint there yourself")
    try:
        savepoint = open_savepoint(Path(options.from_savepoint).resolve(), pipeline)
    except SavepointError as problem:
        raise UsageError(f"--from-savepoint: {problem}") from None
    batches = surplus(savepoint, checkpoints, pipeline, Allowed(options.truncate_sinks, options.repeat))
    put_in_place(savepoint, checkpoints, pipeline)
    cut_back(batches)
    standing = ", ".join(f"{name} after batch {each.standing.committed}" for name, each in savepoint.streams.items())
    removed = f"; {len(batches)} later batches were removed" if batches else ""
    warn(f"{pipeline.name}: resumes from {savepoint.folder}: {standing}{removed}")

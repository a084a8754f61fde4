"""Checkpoints of earlier runs: which streams have one, and putting them aside for a fresh start."""

from __future__ import annotations

import time
from pathlib import Path

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem

OLD_FOLDER = "_old"


def begun(folder: str, pipeline: Pipeline) -> list[str]:
    """The streams that would go on where they were; an address of another file system is not looked into."""
    if "://" in folder:
        return []
    return [name for name, path in _places(folder, pipeline) if (path / "checkpoint" / "metadata").exists()]


def put_aside(folder: str, pipeline: Pipeline) -> None:
    """They are moved, not deleted: <folder>/<pipeline>/_old/<time>/<stream>. Raises PipelineError."""
    if "://" in folder:
        cure = "choose a new place with --checkpoint"
        raise PipelineError([Problem((), f"--fresh cannot move what is at {folder}", cure)])
    moment = time.strftime("%Y%m%d-%H%M%S")
    for name, path in _places(folder, pipeline):
        if path.exists():
            old = path.parent / OLD_FOLDER / moment / name
            old.parent.mkdir(parents=True, exist_ok=True)
            path.rename(old)


def _places(folder: str, pipeline: Pipeline) -> list[tuple[str, Path]]:
    return [(stream.name, Path(folder) / pipeline.name / stream.name) for stream in pipeline.queries()]

"""Checkpoints of earlier runs: which streams have one, and moving them away for a fresh start."""

from __future__ import annotations

import time
from pathlib import Path

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.model.problems import PipelineError, Problem
from ottla.pipelines.running.belonging import QUERY_FOLDER

OLD_FOLDER = "_old"


def begun(folder: str, pipeline: Pipeline) -> list[str]:
    """The streams that would continue; remote file systems are not checked."""
    if "://" in folder:
        return []
    return [name for name, path in _places(folder, pipeline) if any(path.glob("checkpoint/offsets/[0-9]*"))]


def check_names(folder: str, pipeline: Pipeline) -> None:
    """A renamed stream would start again and repeat everything. Raises PipelineError."""
    strangers = _strangers(folder, pipeline)
    known = [name for name, path in _places(folder, pipeline) if (path / "checkpoint" / "metadata").exists()]
    without = [stream for stream in pipeline.queries() if stream.name not in known]
    if strangers and without:
        old = strangers[0]
        cause = f"stream {without[0].name!r} has no checkpoint, but {old.name!r} has, which is no stream of this file"
        cure = f"if it was renamed, use its old name; if {old} is not needed, remove it; --fresh starts all again"
        raise PipelineError([Problem(without[0].path, cause, cure)])


def put_aside(folder: str, pipeline: Pipeline) -> None:
    """Checkpoints are moved, not deleted. Raises PipelineError."""
    for path, old in planned_moves(folder, pipeline):
        old.parent.mkdir(parents=True, exist_ok=True)
        path.rename(old)


def planned_moves(folder: str, pipeline: Pipeline) -> list[tuple[Path, Path]]:
    """From <folder>/<pipeline>/<stream> to <folder>/<pipeline>/_old/<time>/<stream>. Raises PipelineError."""
    if "://" in folder:
        cure = "remove it yourself, or choose a new place with --checkpoint"
        raise PipelineError([Problem((), f"what is at {folder} cannot be put aside", cure)])
    moment = time.strftime("%Y%m%d-%H%M%S")
    old_ones = [(path.name, path) for path in _strangers(folder, pipeline)]
    places = [*_places(folder, pipeline), *old_ones]
    return [(path, path.parent / OLD_FOLDER / moment / name) for name, path in places if path.exists()]


def _strangers(folder: str, pipeline: Pipeline) -> list[Path]:
    """Folders of streams that the pipeline does not have."""
    if "://" in folder:
        return []
    own = {name for name, _ in _places(folder, pipeline)}
    whole = Path(folder, pipeline.name)
    found = {path.parents[1] for path in whole.glob("*/checkpoint/metadata")}
    found |= {path.parent for path in whole.glob(f"*/{QUERY_FOLDER}*")}
    return sorted(path for path in found if path.name not in own)


def _places(folder: str, pipeline: Pipeline) -> list[tuple[str, Path]]:
    return [(stream.name, Path(folder) / pipeline.name / stream.name) for stream in pipeline.queries()]

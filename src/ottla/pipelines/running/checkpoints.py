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


def check_names(folder: str, pipeline: Pipeline) -> None:
    """A stream that was renamed would begin anew and write everything once more. Raises PipelineError."""
    strangers = _strangers(folder, pipeline)
    known = begun(folder, pipeline)
    without = [stream for stream in pipeline.queries() if stream.name not in known]
    if strangers and without:
        old = strangers[0]
        cause = f"stream {without[0].name!r} has no checkpoint, but {old.name!r} has, which is no stream of this file"
        cure = f"if it was renamed, give it its old name; if {old} is not needed, remove it; --fresh begins all anew"
        raise PipelineError([Problem(without[0].path, cause, cure)])


def put_aside(folder: str, pipeline: Pipeline) -> None:
    """They are moved, not deleted: <folder>/<pipeline>/_old/<time>/<stream>. Raises PipelineError."""
    if "://" in folder:
        cure = "choose a new place with --checkpoint"
        raise PipelineError([Problem((), f"--fresh cannot move what is at {folder}", cure)])
    moment = time.strftime("%Y%m%d-%H%M%S")
    old_ones = [(path.name, path) for path in _strangers(folder, pipeline)]
    for name, path in [*_places(folder, pipeline), *old_ones]:
        if path.exists():
            old = path.parent / OLD_FOLDER / moment / name
            old.parent.mkdir(parents=True, exist_ok=True)
            path.rename(old)


def _strangers(folder: str, pipeline: Pipeline) -> list[Path]:
    """Folders of streams that the pipeline does not have."""
    if "://" in folder:
        return []
    own = {name for name, _ in _places(folder, pipeline)}
    found = Path(folder, pipeline.name).glob("*/checkpoint/metadata")
    return sorted(path.parent.parent for path in found if path.parent.parent.name not in own)


def _places(folder: str, pipeline: Pipeline) -> list[tuple[str, Path]]:
    return [(stream.name, Path(folder) / pipeline.name / stream.name) for stream in pipeline.queries()]

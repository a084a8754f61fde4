"""The local files that a pipeline may read and write: those in its folder, and below a --root.

A pipeline file may come from another source. Each step names the files that it reads (`files()`), including indirect
ones: a link, a link in a folder that is read as a table, a file that a schema imports. Remote file systems have their
own access control. Certificates in client settings are not data and may be anywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from glob import glob
from pathlib import Path

from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.sinks.staging import local_path
from ottla.pipelines.steps.step import StepError

PATTERN = re.compile(r"[*?\[]")
NO_PATTERN = re.compile(r"[{}\\]")  # Hadoop glob characters that Python treats differently
IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"', re.MULTILINE)
PROTO_BYTES_MAX = 10 << 20


class OutsideError(ValueError):
    """A local path outside of all allowed folders; the text says how to allow it."""


def confined(pipeline: Pipeline, path: str) -> Path | None:
    """The path, relative to the pipeline's folder; None on a remote file system. Raises OutsideError."""
    local = local_path(path)
    if local is None:
        return None
    full = local if Path(path).is_absolute() or ":" in path else Path(pipeline.folder) / path
    _check(pipeline, full, path)
    return full


def check_reads(pipeline: Pipeline, spec: object) -> None:
    """Check the files of a step. Raises StepError."""
    files = getattr(spec, "files", None)
    for field, path in files() if files is not None else ():
        try:
            _check_readable(pipeline, path)
        except OutsideError as problem:
            raise StepError(str(problem), field=field) from None


def _check_readable(pipeline: Pipeline, path: str) -> None:
    full = confined(pipeline, path)
    if full is None:
        return
    if NO_PATTERN.search(path):
        raise OutsideError(f"{path}: braces and backslashes in the name of a file are not allowed")
    for found in map(Path, glob(str(full))) if PATTERN.search(str(full)) else [full]:
        for each in _reached(found):
            _check(pipeline, each, path)


def _check(pipeline: Pipeline, full: Path, path: str) -> None:
    real = Path(os.path.realpath(full))
    if not any(real.is_relative_to(os.path.realpath(root)) for root in (pipeline.folder, *pipeline.roots)):
        raise OutsideError(f"{path} is outside of the pipeline's folder: allow it with --root {real.parent}")


def _reached(path: Path) -> Iterator[Path]:
    """The path, links in a folder and in their targets, and the imports of a Protobuf schema."""
    yield path
    if path.suffix == ".proto":
        yield from _imported(path, {path.name})
    seen: set[str] = set()
    waiting = [path] if path.is_dir() else []
    while waiting:
        folder = waiting.pop()
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        for entry in os.scandir(folder):
            if entry.is_symlink():
                yield Path(entry.path)
            if entry.is_dir():
                waiting.append(Path(entry.path))


def _imported(schema: Path, seen: set[str]) -> Iterator[Path]:
    """Imports are resolved in the folder of the first file."""
    waiting = [schema]
    while waiting:
        try:
            with waiting.pop().open(encoding="utf-8", errors="replace") as file:
                names = set(IMPORT.findall(file.read(PROTO_BYTES_MAX))) - seen
        except OSError:  # the compiler reports it
            continue
        seen |= names
        for each in (schema.parent / name for name in names):
            if each.exists():
                yield each
                waiting.append(each)

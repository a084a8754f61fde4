"""Savepoints: copies of all state of a pipeline, from which it can continue.

    <folder>/savepoint.json            pipeline, progress, and every file with its size and SHA-256
    <folder>/<stream>/checkpoint/      Spark's, with the state of the steps
    <folder>/<stream>/query-<id>/      notes, staged rows, dead letters

Rules:
1. It is taken while no query of the pipeline runs: of a stopped one, or between two batches.
2. The folder gets its final name when everything is complete and on disk. Partial copies are detected by sizes and
   checksums.
3. Only a pipeline whose parts match (belonging.py) is saved: the batches of its sinks are compared and stored.
4. Only listed files are restored, never added ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from ottla.pipelines.model.pipeline import Pipeline, Stream
from ottla.pipelines.running.beginning import look, name_of
from ottla.pipelines.running.belonging import NONE, QUERY_FOLDER, Found, Standing, check_found, check_memory
from ottla.pipelines.running.checkpoint import Checkpoint, CheckpointError
from ottla.pipelines.running.checkpoints import put_aside
from ottla.pipelines.running.delivery import make_delivery
from ottla.pipelines.sinks.staging import replace_file

FORMAT = 1
MANIFEST = "savepoint.json"
SAVEPOINTS = "_savepoints"
RESTORING = "_restoring"
PLACES = "places"  # savepoints in other folders, one per line
CHUNK_BYTES = 1 << 20
TRIES_MAX = 5


class SavepointError(CheckpointError):
    """A savepoint cannot be taken or used; one sentence with the reason."""


class SavedSink(NamedTuple):
    place: str
    batch_id: int


class SavedStream(NamedTuple):
    query_id: str
    standing: Standing
    sinks: tuple[SavedSink, ...] = ()


class Savepoint(NamedTuple):
    """The contents of its list. `files`: path within the folder -> size, SHA-256."""

    folder: Path
    pipeline: str
    made_ms: int
    spark: str
    streams: Mapping[str, SavedStream]
    files: Mapping[str, tuple[int, str]]

    @property
    def size_bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


def take_savepoint(folder: str, pipeline: Pipeline, target: Path) -> Savepoint:
    """`folder` is that of the checkpoints. Raises CheckpointError, SinkError, OSError; then nothing is left behind."""
    if "://" in folder:
        raise SavepointError(f"{folder} is not on a path: only what is can be saved; copy it while the pipeline stops")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SavepointError(f"{target} exists already: choose another folder")
    founds = {stream.name: _found(folder, pipeline, stream) for stream in pipeline.queries()}
    begun = {name: found for name, found in founds.items() if not found.is_new}
    if not begun:
        raise SavepointError(f"{pipeline.name} has done no batch: there is nothing to save")
    streams = {name: _saved(pipeline, pipeline.streams[name], found) for name, found in begun.items()}
    unfinished = target.parent / f".{target.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        files = _copied(begun, unfinished)
        made = Savepoint(target, pipeline.name, time.time_ns() // 1_000_000, _version("pyspark"), streams, files)
        replace_file(unfinished / MANIFEST, json.dumps(_as_json(made)))
        if target.exists():
            target.rmdir()
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    _remember(Path(folder, pipeline.name), target)
    return made


def default_target(folder: str, pipeline: str) -> Path:
    """A new name below the pipeline's own folder."""
    parent = Path(folder, pipeline, SAVEPOINTS)
    name = time.strftime("%Y%m%d-%H%M%S")
    taken = len(list(parent.glob(f"{name}*")))
    return parent / (f"{name}-{taken + 1}" if taken else name)


def list_savepoints(folder: str, pipeline: str) -> list[Savepoint]:
    """The readable ones, oldest first, without removed ones."""
    parent = Path(folder, pipeline, SAVEPOINTS)
    noted = (parent / PLACES).read_text(encoding="utf-8").splitlines() if (parent / PLACES).exists() else []
    near = [path.parent for path in parent.glob(f"*/{MANIFEST}")]
    found = []
    for path in dict.fromkeys([*near, *map(Path, noted)]):
        try:
            found.append(read_savepoint(path))
        except SavepointError:
            continue
    return sorted(found, key=lambda each: each.made_ms)


def read_savepoint(folder: Path) -> Savepoint:
    """Read the list without checking the files. Raises SavepointError."""
    try:
        given: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavepointError(f"{folder} is not a savepoint, or incomplete: it has no {MANIFEST}") from None
    except (OSError, ValueError) as problem:
        raise SavepointError(f"{folder}/{MANIFEST} cannot be read ({problem}): take another savepoint") from None
    found = given.get("savepoint") if isinstance(given, dict) else None
    if found != FORMAT:
        raise SavepointError(f"{folder} is a savepoint of version {found!r}, and this ottla reads version {FORMAT}")
    try:
        return _from_json(folder, given)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise SavepointError(f"{folder}/{MANIFEST} is damaged: take another savepoint") from None


def open_savepoint(folder: Path, pipeline: Pipeline) -> Savepoint:
    """A savepoint that this pipeline can continue from, with every file checked. Raises SavepointError."""
    found = read_savepoint(folder)
    if found.pipeline != pipeline.name:
        raise SavepointError(f"{folder} is a savepoint of {found.pipeline}, not of {pipeline.name}")
    strangers = sorted(found.streams.keys() - {stream.name for stream in pipeline.queries()})
    if strangers:
        raise SavepointError(f"{folder} has stream {strangers[0]!r}, which is not in this file: was it renamed?")
    if _parts(found.spark) > _parts(_version("pyspark")):
        raise SavepointError(f"{folder} was made with Spark {found.spark}, and this is {_version('pyspark')}: older")
    for name, (size, digest) in found.files.items():
        path = folder / name
        if not path.is_file():
            raise SavepointError(f"{path} is missing: the savepoint is incomplete or damaged; take another one")
        if path.stat().st_size != size or _digest(path) != digest:
            raise SavepointError(f"{path} has changed: the savepoint is damaged; take another one")
    return found


def put_in_place(savepoint: Savepoint, folder: str, pipeline: Pipeline) -> None:
    """Replaces the existing checkpoints, which are moved away. Raises OSError, PipelineError."""
    whole = Path(folder, pipeline.name)
    new = whole / RESTORING
    shutil.rmtree(new, ignore_errors=True)
    try:
        for name in savepoint.files:
            _copy(savepoint.folder / name, new / name)
        put_aside(folder, pipeline)
        for stream in savepoint.streams:
            (new / stream).rename(whole / stream)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _found(folder: str, pipeline: Pipeline, stream: Stream) -> Found:
    place = f"{folder.rstrip('/')}/{pipeline.name}/{stream.name}"
    found = look(Checkpoint(None, f"{place}/checkpoint"), place)
    check_found(found, name_of(pipeline, stream), can_last=False)
    return found


def _saved(pipeline: Pipeline, stream: Stream, found: Found) -> SavedStream:
    """The progress of the checkpoint and of its sinks, which must match. Raises CheckpointError, SinkError."""
    assert found.query_id is not None
    kept = f"{found.folder}/{QUERY_FOLDER}{found.query_id}"
    delivery = make_delivery(pipeline, stream, kept, found.query_id, f"{found.folder}/checkpoint")
    sinks: list[SavedSink] = []
    for memory in delivery.memories():
        check_memory(memory, name_of(pipeline, stream), found.standing, may_repeat=True)
        recorded = memory.batches.get(memory.own)
        sinks.append(SavedSink(memory.place, NONE if recorded is None else recorded.batch_id))
    return SavedStream(found.query_id, found.standing, tuple(sinks))


def _copied(founds: Mapping[str, Found], target: Path) -> dict[str, tuple[int, str]]:
    """A consistent copy: Spark may clean up its state even while no query runs. Raises SavepointError."""
    for _ in range(TRIES_MAX):
        before = list(_files(founds))
        with suppress(FileNotFoundError):
            files = {str(path): _copy(source, target / path) for source, path in before}
            if list(_files(founds)) == before:
                return files
        shutil.rmtree(target, ignore_errors=True)
    raise SavepointError("the checkpoint changes while it is copied: is it used by another run?")


def _files(founds: Mapping[str, Found]) -> Iterator[tuple[Path, Path]]:
    """Every file of the queries, and its path within the savepoint."""
    for name, found in founds.items():
        for part in ("checkpoint", f"{QUERY_FOLDER}{found.query_id}"):
            for path in sorted(Path(found.folder, part).rglob("*")):
                if path.is_file():
                    yield path, Path(name, path.relative_to(found.folder))


def _copy(source: Path, target: Path) -> tuple[int, str]:
    """Size and checksum of the written file, which is on disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            digest.update(chunk)
            size += writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return size, digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remember(whole: Path, target: Path) -> None:
    parent = whole / SAVEPOINTS
    if target.parent != parent:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / PLACES).open("a", encoding="utf-8") as file:
            file.write(f"{target}\n")


def _as_json(made: Savepoint) -> dict[str, object]:
    return {
        "savepoint": FORMAT,
        "pipeline": made.pipeline,
        "made_ms": made.made_ms,
        "ottla": _version("ottla"),
        "spark": made.spark,
        "streams": {
            name: {
                "query": each.query_id,
                "planned": each.standing.planned,
                "committed": each.standing.committed,
                "sinks": [sink._asdict() for sink in each.sinks],
            }
            for name, each in made.streams.items()
        },
        "files": made.files,
    }


def _from_json(folder: Path, given: Mapping[str, Any]) -> Savepoint:
    streams = {
        str(name): SavedStream(
            str(each["query"]),
            Standing(int(each["planned"]), int(each["committed"])),
            tuple(SavedSink(str(sink["place"]), int(sink["batch_id"])) for sink in each["sinks"]),
        )
        for name, each in given["streams"].items()
    }
    files = {str(name): (int(size), str(digest)) for name, (size, digest) in given["files"].items()}
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise ValueError("a file beyond the folder")
    return Savepoint(folder, str(given["pipeline"]), int(given["made_ms"]), str(given["spark"]), streams, files)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "0"


def _parts(text: str) -> tuple[int, ...]:
    """4.2 of 4.2.1: patch releases do not change formats."""
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())

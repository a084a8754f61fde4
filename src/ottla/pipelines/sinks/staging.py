"""Pinning: the rows of a batch are written down once, before anything of them is published.

After a shuffle, a second run of the same batch may put rows into other tasks or in another order. So what is published
comes from files that were written once: `<folder>/<batch>/rows-*/part-*.parquet`, one for each task, in its order.
A manifest, put in place last and never replaced by another, makes them valid: of two drivers that both believe to own
the batch, the second finds the manifest of the first and publishes the same rows. Rows without a manifest are of a run
that died and are thrown away. When all is published the rows go, and the manifest stays until the next batch is pinned.

Where the folder is a path, that is how it is done. On other file systems (hdfs:, s3a:, …) only Spark's own reader and
writer are used, so whatever Spark can reach will do: the manifest is a text file that Spark's committer moves into
place, and two slots take turns, because Spark can overwrite a folder but not remove one.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ottla.pipelines.sinks.batch import Batch, SinkError, run_plan
from ottla.pipelines.spark.masters import runs_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANIFEST = "manifest.json"
ROWS = "rows"
SLOTS = 2
PROBES = 8
DAMAGED = "if nothing of this batch was published, remove that folder and start again"
# Rows are read once, soon, from the page cache: dictionaries would cost more than they save.
WRITE_OPTIONS = {"compression": "snappy", "parquet.enable.dictionary": "false", "maxRecordsPerFile": "0"}


@dataclass(frozen=True)
class StagedFile:
    """One file of pinned rows, as its task wrote it."""

    path: str
    size: int


@dataclass(frozen=True)
class Staged:
    """Pinned rows. `is_released`: they were published in full and are gone."""

    batch_id: int
    identity: str
    files: tuple[StagedFile, ...]
    is_released: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def refuse_if_released(self, sink: str) -> None:
        """For a sink that does not know the batch: whether it is written is what the sink says. Raises SinkError."""
        if self.is_released:
            raise SinkError(
                f"{sink}: batch {self.batch_id} was published, and nothing is remembered of it there: the checkpoint or"
                " what was written is gone; put it back, or begin with a new checkpoint and a new folder beside it"
            )


class Staging(Protocol):
    """One sink's place for pinned rows."""

    def pin(self, rows: DataFrame, batch_id: int) -> Staged:
        """The rows of the batch, pinned now or before. The plan is run in either case."""

    def release(self, staged: Staged) -> None:
        """All of it is published."""


def staging_for(batch: Batch, name: str) -> Staging:
    """`name` tells the sinks of one query apart."""
    folder = f"{batch.folder.rstrip('/')}/{name}"
    local = local_path(folder)
    return LocalStaging(local) if local is not None else SparkStaging(folder)


def local_path(folder: str) -> Path | None:
    """None for an address on another file system."""
    scheme, separator, rest = folder.partition(":")
    if not separator or "/" in scheme:
        return Path(folder).absolute()
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None


def parse_manifest(text: str) -> Staged | None:
    """None for what is no manifest: it is then as if there were none."""
    try:
        value = json.loads(text)
        files = tuple(StagedFile(str(each["path"]), int(each["size"])) for each in value["files"])
        return Staged(int(value["batch_id"]), str(value["identity"]), files, bool(value["is_released"]))
    except (ValueError, KeyError, TypeError):
        return None


class LocalStaging:
    """On a path that the driver and all executors see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_checked = False

    def __repr__(self) -> str:
        return f"LocalStaging({self.folder})"

    def pin(self, rows: DataFrame, batch_id: int) -> Staged:
        staged = self.find(batch_id)
        if staged is not None:
            run_plan(rows)
            return staged
        self.check_shared(rows.sparkSession)
        target = self.folder / str(batch_id)
        return self._make_valid(self._write(rows, batch_id, target), target)

    def pin_files(self, files: Sequence[StagedFile], batch_id: int) -> Staged:
        """The same for rows that are in files already; those of a run that came before stay, and these are left."""
        staged = self.find(batch_id)
        if staged is not None:
            return staged
        identity = uuid.uuid4().hex
        target = self.folder / str(batch_id)
        place = target / f"{ROWS}-{identity}"
        place.mkdir(parents=True)
        moved = [replace(each, path=str(place / Path(each.path).name)) for each in files]
        for each, there in zip(files, moved, strict=True):
            Path(each.path).rename(there.path)
        _sync(place)
        return self._make_valid(Staged(batch_id, identity, tuple(moved)), target)

    def _make_valid(self, written: Staged, target: Path) -> Staged:
        staged = written if add_file(target / MANIFEST, written.to_json()) else self.find(written.batch_id)
        if staged is None:
            raise SinkError(f"{target} is damaged: pinned rows are not those that its manifest names; {DAMAGED}")
        self._remove_leftovers(staged)
        return staged

    def _write(self, rows: DataFrame, batch_id: int, target: Path) -> Staged:
        identity = uuid.uuid4().hex
        place = target / f"{ROWS}-{identity}"
        rows.write.options(**WRITE_OPTIONS).parquet(f"file://{place}")
        found = sorted(place.glob("part-*.parquet"))
        return Staged(batch_id, identity, tuple(StagedFile(str(each), each.stat().st_size) for each in found))

    def find(self, batch_id: int) -> Staged | None:
        """What was pinned earlier and is whole."""
        try:
            staged = parse_manifest((self.folder / str(batch_id) / MANIFEST).read_text())
        except FileNotFoundError:
            return None
        if staged is None or staged.batch_id != batch_id:
            return None
        if staged.is_released or all(_is_whole(each) for each in staged.files):
            return staged
        raise SinkError(f"{self.folder / str(batch_id)} is damaged: pinned rows are gone or cut off; {DAMAGED}")

    def release(self, staged: Staged) -> None:
        target = self.folder / str(staged.batch_id)
        replace_file(target / MANIFEST, replace(staged, is_released=True, files=()).to_json())
        shutil.rmtree(target / f"{ROWS}-{staged.identity}", ignore_errors=True)

    def _remove_leftovers(self, staged: Staged) -> None:
        """Of earlier batches, and of runs of this one that died; never of later ones: we may be late."""
        for each in (self.folder / str(staged.batch_id)).glob(f"{ROWS}-*"):
            if not each.name.endswith(staged.identity):
                shutil.rmtree(each, ignore_errors=True)
        for each in self.folder.iterdir():
            if each.name.isdigit() and int(each.name) < staged.batch_id:
                shutil.rmtree(each, ignore_errors=True)

    def check_shared(self, spark: SparkSession) -> None:
        """Rows that executors write where the driver does not see them would be lost in silence."""
        if self.is_checked:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if not runs_here(spark):
            probe = self.folder / f".probe-{uuid.uuid4().hex}"
            probe.touch()
            try:
                _probe(spark, str(probe))
            finally:
                probe.unlink()
        self.is_checked = True


class SparkStaging:
    """On any file system that Spark can write."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"SparkStaging({self.folder})"

    def pin(self, rows: DataFrame, batch_id: int) -> Staged:
        spark = rows.sparkSession
        staged = self.find(spark, batch_id)
        if staged is not None:
            run_plan(rows)
            return staged
        target = self._slot(batch_id)
        rows.write.mode("overwrite").options(**WRITE_OPTIONS).parquet(f"{target}/{ROWS}")
        staged = Staged(batch_id, uuid.uuid4().hex, self._files(spark, target))
        note = spark.createDataFrame([(staged.to_json(),)], "value string").coalesce(1)
        note.write.mode("overwrite").text(f"{target}/{MANIFEST}")
        return staged

    def find(self, spark: SparkSession, batch_id: int) -> Staged | None:
        target = self._slot(batch_id)
        staged = parse_manifest("".join(self._note(spark, f"{target}/{MANIFEST}")))
        if staged is None or staged.batch_id != batch_id or self._files(spark, target) != staged.files:
            return None
        return staged

    def release(self, staged: Staged) -> None:
        """The slot is overwritten when its turn comes."""

    def _slot(self, batch_id: int) -> str:
        return f"{self.folder}/slot-{batch_id % SLOTS}"

    def _files(self, spark: SparkSession, target: str) -> tuple[StagedFile, ...]:
        from pyspark.errors import AnalysisException  # noqa: PLC0415 (this package is imported without Spark)

        reader = spark.read.format("binaryFile").option("pathGlobFilter", "part-*.parquet")
        try:
            found = reader.load(f"{target}/{ROWS}").select("path", "length").collect()
        except AnalysisException:  # there is no such folder
            return ()
        return tuple(sorted((StagedFile(str(row.path), int(row.length)) for row in found), key=lambda each: each.path))

    def _note(self, spark: SparkSession, path: str) -> Iterable[str]:
        from pyspark.errors import AnalysisException  # noqa: PLC0415 (this package is imported without Spark)

        try:
            return [str(row.value) for row in spark.read.text(path).collect()]
        except AnalysisException:  # there is none
            return []


def replace_file(path: Path, text: str) -> None:
    """After any crash, the old text or the new one."""
    _written(path, text).replace(path)
    _sync(path.parent)


def add_file(path: Path, text: str) -> bool:
    """False if there is one already: it stays as it is."""
    unfinished = _written(path, text)
    try:
        os.link(unfinished, path)
    except FileExistsError:
        return False
    finally:
        unfinished.unlink()
    _sync(path.parent)
    return True


def _written(path: Path, text: str) -> Path:
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unfinished.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return unfinished


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_whole(file: StagedFile) -> bool:
    try:
        return Path(file.path).stat().st_size == file.size
    except FileNotFoundError:
        return False


def _probe(spark: SparkSession, path: str) -> None:
    def look(batches: Iterable[object]) -> Iterable[object]:
        import platform  # noqa: PLC0415 (runs in Spark's workers)

        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            blind = [] if os.path.exists(path) else [platform.node()]
            yield pa.RecordBatch.from_pydict({"host": pa.array(blind, pa.string())})

    blind = spark.range(0, PROBES, 1, PROBES).mapInArrow(look, "host string").collect()  # type: ignore[arg-type]
    if blind:
        raise SinkError(
            f"{Path(path).parent} is not shared: {blind[0].host} does not see what the driver writes there; use a"
            " checkpoint on storage that all machines reach (hdfs://, s3a://, a network folder)"
        )

"""Rows into folders of files, each batch in a folder of its own: `<path>/ottla_batch=7/part-*.parquet`.

Every reader that knows folders named `column=value` (Spark, pandas, DuckDB, Arrow) reads them all, with the number of
the batch as one more column. A folder appears at once, by a rename, when all of it is written: so a reader sees a batch
as a whole or not at all, and a batch that is run again finds its folder and leaves it.

On file systems other than a path, Spark's committer puts the files into place one by one; a batch that is run again is
known by its note (remote_notes.py), or overwrites what was cut off. Delta tables have transactions of their own, with
the query and the batch in them.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError, run_plan
from ottla.pipelines.sinks.encoding import CSV_TEXT_OPTIONS, JSON_OPTIONS, TIME_OPTIONS, csv_column, json_column
from ottla.pipelines.sinks.ledger import Question, Recorded, is_written
from ottla.pipelines.sinks.remote_notes import CLAIM, claim, read_notes, write_note
from ottla.pipelines.sinks.staging import add_file, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["parquet", "json", "csv"]

BATCH = "ottla_batch"
NOTE = "_ottla"  # readers leave out what begins with an underscore
IDENTITY = "identity"
FORMAT_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": JSON_OPTIONS,
    "csv": {**TIME_OPTIONS, **CSV_TEXT_OPTIONS, "header": "true"},
}
BEYOND = ("..",)
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder for rows without value, of every reader


@dataclass(frozen=True)
class FilesSink:
    """`root`: nothing is written outside of it. `begin_at`: a batch that is written whatever lies there. `checkpoint`:
    of the query, where it is known: of two copies of it that run, one is found out by what its batches read."""

    path: str
    format: Format = "parquet"
    partition_by: tuple[str, ...] = ()
    root: str | None = None
    begin_at: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    is_exclusive: ClassVar[bool] = True
    is_forgetful: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_inside(self.path, self.root)

    @property
    def place(self) -> str:
        return f"folder {self.path}"

    def remembered(self) -> Mapping[str, Recorded]:
        folder = local_path(self.path)
        if folder is None:
            return self._remembered_elsewhere()
        found = newest(folder)
        return {} if found is None else {found[0]: found[1]}

    def _remembered_elsewhere(self) -> Mapping[str, Recorded]:
        """Only Spark can look there: before it is started nothing is known."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 (this package is imported without Spark)

        spark = SparkSession.getActiveSession()
        found = {} if spark is None else read_notes(spark, self.path.rstrip("/"))
        return {query: recorded for query, recorded in found.items() if recorded.batch_id != CLAIM}

    def write(self, rows: DataFrame, batch: Batch) -> None:
        check_columns(rows.columns, self.partition_by, self.path)
        folder = local_path(self.path)
        if folder is None:
            self._write_elsewhere(rows, batch, self.path.rstrip("/"))
        else:
            self._write_locally(rows, batch, folder)

    def _write_elsewhere(self, rows: DataFrame, batch: Batch, path: str) -> None:
        spark, identity = rows.sparkSession, checkpoint_identity(batch)
        known = read_notes(spark, path)
        refuse_strangers(path, known, batch.query)
        recorded = known.get(batch.query)
        if recorded is None and batch.batch_id == 0:
            recorded = claim(spark, path, batch.query, identity, f"{BATCH}=*")
        if is_written(self._question(batch, identity), recorded):
            run_plan(rows)
            return
        self._write(rows, f"{path}/{BATCH}={batch.batch_id}", "overwrite")
        write_note(spark, path, batch.query, Recorded(batch.batch_id, identity))

    def _question(self, batch: Batch, identity: str) -> Question:
        return Question(batch.batch_id, identity, f"query {batch.query}, folder {self.path}", self.begin_at)

    def _write_locally(self, rows: DataFrame, batch: Batch, folder: Path) -> None:
        identity = planned_identity(batch, self.checkpoint)
        recorded = newest_of(folder, batch.query)
        if recorded == (batch.batch_id, checkpoint_identity(batch)):  # as it was noted once, without what was read
            identity = recorded.identity
        if is_written(self._question(batch, identity), recorded):
            run_plan(rows)
            return
        staged = folder.parent / f".{folder.name}.unfinished" / f"{batch.batch_id}-{uuid.uuid4().hex}"
        try:
            make_folder(staged.parent)
            self._write(rows, f"file://{staged}", "error")
            (staged / NOTE).write_text(json.dumps({"query": batch.query, "identity": identity}))
            folder.mkdir(parents=True, exist_ok=True)
            self._put_in_place(staged, folder / f"{BATCH}={batch.batch_id}")
        finally:
            shutil.rmtree(staged.parent, ignore_errors=True)

    def _put_in_place(self, staged: Path, target: Path) -> None:
        if target.exists() and self.begin_at is not None:
            shutil.rmtree(target)
        try:
            staged.rename(target)
        except OSError as problem:
            if not target.exists():
                raise
            raise SinkError(f"{target} is there already, of another query: give each query its folder") from problem

    def _write(self, rows: DataFrame, path: str, mode: str) -> None:
        plain = {"csv": csv_column, "json": json_column}.get(self.format)
        if plain is not None:
            rows = rows.select(*(plain(field.name, field.dataType) for field in rows.schema.fields))
        rows = with_readable_names(rows, self.partition_by)
        writer = rows.write.mode(mode).options(**{**FORMAT_OPTIONS[self.format], **self.options})
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.format(self.format).save(path)


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table: its log keeps the newest batch of each query and drops a second one."""

    path: str
    partition_by: tuple[str, ...] = ()
    root: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    is_exclusive: ClassVar[bool] = False
    is_forgetful: ClassVar[bool] = True  # Delta removes old parts of its log

    def __post_init__(self) -> None:
        check_inside(self.path, self.root)

    @property
    def place(self) -> str:
        return f"Delta table {self.path}"

    def remembered(self) -> Mapping[str, Recorded]:
        folder = local_path(self.path)
        log = [] if folder is None else sorted((folder / "_delta_log").glob("*.json"))
        return dict(entry for file in log for entry in written_batches(file.read_text(encoding="utf-8")))

    def write(self, rows: DataFrame, batch: Batch) -> None:
        name = batch.query if batch.identity else f"{batch.query}.{checkpoint_identity(batch)}"
        if was_begun(batch, self.path):
            run_plan(rows)  # Delta runs no plan for a batch that it has, but state and counts need it
        marks = {"txnAppId": name, "txnVersion": str(batch.batch_id)}
        rows = with_readable_names(rows, self.partition_by)
        writer = rows.write.format("delta").mode("append").options(**{**self.options, **marks})
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(self.path)


def check_inside(path: str, root: str | None) -> None:
    """Symbolic links are followed. Raises SinkError."""
    if not path:
        raise SinkError("a sink of files needs a folder")
    if root is None:
        return
    local, local_root = local_path(path), local_path(root)
    if (local is None) != (local_root is None):
        is_inside = False
    elif local is None or local_root is None:
        is_inside = path.startswith(f"{root.rstrip('/')}/") and not set(path.split("/")) & set(BEYOND)
    else:
        is_inside = Path(os.path.realpath(local)).is_relative_to(os.path.realpath(local_root))
    if not is_inside:
        raise SinkError(f"{path} is outside of {root}: sinks may write only there")


def check_columns(names: list[str], partition_by: tuple[str, ...], path: str) -> None:
    if BATCH in names:
        raise SinkError(f"{path}: the column {BATCH!r} is made by the folders; rename yours")
    missing = [name for name in partition_by if name not in names]
    if missing:
        raise SinkError(f"{path}: there is no column {missing[0]!r} to make folders of; there are: {', '.join(names)}")


def make_folder(path: Path) -> None:
    """Where nothing can be made, Spark would only say that a task has failed. Raises SinkError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SinkError(f"{path.parent}: {problem.strerror}: let the pipeline write there") from problem


def with_readable_names(rows: DataFrame, partition_by: tuple[str, ...]) -> DataFrame:
    """A text that is the name of the folder for rows without value would be read as none: it ends the batch."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    for name, kind in rows.dtypes:
        if name in partition_by and kind == "string":
            value = F.col(f"`{name}`")
            words = F.lit(
                f"column {name}: '{NO_VALUE}' would be read as no value by partition_by: filter or replace it"
            )
            rows = rows.withColumn(name, F.when(value == NO_VALUE, F.raise_error(words)).otherwise(value))
    return rows


def newest(folder: Path) -> tuple[str, Recorded] | None:
    """The newest batch that lies there, and the query that has put it there."""
    batch_id = max(_numbers(folder), default=None)
    if batch_id is None:
        return None
    query, identity = _noted(folder / f"{BATCH}={batch_id}")
    return query, Recorded(batch_id, identity)


def batches_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every batch, and the query that has put it there."""
    for number in _numbers(folder):
        path = folder / f"{BATCH}={number}"
        yield path, _noted(path)[0]


def number_of(path: Path) -> int:
    """The batch whose folder this is."""
    return int(path.name.removeprefix(f"{BATCH}="))


def _numbers(folder: Path) -> list[int]:
    names = os.listdir(folder) if folder.exists() else []
    numbers = [name.removeprefix(f"{BATCH}=") for name in names if name.startswith(f"{BATCH}=")]
    return [int(number) for number in numbers if number.isdigit()]


def _noted(path: Path) -> tuple[str, str]:
    """Query and identity; empty if the note is gone."""
    try:
        note = json.loads((path / NOTE).read_text())
        return str(note["query"]), str(note["identity"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "", ""


def newest_of(folder: Path, query: str) -> Recorded | None:
    """Raises SinkError if another query has put it there."""
    found = newest(folder)
    refuse_strangers(str(folder), [found[0]] if found else [], query)
    return None if found is None else found[1]


def refuse_strangers(folder: str, queries: Iterable[str], own: str) -> None:
    """Raises SinkError."""
    stranger = next((query for query in queries if query != own), None)
    if stranger is not None:
        raise SinkError(
            f"{folder} belongs to query {stranger!r}: choose another folder, or remove this one if it is not"
            " needed any more (a query with a new checkpoint is a new query)"
        )


def written_batches(text: str) -> Iterator[tuple[str, Recorded]]:
    """The transactions of queries in a file of Delta's log: an action a line."""
    for line in text.splitlines():
        if '"txn"' in line:
            action = json.loads(line).get("txn")
            if action:
                yield str(action["appId"]), Recorded(int(action["version"]), "")


def was_begun(batch: Batch, path: str) -> bool:
    """Whether an earlier run has begun this batch; from now on one has."""
    folder = local_path(batch.folder)
    if folder is None:
        return True  # unknown: run it once more, to be sure
    note = folder / f"begun-{zlib.crc32(path.encode()):08x}"
    folder.mkdir(parents=True, exist_ok=True)
    is_begun = note.exists() and note.read_text() == str(batch.batch_id)
    note.write_text(str(batch.batch_id))
    return is_begun


def checkpoint_identity(batch: Batch) -> str:
    """Made once and kept beside the checkpoint: a checkpoint that was begun anew has another one."""
    folder = local_path(batch.folder)
    if batch.identity or folder is None:
        return batch.identity
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / IDENTITY).exists():
        add_file(folder / IDENTITY, uuid.uuid4().hex)
    return (folder / IDENTITY).read_text()


def planned_identity(batch: Batch, checkpoint: str) -> str:
    """With a sum over the offsets that Spark has planned for the batch: a repetition has the same."""
    folder = local_path(checkpoint) if checkpoint else None
    plan = None if folder is None else folder / "offsets" / str(batch.batch_id)
    if plan is None or not plan.exists():
        return checkpoint_identity(batch)
    return f"{checkpoint_identity(batch)}.{zlib.crc32(plan.read_bytes()):08x}"


def parquet_files(path: str, *, query: str, folder: str, **options: Any) -> ForeachBatch:
    """For foreachBatch. `options` are fields of FilesSink."""
    return ForeachBatch(FilesSink(path, **options), query, folder)

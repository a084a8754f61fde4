"""Rows into folders of files, one folder per batch: `<path>/ottla_batch=7/part-*.parquet`.

Every reader of folders named `column=value` (Spark, pandas, DuckDB, Arrow) reads them all, with the batch number as an
additional column. A complete folder is published by one rename: a reader sees all of a batch or nothing, and a repeated
batch finds its folder and skips it.

On remote file systems, Spark's committer publishes the files one by one. A repeated batch is recognized by its note, or
overwrites an incomplete one. Delta tables have their own transactions, which store query and batch.

Notes lie in the folder itself:

    <path>/_ottla/slot-1/part-*.json       {"query": …, "batch": 7, "identity": …}; readers skip it

A note is written after its batch, into the slot that the previous batch did not use: a crash while writing leaves the
older one. The first note of a query precedes its first batch and reserves the folder for the query.
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
from ottla.pipelines.sinks.batch_ledger import BatchCheck, LastBatch, is_written
from ottla.pipelines.sinks.encoding import CSV_TEXT_OPTIONS, JSON_OPTIONS, TIME_OPTIONS, csv_column, json_column
from ottla.pipelines.sinks.staging import add_file, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Format = Literal["parquet", "json", "csv"]

BATCH = "ottla_batch"
NOTE = "_ottla"  # readers skip names that start with an underscore
IDENTITY = "identity"
FORMAT_OPTIONS: dict[str, dict[str, str]] = {
    "parquet": {},
    "json": JSON_OPTIONS,
    "csv": {**TIME_OPTIONS, **CSV_TEXT_OPTIONS, "header": "true"},
}
PARENT_SEGMENTS = ("..",)
HIVE_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's folder name for null values

NOTES = "_ottla"
SCHEMA = "query string, batch long, identity string"
CLAIM_BATCH_ID = -1  # the batch before the first
SLOTS = 2
ROWS_MAX = 100
PATH_NOT_FOUND = "PATH_NOT_FOUND"


@dataclass(frozen=True)
class FilesSink:
    """`root`: writes outside of it are rejected. `begin_at`: a batch that is written regardless of existing ones.
    `checkpoint`: of the query, if known: of two running copies, one is detected by the offsets of its batches."""

    path: str
    format: Format = "parquet"
    partition_by: tuple[str, ...] = ()
    root: str | None = None
    begin_at: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    has_single_query: ClassVar[bool] = True
    may_forget_batches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_inside(self.path, self.root)

    @property
    def place(self) -> str:
        return f"folder {self.path}"

    def last_batches(self) -> Mapping[str, LastBatch]:
        folder = local_path(self.path)
        if folder is None:
            return self._remote_last_batches()
        found = newest_batch(folder)
        return {} if found is None else {found[0]: found[1]}

    def _remote_last_batches(self) -> Mapping[str, LastBatch]:
        """Only Spark can read remote folders: without a session the result is empty."""
        from pyspark.sql import SparkSession  # noqa: PLC0415 (this package is imported without Spark)

        spark = SparkSession.getActiveSession()
        found = {} if spark is None else read_notes(spark, self.path.rstrip("/"))
        return {query: recorded for query, recorded in found.items() if recorded.batch_id != CLAIM_BATCH_ID}

    def write(self, rows: DataFrame, batch: Batch) -> None:
        check_columns(rows.columns, self.partition_by, self.path)
        folder = local_path(self.path)
        if folder is None:
            self._write_remote(rows, batch, self.path.rstrip("/"))
        else:
            self._write_local(rows, batch, folder)

    def _write_remote(self, rows: DataFrame, batch: Batch, path: str) -> None:
        spark, identity = rows.sparkSession, checkpoint_identity(batch)
        known = read_notes(spark, path)
        reject_other_queries(path, known, batch.query)
        recorded = known.get(batch.query)
        if recorded is None and batch.batch_id == 0:
            recorded = claim_folder(spark, path, batch.query, identity, f"{BATCH}=*")
        if is_written(self._batch_check(batch, identity), recorded):
            run_plan(rows)
            return
        self._write(rows, f"{path}/{BATCH}={batch.batch_id}", "overwrite")
        write_note(spark, path, batch.query, LastBatch(batch.batch_id, identity))

    def _batch_check(self, batch: Batch, identity: str) -> BatchCheck:
        return BatchCheck(batch.batch_id, identity, f"query {batch.query}, folder {self.path}", self.begin_at)

    def _write_local(self, rows: DataFrame, batch: Batch, folder: Path) -> None:
        identity = batch_identity(batch, self.checkpoint)
        recorded = newest_batch_of(folder, batch.query)
        if recorded == (batch.batch_id, checkpoint_identity(batch)):  # a note of an older release, without the offsets
            identity = recorded.identity
        if is_written(self._batch_check(batch, identity), recorded):
            run_plan(rows)
            return
        staged = folder.parent / f".{folder.name}.unfinished" / f"{batch.batch_id}-{uuid.uuid4().hex}"
        try:
            make_folder(staged.parent)
            self._write(rows, f"file://{staged}", "error")
            (staged / NOTE).write_text(json.dumps({"query": batch.query, "identity": identity}))
            folder.mkdir(parents=True, exist_ok=True)
            self._publish_folder(staged, folder / f"{BATCH}={batch.batch_id}")
        finally:
            shutil.rmtree(staged.parent, ignore_errors=True)

    def _publish_folder(self, staged: Path, target: Path) -> None:
        if target.exists() and self.begin_at is not None:
            shutil.rmtree(target)
        try:
            staged.rename(target)
        except OSError as problem:
            if not target.exists():
                raise
            raise SinkError(f"{target} exists already, from another query: give each query its own folder") from problem

    def _write(self, rows: DataFrame, path: str, mode: str) -> None:
        plain = {"csv": csv_column, "json": json_column}.get(self.format)
        if plain is not None:
            rows = rows.select(*(plain(field.name, field.dataType) for field in rows.schema.fields))
        rows = reject_null_partition_value(rows, self.partition_by)
        writer = rows.write.mode(mode).options(**{**FORMAT_OPTIONS[self.format], **self.options})
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.format(self.format).save(path)


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table: its log keeps the newest batch of each query and drops a repeated one."""

    path: str
    partition_by: tuple[str, ...] = ()
    root: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    has_single_query: ClassVar[bool] = False
    may_forget_batches: ClassVar[bool] = True  # Delta removes old log entries

    def __post_init__(self) -> None:
        check_inside(self.path, self.root)

    @property
    def place(self) -> str:
        return f"Delta table {self.path}"

    def last_batches(self) -> Mapping[str, LastBatch]:
        folder = local_path(self.path)
        log = [] if folder is None else sorted((folder / "_delta_log").glob("*.json"))
        return dict(entry for file in log for entry in written_batches(file.read_text(encoding="utf-8")))

    def write(self, rows: DataFrame, batch: Batch) -> None:
        name = batch.query if batch.identity else f"{batch.query}.{checkpoint_identity(batch)}"
        if mark_batch_begun(batch, self.path):
            run_plan(rows)  # Delta skips the plan of a batch that it has, but state and counts need it
        marks = {"txnAppId": name, "txnVersion": str(batch.batch_id)}
        rows = reject_null_partition_value(rows, self.partition_by)
        writer = rows.write.format("delta").mode("append").options(**{**self.options, **marks})
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.save(self.path)


def check_inside(path: str, root: str | None) -> None:
    """Follows symbolic links. Raises SinkError."""
    if not path:
        raise SinkError("a sink of files needs a folder")
    if root is None:
        return
    local, local_root = local_path(path), local_path(root)
    if (local is None) != (local_root is None):
        is_inside = False
    elif local is None or local_root is None:
        is_inside = path.startswith(f"{root.rstrip('/')}/") and not set(path.split("/")) & set(PARENT_SEGMENTS)
    else:
        is_inside = Path(os.path.realpath(local)).is_relative_to(os.path.realpath(local_root))
    if not is_inside:
        raise SinkError(f"{path} is outside of {root}: sinks may write only there")


def check_columns(names: list[str], partition_by: tuple[str, ...], path: str) -> None:
    if BATCH in names:
        raise SinkError(f"{path}: the column {BATCH!r} comes from the folder names; rename yours")
    missing = [name for name in partition_by if name not in names]
    if missing:
        raise SinkError(f"{path}: there is no column {missing[0]!r} to partition by; there are: {', '.join(names)}")


def make_folder(path: Path) -> None:
    """Without this check, Spark would only report a failed task. Raises SinkError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SinkError(f"{path.parent}: {problem.strerror}: let the pipeline write there") from problem


def reject_null_partition_value(rows: DataFrame, partition_by: tuple[str, ...]) -> DataFrame:
    """Reject text equal to Hive's folder name for null: readers would return null for it."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    for name, kind in rows.dtypes:
        if name in partition_by and kind == "string":
            value = F.col(f"`{name}`")
            words = F.lit(
                f"column {name}: '{HIVE_NULL_PARTITION}' would be read as null by partition_by: filter or replace it"
            )
            rows = rows.withColumn(name, F.when(value == HIVE_NULL_PARTITION, F.raise_error(words)).otherwise(value))
    return rows


def newest_batch(folder: Path) -> tuple[str, LastBatch] | None:
    """The newest batch in the folder, and the query that wrote it."""
    batch_id = max(_batch_numbers(folder), default=None)
    if batch_id is None:
        return None
    query, identity = _read_batch_note(folder / f"{BATCH}={batch_id}")
    return query, LastBatch(batch_id, identity)


def list_batches(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every batch, and the query that wrote it."""
    for number in _batch_numbers(folder):
        path = folder / f"{BATCH}={number}"
        yield path, _read_batch_note(path)[0]


def batch_number(path: Path) -> int:
    """The number of the batch in this folder."""
    return int(path.name.removeprefix(f"{BATCH}="))


def _batch_numbers(folder: Path) -> list[int]:
    names = os.listdir(folder) if folder.exists() else []
    numbers = [name.removeprefix(f"{BATCH}=") for name in names if name.startswith(f"{BATCH}=")]
    return [int(number) for number in numbers if number.isdigit()]


def _read_batch_note(path: Path) -> tuple[str, str]:
    """Query and identity; empty if the note does not exist."""
    try:
        note = json.loads((path / NOTE).read_text())
        return str(note["query"]), str(note["identity"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return "", ""


def newest_batch_of(folder: Path, query: str) -> LastBatch | None:
    """Raises SinkError if another query wrote it."""
    found = newest_batch(folder)
    reject_other_queries(str(folder), [found[0]] if found else [], query)
    return None if found is None else found[1]


def reject_other_queries(folder: str, queries: Iterable[str], own: str) -> None:
    """Raises SinkError if another query has written there."""
    stranger = next((query for query in queries if query != own), None)
    if stranger is not None:
        raise SinkError(
            f"{folder} belongs to query {stranger!r}: choose another folder, or remove this one if it is not"
            " needed any more (a query with a new checkpoint is a new query)"
        )


def written_batches(text: str) -> Iterator[tuple[str, LastBatch]]:
    """The transactions of queries in a file of Delta's log: one action per line."""
    for line in text.splitlines():
        if '"txn"' in line:
            action = json.loads(line).get("txn")
            if action:
                yield str(action["appId"]), LastBatch(int(action["version"]), "")


def mark_batch_begun(batch: Batch, path: str) -> bool:
    """Whether an earlier run has started this batch; marks it as started."""
    folder = local_path(batch.folder)
    if folder is None:
        return True  # unknown: run the plan again
    note = folder / f"begun-{zlib.crc32(path.encode()):08x}"
    folder.mkdir(parents=True, exist_ok=True)
    is_begun = note.exists() and note.read_text() == str(batch.batch_id)
    note.write_text(str(batch.batch_id))
    return is_begun


def checkpoint_identity(batch: Batch) -> str:
    """Created once and stored beside the checkpoint: a new checkpoint has a new identity."""
    folder = local_path(batch.folder)
    if batch.identity or folder is None:
        return batch.identity
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / IDENTITY).exists():
        add_file(folder / IDENTITY, uuid.uuid4().hex)
    return (folder / IDENTITY).read_text()


def batch_identity(batch: Batch, checkpoint: str) -> str:
    """Includes a checksum of the offsets that Spark has planned for the batch: a repetition has the same."""
    folder = local_path(checkpoint) if checkpoint else None
    plan = None if folder is None else folder / "offsets" / str(batch.batch_id)
    if plan is None or not plan.exists():
        return checkpoint_identity(batch)
    return f"{checkpoint_identity(batch)}.{zlib.crc32(plan.read_bytes()):08x}"


def parquet_files(path: str, *, query: str, folder: str, **options: Any) -> ForeachBatch:
    """For foreachBatch. `options` are fields of FilesSink."""
    return ForeachBatch(FilesSink(path, **options), query, folder)


def read_notes(spark: SparkSession, path: str) -> dict[str, LastBatch]:
    """The newest batch of each query that has written there. Raises SinkError."""
    rows = _load_matching(spark.read.schema(SCHEMA).format("json"), f"{path}/{NOTES}/slot-*")
    noted = sorted((int(row.batch), str(row.query), str(row.identity)) for row in rows if row.identity is not None)
    return {query: LastBatch(number, identity) for number, query, identity in noted}


def write_note(spark: SparkSession, path: str, query: str, recorded: LastBatch) -> None:
    note: DataFrame = spark.createDataFrame([(query, *recorded)], SCHEMA).coalesce(1)
    note.write.mode("overwrite").json(f"{path}/{NOTES}/slot-{recorded.batch_id % SLOTS}")


def claim_folder(spark: SparkSession, path: str, query: str, identity: str, batches: str) -> LastBatch:
    """Reserve the folder for a new query. `batches`: glob pattern of its files. Raises SinkError if some exist."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    if _load_matching(reader, f"{path}/{batches}", "path"):
        raise SinkError(f"{path} has batches without a note: choose another folder, or remove them")
    claimed = LastBatch(CLAIM_BATCH_ID, identity)
    write_note(spark, path, query, claimed)
    return claimed


def _load_matching(reader: Any, path: str, *columns: str) -> list[Any]:
    """Up to ROWS_MAX matching rows; none if the path does not exist."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 (this package is imported without Spark)

    try:
        rows = reader.load(path)
        found: list[Any] = (rows.select(*columns) if columns else rows).limit(ROWS_MAX).collect()
    except AnalysisException as problem:
        if problem.getCondition() == PATH_NOT_FOUND:
            return []
        raise
    return found

"""`format("ottla")` as a sink, in Spark's own words: rows of a DataFrame or of a stream into a topic.

    rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", "…").option("topic", "out").save()
    rows.writeStream.format("ottla").option(…).option("checkpointLocation", "state/views").start()

A stream is written exactly once, by its checkpoint: each task writes its rows into a file under it; when all are done,
the driver pins these files as the rows of the batch and publishes each in one transaction with its marker
(publishing.py). All that is remembered belongs to the id of the query in the checkpoint: whoever deletes the checkpoint
begins anew, as with any sink of Spark. A stream with `delivery=at-least-once`, and a batch, send from their tasks.

Spark makes a writer for every batch in a process that stays: what is worth keeping is kept in this module.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.pipelines.sinks.at_least_once import producer_settings, send_all
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.format_options import EXACTLY_ONCE, WriteOptions
from ottla.pipelines.sinks.producing import Target
from ottla.pipelines.sinks.staging import StagedFile, local_path
from ottla.pipelines.sinks.topic import ExactlyOnceTopic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FOLDER = "ottla-sink"  # under the checkpoint
INCOMING = "incoming"  # what tasks have written and nobody has pinned yet
CHECKPOINT_METADATA = "metadata"
BINARY, INTEGER = "binary", "int"
KINDS = {"value": BINARY, "key": BINARY, "partition": INTEGER}
TYPES = {  # what Spark calls the types of columns that a record can be made of
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}

_sinks: dict[tuple[str, WriteOptions], ExactlyOnceTopic] = {}
_targets: dict[WriteOptions, Target] = {}


def check_schema(schema: StructType) -> None:
    """Raises SinkError for rows that cannot become records."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        raise SinkError(f"rows for a topic need a column value, as text or binary; there are: {', '.join(found)}")
    for name, kind in found.items():
        if name not in TYPES:
            raise SinkError(f"a record has no {name}: columns are {', '.join(TYPES)}; make a value of the others")
        if kind not in TYPES[name]:
            raise SinkError(f"the column {name} is {kind}, not {' or '.join(TYPES[name])}")


def stream_writer(options: WriteOptions) -> DataSourceStreamArrowWriter:
    return ExactlyOnceWriter(options) if options.delivery == EXACTLY_ONCE else AtLeastOnceStreamWriter(options)


@dataclass
class Part(WriterCommitMessage):
    """What one task has written."""

    path: str
    size: int
    rows: int


class AtLeastOnceWriter(DataSourceArrowWriter):
    """Sends from the tasks: one that is run again sends again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.target = target_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send(iterator, self.options, self.target)


class AtLeastOnceStreamWriter(DataSourceStreamArrowWriter):
    """The same for each batch of a stream: one that is repeated after a crash is sent again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.target = target_of(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send(iterator, self.options, self.target)


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """Tasks write files, and what the driver makes of them counts."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.checkpoint = checkpoint_of(options)
        target_of(options)  # a topic that is not there is told now

    @property
    def folder(self) -> Path:
        return self.checkpoint / FOLDER

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        place = self.folder / INCOMING
        place.mkdir(parents=True, exist_ok=True)
        return write_part(place / f"part-{uuid.uuid4().hex}.parquet", map(producible, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        query = query_id(self.checkpoint)
        sink = _sinks.setdefault((query, self.options), self.options.sink())
        parts = [each for each in messages if isinstance(each, Part) and each.rows]
        sink.publish_files(
            [StagedFile(each.path, each.size) for each in parts], Batch(query, batchId, str(self.folder))
        )
        self._remove_incoming()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._remove_incoming()

    def _remove_incoming(self) -> None:
        """Of this batch, and of tasks that died: one batch of a query runs at a time."""
        shutil.rmtree(self.folder / INCOMING, ignore_errors=True)


def target_of(options: WriteOptions) -> Target:
    """Raises SinkError if there is no such topic."""
    if options not in _targets:
        _targets[options] = options.sink().target()
    return _targets[options]


def checkpoint_of(options: WriteOptions) -> Path:
    """Raises SinkError where it is not said, or is out of reach."""
    cure = "or set delivery=at-least-once"
    if not options.checkpoint:
        raise SinkError(f"exactly once needs the option checkpointLocation: rows are pinned there; give it, {cure}")
    path = local_path(options.checkpoint)
    if path is None:
        raise SinkError(
            f"the checkpoint {options.checkpoint} is on no path that all machines see: use one,"
            f" foreachBatch with exactly_once_topic, {cure}"
        )
    return path


def query_id(checkpoint: Path) -> str:
    """Of the query that this checkpoint belongs to; Spark writes it before the first batch."""
    try:
        return str(json.loads((checkpoint / CHECKPOINT_METADATA).read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SinkError(f"{checkpoint / CHECKPOINT_METADATA} does not tell which query this is: {problem}") from None


def send(batches: Iterator[pa.RecordBatch], options: WriteOptions, target: Target) -> WriterCommitMessage:
    report = send_all(map(producible, batches), producer_settings(options.client(), target), target)
    return Part("", 0, report.rows)


def write_part(path: Path, batches: Iterator[pa.RecordBatch]) -> Part:
    """All rows of a task in one file, in their order; no file for none."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (in tasks only)

    writer, rows = None, 0
    try:
        for batch in batches:
            if writer is None:
                writer = pq.ParquetWriter(path, batch.schema, compression="snappy", use_dictionary=False)
            writer.write_batch(batch)
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        return Part(str(path), 0, 0)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Part(str(path), path.stat().st_size, rows)


def producible(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that a producer understands, with the types that it understands.

    Not `topic`: the option of that name goes before it, as with Spark's own sink. What was read would go back.
    """
    import pyarrow as pa  # noqa: PLC0415

    kinds = {BINARY: pa.binary(), INTEGER: pa.int32()}
    columns: dict[str, pa.Array] = {}
    for name in batch.schema.names:
        if name == "topic":
            continue
        column = batch.column(name)
        if name == "timestamp":
            columns["timestamp_ms"] = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        else:
            columns[name] = column.cast(kinds[KINDS[name]]) if name in KINDS else column
    return pa.RecordBatch.from_pydict(columns)

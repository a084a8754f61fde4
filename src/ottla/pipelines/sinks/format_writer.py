"""`format("ottla")` as a sink: rows of a DataFrame or of a stream into a topic, with the options of Spark's kafka sink.

    rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", "…").option("topic", "out").save()
    rows.writeStream.format("ottla").option(…).option("checkpointLocation", "state/views").start()

A stream is written exactly once, with state in its checkpoint. Each task writes its rows into a file there; then the
driver stages these files as the rows of the batch and publishes each in one transaction with its marker
(file_publisher.py). Markers belong to the id of the query in the checkpoint: deleting the checkpoint starts anew, as
with any Spark sink. A stream with `delivery=at-least-once`, and a batch, send from their tasks.

Spark creates a writer for every batch in a long-lived process: reusable objects are cached in this module.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.pipelines.sinks.at_least_once import producer_settings, send_batches
from ottla.pipelines.sinks.batch import Batch, SinkError
from ottla.pipelines.sinks.record_sender import Target
from ottla.pipelines.sinks.staging import StagedFile, local_path
from ottla.pipelines.sinks.topic import ExactlyOnceTopic
from ottla.pipelines.source.options import BOOTSTRAP, OptionError, choice_option, client_properties, reject_unknown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# queryName and path are Spark's own. Headers are always sent if rows have them, regardless of includeHeaders.
KNOWN_OPTIONS = ("topic", "delivery", "checkpointLocation", "includeHeaders", "queryName", "path")
REJECTED_KAFKA_OPTIONS = {
    "key.serializer": "keys are sent unchanged: convert them to text or binary with DataFrame functions",
    "value.serializer": "values are sent unchanged: convert them to text or binary with DataFrame functions",
    "interceptor.classes": "interceptors could change the records",
    "transactional.id": "each file of a batch has its own, which detects repetitions",
}

FOLDER = "ottla-sink"  # below the checkpoint
INCOMING = "incoming"  # files of tasks that are not staged yet
CHECKPOINT_METADATA = "metadata"
BINARY, INTEGER = "binary", "int"
KINDS = {"value": BINARY, "key": BINARY, "partition": INTEGER}
RECORD_COLUMN_TYPES = {  # Spark's names of the types that each record column may have
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int", "smallint", "tinyint"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True)
class WriteOptions:
    """All options of the writers; property names have no `kafka.` prefix."""

    properties: tuple[tuple[str, str], ...]
    topic: str
    delivery: str
    checkpoint: str

    def client(self) -> dict[str, str]:
        return dict(self.properties)

    def sink(self) -> ExactlyOnceTopic:
        return ExactlyOnceTopic(self.topic, self.client()[BOOTSTRAP], self.client())


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises OptionError."""
    texts = {name.lower(): str(value).strip() for name, value in given.items()}
    reject_unknown(texts, KNOWN_OPTIONS, "sink")
    if texts.get("path"):
        raise OptionError("save() and start() take no path here: name the topic with the option topic")
    topic = texts.get("topic", "")
    if not topic:
        raise OptionError("the option topic is missing")
    properties = client_properties(texts, REJECTED_KAFKA_OPTIONS)
    delivery = choice_option(texts, "delivery", (EXACTLY_ONCE, AT_LEAST_ONCE))
    return WriteOptions(tuple(sorted(properties.items())), topic, delivery, texts.get("checkpointlocation", ""))


_sinks: dict[tuple[str, WriteOptions], ExactlyOnceTopic] = {}
_targets: dict[WriteOptions, Target] = {}


def check_schema(schema: StructType) -> None:
    """Raises SinkError for rows that cannot become records."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in found:
        raise SinkError(f"rows for a topic need a column value, as text or binary; there are: {', '.join(found)}")
    for name, kind in found.items():
        if name not in RECORD_COLUMN_TYPES:
            raise SinkError(
                f"a record has no {name}: columns are {', '.join(RECORD_COLUMN_TYPES)}; make a value of the others"
            )
        if kind not in RECORD_COLUMN_TYPES[name]:
            raise SinkError(f"the column {name} is {kind}, not {' or '.join(RECORD_COLUMN_TYPES[name])}")


def stream_writer(options: WriteOptions) -> DataSourceStreamArrowWriter:
    return ExactlyOnceWriter(options) if options.delivery == EXACTLY_ONCE else AtLeastOnceStreamWriter(options)


@dataclass
class TaskOutput(WriterCommitMessage):
    """The output of one task."""

    path: str
    size: int
    rows: int


class AtLeastOnceWriter(DataSourceArrowWriter):
    """Sends from the tasks: a repeated task sends again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.target = cached_target(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_rows(iterator, self.options, self.target)


class AtLeastOnceStreamWriter(DataSourceStreamArrowWriter):
    """The same for each batch of a stream: a batch that is repeated after a crash is sent again."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.target = cached_target(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return send_rows(iterator, self.options, self.target)


class ExactlyOnceWriter(DataSourceStreamArrowWriter):
    """Tasks write files; the driver stages and publishes them."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.checkpoint = checkpoint_of(options)
        cached_target(options)  # fails early if the topic does not exist

    @property
    def folder(self) -> Path:
        return self.checkpoint / FOLDER

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        place = self.folder / INCOMING
        place.mkdir(parents=True, exist_ok=True)
        return write_task_file(place / f"part-{uuid.uuid4().hex}.parquet", map(to_producer_columns, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        query = query_id(self.checkpoint)
        sink = _sinks.setdefault((query, self.options), self.options.sink())
        parts = [each for each in messages if isinstance(each, TaskOutput) and each.rows]
        sink.publish_files(
            [StagedFile(each.path, each.size) for each in parts], Batch(query, batchId, str(self.folder))
        )
        self._remove_incoming()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._remove_incoming()

    def _remove_incoming(self) -> None:
        """Files of this batch and of failed tasks: only one batch of a query runs at a time."""
        shutil.rmtree(self.folder / INCOMING, ignore_errors=True)


def cached_target(options: WriteOptions) -> Target:
    """Raises SinkError if the topic does not exist."""
    if options not in _targets:
        _targets[options] = options.sink().target()
    return _targets[options]


def checkpoint_of(options: WriteOptions) -> Path:
    """Raises SinkError if it is missing or not a shared path."""
    cure = "or set delivery=at-least-once"
    if not options.checkpoint:
        raise SinkError(f"exactly once needs the option checkpointLocation: rows are staged there; set it, {cure}")
    path = local_path(options.checkpoint)
    if path is None:
        raise SinkError(
            f"the checkpoint {options.checkpoint} is not on a path that all machines share: use one,"
            f" foreachBatch with exactly_once_topic, {cure}"
        )
    return path


def query_id(checkpoint: Path) -> str:
    """The id of the checkpoint's query; Spark writes it before the first batch."""
    try:
        return str(json.loads((checkpoint / CHECKPOINT_METADATA).read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SinkError(f"{checkpoint / CHECKPOINT_METADATA} does not identify the query: {problem}") from None


def send_rows(batches: Iterator[pa.RecordBatch], options: WriteOptions, target: Target) -> WriterCommitMessage:
    report = send_batches(map(to_producer_columns, batches), producer_settings(options.client(), target), target)
    return TaskOutput("", 0, report.rows)


def write_task_file(path: Path, batches: Iterator[pa.RecordBatch]) -> TaskOutput:
    """Write all rows of a task into one file, in their order; no file without rows."""
    import pyarrow.parquet as pq  # # noqa: PLC0415 (only tasks need it)

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
        return TaskOutput(str(path), 0, 0)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return TaskOutput(str(path), path.stat().st_size, rows)


def to_producer_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns and types that a producer accepts.

    Without `topic`: the option `topic` overrides it, as in Spark's own sink. Otherwise rows would return to their
    source topic.
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

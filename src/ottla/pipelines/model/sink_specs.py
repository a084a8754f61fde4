"""Sinks as a pipeline describes them: `{topic: views, key: page}`, `{sqlite: views.db, table: views}`, …

The first field of a sink is also its kind: the file uses it as the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ottla.pipelines.model.specs import Duration

FieldProblem = tuple[str, str, str]

Delivery = Literal["exactly-once", "at-least-once"]
TableMode = Literal["append", "upsert", "replace"]


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The fields of every sink: which rows it gets, and which columns."""

    where: str | None = field(default=None, metadata={"doc": "SQL condition: only these rows go to this sink"})
    columns: list[str] | None = field(default=None, metadata={"doc": "columns to write (all)"})


@dataclass(frozen=True, kw_only=True)
class TopicSink(Sink):
    """Records of a topic."""

    topic: str = field(metadata={"doc": "topic to write to"})
    key: list[str] | None = field(default=None, metadata={"doc": "column or columns of the record key"})
    format: Literal["json", "csv", "text", "avro", "protobuf", "raw"] = field(
        default="json", metadata={"doc": "format of the value"}
    )
    schema: str | None = field(default=None, metadata={"doc": "file with the schema; with a subject it is registered"})
    subject: str | None = field(
        default=None,
        metadata={"doc": "subject of the registry: write by its newest schema, or register one of the columns"},
    )
    message: str | None = field(default=None, metadata={"doc": "name of the Protobuf message (the first)"})
    delivery: Delivery = field(default="exactly-once", metadata={"doc": "exactly-once (default) or at-least-once"})
    topic_column: str | None = field(default=None, metadata={"doc": "column that names the topic of each row"})
    partition: str | None = field(
        default=None, metadata={"doc": "column with the partition of each row (the key decides, as with any producer)"}
    )
    headers: list[str] | None = field(default=None, metadata={"doc": "columns written as record headers"})
    time: str | None = field(default=None, metadata={"doc": "column with the record's timestamp"})
    create: bool = field(default=True, metadata={"doc": "create the topic if it does not exist"})
    partitions: int | None = field(
        default=None, metadata={"doc": "partitions of a created topic (the cluster's default)"}
    )
    bootstrap_servers: str | None = field(default=None, metadata={"doc": "another cluster than the pipeline's"})
    options: dict[str, str] = field(default_factory=dict, metadata={"doc": "settings of the producer"})

    def problems(self) -> Iterator[FieldProblem]:
        if self.subject is not None:
            if self.format not in ("json", "avro", "protobuf"):
                yield "subject", f"means nothing for format {self.format}", "only for json, avro and protobuf"
        elif self.format == "protobuf":
            yield "subject", "format protobuf needs a subject of a registry", "write `subject: TOPIC-value`"
        elif (self.format == "avro") != (self.schema is not None):
            yield "schema", "format avro and a schema file require each other", "give both, or none, or a subject"
        if self.message is not None and self.format != "protobuf":
            yield "message", f"means nothing for format {self.format}", "only for protobuf"


@dataclass(frozen=True, kw_only=True)
class DatabaseSink(Sink):
    """The fields that databases share."""

    table: str = field(metadata={"doc": "table to write to"})
    mode: TableMode = field(default="append", metadata={"doc": "append, upsert by key columns, or replace"})
    key: list[str] | None = field(default=None, metadata={"doc": "key columns, for upsert"})
    newest_by: str | None = field(
        default=None, metadata={"doc": "for upsert: the row with the greatest value here stays (the last of the topic)"}
    )
    delete_when: str | None = field(
        default=None, metadata={"doc": "for upsert: SQL condition; the newest row of a key, if so, removes it instead"}
    )
    create: bool = field(default=True, metadata={"doc": "create the table if it does not exist"})
    keep_offsets: bool = field(default=False, metadata={"doc": "also keep the source's offsets there"})

    def problems(self) -> Iterator[FieldProblem]:
        if (self.mode == "upsert") != bool(self.key):
            yield "key", "upsert and key require each other", "name the key columns with mode: upsert"
        if self.delete_when is not None and self.mode != "upsert":
            yield "delete_when", f"means nothing for mode {self.mode}", "remove it, or write mode: upsert"
        elif self.delete_when is not None and self.newest_by is not None:
            cause = "a deleted row is not stored: an older one that arrives later (newest_by) would bring it back"
            yield "delete_when", cause, "remove newest_by, or keep the row with a column that marks it as deleted"
        if self.newest_by is None:
            return
        if self.mode != "upsert":
            yield "newest_by", f"means nothing for mode {self.mode}", "remove it, or write mode: upsert"
        elif self.newest_by in (self.key or ()):
            yield "newest_by", f"{self.newest_by!r} has the same value in all rows of a key", "name another column"
        elif self.columns is not None and self.newest_by not in self.columns:
            yield "newest_by", "rows are compared with those in the table", f"write {self.newest_by!r} in columns, too"


@dataclass(frozen=True, kw_only=True)
class SqliteSink(DatabaseSink):
    """A table in a SQLite file."""

    sqlite: str = field(metadata={"doc": "file of the database"})


@dataclass(frozen=True, kw_only=True)
class PostgresSink(DatabaseSink):
    """A table in PostgreSQL."""

    postgres: str = field(metadata={"doc": "connection: postgresql://user@host/database, or key=value pairs"})


@dataclass(frozen=True, kw_only=True)
class SqlAlchemySink(DatabaseSink):
    """A table in any database that SQLAlchemy knows: MySQL, Oracle, SQL Server, …"""

    sqlalchemy: str = field(metadata={"doc": "URL: mysql+pymysql://user:${PASSWORD}@host/database"})


@dataclass(frozen=True, kw_only=True)
class RedisSink(DatabaseSink):
    """Keys, a stream or a list in Redis."""

    redis: str = field(metadata={"doc": "URL: redis://:${PASSWORD}@host:6379/0; rediss:// for TLS"})
    table: str = field(metadata={"doc": "name of the stream or list; for upsert the start of the keys: TABLE:KEY"})
    type: Literal["hash", "string", "stream", "list"] | None = field(
        default=None,
        metadata={
            "doc": "for upsert hash (default) or string, the row as JSON; else stream (default) or list, as JSON"
        },
    )
    expire: Duration | None = field(default=None, metadata={"doc": "for upsert: lifetime of a key without a new row"})

    @property
    def chosen_type(self) -> Literal["hash", "string", "stream", "list"]:
        return self.type or ("hash" if self.mode == "upsert" else "stream")

    def problems(self) -> Iterator[FieldProblem]:
        yield from super().problems()
        fitting = ("hash", "string") if self.mode == "upsert" else ("stream", "list")
        if self.chosen_type not in fitting:
            yield "type", f"{self.type} does not go with mode {self.mode}", f"write {' or '.join(fitting)}"
        if self.expire is not None and self.mode != "upsert":
            yield "expire", f"means nothing for mode {self.mode}", "remove it, or write mode: upsert"
        elif self.expire is not None and self.expire < 1:
            yield "expire", "must be greater than 0", ""


@dataclass(frozen=True, kw_only=True)
class FileSink(Sink):
    """The fields that file sinks share."""

    partition_by: list[str] | None = field(default=None, metadata={"doc": "columns for sub-folders"})


@dataclass(frozen=True, kw_only=True)
class ParquetSink(FileSink):
    """A folder of Parquet files."""

    parquet: str = field(metadata={"doc": "folder"})


@dataclass(frozen=True, kw_only=True)
class JsonSink(FileSink):
    """A folder of files with one JSON object per line."""

    json: str = field(metadata={"doc": "folder"})


@dataclass(frozen=True, kw_only=True)
class CsvSink(FileSink):
    """A folder of CSV files."""

    csv: str = field(metadata={"doc": "folder"})


@dataclass(frozen=True, kw_only=True)
class DeltaSink(FileSink):
    """A Delta Lake table."""

    delta: str = field(metadata={"doc": "folder of the table"})


@dataclass(frozen=True, kw_only=True)
class FunctionSink(Sink):
    """A user function for each batch; at least once."""

    foreach_batch: str | Callable[..., Any] = field(
        metadata={"doc": "module:function beside the pipeline, or a function with the arguments (DataFrame, batch_id)"}
    )


@dataclass(frozen=True, kw_only=True)
class HttpSink(Sink):
    """A web server that accepts JSON; at least once."""

    http: str = field(metadata={"doc": "URL; ${NAME} is a variable of the environment"})
    method: Literal["POST", "PUT", "PATCH"] = field(default="POST", metadata={"doc": "how rows are sent"})
    headers: dict[str, str] = field(default_factory=dict, metadata={"doc": "of each request: Authorization: …${TOKEN}"})
    format: Literal["json", "json-lines"] = field(
        default="json", metadata={"doc": "a JSON array a request, or an object a line"}
    )
    batch_rows: int = field(default=500, metadata={"doc": "most rows in one request"})
    timeout: Duration = field(default=Duration(30_000), metadata={"doc": "for one answer (30000 ms)"})
    retry: Duration = field(
        default=Duration(60_000), metadata={"doc": "how long a request is tried again, in growing pauses (60000 ms)"}
    )

    def problems(self) -> Iterator[FieldProblem]:
        if self.batch_rows < 1:
            yield "batch_rows", "must be at least 1", ""
        if self.timeout < 1:
            yield "timeout", "must be greater than 0", ""


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Sink):
    """The terminal, for experiments."""

    console: int = field(default=20, metadata={"doc": "rows of each batch to show"})


SINKS: dict[str, type[Sink]] = {
    "topic": TopicSink,
    "sqlite": SqliteSink,
    "postgres": PostgresSink,
    "sqlalchemy": SqlAlchemySink,
    "redis": RedisSink,
    "parquet": ParquetSink,
    "json": JsonSink,
    "csv": CsvSink,
    "delta": DeltaSink,
    "foreach_batch": FunctionSink,
    "http": HttpSink,
    "console": ConsoleSink,
}

FILE_SINKS = ("parquet", "json", "csv", "delta")
CONNECTION_SINKS = ("postgres", "sqlalchemy", "redis")  # may contain a password
UNSUPPORTED_SINKS = {"iceberg": ("Iceberg is not published for Spark 4.2 yet", "write to delta or parquet")}


def is_at_least_once(sink: Sink) -> bool:
    """Whether a repeated batch writes its rows again."""
    is_topic = isinstance(sink, TopicSink) and sink.delivery == "at-least-once"
    return is_topic or isinstance(sink, FunctionSink | HttpSink)


def sink_display_name(sink: Sink) -> str:
    """The target for messages: without connection strings, and of a URL without the query, which may contain a key."""
    kind = next(name for name, each in SINKS.items() if each is type(sink))
    value = getattr(sink, kind)
    if kind in CONNECTION_SINKS:
        return ""
    if isinstance(value, str):
        return value.partition("?")[0] if kind == "http" else value
    return getattr(value, "__name__", "function") if callable(value) else str(value)

"""Sinks that capture their rows for comparison.

Records of topics are encoded as in a run. Rows of a table with `upsert` or `replace` go through the real sink into a
SQLite file of the trial, including those for PostgreSQL: the final contents are compared. Other rows are kept as they
come.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from decimal import Decimal
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ottla.pipelines.model import sink_specs as model
from ottla.pipelines.model.pipeline import Pipeline
from ottla.pipelines.running.sink_factory import encoding_of, table_of
from ottla.pipelines.sinks.batch import Batch, Sink
from ottla.pipelines.sinks.database import SqliteSink
from ottla.pipelines.sinks.encoding import Encoding
from ottla.pipelines.sinks.sql_tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]


@dataclass
class CapturedRows:
    """The captured rows of one target, in their order."""

    rows: list[Row] = field(default_factory=list)
    file: str = ""  # database file, for a table


@dataclass(frozen=True)
class TopicCapture:
    encoding: Encoding
    topic: str
    kept: dict[str, CapturedRows]

    def write(self, rows: DataFrame, _batch: Batch) -> None:
        is_json = self.encoding.format == "json"
        for record in self.encoding.apply(rows).collect():
            found = record.asDict(recursive=True)
            topic = found.pop("topic", None) if self.encoding.topic_column else self.topic
            self.kept.setdefault(topic or self.topic, CapturedRows()).rows.append(record_of(found, is_json))


@dataclass(frozen=True)
class RowCapture:
    kept: CapturedRows

    def write(self, rows: DataFrame, _batch: Batch) -> None:
        encoded = Encoding(format="json").apply(rows)
        self.kept.rows += [json.loads(row["value"], parse_float=Decimal) for row in encoded.select("value").collect()]


@dataclass(frozen=True)
class TableCapture:
    sink: SqliteSink
    kept: CapturedRows

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.sink.write(rows, batch)
        kinds = {column.name: column.kind for column in self.sink.table.columns(rows.schema)}
        self.kept.rows[:] = read_table(self.sink.path, self.sink.table, kinds)


def capture_sink(
    spec: model.Sink,
    name: str,
    pipeline: Pipeline,
    kept: dict[str, CapturedRows],
    folder: FilePath,
    order: tuple[str, ...] = (),
) -> Sink:
    """A capturing sink for this spec; `order`: hidden columns of its rows."""
    if isinstance(spec, model.TopicSink):
        kept.setdefault(name, CapturedRows())
        encoding = encoding_of(pipeline, spec)
        if encoding.subject is not None:  # a trial registers no schema, and its records are compared as JSON
            encoding = replace(encoding, format="json", schema=None, subject=None)
        return TopicCapture(encoding, name, kept)
    if isinstance(spec, model.DatabaseSink) and spec.mode != "append":
        table = replace(table_of(spec, order), name=spec.table.replace(".", "_"), create=True)
        file = folder / f"{len(kept)}.db" if name not in kept else FilePath(kept[name].file)
        sink = SqliteSink(table, None, False, "", None, str(file))
        return TableCapture(sink, kept.setdefault(name, CapturedRows(file=str(file))))
    return RowCapture(kept.setdefault(name, CapturedRows()))


def record_of(found: dict[str, Any], is_json: bool = False) -> Row:
    """A record in the form of a test case."""
    record: Row = {"key": text_of(found.get("key")), "value": text_of(found.get("value"))}
    if is_json and record["value"] is not None:
        record["value"] = json.loads(record["value"], parse_float=Decimal)
    if found.get("headers") is not None:
        record["headers"] = {each["key"]: text_of(each["value"]) for each in found["headers"]}
    moment = found.get("timestamp")
    return record if moment is None else {**record, "timestamp": moment.astimezone(UTC)}  # Spark returns local time


def text_of(value: Any) -> str | None:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return None if value is None else str(value)


def read_table(path: str, table: Table, kinds: Mapping[str, str]) -> list[Row]:
    """Rows with the types that SQLite does not have."""
    database = sqlite3.connect(path)
    try:
        cursor = database.execute(f"SELECT * FROM {table.quoted}")  # # noqa: S608 (the name is quoted)
        names = [each[0] for each in cursor.description]
        return [{n: _typed(v, kinds.get(n, "text")) for n, v in zip(names, row, strict=True)} for row in cursor]
    finally:
        database.close()


def _typed(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    if kind == "decimal":
        return Decimal(value)
    if kind == "json":
        return json.loads(value, parse_float=Decimal)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value

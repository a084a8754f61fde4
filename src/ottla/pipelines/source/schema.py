"""The columns of the source: those of Spark's kafka source, or fewer of them where `columns` asks for less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
USUAL_COLUMNS = COLUMNS[:-1]  # headers only on request
SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


def spark_schema(columns: Sequence[str]) -> str:
    """The schema as Spark's DDL."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema as Spark expects it from Python workers."""
    import pyarrow as pa  # noqa: PLC0415 (Spark's workers have it; whoever only reads options need not)

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(header),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])

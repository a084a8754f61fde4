"""The registry schema that a sink's rows are written with, resolved at the first batch.

A schema file is registered. Without one, the newest schema of the subject is used; if the subject has none, one is
derived from the columns and registered. Protobuf needs a schema, because field numbers cannot be derived.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.operations.errors import OperationError
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.folders import read_draft_file
from ottla.operations.schema_registry.framing import frame
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, PROTOBUF, TYPES, Schema, UnregisteredSchema
from ottla.operations.schema_registry.serdes import SchemaChoice, choose_schema
from ottla.pipelines.sinks.batch import SinkError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

KINDS = {"avro": AVRO, "json": JSON_SCHEMA, "protobuf": PROTOBUF}
SIMPLE_AVRO: dict[str, Any] = {
    "boolean": "boolean", "byte": "int", "short": "int", "integer": "int", "long": "long", "float": "float",
    "double": "double", "string": "string", "binary": "bytes", "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip
SIMPLE_JSON: dict[str, dict[str, str]] = {
    "boolean": {"type": "boolean"}, "byte": {"type": "integer"}, "short": {"type": "integer"},
    "integer": {"type": "integer"}, "long": {"type": "integer"}, "float": {"type": "number"},
    "double": {"type": "number"}, "decimal": {"type": "number"}, "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"}, "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"}, "timestamp_ntz": {"type": "string"},
}  # fmt: skip
RECORD_NAME = "Row"

KNOWN_MAX = 1000


class SubjectSchema(NamedTuple):
    """The prefix of the data, and its schema."""

    prefix: bytes
    schema: Schema


@dataclass(frozen=True)
class Subject:
    """Where a sink finds or registers its schema."""

    address: RegistryAddress
    name: str
    format: str
    file: str | None = None
    message: str | None = None

    def resolve_schema(self, rows: StructType) -> SubjectSchema:
        """Queries the registry once per process for each subject, format and columns. Raises SinkError."""
        key = (self, rows.json())
        if key not in _schema_cache:
            if len(_schema_cache) >= KNOWN_MAX:
                _schema_cache.clear()
            _schema_cache[key] = self._fetch_or_register(rows)
        return _schema_cache[key]

    def _fetch_or_register(self, rows: StructType) -> SubjectSchema:
        kind = KINDS[self.format]
        try:
            client = RegistryClient(self.address)
            draft = None if self.file is None else read_draft_file(Path(self.file), kind)
            try:
                schema_id, schema = choose_schema(client, SchemaChoice(self.name, draft))
            except SchemaError as problem:
                if draft is not None or not is_missing(problem) or kind == PROTOBUF:
                    raise
                schema_id, schema = choose_schema(client, SchemaChoice(self.name, self._derive_schema(rows)))
        except OperationError as problem:
            raise SinkError(f"subject {self.name}: {problem}") from None
        if schema.kind != kind:
            raise SinkError(f"subject {self.name} is of type {TYPES[schema.kind]}, not {TYPES[kind]}")
        return SubjectSchema(frame(schema_id, b""), schema)

    def _derive_schema(self, rows: StructType) -> UnregisteredSchema:
        if self.format == "json":
            return UnregisteredSchema(JSON_SCHEMA, json.dumps({"title": RECORD_NAME, **_json_type(rows)}))
        return UnregisteredSchema(AVRO, json.dumps(_avro_type(rows, RECORD_NAME)))


_schema_cache: dict[tuple[Subject, str], SubjectSchema] = {}


def _avro_type(kind: DataType, name: str) -> Any:
    """Raises SinkError for types without Avro counterpart. `name` is the field path, which makes record names
    unique."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415 (this package is imported without Spark)

    if isinstance(kind, T.StructType):
        fields = [_avro_field(each, name) for each in kind.fields]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _avro_nullable(kind.elementType, name, kind.containsNull)}
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        return {"type": "map", "values": _avro_nullable(kind.valueType, name, kind.valueContainsNull)}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.typeName() not in SIMPLE_AVRO:
        raise SinkError(f"Avro has no type for {kind.simpleString()}: give a schema, or cast the column")
    return SIMPLE_AVRO[kind.typeName()]


def _avro_field(field: Any, name: str) -> dict[str, Any]:
    if not field.name.isidentifier() or not field.name.isascii():
        raise SinkError(f"{field.name!r} is not a valid Avro field name: rename the column")
    made = {"name": field.name, "type": _avro_nullable(field.dataType, f"{name}_{field.name}", field.nullable)}
    return {**made, "default": None} if field.nullable else made


def _avro_nullable(kind: DataType, name: str, may_be_null: bool) -> Any:
    made = _avro_type(kind, name)
    return ["null", made] if may_be_null else made


def _json_type(kind: DataType) -> dict[str, Any]:
    from pyspark.sql import types as T  # noqa: N812, PLC0415

    if isinstance(kind, T.StructType):
        return {"type": "object", "properties": {each.name: _json_nullable(each) for each in kind.fields}}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _or_null(_json_type(kind.elementType), kind.containsNull)}
    if isinstance(kind, T.MapType):
        values = _or_null(_json_type(kind.valueType), kind.valueContainsNull)
        return {"type": "object", "additionalProperties": values}
    if kind.typeName() not in SIMPLE_JSON:
        raise SinkError(f"JSON Schema has no type for {kind.simpleString()}: give a schema, or cast the column")
    return dict(SIMPLE_JSON[kind.typeName()])


def _json_nullable(field: Any) -> dict[str, Any]:
    # NaN and infinity are written as null even if the column is not nullable.
    is_float = field.dataType.typeName() in ("float", "double")
    return _or_null(_json_type(field.dataType), field.nullable or is_float)


def _or_null(schema: dict[str, Any], may_be_null: bool) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]} if may_be_null else schema

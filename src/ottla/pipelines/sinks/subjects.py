"""Which schema of a registry the rows of a sink are written with, asked when the first batch comes.

A schema file is registered. Without one it is the newest of the subject; and if the subject has none, one is made of
the columns of the rows, and registered. (A message of Protobuf has numbers that nobody can guess: it needs a schema.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.operations.errors import OperationError
from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.operations.schema_registry.client import RegistryClient, is_missing
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.folders import read_draft_file
from ottla.operations.schema_registry.framing import frame
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, PROTOBUF, TYPES, Draft, Schema
from ottla.operations.schema_registry.serializing import Choice, choose
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


class Written(NamedTuple):
    """What stands before the data, and the schema of the data."""

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

    def written(self, rows: StructType) -> Written:
        """Asks once for each subject, format and columns of this process. Raises SinkError."""
        key = (self, rows.json())
        if key not in _known:
            if len(_known) >= KNOWN_MAX:
                _known.clear()
            _known[key] = self._asked(rows)
        return _known[key]

    def _asked(self, rows: StructType) -> Written:
        kind = KINDS[self.format]
        try:
            client = RegistryClient(self.address)
            draft = None if self.file is None else read_draft_file(Path(self.file), kind)
            try:
                schema_id, schema = choose(client, Choice(self.name, draft))
            except SchemaError as problem:
                if draft is not None or not is_missing(problem) or kind == PROTOBUF:
                    raise
                schema_id, schema = choose(client, Choice(self.name, self._made(rows)))
        except OperationError as problem:
            raise SinkError(f"subject {self.name}: {problem}") from None
        if schema.kind != kind:
            raise SinkError(f"subject {self.name} is of type {TYPES[schema.kind]}, not {TYPES[kind]}")
        return Written(frame(schema_id, b""), schema)

    def _made(self, rows: StructType) -> Draft:
        if self.format == "json":
            return Draft(JSON_SCHEMA, json.dumps({"title": RECORD_NAME, **_json_type(rows)}))
        return Draft(AVRO, json.dumps(_avro_type(rows, RECORD_NAME)))


KNOWN_MAX = 1000
_known: dict[tuple[Subject, str], Written] = {}


def _avro_type(kind: DataType, name: str) -> Any:
    """Raises SinkError for what Avro cannot hold. `name` is the path to it, so that no two records are called alike."""
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
        raise SinkError(f"{field.name!r} cannot be the name of a field in Avro: rename the column")
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
    # NaN and the infinities are written as null, whatever the column says of itself.
    is_float = field.dataType.typeName() in ("float", "double")
    return _or_null(_json_type(field.dataType), field.nullable or is_float)


def _or_null(schema: dict[str, Any], may_be_null: bool) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]} if may_be_null else schema

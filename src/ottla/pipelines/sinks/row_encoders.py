"""Rows to bytes in Spark's workers, one by one: Avro by fastavro, Protobuf by Google's runtime. They travel there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, Protocol

from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.schemas import Schema
from ottla.pipelines.sinks.avro_values import misfits
from ottla.pipelines.sinks.batch import SinkError

if TYPE_CHECKING:
    from pyspark.sql import Column

Encode = Callable[[dict[str, Any]], bytes]


class RowEncoder(Protocol):
    """One schema."""

    def prepare(self) -> Encode:
        """Called once in each task; what it gives raises SinkError for a row that does not fit."""


@dataclass(frozen=True)
class AvroEncoder:
    """`prefix` stands before the data of each row. A column that the schema does not have is an error."""

    schema: str
    prefix: bytes = b""

    def prepare(self) -> Encode:
        from io import BytesIO  # noqa: PLC0415

        import fastavro  # noqa: PLC0415

        parsed, prefix = fastavro.parse_schema(json.loads(self.schema)), self.prefix
        find_misfit = misfits(parsed)

        def encode(row: dict[str, Any]) -> bytes:
            misfit = find_misfit(row) if find_misfit else None
            if misfit:
                raise SinkError(f"a row does not fit the Avro schema: {misfit}")
            buffer = BytesIO()
            buffer.write(prefix)
            try:
                fastavro.schemaless_writer(buffer, parsed, row, strict_allow_default=True)
            except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError) as problem:
                raise SinkError(f"a row does not fit the Avro schema: {problem}") from problem
            return buffer.getvalue()

        return encode


@dataclass(frozen=True)
class ProtobufEncoder:
    """`message` is a full name, or none for the first message of the schema."""

    schema: Schema
    prefix: bytes = b""
    message: str | None = None

    def prepare(self) -> Encode:
        from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

        messages, prefix = Messages(self.schema), self.prefix
        encode_document, message = messages.encoder(self.message), messages.named(self.message).DESCRIPTOR

        def encode(row: dict[str, Any]) -> bytes:
            try:
                return prefix + encode_document(_document(row, message))
            except SchemaError as problem:
                raise SinkError(f"a row does not fit the Protobuf schema: {problem}") from None

        return encode


def checked_json(prefix: bytes, schema: Schema) -> Callable[[Column], Column]:
    """A column of JSON texts as bytes behind a prefix; a text that the JSON Schema does not allow raises SinkError."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    def check(texts: pa.Array) -> pa.Array:
        from ottla.operations.schema_registry.formats.json_schema import json_encoder  # noqa: PLC0415
        from ottla.operations.schema_registry.serializing import read_document  # noqa: PLC0415

        encode = json_encoder(schema)
        try:
            return pa.array([prefix + encode(read_document(text)) for text in texts.to_pylist()], pa.binary())
        except SchemaError as problem:
            raise SinkError(f"a row does not fit the JSON Schema: {problem}") from None

    check.__annotations__ = {"texts": pa.Array, "return": pa.Array}  # Spark looks at them; ours are only text
    made: Callable[[Column], Column] = F.arrow_udf(check, "binary")  # type: ignore[attr-defined]
    return made


def _document(row: dict[str, Any], message: Any) -> dict[str, Any]:
    """As Protobuf's JSON has it: no field for null. `message` is its descriptor, None for what is in no schema."""
    return {name: _value(item, _field(message, name), name) for name, item in row.items() if item is not None}


def _field(message: Any, name: str) -> Any:
    if message is None:
        return None
    return message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)


def _value(value: Any, field: Any, name: str) -> Any:
    """Bytes as base64, times in RFC 3339, NaN in quotes."""
    import base64  # noqa: PLC0415

    kind = None if field is None else field.type
    if isinstance(value, list):
        return [_value(item, field, name) for item in value]
    if isinstance(value, dict):
        message = None if field is None else field.message_type
        if message is None or not message.GetOptions().map_entry:
            return _document(value, message)
        inside = message.fields_by_name["value"]
        return {key: _value(item, inside, name) for key, item in value.items() if item is not None}
    if isinstance(value, bytes):
        if kind is not None and kind == field.TYPE_STRING:
            raise SchemaError(f"{name} has bytes, and its field is for text: cast it to string")
        return base64.b64encode(value).decode()
    if isinstance(value, str) and kind is not None and kind == field.TYPE_BYTES:
        raise SchemaError(f"{name} is a text, and its field is for bytes: cast it to binary")
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is not None else f"{value.isoformat()}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):  # as text, which fields of numbers take, too
        is_text = kind is not None and kind == field.TYPE_STRING
        return f"{value:f}" if is_text or value != value.to_integral_value() else str(int(value))
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value

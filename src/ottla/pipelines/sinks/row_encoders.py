"""Encodes rows to bytes in Spark's workers: Avro with fastavro, Protobuf with Google's runtime. Encoders are picklable.

fastavro converts some values silently: it truncates fractions for integers, writes 2^31 as an `int` that no reader
accepts, turns the text "false" into true, and writes infinity for a double beyond `float`. Such values are rejected
before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import TYPE_CHECKING, Any, Protocol

from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.schemas import Schema
from ottla.pipelines.sinks.batch import SinkError

if TYPE_CHECKING:
    from pyspark.sql import Column


Encode = Callable[[dict[str, Any]], bytes]

INT_MAX = 2**31 - 1
FLOAT_MAX = 3.4028235677973366e38  # a double from here on rounds to infinity
TypeCheck = Callable[[Any], str | None]  # for a value that is not None: why it does not fit


class RowEncoder(Protocol):
    """Encodes rows with one schema."""

    def prepare(self) -> Encode:
        """Called once per task; the returned function raises SinkError for a row that does not fit."""


@dataclass(frozen=True)
class AvroEncoder:
    """`prefix` precedes the data of each row. A column that the schema does not have is an error."""

    schema: str
    prefix: bytes = b""

    def prepare(self) -> Encode:
        from io import BytesIO  # noqa: PLC0415

        import fastavro  # noqa: PLC0415

        parsed, prefix = fastavro.parse_schema(json.loads(self.schema)), self.prefix
        find_misfit = build_type_check(parsed)

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
    """`message` is a full name, or None for the first message of the schema."""

    schema: Schema
    prefix: bytes = b""
    message: str | None = None

    def prepare(self) -> Encode:
        from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

        messages, prefix = Messages(self.schema), self.prefix
        encode_document, message = (
            messages.encoder(self.message),
            messages.message_class_by_name(self.message).DESCRIPTOR,
        )

        def encode(row: dict[str, Any]) -> bytes:
            try:
                return prefix + encode_document(_protobuf_document(row, message))
            except SchemaError as problem:
                raise SinkError(f"a row does not fit the Protobuf schema: {problem}") from None

        return encode


def checked_json(prefix: bytes, schema: Schema) -> Callable[[Column], Column]:
    """JSON texts as bytes behind a prefix. A text that violates the JSON Schema raises SinkError."""
    import pyarrow as pa  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    def check(texts: pa.Array) -> pa.Array:
        from ottla.operations.schema_registry.formats.json_schema import json_encoder  # noqa: PLC0415
        from ottla.operations.schema_registry.serdes import read_document  # noqa: PLC0415

        encode = json_encoder(schema)
        try:
            return pa.array([prefix + encode(read_document(text)) for text in texts.to_pylist()], pa.binary())
        except SchemaError as problem:
            raise SinkError(f"a row does not fit the JSON Schema: {problem}") from None

    # Spark evaluates annotations, which are strings here
    check.__annotations__ = {"texts": pa.Array, "return": pa.Array}
    made: Callable[[Column], Column] = F.arrow_udf(check, "binary")  # type: ignore[attr-defined]
    return made


def _protobuf_document(row: dict[str, Any], message: Any) -> dict[str, Any]:
    """Protobuf's JSON form: no field for null. `message` is its descriptor, None for fields outside the schema."""
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
            return _protobuf_document(value, message)
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
    if isinstance(value, Decimal):  # as text, which number fields accept as well
        is_text = kind is not None and kind == field.TYPE_STRING
        return f"{value:f}" if is_text or value != value.to_integral_value() else str(int(value))
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def build_type_check(
    schema: Any, place: str = "", named: dict[str, TypeCheck | None] | None = None
) -> TypeCheck | None:
    """For a schema that fastavro has parsed; None if fastavro itself detects every misfit."""
    named = {} if named is None else named
    if isinstance(schema, list):
        real = [branch for branch in schema if branch != "null"]
        # fastavro selects the matching branch itself
        return build_type_check(real[0], place, named) if len(real) == 1 else None
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in PRIMITIVES:
        is_wrong = PRIMITIVES[kind]
        return lambda value: f"{place}: {value!r} does not fit {kind}" if is_wrong(value) else None
    if kind == "record":
        return _record(schema, place, named)
    if kind in ("array", "map"):
        inside = build_type_check(schema["items" if kind == "array" else "values"], place, named)
        return None if inside is None else lambda values: _first_problem(inside, values)
    return named.get(kind) if isinstance(kind, str) else None


def _record(schema: dict[str, Any], place: str, named: dict[str, TypeCheck | None]) -> TypeCheck:
    checks: list[tuple[str, TypeCheck]] = []

    def find(row: Any) -> str | None:
        for name, check in checks:
            value = row.get(name)
            problem = None if value is None else check(value)
            if problem is not None:
                return problem
        return None

    named[schema["name"]] = find  # before the fields: a record may contain itself
    for field in schema["fields"]:
        check = build_type_check(field["type"], f"{place}.{field['name']}".lstrip("."), named)
        if check is not None:
            checks.append((field["name"], check))
    return find


def _first_problem(inside: TypeCheck, values: Any) -> str | None:
    for value in values.values() if isinstance(values, Mapping) else values:
        problem = None if value is None else inside(value)
        if problem is not None:
            return problem
    return None


def _is_not_whole(value: Any) -> bool:
    """fastavro converts times and dates to numbers itself."""
    return isinstance(value, bool | float | Decimal)


PRIMITIVES: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: _is_not_whole(value) or (isinstance(value, int) and not -INT_MAX - 1 <= value <= INT_MAX),
    "long": _is_not_whole,
    "boolean": lambda value: not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float | Decimal) and FLOAT_MAX <= abs(float(value)) < float("inf"),
}

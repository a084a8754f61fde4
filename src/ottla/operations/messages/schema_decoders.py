"""What turns the bytes behind a schema's number into a document: Avro, JSON Schema.

Avro comes from fastavro. A schema under which a few bytes can mean any number of items (an array of nulls) is refused:
somebody would write such a message to fill the memory of whoever looks at it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from ottla.operations.messages.decoding import SchemaError
from ottla.operations.messages.documents import plain
from ottla.operations.messages.expressions.matching import NO_DOCUMENT, read_json

AVRO, JSON_SCHEMA, PROTOBUF = "avro", "json schema", "protobuf"


def make_decoder(schema: Any) -> Callable[[bytes], Any]:
    """Raises SchemaError for schemas of which nothing can be made."""
    if schema.kind == AVRO:
        return _avro(schema)
    if schema.kind == JSON_SCHEMA:
        return _json
    from ottla.operations.messages.protobuf import protobuf_decoder  # noqa: PLC0415 (few need it)

    return protobuf_decoder(schema)


def _json(data: bytes) -> Any:
    document = read_json(data)
    if document is NO_DOCUMENT:
        raise SchemaError("what was written with a JSON Schema is no JSON")
    return document


def _avro(schema: Any) -> Callable[[bytes], Any]:
    try:
        from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415
        from fastavro.schema import SchemaParseException  # noqa: PLC0415
    except ImportError:
        raise SchemaError("Avro needs fastavro: pip install 'ottla[console]'") from None
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            parse_schema(json.loads(text), named)
        document = json.loads(schema.text)
        parsed = parse_schema(document, named)
        _refuse_bombs(document)
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException) as problem:
        raise SchemaError(f"the schema is no Avro schema: {problem!s:.200}") from None

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        document = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise SchemaError(f"{len(data) - stream.tell()} bytes follow what the schema describes")
        return plain(document)

    return decode


def _refuse_bombs(schema: Any) -> None:
    """Items of arrays must need at least a byte each."""
    if isinstance(schema, list):
        for branch in schema:
            _refuse_bombs(branch)
    elif isinstance(schema, dict):
        items = schema.get("items") if schema.get("type") == "array" else None
        if items is not None and _is_empty(items):
            raise SchemaError("the schema has arrays of nothing: a few bytes could mean any number of items")
        for inner in (*(field.get("type") for field in schema.get("fields", ())), schema.get("values"), items):
            _refuse_bombs(inner)
        if isinstance(schema.get("type"), (dict, list)):
            _refuse_bombs(schema["type"])


def _is_empty(schema: Any) -> bool:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("record", "error"):
            return all(_is_empty(field.get("type")) for field in schema.get("fields", ()))
        return _is_empty(kind) or (kind == "fixed" and not schema.get("size"))
    return bool(schema == "null")

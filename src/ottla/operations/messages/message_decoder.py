"""Decodes keys and values: JSON, text, formats of a schema registry, and records of internal topics.

Rules:
1. Bytes with a registry's prefix (0 and a schema ID), or with a header that names their schema, are decoded with the
   registry, if there is one. If that fails, the problem is reported and the bytes are decoded without a schema.
2. JSON and text are UTF-8. Everything else is binary.
3. Invalid bytes never raise: the result is binary with a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ottla.operations.messages.expressions.evaluator import NO_DOCUMENT, read_json
from ottla.operations.messages.expressions.syntax import KEY, VALUE
from ottla.operations.records.coordinator_records import (
    TRANSACTION_RECORDS,
    Kinds,
    UnknownRecordError,
    read_record,
    with_readable_members,
)
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import SchemaName, read_frame, schema_header
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.coordinator_records import GROUP_RECORDS

# A decoder of an internal topic: key and value as documents, None for unknown records.
InternalDecoder = Callable[[bytes | None, bytes | None], tuple[Any, Any] | None]


def internal_decoder(topic: str) -> InternalDecoder | None:
    """None for other topics, and for internal topics that hold text."""
    kinds = {"__consumer_offsets": GROUP_RECORDS, "__transaction_state": TRANSACTION_RECORDS}.get(topic)
    return None if kinds is None else lambda key, value: _decode(kinds, key, value)


def _decode(kinds: Kinds, key: bytes | None, value: bytes | None) -> tuple[Any, Any] | None:
    if key is None:
        return None
    try:
        found = read_record(kinds, key, value)
    except (UnknownRecordError, ProtocolError):
        return None
    kind = kinds[found.kind].name
    shown = None if found.value is None else with_readable_members(found.value_json())
    return {"type": kind, **found.key_json()}, shown


JSON, TEXT, BINARY, NULL = "json", "text", "binary", "null"
Headers = Iterable[tuple[str, bytes | None]]
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b") + b"\x7f"


class Decoded(NamedTuple):
    """`document` is NO_DOCUMENT if the bytes are not a document."""

    format: str
    document: Any = NO_DOCUMENT
    schema_id: SchemaName | None = None
    problem: str | None = None

    @property
    def are_bytes_searchable(self) -> bool:
        """Whether the original bytes can be searched instead of the document."""
        return self.format in (JSON, TEXT, BINARY, NULL) and self.problem is None


class Schemas(Protocol):
    """A schema registry: decodes what follows the prefix."""

    def decode(self, name: SchemaName, data: bytes) -> tuple[str, Any]:
        """Format and document. Raises SchemaError."""


class Decoder:
    """Decodes the messages of one topic."""

    def __init__(self, topic: str, schemas: Schemas | None = None) -> None:
        self.topic = topic
        self.schemas = schemas
        self.internal = internal_decoder(topic)

    @property
    def uses_raw_json(self) -> bool:
        """Whether every document is the JSON of the bytes themselves, so that the bytes can be searched instead."""
        return self.schemas is None and self.internal is None

    def decode(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> tuple[Decoded, Decoded]:
        """Decode key and value."""
        if self.internal is not None:
            found = self.internal(key, value)
            if found is not None:
                return Decoded(f"{self.topic} {KEY}", found[0]), Decoded(
                    NULL if value is None else f"{self.topic} {VALUE}", NO_DOCUMENT if value is None else found[1]
                )
        if self.schemas is None:
            return _without_schema(key), _without_schema(value)
        return (
            self.decode_field(key, schema_header(headers, is_key=True)),
            self.decode_field(value, schema_header(headers, is_key=False)),
        )

    def decode_field(self, data: bytes | None, header: bytes | None = None) -> Decoded:
        """Decode key or value alone."""
        if data is None or self.schemas is None:
            return _without_schema(data)
        name: SchemaName | None = None
        try:
            framed = read_frame(data, header)
            if framed is None:
                return decode_plain(data)
            name = framed.name
            format_, document = self.schemas.decode(name, framed.data)
        except SchemaError as problem:
            return decode_plain(data)._replace(schema_id=name, problem=str(problem))
        return Decoded(format_, document, name)

    def __repr__(self) -> str:
        return f"<Decoder {self.topic} schemas={self.schemas is not None} internal={self.internal is not None}>"


def _without_schema(data: bytes | None) -> Decoded:
    return Decoded(NULL) if data is None else decode_plain(data)


def decode_plain(data: bytes) -> Decoded:
    """Decode without a schema."""
    document = read_json(data)
    if document is not NO_DOCUMENT:
        return Decoded(JSON, document)
    return Decoded(TEXT if is_text(data) else BINARY)


def is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8 without control characters."""
    if data.translate(None, _CONTROLS) != data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

"""What the bytes of a key or value say: JSON, text, a schema of a registry, a record of an internal topic, or nothing.

Rules:
1. Bytes that begin as a registry's do (0 and the id of a schema), or have a header that names their schema, are asked
   for there, if there is a registry. What then does not fit the schema is told as a problem, and shown as what it looks
   like without it.
2. JSON and text are UTF-8. Everything else is binary.
3. Nothing here fails because of bytes that somebody wrote: the worst is binary with a problem.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from ottla.operations.messages.expressions.matching import NO_DOCUMENT, read_json
from ottla.operations.messages.expressions.syntax import KEY, VALUE
from ottla.operations.messages.internal import internal_decoder
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import SchemaName, read_frame, schema_header

JSON, TEXT, BINARY, NULL = "json", "text", "binary", "null"
Headers = Iterable[tuple[str, bytes | None]]
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b") + b"\x7f"


class Decoded(NamedTuple):
    """`document` is NO_DOCUMENT where the bytes are no document."""

    format: str
    document: Any = NO_DOCUMENT
    schema_id: SchemaName | None = None
    problem: str | None = None

    @property
    def is_own_json(self) -> bool:
        """Whether the bytes themselves are what can be searched."""
        return self.format in (JSON, TEXT, BINARY, NULL) and self.problem is None


class Schemas(Protocol):
    """A registry: decodes what follows the prefix."""

    def decode(self, name: SchemaName, data: bytes) -> tuple[str, Any]:
        """Format and document; raises SchemaError."""


class Decoder:
    """Decodes the messages of one topic."""

    def __init__(self, topic: str, schemas: Schemas | None = None) -> None:
        self.topic = topic
        self.schemas = schemas
        self.internal = internal_decoder(topic)

    @property
    def is_plain(self) -> bool:
        """Whether every document is the JSON of the bytes themselves, so that bytes can be searched instead."""
        return self.schemas is None and self.internal is None

    def decode(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> tuple[Decoded, Decoded]:
        """Key and value."""
        if self.internal is not None:
            found = self.internal(key, value)
            if found is not None:
                return Decoded(f"{self.topic} {KEY}", found[0]), Decoded(
                    NULL if value is None else f"{self.topic} {VALUE}", NO_DOCUMENT if value is None else found[1]
                )
        if self.schemas is None:
            return _without_schema(key), _without_schema(value)
        return (
            self.decode_part(key, schema_header(headers, is_key=True)),
            self.decode_part(value, schema_header(headers, is_key=False)),
        )

    def decode_part(self, data: bytes | None, header: bytes | None = None) -> Decoded:
        """One of both, without knowing the other."""
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
    """Without any schema."""
    document = read_json(data)
    if document is not NO_DOCUMENT:
        return Decoded(JSON, document)
    return Decoded(TEXT if is_text(data) else BINARY)


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters."""
    if data.translate(None, _CONTROLS) != data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

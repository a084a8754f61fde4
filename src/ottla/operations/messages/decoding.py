"""What the bytes of a key or value say: JSON, text, a schema of a registry, a record of an internal topic, or nothing.

Rules:
1. Bytes that begin as a registry's do (0 and the number of a schema) are asked for there, if there is a registry. What
   then does not fit the schema is told as a problem, and shown as what it looks like without it.
2. JSON and text are UTF-8. Everything else is binary.
3. Nothing here fails because of bytes that somebody wrote: the worst is binary with a problem.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ottla.operations.messages.expressions.matching import NO_DOCUMENT, read_json
from ottla.operations.messages.expressions.syntax import KEY, VALUE
from ottla.operations.messages.internal import internal_decoder

JSON, TEXT, BINARY, NULL = "json", "text", "binary", "null"
MAGIC_BYTE = 0
SCHEMA_PREFIX_BYTES = 5
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r\f\x1b") + b"\x7f"


class Decoded(NamedTuple):
    """`document` is NO_DOCUMENT where the bytes are no document."""

    format: str
    document: Any = NO_DOCUMENT
    schema_id: int | None = None
    problem: str | None = None

    @property
    def is_own_json(self) -> bool:
        """Whether the bytes themselves are what can be searched."""
        return self.format in (JSON, TEXT, BINARY, NULL) and self.problem is None


class SchemaError(Exception):
    """A schema that cannot be had, or bytes that do not fit it; str() is a sentence."""


class Schemas(Protocol):
    """A registry: decodes what follows the prefix."""

    def decode(self, schema_id: int, data: bytes) -> tuple[str, Any]:
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

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Decoded, Decoded]:
        """Key and value."""
        if self.internal is not None:
            found = self.internal(key, value)
            if found is not None:
                return Decoded(f"{self.topic} {KEY}", found[0]), Decoded(
                    NULL if value is None else f"{self.topic} {VALUE}", NO_DOCUMENT if value is None else found[1]
                )
        return self.decode_part(key), self.decode_part(value)

    def decode_part(self, data: bytes | None) -> Decoded:
        """One of both, without knowing the other."""
        if data is None:
            return Decoded(NULL)
        if self.schemas is None or len(data) < SCHEMA_PREFIX_BYTES or data[0] != MAGIC_BYTE:
            return decode_plain(data)
        schema_id = int.from_bytes(data[1:SCHEMA_PREFIX_BYTES], "big")
        try:
            format_, document = self.schemas.decode(schema_id, data[SCHEMA_PREFIX_BYTES:])
        except SchemaError as problem:
            return decode_plain(data)._replace(schema_id=schema_id, problem=str(problem))
        return Decoded(format_, document, schema_id)

    def __repr__(self) -> str:
        return f"<Decoder {self.topic} schemas={self.schemas is not None} internal={self.internal is not None}>"


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

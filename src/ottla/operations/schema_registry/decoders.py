"""What turns the bytes behind a schema's id into a document, and documents into such bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, Schema

# plain: as people expect JSON, bytes as base64, times as ISO 8601, a union without the name of its branch.
# confluent: as Confluent's console tools write it: Avro's own JSON encoding, Protobuf's with all fields.
Style = Literal["plain", "confluent"]
Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


def make_decoder(schema: Schema, style: Style = "plain", *, own_names: bool = True) -> Decode:
    """Raises SchemaError for schemas of which nothing can be made. `own_names`: of Protobuf's fields, not camelCase."""
    if schema.kind == AVRO:
        if style == "confluent":
            from ottla.operations.schema_registry.formats.avro_json import AvroJson  # noqa: PLC0415 (few need it)

            return AvroJson(schema, style).decode
        from ottla.operations.schema_registry.formats.avro import avro_decoder  # noqa: PLC0415 (needs fastavro)

        return avro_decoder(schema)
    if schema.kind == JSON_SCHEMA:
        from ottla.operations.schema_registry.formats.json_schema import decode_json  # noqa: PLC0415

        return decode_json
    from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415 (few need it)

    return Messages(schema).decoder(own_names=own_names, with_defaults=style == "confluent")


def make_encoder(schema: Schema, style: Style = "plain", message: str | None = None) -> Encode:
    """From a document to what stands behind the id. `message`: full name of a Protobuf message, else the first.

    Raises SchemaError for schemas of which nothing can be made; so does what it gives, for documents that do not fit.
    """
    if schema.kind == AVRO:
        from ottla.operations.schema_registry.formats.avro_json import AvroJson  # noqa: PLC0415

        return AvroJson(schema, style).encode
    if schema.kind == JSON_SCHEMA:
        from ottla.operations.schema_registry.formats.json_schema import json_encoder  # noqa: PLC0415

        return json_encoder(schema)
    from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

    return Messages(schema).encoder(message)

"""Encoders and decoders of all formats, chosen by schema type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, Schema

# plain: conventional JSON with bytes as base64, times as ISO 8601, and unions without branch names.
# confluent: as Confluent's console tools print it: Avro's JSON encoding, Protobuf's with all fields.
Style = Literal["plain", "confluent"]
Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


def make_decoder(schema: Schema, style: Style = "plain", *, own_names: bool = True) -> Decode:
    """A decoder. Raises SchemaError for an unusable schema. `own_names`: Protobuf field names instead of camelCase."""
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
    """An encoder from a document to the bytes after the ID. `message`: full name of a Protobuf message, by default the
    first.

    Raises SchemaError for an unusable schema; the encoder raises it for a document that does not match.
    """
    if schema.kind == AVRO:
        from ottla.operations.schema_registry.formats.avro_json import AvroJson  # noqa: PLC0415

        return AvroJson(schema, style).encode
    if schema.kind == JSON_SCHEMA:
        from ottla.operations.schema_registry.formats.json_schema import json_encoder  # noqa: PLC0415

        return json_encoder(schema)
    from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

    return Messages(schema).encoder(message)

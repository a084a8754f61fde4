"""The schema formats: parsing, printing and compatibility. Pure: no file, no socket, no clock.

`references` has the texts of all direct and indirect references under their reference names, deepest first. Nothing
else is reachable.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.registry.formats.schema_format import REFERENCES_MAX, InvalidSchemaError, ParsedSchema

__all__ = ["KINDS", "InvalidSchemaError", "ParsedSchema", "parse"]

KINDS = ("JSON", "PROTOBUF", "AVRO")


def parse(kind: str, text: str, references: Mapping[str, str], *, is_new: bool = True) -> ParsedSchema:
    """Parse a schema. One that is not new was accepted before, so its names and defaults are not checked again."""
    if not text.strip():
        raise InvalidSchemaError("Empty schema")
    if len(references) > REFERENCES_MAX:
        raise InvalidSchemaError(f"The schema has more than {REFERENCES_MAX} references")
    try:
        return parsed(kind, text, references, is_new=is_new)
    except RecursionError:
        # Nesting is bounded, but references between types may exceed the recursion limit.
        raise InvalidSchemaError("The schema is nested too deep") from None


def parsed(kind: str, text: str, references: Mapping[str, str], *, is_new: bool) -> ParsedSchema:
    # Imported late: a registry with only Avro never loads Protobuf.
    if kind == "AVRO":
        from ottla.registry.formats.avro import schema as avro  # noqa: PLC0415

        return avro.parse(text, references, is_new=is_new)
    if kind == "JSON":
        from ottla.registry.formats.json_schema import schema as json_schema  # noqa: PLC0415

        return json_schema.parse(text, references, is_new=is_new)
    if kind == "PROTOBUF":
        from ottla.registry.formats.protobuf import schema as protobuf  # noqa: PLC0415

        return protobuf.parse(text, references, is_new=is_new)
    raise InvalidSchemaError(f"Invalid schema type {kind}")

"""The three formats of schemas: reading, printing and comparing them. Pure: no file, no socket, no clock.

`references` holds the texts of everything that a schema refers to, also over others, by the names that it is
referred to with, deepest first. Nothing else can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.registry.formats.parsed import REFERENCES_MAX, InvalidSchemaError, Parsed

__all__ = ["KINDS", "InvalidSchemaError", "Parsed", "parse"]

KINDS = ("JSON", "PROTOBUF", "AVRO")


def parse(kind: str, text: str, references: Mapping[str, str], *, is_new: bool = True) -> Parsed:
    """Reads a schema. One that is not new was accepted before: its names and defaults are taken as they are."""
    if not text.strip():
        raise InvalidSchemaError("Empty schema")
    if len(references) > REFERENCES_MAX:
        raise InvalidSchemaError(f"The schema has more than {REFERENCES_MAX} references")
    try:
        return parsed(kind, text, references, is_new=is_new)
    except RecursionError:
        # Brackets are counted, but names may lead from one type to the next further than the stack reaches.
        raise InvalidSchemaError("The schema is nested too deep") from None


def parsed(kind: str, text: str, references: Mapping[str, str], *, is_new: bool) -> Parsed:
    # Imported here: a registry that holds Avro alone never pays for Protobuf.
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

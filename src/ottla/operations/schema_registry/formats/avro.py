"""Avro decoding with fastavro, to conventional JSON.

A schema under which a few bytes can encode any number of items (an array of nulls) is rejected: such a record could
exhaust the memory of its reader.
"""

from __future__ import annotations

import io
import json
from typing import Any

from ottla.operations.messages.json_documents import to_json_types
from ottla.operations.schema_registry.decoders import Decode
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.schemas import Schema


def avro_decoder(schema: Schema) -> Decode:
    """A decoder. Raises SchemaError for an unusable schema."""
    parsed, named = parse(schema)
    from fastavro import schemaless_reader  # noqa: PLC0415

    del named

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        document = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise SchemaError(f"{len(data) - stream.tell()} bytes follow what the schema describes")
        return to_json_types(document)

    return decode


def parse(schema: Schema) -> tuple[Any, list[Any]]:
    """The schema as parsed by fastavro, and the documents of its references. Raises SchemaError."""
    try:
        from fastavro import parse_schema  # noqa: PLC0415
        from fastavro.schema import SchemaParseException  # noqa: PLC0415
    except ImportError:
        raise SchemaError("Avro needs fastavro: pip install 'ottla[console]'") from None
    named: dict[str, Any] = {}
    try:
        references = [json.loads(text) for _, text in schema.references]
        for reference in references:
            parse_schema(reference, named)
        document = json.loads(schema.text)
        parsed = parse_schema(document, named)
        reject_empty_items(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemaParseException) as problem:
        raise SchemaError(f"the schema is not an Avro schema: {problem!s:.200}") from None
    return parsed, references


def inline_references(schema: Schema) -> str:
    """The schema with all references inlined at their first use. Raises SchemaError."""
    if not schema.references:
        return schema.text
    _, references = parse(schema)
    known: dict[str, Any] = {}
    for reference in references:
        _note(reference, "", known)
    return json.dumps(_inlined(json.loads(schema.text), "", known))


def _note(schema: Any, space: str, known: dict[str, Any]) -> None:
    """Store a definition under its full name."""
    if isinstance(schema, dict) and "name" in schema:
        full = _full_name(schema, space)
        known[full] = {**schema, "name": full}
    elif isinstance(schema, list):
        for branch in schema:
            _note(branch, space, known)


def _inlined(schema: Any, space: str, known: dict[str, Any]) -> Any:
    if isinstance(schema, str):
        full = schema if "." in schema or not space else f"{space}.{schema}"
        found = known.pop(full, None) or known.pop(schema, None)
        return schema if found is None else _inlined(found, "", known)
    if isinstance(schema, list):
        return [_inlined(branch, space, known) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if "name" in schema:
        space = _full_name(schema, space).rpartition(".")[0]
    made = dict(schema)
    for part in ("type", "items", "values"):
        if part in made:
            made[part] = _inlined(made[part], space, known)
    if isinstance(made.get("fields"), list):
        made["fields"] = [{**each, "type": _inlined(each["type"], space, known)} for each in made["fields"]]
    return made


def _full_name(schema: dict[str, Any], space: str) -> str:
    name, outer = str(schema["name"]), schema.get("namespace", space)
    return name if "." in name or not outer else f"{outer}.{name}"


def reject_empty_items(schema: Any) -> None:
    """Reject arrays whose items may be empty."""
    if isinstance(schema, list):
        for branch in schema:
            reject_empty_items(branch)
    elif isinstance(schema, dict):
        items = schema.get("items") if schema.get("type") == "array" else None
        if items is not None and _is_empty(items):
            raise SchemaError("the schema has arrays of empty items: a few bytes could encode any number of them")
        for inner in (*(field.get("type") for field in schema.get("fields", ())), schema.get("values"), items):
            reject_empty_items(inner)
        if isinstance(schema.get("type"), (dict, list)):
            reject_empty_items(schema["type"])


def _is_empty(schema: Any) -> bool:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("record", "error"):
            return all(_is_empty(field.get("type")) for field in schema.get("fields", ()))
        return _is_empty(kind) or (kind == "fixed" and not schema.get("size"))
    return bool(schema == "null")

"""Avro by fastavro: bytes to documents as people expect JSON.

A schema under which a few bytes can mean any number of items (an array of nulls) is refused: somebody would write such
a record to fill the memory of whoever looks at it.
"""

from __future__ import annotations

import io
import json
from typing import Any

from ottla.operations.messages.documents import plain
from ottla.operations.schema_registry.decoders import Decode
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.schemas import Schema


def avro_decoder(schema: Schema) -> Decode:
    """Raises SchemaError for schemas of which nothing can be made."""
    parsed, named = parse(schema)
    from fastavro import schemaless_reader  # noqa: PLC0415

    del named

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        document = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise SchemaError(f"{len(data) - stream.tell()} bytes follow what the schema describes")
        return plain(document)

    return decode


def parse(schema: Schema) -> tuple[Any, list[Any]]:
    """What fastavro makes of the schema, and the documents of all that it refers to. Raises SchemaError."""
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
        refuse_bombs(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SchemaParseException) as problem:
        raise SchemaError(f"the schema is no Avro schema: {problem!s:.200}") from None
    return parsed, references


def flat(schema: Schema) -> str:
    """The schema as one text: what it refers to stands where it is used first. Raises SchemaError."""
    if not schema.references:
        return schema.text
    _, references = parse(schema)
    known: dict[str, Any] = {}
    for reference in references:
        _note(reference, "", known)
    return json.dumps(_inlined(json.loads(schema.text), "", known))


def _note(schema: Any, space: str, known: dict[str, Any]) -> None:
    """Remember a definition under its full name."""
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


def refuse_bombs(schema: Any) -> None:
    """Items of arrays must need at least a byte each."""
    if isinstance(schema, list):
        for branch in schema:
            refuse_bombs(branch)
    elif isinstance(schema, dict):
        items = schema.get("items") if schema.get("type") == "array" else None
        if items is not None and _is_empty(items):
            raise SchemaError("the schema has arrays of nothing: a few bytes could mean any number of items")
        for inner in (*(field.get("type") for field in schema.get("fields", ())), schema.get("values"), items):
            refuse_bombs(inner)
        if isinstance(schema.get("type"), (dict, list)):
            refuse_bombs(schema["type"])


def _is_empty(schema: Any) -> bool:
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind in ("record", "error"):
            return all(_is_empty(field.get("type")) for field in schema.get("fields", ()))
        return _is_empty(kind) or (kind == "fixed" and not schema.get("size"))
    return bool(schema == "null")

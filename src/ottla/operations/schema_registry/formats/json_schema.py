"""JSON Schema: records are JSON, and are validated before they are written.

Patterns run in RE2, whose time is bounded, and `$ref` resolves only to references that the registry returned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ottla.base.regular_expressions import CLIENT, PatternError, compile_pattern
from ottla.operations.messages.expressions.evaluator import NO_DOCUMENT, read_json
from ottla.operations.messages.json_documents import dump
from ottla.operations.schema_registry.decoders import Encode
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.schemas import Schema

SHOWN_CHARACTERS = 200
LIMITS = CLIENT._replace(memory_bytes=1 << 20)


def decode_json(data: bytes) -> Any:
    document = read_json(data)
    if document is NO_DOCUMENT:
        raise SchemaError("a record with a JSON Schema is not JSON")
    return document


def json_encoder(schema: Schema) -> Encode:
    """An encoder. Raises SchemaError for an unusable schema."""
    validator = _validator(schema)

    def encode(document: Any) -> bytes:
        import jsonschema  # noqa: PLC0415
        from referencing.exceptions import Unresolvable  # noqa: PLC0415

        try:
            problem = next(iter(validator.iter_errors(document)), None)
        except Unresolvable as missing:
            raise SchemaError(f"the schema refers to {missing.ref!r}, which is not among its references") from None
        except (jsonschema.exceptions.UnknownType, TypeError, ValueError, RecursionError) as wrong:
            raise SchemaError(f"the schema cannot be used: {wrong!s:.200}") from None
        if problem is not None:
            place = "".join(f"[{step!r}]" for step in problem.absolute_path) or "the document"
            raise SchemaError(f"{place}: {problem.message:.{SHOWN_CHARACTERS}}")
        return dump(document).encode("utf-8", "surrogatepass")

    return encode


def _validator(schema: Schema) -> Any:
    try:
        import jsonschema  # noqa: PLC0415
        import referencing  # noqa: PLC0415
        import referencing.jsonschema as drafts  # noqa: PLC0415
    except ImportError:
        raise SchemaError("JSON Schema needs jsonschema: pip install 'ottla[registry]'") from None
    try:
        document = json.loads(schema.text, parse_float=Decimal)
        known = jsonschema.validators.validator_for(document, default=jsonschema.Draft7Validator)
        known.check_schema(document)
        resources = [
            (name, referencing.Resource.from_contents(json.loads(text), default_specification=drafts.DRAFT7))
            for name, text in schema.references
        ]
    except (ValueError, TypeError, RecursionError, jsonschema.exceptions.SchemaError) as problem:
        raise SchemaError(f"the schema is not a JSON Schema: {str(problem).splitlines()[0]:.200}") from None
    registry = referencing.Registry().with_resources(resources)
    checks = {"pattern": _pattern, "patternProperties": _pattern_properties}
    additional = {"additionalProperties": _additional} if "additionalProperties" in known.VALIDATORS else {}
    bounded = jsonschema.validators.extend(known, {**checks, **additional})
    return bounded(document, registry=registry)


def _pattern(validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if validator.is_type(instance, "string") and not _compiled(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, properties: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, inner in properties.items():
            expression = _compiled(pattern)
            for name, value in instance.items():
                if expression.search(name):
                    yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415

    if not validator.is_type(instance, "object"):
        return
    expressions = [_compiled(pattern) for pattern in schema.get("patternProperties", ())]
    known = schema.get("properties", {})
    for name, value in instance.items():
        if name in known or any(expression.search(name) for expression in expressions):
            continue
        if inner is False:
            yield ValidationError(f"additional property {name!r} is not allowed")
        else:
            yield from validator.descend(value, inner, path=name)


@lru_cache(64)
def _compiled(pattern: Any) -> Any:
    try:
        return compile_pattern(str(pattern), limits=LIMITS)
    except PatternError:
        raise SchemaError(f"RE2 does not support the pattern {pattern!r}") from None

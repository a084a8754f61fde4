"""Schemas and subject versions, as registries return and accept them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.operations.schema_registry.errors import SchemaError

AVRO, JSON_SCHEMA, PROTOBUF = "avro", "json schema", "protobuf"
KINDS = {"AVRO": AVRO, "JSON": JSON_SCHEMA, "PROTOBUF": PROTOBUF}
TYPES = {kind: name for name, kind in KINDS.items()}
LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
SUFFIXES = {AVRO: ".avsc", JSON_SCHEMA: ".json", PROTOBUF: ".proto"}


class Schema(NamedTuple):
    """A self-contained schema; references are (name, text), deepest first."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Reference(NamedTuple):
    """A reference to another schema: the name in the text, and its subject and version."""

    name: str
    subject: str
    version: int


class UnregisteredSchema(NamedTuple):
    """A schema as stored by a registry: references are only named."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Any = None
    rule_set: Any = None

    def body(self) -> dict[str, Any]:
        """The body of a request."""
        body: dict[str, Any] = {"schema": self.text}
        if self.kind != AVRO:
            body["schemaType"] = TYPES[self.kind]
        if self.references:
            body["references"] = [reference._asdict() for reference in self.references]
        if self.metadata is not None:
            body["metadata"] = self.metadata
        if self.rule_set is not None:
            body["ruleSet"] = self.rule_set
        return body


class RegisteredSchema(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    draft: UnregisteredSchema
    guid: str | None = None
    is_deleted: bool = False


def read_draft(answer: dict[str, Any]) -> UnregisteredSchema:
    """From a response or an exported file. Raises SchemaError."""
    kind = KINDS.get(str(answer.get("schemaType") or "AVRO"))
    if kind is None or not isinstance(answer.get("schema"), str):
        raise SchemaError(f"a schema is of the unknown type {answer.get('schemaType')!r}")
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in answer.get("references") or ()
        )
    except (KeyError, TypeError, ValueError):
        raise SchemaError("references have a name, a subject and a version") from None
    return UnregisteredSchema(kind, answer["schema"], references, answer.get("metadata"), answer.get("ruleSet"))


def read_registered(answer: dict[str, Any]) -> RegisteredSchema:
    """From a response or an exported file. Raises SchemaError."""
    try:
        subject, version, schema_id = str(answer["subject"]), int(answer["version"]), int(answer["id"])
    except (KeyError, TypeError, ValueError):
        raise SchemaError("a version has a subject, a version and an id") from None
    guid = answer.get("guid")
    draft = read_draft(answer)
    return RegisteredSchema(subject, version, schema_id, draft, guid and str(guid), bool(answer.get("deleted")))

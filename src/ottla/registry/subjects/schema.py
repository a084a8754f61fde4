"""A version of a subject, subject names with contexts, and the digest that identifies equal schemas.

`orders-value` is in the default context `.`, `:.test:orders-value` in `.test`. All other modules use normalized names,
without the default context. `:*:` before a prefix matches all contexts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.registry.records import SCHEMA, VERSION_MAX, Key, Record, UnreadableRecordError

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
WILDCARD: Final = ":*:"
PREFIX: Final = ":."
RESERVED: Final = ("__GLOBAL", "__EMPTY")


class Qualified(NamedTuple):
    """A subject name split into context and name."""

    context: str
    name: str

    def __str__(self) -> str:
        return f"{context_prefix(self.context)}{self.name}"


def qualified(subject: str) -> Qualified:
    if not subject.startswith(PREFIX):
        if subject.startswith(WILDCARD):
            return Qualified("*", subject[len(WILDCARD) :])
        return Qualified(DEFAULT_CONTEXT, subject)
    context, _, name = subject[1:].partition(":")
    return Qualified(context, name)


def context_prefix(context: str) -> str:
    """The prefix of subjects in a context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def context_of(subject: str | None) -> str:
    return DEFAULT_CONTEXT if subject is None else qualified(subject).context


def normalize(subject: str) -> str:
    return str(qualified(subject)) if subject.startswith(":") else subject


def within(parent: str, subject: str) -> str:
    """The name of a subject referred to from the context of `parent`."""
    own = qualified(subject)
    return str(Qualified(qualified(parent).context, own.name)) if own.context == DEFAULT_CONTEXT else str(own)


def context_from(text: str) -> str:
    """The context in a path, as `.test`, `test` or `:.test:`. Raises ValueError."""
    context = text.removeprefix(":").removesuffix(":")
    if ":" in context:
        raise ValueError("Context name cannot contain a colon")
    return context if context.startswith(".") else f".{context}"


def is_valid(subject: str) -> bool:
    """Whether a schema may be registered under this name."""
    context, name = qualified(subject)
    return not has_controls(subject) and name not in RESERVED and context != GLOBAL_CONTEXT and bool(name)


def has_controls(subject: str) -> bool:
    return any(letter < " " or "\x7f" <= letter <= "\x9f" for letter in subject)


AVRO: Final = "AVRO"
KNOWN: Final = frozenset(
    {"subject", "version", "id", "schemaType", "references", "metadata", "ruleSet", "schema", "deleted"}
)


class Reference(NamedTuple):
    """A reference: its name in the schema, and the subject version it refers to."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{{name='{self.name}', subject='{self.subject}', version={self.version}}}"


@dataclass(frozen=True, slots=True)
class Schema:
    """A version; `more` has unknown fields of its record."""

    subject: str
    version: int
    id: int
    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    is_deleted: bool = False
    more: Mapping[str, Any] | None = None

    @property
    def digest(self) -> bytes:
        return digest(self.text, self.references, self.metadata, self.rule_set)

    @property
    def guid(self) -> str:
        return str(UUID(bytes=self.digest))

    @property
    def key(self) -> Key:
        return Key(SCHEMA, self.subject, self.version)

    def record(self) -> Record:
        value: dict[str, Any] = {"subject": self.subject, "version": self.version, "id": self.id}
        value |= self.details()
        value["schema"] = self.text
        value["deleted"] = self.is_deleted
        return Record(self.key, value | dict(self.more or {}))

    def details(self) -> dict[str, Any]:
        """The optional fields of records and responses."""
        found: dict[str, Any] = {}
        if self.kind != AVRO:
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [item.to_json() for item in self.references]
        if self.metadata is not None:
            found["metadata"] = self.metadata
        if self.rule_set is not None:
            found["ruleSet"] = self.rule_set
        return found

    def deleted(self) -> Schema:
        return replace(self, is_deleted=True)


def schema_of(key: Key, value: Mapping[str, Any]) -> Schema:
    """The version in a record. Raises UnreadableRecordError."""
    number, text = value.get("id"), value.get("schema")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= VERSION_MAX:
        raise UnreadableRecordError("its id is not valid")
    if not isinstance(text, str):
        raise UnreadableRecordError("it has no schema")
    assert key.subject is not None
    more = {name: item for name, item in value.items() if name not in KNOWN}
    schema = Schema(
        key.subject,
        key.version,
        number,
        text,
        str(value.get("schemaType") or AVRO),
        _references(value.get("references")),
        _object_or_none(value.get("metadata")),
        _object_or_none(value.get("ruleSet")),
        bool(value.get("deleted")),
        more or None,
    )
    try:
        _ = schema.digest
    except (TypeError, AttributeError, ValueError, OverflowError):
        raise UnreadableRecordError("its references, metadata or rules are not valid") from None
    return schema


def digest(
    text: str,
    references: Sequence[Reference],
    metadata: Mapping[str, Any] | None,
    rule_set: Mapping[str, Any] | None,
) -> bytes:
    """Confluent's digest: equal for equal schemas; as a UUID it is the schema's GUID."""
    found = hashlib.md5(text.encode(), usedforsecurity=False)
    for item in references:
        found.update(item.name.encode() + item.subject.encode() + item.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        found.update(b"\x01")
        _add_metadata(found, metadata)
    if rule_set is not None:
        found.update(b"\x01")
        for group in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(group) or ():
                _add_rule(found, rule)
    return found.digest()


def _add_metadata(found: Any, metadata: Mapping[str, Any]) -> None:
    for name, values in sorted((metadata.get("tags") or {}).items()):
        found.update(name.encode() + "".join(sorted(values)).encode())
    for name, value in sorted((metadata.get("properties") or {}).items()):
        found.update(name.encode() + value.encode())
    found.update("".join(sorted(metadata.get("sensitive") or ())).encode())


def _add_rule(found: Any, rule: Mapping[str, Any]) -> None:
    for name in ("name", "doc", "kind", "mode", "type"):
        found.update(str(rule.get(name) or "").encode())
    found.update("".join(sorted(rule.get("tags") or ())).encode())
    for name, value in sorted((rule.get("params") or {}).items()):
        found.update(name.encode() + value.encode())
    for name in ("expr", "onSuccess", "onFailure"):
        found.update(str(rule.get(name) or "").encode())
    if rule.get("disabled"):
        found.update(b"\x01")


def _references(value: Any) -> tuple[Reference, ...]:
    try:
        return tuple(Reference(str(item["name"]), str(item["subject"]), int(item["version"])) for item in value or ())
    except (TypeError, KeyError, ValueError):
        raise UnreadableRecordError("its references are not valid") from None


def _object_or_none(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise UnreadableRecordError("its metadata or rules are not an object")
    return value

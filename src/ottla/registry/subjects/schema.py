"""One version of a subject, as it stands in the topic, and the digest by which equal schemas are found."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.registry.records import SCHEMA, VERSION_MAX, Key, Record, UnreadableRecordError

AVRO: Final = "AVRO"
KNOWN: Final = frozenset(
    {"subject", "version", "id", "schemaType", "references", "metadata", "ruleSet", "schema", "deleted"}
)


class Reference(NamedTuple):
    """What a schema names, and the version of a subject that it means by that."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    def __str__(self) -> str:
        return f"{{name='{self.name}', subject='{self.subject}', version={self.version}}}"


@dataclass(frozen=True, slots=True)
class Schema:
    """A version; `more` are fields of its record that we do not know."""

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
        """What records and answers leave out where it says nothing."""
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
    """The version that a record holds; raises UnreadableRecordError."""
    number, text = value.get("id"), value.get("schema")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= VERSION_MAX:
        raise UnreadableRecordError("its id is no id")
    if not isinstance(text, str):
        raise UnreadableRecordError("it holds no schema")
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
        raise UnreadableRecordError("its references, metadata or rules make no sense") from None
    return schema


def digest(
    text: str,
    references: Sequence[Reference],
    metadata: Mapping[str, Any] | None,
    rule_set: Mapping[str, Any] | None,
) -> bytes:
    """Confluent's: equal digests are equal schemas, and as a UUID it is the schema's GUID."""
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
        raise UnreadableRecordError("its references make no sense") from None


def _object_or_none(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise UnreadableRecordError("its metadata or rules are no object")
    return value

"""New schemas: defaults from the previous version and the configuration, and references. Pure.

Rules:
1. Without text, the schema is that of the previous version with other metadata or rules; without metadata or rules,
   those of the previous version apply. Defaults and overrides of the configuration are merged in.
2. References name existing versions of subjects; -1 is the latest, and is stored as its number. A subject without a
   context is in the context of the referring schema. References have no cycles and at most LEVELS_MAX levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.registry.errors import RegistryError, invalid_schema
from ottla.registry.subjects.schema import AVRO, Reference, Schema, digest, within
from ottla.registry.subjects.settings import DEFAULTS_AND_OVERRIDES, Config
from ottla.registry.subjects.state import RegistryState

LEVELS_MAX: Final = 50
TEXT_SHOWN_MAX: Final = 1_000  # of a rejected schema
VERSION_PROPERTY: Final = "confluent:version"


class NewSchema(NamedTuple):
    """A schema to register. `number` is the ID of an import (-1: none), `version` the version (0: the next; -1: the
    next, and noted in the metadata).
    """

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    schema_id: int = -1
    version: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.text.strip()

    @property
    def digest(self) -> bytes:
        return digest(self.text, self.references, self.metadata, self.rule_set)

    def schema(self, subject: str, version: int, number: int) -> Schema:
        return Schema(subject, version, number, self.text, self.kind, self.references, self.metadata, self.rule_set)


class Resolved(NamedTuple):
    """References with their version numbers, and the texts of all references, deepest first."""

    references: tuple[Reference, ...]
    texts: dict[str, str]


def draft_of(schema: Schema) -> NewSchema:
    return NewSchema(schema.text, schema.kind, schema.references, schema.metadata, schema.rule_set)


def resolve(state: RegistryState, subject: str, references: Sequence[Reference]) -> Resolved:
    """Resolve the references of a schema under this subject. Raises RegistryError."""
    named: list[Reference] = []
    texts: dict[str, str] = {}
    for item in references:
        place = within(subject, item.subject)
        found = state.version(place, item.version, with_deleted=item.version != -1)
        if found is None:
            raise reference_not_found(item)
        named.append(item._replace(version=found.version))
        _collect(state, item.name, found, texts, ())
    return Resolved(tuple(named), texts)


def reference_not_found(item: Reference) -> RegistryError:
    return invalid_schema(f'No schema reference found for subject "{item.subject}" and version {item.version}')


def _collect(state: RegistryState, name: str, schema: Schema, texts: dict[str, str], above: tuple[str, ...]) -> None:
    place = f"{schema.subject} version {schema.version}"
    if place in above or len(above) >= LEVELS_MAX:
        raise invalid_schema(f"The references of {place} lead back to itself, or more than {LEVELS_MAX} levels down")
    if name in texts:
        return
    for item in schema.references:
        found = state.version(within(schema.subject, item.subject), item.version, with_deleted=True)
        if found is None:
            raise reference_not_found(item)
        _collect(state, item.name, found, texts, (*above, place))
    texts[name] = schema.text


def has_defaults(config: Config) -> bool:
    return any(config.get(name) is not None for name in DEFAULTS_AND_OVERRIDES)


def with_defaults(draft: NewSchema, previous: Schema | None, config: Config, next_version: int) -> NewSchema:
    """The schema with all defaults. Raises RegistryError if there is no previous version to copy."""
    if draft.is_empty:
        if previous is None:
            raise invalid_schema("Empty schema")
        draft = draft._replace(text=previous.text, kind=previous.kind, references=previous.references)
    metadata = draft.metadata if draft.metadata is not None or previous is None else previous.metadata
    rules = draft.rule_set if draft.rule_set is not None or previous is None else previous.rule_set
    metadata = _merged(_merged(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rules = _merged_rules(_merged_rules(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet"))
    is_noted = metadata is not None and VERSION_PROPERTY in (metadata.get("properties") or {})
    if draft.version != 0 or is_noted:
        metadata = _merged(metadata, {"properties": {VERSION_PROPERTY: str(next_version)}})
    return draft._replace(metadata=metadata, rule_set=rules)


def invalid_schema_error(subject: str, draft: NewSchema, reason: str) -> RegistryError:
    """Confluent's message for an invalid schema."""
    text = draft.text if len(draft.text) <= TEXT_SHOWN_MAX else f"{draft.text[:TEXT_SHOWN_MAX]}..."
    references = f"[{', '.join(map(str, draft.references))}]"
    shown = (
        f"{{subject={subject},version={draft.version},id={draft.schema_id},schemaType={draft.kind},"
        f"references={references},metadata={_shown(draft.metadata)},ruleSet={_shown(draft.rule_set)},schema={text}}}"
    )
    return invalid_schema(f"Invalid schema {shown} with refs {references} of type {draft.kind}, details: {reason}")


def _shown(value: Mapping[str, Any] | None) -> str:
    return "null" if value is None else str(value)


def _merged(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Merge metadata; `new` wins."""
    if old is None or new is None:
        return new if old is None else old
    found: dict[str, Any] = {}
    for name in ("tags", "properties"):
        if both := {**(old.get(name) or {}), **(new.get(name) or {})}:
            found[name] = dict(sorted(both.items()))
    if sensitive := sorted({*(old.get("sensitive") or ()), *(new.get("sensitive") or ())}):
        found["sensitive"] = sensitive
    return found


def _merged_rules(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Merge rules; one with the same name replaces the older one."""
    if old is None or new is None:
        return new if old is None else old
    found: dict[str, Any] = {}
    for group in ("migrationRules", "domainRules", "encodingRules"):
        newer = new.get(group) or []
        names = {rule.get("name") for rule in newer}
        if both := [*(rule for rule in old.get(group) or [] if rule.get("name") not in names), *newer]:
            found[group] = both
    return found

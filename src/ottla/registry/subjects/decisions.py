"""Decisions on changes: the records to write and the answer, or an error code. Pure.

1. Nothing here changes the state: apply() does, once the records were read back from the topic.
2. Schemas are parsed and compared before (`problems`), on the current state (`CheckedState`), because that may take
long.
3. The order of checks is Confluent's, since it determines the error code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.registry import errors
from ottla.registry.records import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    TENANT,
    VERSION_MAX,
    Key,
    Record,
)
from ottla.registry.subjects.new_schemas import NewSchema, resolve
from ottla.registry.subjects.schema import DEFAULT_CONTEXT, Schema, context_of
from ottla.registry.subjects.settings import (
    FIELDS,
    IMPORT,
    READWRITE,
    Config,
    config_in_scope,
    is_read_only,
    mode_in_scope,
    own_config,
    own_mode,
)
from ottla.registry.subjects.state import RegistryState, is_in_scope


class Decision(NamedTuple):
    """The records to write, in order, and the answer once they were read back."""

    records: list[Record]
    answer: Any


@dataclass(frozen=True, slots=True)
class CheckedState:
    """The state on which a schema was checked; if it has changed, the check is repeated."""

    versions: tuple[Schema, ...]
    config: Config
    mode: str

    @property
    def live_versions(self) -> list[Schema]:
        return [schema for schema in self.versions if not schema.is_deleted]

    @property
    def next_version(self) -> int:
        return self.versions[-1].version + 1 if self.versions else 1


def checked_state(state: RegistryState, subject: str, default_level: str) -> CheckedState:
    versions = tuple(state.versions(subject, with_deleted=True))
    return CheckedState(versions, config_in_scope(state, subject, default_level), mode_in_scope(state, subject))


def check_register_mode(subject: str, mode: str, draft: NewSchema) -> None:
    if mode.startswith("READONLY"):
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")
    if draft.schema_id >= 0 and mode != IMPORT:
        raise errors.not_permitted(f"Subject {subject} is not in import mode")
    if draft.schema_id < 0 and mode != READWRITE:
        raise errors.not_permitted(f"Subject {subject} is not in read-write mode")


def find_schema(state: RegistryState, subject: str, draft: NewSchema, *, with_deleted: bool = False) -> Schema | None:
    """The version of a subject with exactly this schema."""
    number = state.id_of(context_of(subject), draft.digest)
    if number is not None:
        found = next((item for item in state.by_id(context_of(subject), number) if item.subject == subject), None)
        if found is not None and (with_deleted or not found.is_deleted):
            return found
    if draft.metadata is not None or draft.rule_set is not None:
        return None
    wanted = (draft.kind, draft.text, draft.references)
    versions = reversed(state.versions(subject, with_deleted=with_deleted))
    return next((item for item in versions if (item.kind, item.text, item.references) == wanted), None)


def register(
    state: RegistryState, subject: str, draft: NewSchema, basis: CheckedState, problems: list[str]
) -> Decision:
    """`draft` has the stored text; the answer is the resulting version."""
    check_register_mode(subject, basis.mode, draft)
    resolve(state, subject, draft.references)  # they may have been deleted meanwhile
    context = context_of(subject)
    number = draft.schema_id
    known = state.id_of(context, draft.digest)
    if known is not None and number in (known, -1):
        same = next((item for item in state.by_id(context, known) if item.subject == subject), None)
        if draft.version == 0 and same is not None and not same.is_deleted:
            return Decision([], same)
        number = known
    if problems:
        raise errors.incompatible(subject, problems)
    version = draft.version if draft.version > 0 else basis.next_version
    if version != basis.next_version and basis.mode != IMPORT:
        raise errors.invalid_schema("Version is not one more than previous version")
    if number >= 0:
        _check_id(state, context, number, draft)
    else:
        number = state.contexts[context].max_id + 1 if context in state.contexts else 1
    if max(version, number) > VERSION_MAX:  # it could not be read back
        raise errors.store_failed("There are no more ids or versions: the last one has been assigned")
    schema = draft.schema(subject, version, number)
    records = []
    if context != DEFAULT_CONTEXT and context not in state.known_contexts:
        records.append(Record(Key(CONTEXT, context), {"tenant": TENANT, "context": context}))
    for old in basis.versions:
        if old.is_deleted and old.id == number and old.version < version:
            records += state.records_for(Record(old.key, None))
    return Decision([*records, *state.records_for(schema.record())], schema)


def _check_id(state: RegistryState, context: str, number: int, draft: NewSchema) -> None:
    there = next(state.by_id(context, number), None)
    if there is not None and there.digest != draft.digest:
        raise errors.not_permitted(f"Overwrite new schema with id {number} is not permitted.")


def delete_version(state: RegistryState, subject: str, number: int, *, is_permanent: bool) -> Decision:
    """The answer is the version number."""
    found = state.version(subject, number, with_deleted=True)
    if found is not None and found.is_deleted and not is_permanent:
        raise errors.version_soft_deleted(subject, number)
    if found is None:
        is_known = state.has_subject(subject, with_deleted=True)
        raise errors.version_not_found(number) if is_known else errors.subject_not_found(subject)
    _check_deletable(state, found)
    if is_permanent:
        if not found.is_deleted:
            raise errors.version_not_soft_deleted(subject, found.version)
        return Decision(
            [*state.high_water_records([found]), *state.records_for(Record(found.key, None))], found.version
        )
    records = state.records_for(found.deleted().record())
    if [item.version for item in state.versions(subject)] == [found.version]:
        records += _delete_settings(state, subject)
    return Decision(records, found.version)


def delete_subject(state: RegistryState, subject: str, *, is_permanent: bool) -> Decision:
    """The answer is the list of version numbers."""
    if not state.has_subject(subject, with_deleted=True):
        raise errors.subject_not_found(subject)
    if not is_permanent and not state.has_subject(subject):
        raise errors.subject_soft_deleted(subject)
    if is_read_only(state, subject):
        raise errors.not_permitted(f"Subject {subject} is in read-only mode")
    gone = state.versions(subject, with_deleted=is_permanent)
    if not gone:  # a context is not a subject
        raise errors.subject_not_found(subject)
    for item in gone:
        if state.references_to(subject, item.version):
            raise errors.reference_exists(subject, item.version)
        if is_permanent and not item.is_deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [item.version for item in gone]
    if is_permanent:
        ends = [record for item in gone for record in state.records_for(Record(item.key, None))]
        return Decision([*state.high_water_records(gone), *ends], numbers)
    value = {"subject": subject, "version": numbers[-1]}
    return Decision([Record(Key(DELETE_SUBJECT, subject), value), *_delete_settings(state, subject)], numbers)


def set_config(state: RegistryState, subject: str | None, changes: Mapping[str, Any]) -> Decision:
    """`changes` has the given fields; None deletes one. The answer is the resulting configuration."""
    _check_writable(state, subject)
    value = {**(state.configs.get(subject) or {}), **({} if subject is None else {"subject": subject})}
    value |= changes
    value = {name: value[name] for name in ("subject", *FIELDS) if value.get(name) is not None}
    return Decision(state.records_for(Record(Key(CONFIG, subject), value)), value)


def delete_config(state: RegistryState, subject: str | None, default_level: str) -> Decision:
    """The answer is the previous configuration."""
    found = own_config(state, subject, default_level)
    if found is None:
        assert subject is not None
        raise errors.subject_not_found(subject)
    _check_writable(state, subject)
    return Decision(state.records_for(Record(Key(CONFIG, subject), None)), found)


def set_mode(state: RegistryState, subject: str | None, mode: str, *, is_forced: bool) -> Decision:
    records: list[Record] = []
    if mode == IMPORT and mode_in_scope(state, subject) != IMPORT and not is_forced:
        meant = [item for item in state.subjects if is_in_scope(subject, item)]
        if any(state.has_subject(item) for item in meant):
            raise errors.not_permitted("Cannot import since found existing subjects")
        gone = [schema for item in meant for schema in state.versions(item, with_deleted=True)]
        for schema in gone:
            if state.references_to(schema.subject, schema.version):
                raise errors.reference_exists(schema.subject, schema.version)
        records += state.high_water_records(gone)
        records += [record for schema in gone for record in state.records_for(Record(schema.key, None))]
        cleared = {} if subject is None else {"subject": subject}
        records.append(Record(Key(CLEAR_SUBJECT, subject), cleared))
    value = {} if subject is None else {"subject": subject}
    return Decision([*records, *state.records_for(Record(Key(MODE, subject), value | {"mode": mode}))], mode)


def delete_mode(state: RegistryState, subject: str | None) -> Decision:
    """The answer is the previous mode."""
    found = own_mode(state, subject)
    if found is None:
        assert subject is not None
        raise errors.subject_not_found(subject)
    return Decision(state.records_for(Record(Key(MODE, subject), None)), found)


def _check_deletable(state: RegistryState, schema: Schema) -> None:
    if is_read_only(state, schema.subject):
        raise errors.not_permitted(f"Subject {schema.subject} is in read-only mode")
    if state.references_to(schema.subject, schema.version):
        raise errors.reference_exists(schema.subject, schema.version)


def _check_writable(state: RegistryState, subject: str | None) -> None:
    if is_read_only(state, subject):
        raise errors.not_permitted(f"Subject {'null' if subject is None else subject} is in read-only mode")


def _delete_settings(state: RegistryState, subject: str) -> list[Record]:
    """A deleted subject loses its own settings."""
    return [
        record
        for keytype, table in ((MODE, state.modes), (CONFIG, state.configs))
        if subject in table
        for record in state.records_for(Record(Key(keytype, subject), None))
    ]

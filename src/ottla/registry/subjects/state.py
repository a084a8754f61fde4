"""The state of the registry in memory, with its indexes.

1. Only apply() changes it, live and on load, record by record in log order.
2. An invalid record raises UnreadableRecordError and changes nothing.
3. IDs belong to a context. The highest assigned ID is known even after its schema is deleted permanently: a NOOP record
   carries it (`high_water`), because compaction removes the tombstones.
4. Keys that another registry wrote with another field order are remembered: compaction would keep them for ever next to
   ours, so the next write of such a key adds a tombstone for them (`records_for`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.registry.records import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    NOOP,
    NOOP_KEY,
    SCHEMA,
    VERSION_MAX,
    Key,
    Record,
    UnreadableRecordError,
    encode_key,
)
from ottla.registry.subjects.schema import DEFAULT_CONTEXT, Schema, context_of, qualified, schema_of, within

Versions = dict[int, Schema]
HIGH_WATER = "maxIds"


class Context:
    """The IDs of one context."""

    __slots__ = ("by_digest", "by_id", "max_id")

    def __init__(self) -> None:
        self.max_id = 0
        self.by_id: dict[int, dict[str, int]] = {}  # id -> subject -> version
        self.by_digest: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"<Context {len(self.by_id)} ids up to {self.max_id}>"


class RegistryState:
    """The registry's state."""

    def __init__(self) -> None:
        self.subjects: dict[str, Versions] = {}
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.known_contexts: set[str] = set()  # those with a CONTEXT record
        # the referring versions, with their IDs
        self.referenced_by: dict[tuple[str, int], dict[tuple[str, int], int]] = {}
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.foreign_keys: dict[Key, set[bytes]] = {}
        self.high_water: dict[str, int] = {}
        self.revision = 0  # changes with every record

    def __repr__(self) -> str:
        return f"<RegistryState {len(self.subjects)} subjects>"

    # ---- lookups

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Schema]:
        """Oldest first."""
        found = self.subjects.get(subject)
        if not found:
            return []
        return [found[number] for number in sorted(found) if with_deleted or not found[number].is_deleted]

    def version(self, subject: str, number: int, *, with_deleted: bool = False) -> Schema | None:
        """-1 is the latest that is not deleted."""
        if number == -1:
            return self.latest(subject)
        found = self.subjects.get(subject, {}).get(number)
        return found if found is not None and (with_deleted or not found.is_deleted) else None

    def latest(self, subject: str) -> Schema | None:
        return next(reversed(self.versions(subject)), None)

    def by_id(self, context: str, number: int) -> Iterator[Schema]:
        """All versions in a context with this ID."""
        ids = self.contexts.get(context)
        for subject, version in (ids.by_id.get(number, {}) if ids is not None else {}).items():
            yield self.subjects[subject][version]

    def id_of(self, context: str, digest: bytes) -> int | None:
        ids = self.contexts.get(context)
        return ids.by_digest.get(digest) if ids is not None else None

    def has_subject(self, subject: str, *, with_deleted: bool = False) -> bool:
        """Whether the subject exists; for a context without a name, whether it has any subject."""
        context, name = qualified(subject)
        if name:
            return any(with_deleted or not item.is_deleted for item in self.subjects.get(subject, {}).values())
        return any(
            context_of(item) == context and self.has_subject(item, with_deleted=with_deleted) for item in self.subjects
        )

    def references_to(self, subject: str, version: int, sees: Callable[[str], bool] | None = None) -> list[int]:
        """The IDs of schemas that refer to a version, under visible subjects."""
        users = self.referenced_by.get((subject, version), {})
        return sorted({number for (user, _), number in users.items() if sees is None or sees(user)})

    # ---- records to write

    def records_for(self, record: Record) -> list[Record]:
        """The record, preceded by tombstones for other formats of its key."""
        own = encode_key(record.key)
        foreign = self.foreign_keys.get(record.key, ())
        return [*(Record(record.key, None, raw) for raw in sorted(foreign) if raw != own), record]

    def high_water_records(self, gone: list[Schema]) -> list[Record]:
        """The record that keeps IDs of permanently deleted versions from being assigned again."""
        levels = dict(self.high_water)
        for schema in gone:
            context = context_of(schema.subject)
            highest = self.contexts[context].max_id
            if schema.id == highest and levels.get(context, 0) < highest:
                levels[context] = highest
        return [] if levels == self.high_water else [Record(NOOP_KEY, {HIGH_WATER: levels})]

    def noop(self) -> Record:
        return Record(NOOP_KEY, {HIGH_WATER: dict(self.high_water)} if self.high_water else None)

    # ---- applying records

    def apply(self, key: Key, value: Mapping[str, Any] | None, raw: bytes | None = None) -> None:
        self.revision += 1
        if key.keytype == SCHEMA:
            self._apply_schema(key, value)
        elif key.keytype == CONFIG:
            _put(self.configs, key.subject, value)
        elif key.keytype == MODE:
            mode = None if value is None else value.get("mode")
            if mode is not None and not isinstance(mode, str):
                raise UnreadableRecordError("its mode is not text")
            _put(self.modes, key.subject, mode)
        elif key.keytype == DELETE_SUBJECT:
            self._apply_delete(key, value)
        elif key.keytype == CLEAR_SUBJECT:
            self._apply_clear(key.subject)
        elif key.keytype == CONTEXT:
            assert key.subject is not None
            (self.known_contexts.discard if value is None else self.known_contexts.add)(key.subject)
        elif key.keytype == NOOP:
            self._apply_noop(value)
        if raw is not None and key.keytype != NOOP:
            self._track_foreign_key(key, raw, is_gone=value is None)

    def _apply_schema(self, key: Key, value: Mapping[str, Any] | None) -> None:
        assert key.subject is not None
        new = None if value is None else schema_of(key, value)
        versions = self.subjects.setdefault(key.subject, {})
        old = versions.pop(key.version, None)
        if old is not None:
            self._unindex(old, is_gone=new is None or new.id != old.id or new.digest != old.digest)
        if new is not None:
            versions[key.version] = new
            self._index(new)
        if not versions:
            del self.subjects[key.subject]

    def _apply_delete(self, key: Key, value: Mapping[str, Any] | None) -> None:
        if value is None:
            return
        until = value.get("version")
        if not isinstance(until, int):
            raise UnreadableRecordError("it does not have a version")
        assert key.subject is not None
        versions = self.subjects.get(key.subject, {})
        for number, schema in versions.items():
            if number <= until and not schema.is_deleted:
                self._unindex(schema, is_gone=False)
                versions[number] = schema.deleted()

    def _apply_clear(self, subject: str | None) -> None:
        for name in [item for item in self.subjects if is_in_scope(subject, item)]:
            versions = self.subjects[name]
            for schema in [item for item in versions.values() if item.is_deleted]:
                del versions[schema.version]
                self._unindex(schema, is_gone=True)
            if not versions:
                del self.subjects[name]

    def _apply_noop(self, value: Mapping[str, Any] | None) -> None:
        levels = value.get(HIGH_WATER) if value is not None else None
        if not isinstance(levels, dict):
            return
        for context, level in levels.items():
            if isinstance(level, int) and not isinstance(level, bool) and 0 < level <= VERSION_MAX:
                self.high_water[context] = max(level, self.high_water.get(context, 0))
                ids = self.contexts.setdefault(context, Context())
                ids.max_id = max(ids.max_id, level)

    def _index(self, schema: Schema) -> None:
        ids = self.contexts.setdefault(context_of(schema.subject), Context())
        ids.max_id = max(ids.max_id, schema.id)
        ids.by_id.setdefault(schema.id, {})[schema.subject] = schema.version
        ids.by_digest[schema.digest] = schema.id
        if not schema.is_deleted:
            for place in _referenced_versions(schema):
                self.referenced_by.setdefault(place, {})[schema.subject, schema.version] = schema.id

    def _unindex(self, schema: Schema, *, is_gone: bool) -> None:
        """Remove a version from the indexes: its references, and if it is gone its ID, too."""
        for place in _referenced_versions(schema):
            users = self.referenced_by.get(place, {})
            users.pop((schema.subject, schema.version), None)
            if not users:
                self.referenced_by.pop(place, None)
        if not is_gone:
            return
        ids = self.contexts[context_of(schema.subject)]
        places = ids.by_id.get(schema.id, {})
        if places.get(schema.subject) == schema.version:
            others = self.subjects.get(schema.subject, {}).values()
            other = next((item.version for item in others if item.id == schema.id), None)
            _put(places, schema.subject, other)
        if not places:
            ids.by_id.pop(schema.id, None)
            if ids.by_digest.get(schema.digest) == schema.id:
                del ids.by_digest[schema.digest]

    def _track_foreign_key(self, key: Key, raw: bytes, *, is_gone: bool) -> None:
        if raw == encode_key(key):
            return
        if not is_gone:
            self.foreign_keys.setdefault(key, set()).add(raw)
        elif key in self.foreign_keys:
            self.foreign_keys[key].discard(raw)
            if not self.foreign_keys[key]:
                del self.foreign_keys[key]


def is_in_scope(wanted: str | None, subject: str) -> bool:
    """Whether a setting for `wanted` applies to this subject: itself, its context, or global."""
    if wanted is None or wanted == subject:
        return True
    context, name = qualified(wanted)
    return not name and context_of(subject) == context


def _referenced_versions(schema: Schema) -> list[tuple[str, int]]:
    """The versions that a schema refers to."""
    return [(within(schema.subject, item.subject), item.version) for item in schema.references]


def _put(table: dict[Any, Any], key: str | None, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value

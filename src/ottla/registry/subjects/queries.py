"""Queries for lists and lookups. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.registry.subjects.schema import (
    DEFAULT_CONTEXT,
    WILDCARD,
    Qualified,
    Schema,
    context_of,
    context_prefix,
    qualified,
)
from ottla.registry.subjects.state import RegistryState


class VersionFilter(NamedTuple):
    """A filter of versions: live ones, all, or only deleted ones."""

    with_deleted: bool
    is_deleted_only: bool

    def matches(self, schema: Schema) -> bool:
        return schema.is_deleted or not self.is_deleted_only if self.with_deleted else not schema.is_deleted


def version_filter(flag: Callable[[str], bool]) -> VersionFilter:
    is_only = flag("deletedOnly")
    return VersionFilter(is_only or flag("deleted"), is_only)


def subjects(state: RegistryState, prefix: str, wanted: VersionFilter) -> list[str]:
    """Sorted names; with only deleted ones, those without a live version."""
    return sorted(
        name
        for name, versions in state.subjects.items()
        if is_within(name, prefix)
        and (wanted.with_deleted or any(not item.is_deleted for item in versions.values()))
        and not (wanted.is_deleted_only and any(not item.is_deleted for item in versions.values()))
    )


def schemas(state: RegistryState, prefix: str, wanted: VersionFilter, *, is_latest_only: bool) -> Iterator[Schema]:
    """All versions, by subject and number."""
    for name in sorted(item for item in state.subjects if is_within(item, prefix)):
        found = [item for item in state.versions(name, with_deleted=True) if wanted.matches(item)]
        yield from found[-1:] if is_latest_only else found


def is_within(subject: str, prefix: str) -> bool:
    if not prefix.startswith(WILDCARD):
        return subject.startswith(prefix)
    return qualified(subject).name.startswith(prefix[len(WILDCARD) :])


def search_order(state: RegistryState, subject: str) -> Iterator[str]:
    """A subject without a context is searched in all contexts, the default one first."""
    yield subject
    context, name = qualified(subject)
    if context == DEFAULT_CONTEXT and name:
        for other in sorted(state.known_contexts):
            yield str(Qualified(other, name))


def by_id(state: RegistryState, number: int, subject: str) -> Schema | None:
    """A schema with this ID: that of the subject, else any of its context."""
    context, name = qualified(subject)
    if name:
        for place in search_order(state, subject):
            own = (item for item in state.by_id(context_of(place), number) if item.subject == place)
            if (found := next(own, None)) is not None:
                return found
    return next(state.by_id(context, number), None)


def uses_of(state: RegistryState, schema: Schema, *, with_deleted: bool) -> list[Schema]:
    """The versions with the same ID."""
    found = state.by_id(context_of(schema.subject), schema.id)
    return sorted(
        (item for item in found if with_deleted or not item.is_deleted), key=lambda item: (item.subject, item.version)
    )


def by_guid(state: RegistryState, guid: str) -> Iterator[Schema]:
    """One version in each context that has the schema."""
    try:
        digest = UUID(guid).bytes
    except ValueError:
        return
    for context, ids in sorted(state.contexts.items()):
        number = ids.by_digest.get(digest)
        found = next((item for item in state.by_id(context, number) if item.digest == digest), None) if number else None
        if found is not None:
            yield found


def contexts(state: RegistryState, sees: Callable[[str], bool]) -> list[str]:
    """Contexts with a visible subject, and empty ones."""
    held = {context_of(name) for name in state.subjects}
    seen = {context_of(name) for name in state.subjects if sees(name)}
    found = {name for name in state.known_contexts if name in seen or (name not in held and sees(context_prefix(name)))}
    return [DEFAULT_CONTEXT, *sorted(found - {DEFAULT_CONTEXT})]


def aliases(state: RegistryState, sees: Callable[[str], bool]) -> dict[str, list[str]]:
    """The aliases of each subject."""
    found: dict[str, list[str]] = {}
    for name, config in state.configs.items():
        alias = config.get("alias")
        if name is not None and isinstance(alias, str) and sees(name):
            found.setdefault(alias, []).append(name)
    return found

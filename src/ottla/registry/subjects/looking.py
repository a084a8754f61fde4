"""Lists of what there is, as clients ask for them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.registry.subjects.names import DEFAULT_CONTEXT, WILDCARD, Qualified, context_of, context_prefix, qualified
from ottla.registry.subjects.schema import Schema
from ottla.registry.subjects.state import State


class Kept(NamedTuple):
    """Which versions count: living ones, with the deleted ones, or those alone."""

    with_deleted: bool
    is_deleted_only: bool

    def keeps(self, schema: Schema) -> bool:
        return schema.is_deleted or not self.is_deleted_only if self.with_deleted else not schema.is_deleted


def kept(flag: Callable[[str], bool]) -> Kept:
    is_only = flag("deletedOnly")
    return Kept(is_only or flag("deleted"), is_only)


def subjects(state: State, prefix: str, wanted: Kept) -> list[str]:
    """Names in order; of the deleted ones alone those that have no living version."""
    return sorted(
        name
        for name, versions in state.subjects.items()
        if is_within(name, prefix)
        and (wanted.with_deleted or any(not item.is_deleted for item in versions.values()))
        and not (wanted.is_deleted_only and any(not item.is_deleted for item in versions.values()))
    )


def schemas(state: State, prefix: str, wanted: Kept, *, is_latest_only: bool) -> Iterator[Schema]:
    """All versions, by subject and number."""
    for name in sorted(item for item in state.subjects if is_within(item, prefix)):
        found = [item for item in state.versions(name, with_deleted=True) if wanted.keeps(item)]
        yield from found[-1:] if is_latest_only else found


def is_within(subject: str, prefix: str) -> bool:
    if not prefix.startswith(WILDCARD):
        return subject.startswith(prefix)
    return qualified(subject).name.startswith(prefix[len(WILDCARD) :])


def places(state: State, subject: str) -> Iterator[str]:
    """A subject without a context is looked for in all of them, its own first."""
    yield subject
    context, name = qualified(subject)
    if context == DEFAULT_CONTEXT and name:
        for other in sorted(state.known_contexts):
            yield str(Qualified(other, name))


def by_id(state: State, number: int, subject: str) -> Schema | None:
    """A schema with this id: the subject's own, else any of its context."""
    context, name = qualified(subject)
    if name:
        for place in places(state, subject):
            own = (item for item in state.by_id(context_of(place), number) if item.subject == place)
            if (found := next(own, None)) is not None:
                return found
    return next(state.by_id(context, number), None)


def uses_of(state: State, schema: Schema, *, with_deleted: bool) -> list[Schema]:
    """The versions that have the same id."""
    found = state.by_id(context_of(schema.subject), schema.id)
    return sorted(
        (item for item in found if with_deleted or not item.is_deleted), key=lambda item: (item.subject, item.version)
    )


def by_guid(state: State, guid: str) -> Iterator[Schema]:
    """One version in each context that knows the schema."""
    try:
        digest = UUID(guid).bytes
    except ValueError:
        return
    for context, ids in sorted(state.contexts.items()):
        number = ids.by_digest.get(digest)
        found = next((item for item in state.by_id(context, number) if item.digest == digest), None) if number else None
        if found is not None:
            yield found


def contexts(state: State, sees: Callable[[str], bool]) -> list[str]:
    """Those that hold a subject that is seen, or that are empty."""
    held = {context_of(name) for name in state.subjects}
    seen = {context_of(name) for name in state.subjects if sees(name)}
    found = {name for name in state.known_contexts if name in seen or (name not in held and sees(context_prefix(name)))}
    return [DEFAULT_CONTEXT, *sorted(found - {DEFAULT_CONTEXT})]


def aliases(state: State, sees: Callable[[str], bool]) -> dict[str, list[str]]:
    """The aliases of each subject."""
    found: dict[str, list[str]] = {}
    for name, config in state.configs.items():
        alias = config.get("alias")
        if name is not None and isinstance(alias, str) and sees(name):
            found.setdefault(alias, []).append(name)
    return found

"""/subjects and /compatibility: list, register, look up, delete and check versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.registry import errors
from ottla.registry.http import bodies
from ottla.registry.http.requests import LATEST, Call
from ottla.registry.subjects import decisions, queries
from ottla.registry.subjects.schema import Schema, is_valid
from ottla.registry.subjects.settings import config_in_scope

PROTOBUF: Final = "PROTOBUF"
SERIALIZED: Final = "serialized"


async def list_subjects(call: Call) -> object:
    found = queries.subjects(call.registry.state, call.prefix, queries.version_filter(call.flag))
    return call.page([subject for subject in found if call.can_read(subject)])


async def list_versions(call: Call) -> object:
    state, subject = call.registry.state, call.subject
    wanted = queries.version_filter(call.flag)
    if not state.has_subject(subject, with_deleted=wanted.with_deleted):
        raise errors.subject_not_found(subject)
    return call.page([item.version for item in state.versions(subject, with_deleted=True) if wanted.matches(item)])


async def get_version(call: Call) -> object:
    schema = _version(call, with_deleted=call.flag("deleted"))
    found = bodies.version_response(schema, accepts_unknown_properties=call.accepts_unknown_properties)
    found["schema"] = await schema_text(call, schema)
    return found


async def get_text(call: Call) -> object:
    return (await schema_text(call, _version(call, with_deleted=call.flag("deleted")))).encode()


async def referenced_by(call: Call) -> object:
    schema = _version(call, with_deleted=True)
    return call.page(call.registry.state.references_to(schema.subject, schema.version, call.can_read))


async def register(call: Call) -> object:
    if not is_valid(call.named_subject):
        raise errors.invalid_subject(call.names["subject"])
    draft = call.draft()
    result = await call.registry.register(call.subject, draft, is_normalized=_is_normalized(call))
    return bodies.registered_response(result, accepts_unknown_properties=call.accepts_unknown_properties)


async def look_up(call: Call) -> object:
    state, with_deleted = call.registry.state, call.flag("deleted")
    draft = call.draft()
    for subject in _visible_subjects(call):
        found = await call.registry.find(subject, draft, is_normalized=_is_normalized(call), with_deleted=with_deleted)
        if found is not None:
            answer = bodies.version_response(found, accepts_unknown_properties=call.accepts_unknown_properties)
            answer["schema"] = await schema_text(call, found)
            return answer
    if not state.has_subject(call.subject, with_deleted=with_deleted):
        raise errors.subject_not_found(call.subject)
    raise errors.schema_not_found()


async def delete_subject(call: Call) -> object:
    return await call.registry.execute(decisions.delete_subject, call.subject, is_permanent=call.flag("permanent"))


async def delete_version(call: Call) -> object:
    subject, version, is_permanent = call.subject, call.version(), call.flag("permanent")
    return await call.registry.execute(decisions.delete_version, subject, version, is_permanent=is_permanent)


async def latest_with_metadata(call: Call) -> object:
    """The latest version whose metadata has this property."""
    state, with_deleted = call.registry.state, call.flag("deleted")
    name, value = call.parameters.get("key", ""), call.parameters.get("value", "")
    for schema in reversed(state.versions(call.subject, with_deleted=with_deleted)):
        if ((schema.metadata or {}).get("properties") or {}).get(name) == value:
            return bodies.version_response(schema, accepts_unknown_properties=call.accepts_unknown_properties)
    if not state.has_subject(call.subject, with_deleted=with_deleted):
        raise errors.subject_not_found(call.subject)
    raise errors.schema_not_found()


async def schema_text(call: Call, schema: Schema) -> str:
    """The schema text in the requested format: Protobuf also has a compiled one."""
    if schema.kind != PROTOBUF or call.parameters.get("format", "").strip() != SERIALIZED:
        return schema.text
    return await call.registry.serialized(schema)


def _version(call: Call, *, with_deleted: bool) -> Schema:
    """The version in the path, in its own context or in another one with that subject."""
    state, subject, number = call.registry.state, call.subject, call.version()
    for place in _visible_subjects(call):
        found = state.version(place, number, with_deleted=with_deleted)
        if found is not None:
            return found
    if not state.has_subject(subject, with_deleted=with_deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(number)


def _visible_subjects(call: Call) -> list[str]:
    """The subjects to search that the user may read."""
    return [place for place in queries.search_order(call.registry.state, call.subject) if call.can_read(place)]


def _is_normalized(call: Call) -> bool:
    if call.flag("normalize"):
        return True
    config = config_in_scope(call.registry.state, call.subject, call.registry.default_level)
    return config.get("normalize") is True


# ---- /compatibility
async def check_with_version(call: Call) -> object:
    state, subject, number = call.registry.state, call.subject, call.version()
    found = state.version(subject, number)
    if found is None and number != LATEST:
        raise errors.version_not_found(number)
    return await _verdict(call, [] if found is None else [found])


async def check_with_all(call: Call) -> object:
    return await _verdict(call, call.registry.state.versions(call.subject))


async def _verdict(call: Call, earlier: Sequence[Schema]) -> object:
    registry, subject = call.registry, call.subject
    config = config_in_scope(registry.state, subject, registry.default_level)
    is_normalized = call.flag("normalize") or config.get("normalize") is True
    draft, parsed = await registry.read(subject, call.draft(), is_normalized=is_normalized, is_new=True)
    problems = await registry.incompatibilities(draft, parsed, earlier, config)
    return bodies.compatibility_response(problems, is_verbose=call.flag("verbose"))

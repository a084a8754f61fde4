"""/subjects: names, versions, registering, looking up, deleting."""

from __future__ import annotations

from typing import Final

from ottla.registry import errors
from ottla.registry.http import answers
from ottla.registry.http.calls import Call
from ottla.registry.subjects import looking
from ottla.registry.subjects.names import is_valid
from ottla.registry.subjects.schema import Schema
from ottla.registry.subjects.settings import config_in_scope
from ottla.registry.wishes import DeleteSubject, DeleteVersion, Register

PROTOBUF: Final = "PROTOBUF"
SERIALIZED: Final = "serialized"


async def list_subjects(call: Call) -> object:
    found = looking.subjects(call.registry.state, call.prefix, looking.kept(call.flag))
    return call.page([subject for subject in found if call.sees(subject)])


async def list_versions(call: Call) -> object:
    state, subject = call.registry.state, call.subject
    wanted = looking.kept(call.flag)
    if not state.has_subject(subject, with_deleted=wanted.with_deleted):
        raise errors.subject_not_found(subject)
    return call.page([item.version for item in state.versions(subject, with_deleted=True) if wanted.keeps(item)])


async def get_version(call: Call) -> object:
    schema = _version(call, with_deleted=call.flag("deleted"))
    found = answers.version(schema, is_more=call.is_more)
    found["schema"] = await shown(call, schema)
    return found


async def get_text(call: Call) -> object:
    return (await shown(call, _version(call, with_deleted=call.flag("deleted")))).encode()


async def referenced_by(call: Call) -> object:
    schema = _version(call, with_deleted=True)
    return call.page(call.registry.state.references_to(schema.subject, schema.version, call.sees))


async def register(call: Call) -> object:
    if not is_valid(call.named_subject):
        raise errors.invalid_subject(call.names["subject"])
    draft = call.draft()
    result = await call.registry.change(Register(call.subject, draft, _is_normalized(call)))
    return answers.registered(result, is_more=call.is_more)


async def look_up(call: Call) -> object:
    state, with_deleted = call.registry.state, call.flag("deleted")
    draft = call.draft()
    for subject in _places(call):
        found = await call.registry.find(subject, draft, is_normalized=_is_normalized(call), with_deleted=with_deleted)
        if found is not None:
            answer = answers.version(found, is_more=call.is_more)
            answer["schema"] = await shown(call, found)
            return answer
    if not state.has_subject(call.subject, with_deleted=with_deleted):
        raise errors.subject_not_found(call.subject)
    raise errors.schema_not_found()


async def delete_subject(call: Call) -> object:
    return await call.registry.change(DeleteSubject(call.subject, call.flag("permanent")))


async def delete_version(call: Call) -> object:
    return await call.registry.change(DeleteVersion(call.subject, call.version(), call.flag("permanent")))


async def latest_with_metadata(call: Call) -> object:
    """The newest version whose metadata has this property."""
    state, with_deleted = call.registry.state, call.flag("deleted")
    name, value = call.parameters.get("key", ""), call.parameters.get("value", "")
    for schema in reversed(state.versions(call.subject, with_deleted=with_deleted)):
        if ((schema.metadata or {}).get("properties") or {}).get(name) == value:
            return answers.version(schema, is_more=call.is_more)
    if not state.has_subject(call.subject, with_deleted=with_deleted):
        raise errors.subject_not_found(call.subject)
    raise errors.schema_not_found()


async def shown(call: Call, schema: Schema) -> str:
    """The text in the form that is asked for: of Protobuf there is a compiled one, of others the text alone."""
    if schema.kind != PROTOBUF or call.parameters.get("format", "").strip() != SERIALIZED:
        return schema.text
    return await call.registry.serialized(schema)


def _version(call: Call, *, with_deleted: bool) -> Schema:
    """The version that the path names, in its own context or in another one that knows the subject."""
    state, subject, number = call.registry.state, call.subject, call.version()
    for place in _places(call):
        found = state.version(place, number, with_deleted=with_deleted)
        if found is not None:
            return found
    if not state.has_subject(subject, with_deleted=with_deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(number)


def _places(call: Call) -> list[str]:
    """Where the subject is looked for, as far as the one who asks may read there."""
    return [place for place in looking.places(call.registry.state, call.subject) if call.sees(place)]


def _is_normalized(call: Call) -> bool:
    if call.flag("normalize"):
        return True
    config = config_in_scope(call.registry.state, call.subject, call.registry.default_level)
    return config.get("normalize") is True

"""/schemas: lists, and lookups by ID and GUID."""

from __future__ import annotations

from typing import Final

from ottla.registry import errors
from ottla.registry.formats import KINDS
from ottla.registry.http import bodies
from ottla.registry.http.requests import Call, read_number
from ottla.registry.http.subjects import schema_text
from ottla.registry.subjects import queries
from ottla.registry.subjects.schema import Schema, context_of

LIMIT_MAX: Final = 1_000  # of one page; `offset` continues


async def list_schemas(call: Call) -> object:
    state = call.registry.state
    limit = call.number("limit", LIMIT_MAX)
    limit = min(limit, LIMIT_MAX) if limit > 0 else LIMIT_MAX
    first = max(call.number("offset", 0), 0)
    wanted = queries.VersionFilter(call.flag("deleted"), False)
    aliases = queries.aliases(state, call.can_read) if call.flag("aliases") else {}
    rule_type = call.parameters.get("ruleType", "")
    found = queries.schemas(state, call.prefix, wanted, is_latest_only=call.flag("latestOnly"))
    seen = (item for item in found if call.can_read(item.subject) and (not rule_type or _has_rule(item, rule_type)))
    page: list[object] = []
    for place, schema in enumerate(seen):
        if place >= first + limit:
            break
        if place >= first:
            page.append(
                bodies.version_response(
                    schema,
                    accepts_unknown_properties=call.accepts_unknown_properties,
                    aliases=aliases.get(schema.subject, ()),
                )
            )
    return page


async def types(_: Call) -> object:
    return list(KINDS)


async def by_id(call: Call) -> object:
    schema = _by_id(call)
    state = call.registry.state
    max_id = state.contexts[context_of(schema.subject)].max_id if call.flag("fetchMaxId") else None
    return bodies.schema_response(
        schema,
        await schema_text(call, schema),
        accepts_unknown_properties=call.accepts_unknown_properties,
        max_id=max_id,
    )


async def text_by_id(call: Call) -> object:
    return (await schema_text(call, _by_id(call))).encode()


async def subjects_by_id(call: Call) -> object:
    found = _visible_uses(call)
    return call.page(list(dict.fromkeys(item.subject for item in found)))


async def versions_by_id(call: Call) -> object:
    found = _visible_uses(call)
    return call.page([{"subject": item.subject, "version": item.version} for item in found])


async def by_guid(call: Call) -> object:
    schema = _by_guid(call)[0]
    return bodies.schema_response(
        schema, await schema_text(call, schema), accepts_unknown_properties=call.accepts_unknown_properties
    )


async def ids_by_guid(call: Call) -> object:
    return [{"context": context_of(item.subject), "id": item.id} for item in _by_guid(call)]


async def contexts(call: Call) -> object:
    return call.page(queries.contexts(call.registry.state, call.can_read))


def _by_guid(call: Call) -> list[Schema]:
    all_found = queries.by_guid(call.registry.state, call.names["guid"])
    found = [seen for item in all_found if (seen := _visible(call, item)) is not None]
    if not found:
        raise errors.schema_not_found(call.names["guid"])
    return found


def _by_id(call: Call) -> Schema:
    number = read_number(call.names["id"])
    found = queries.by_id(call.registry.state, number, call.parameter_subject)
    schema = None if found is None else _visible(call, found)
    if schema is None:
        raise errors.schema_not_found(number)
    return schema


def _visible(call: Call, schema: Schema) -> Schema | None:
    """The schema under a subject that the user may read."""
    if call.can_read(schema.subject):
        return schema
    uses = queries.uses_of(call.registry.state, schema, with_deleted=True)
    return next((item for item in uses if call.can_read(item.subject)), None)


def _visible_uses(call: Call) -> list[Schema]:
    found = queries.uses_of(call.registry.state, _by_id(call), with_deleted=call.flag("deleted"))
    return [item for item in found if call.can_read(item.subject)]


def _has_rule(schema: Schema, wanted: str) -> bool:
    groups = (schema.rule_set or {}).values()
    return any(rule.get("type") == wanted for rules in groups if isinstance(rules, list) for rule in rules)

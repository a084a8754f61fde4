"""/schemas: all of them, by id, by GUID."""

from __future__ import annotations

from typing import Final

from ottla.registry import errors
from ottla.registry.formats import KINDS
from ottla.registry.http import answers
from ottla.registry.http.calls import Call, read_number
from ottla.registry.http.subjects import shown
from ottla.registry.subjects import looking
from ottla.registry.subjects.names import context_of
from ottla.registry.subjects.schema import Schema

LIMIT_MAX: Final = 1_000  # of one page; more are asked for with `offset`


async def list_schemas(call: Call) -> object:
    state = call.registry.state
    limit = call.number("limit", LIMIT_MAX)
    limit = min(limit, LIMIT_MAX) if limit > 0 else LIMIT_MAX
    first = max(call.number("offset", 0), 0)
    wanted = looking.Kept(call.flag("deleted"), False)
    aliases = looking.aliases(state, call.sees) if call.flag("aliases") else {}
    rule_type = call.parameters.get("ruleType", "")
    found = looking.schemas(state, call.prefix, wanted, is_latest_only=call.flag("latestOnly"))
    seen = (item for item in found if call.sees(item.subject) and (not rule_type or _has_rule(item, rule_type)))
    page: list[object] = []
    for place, schema in enumerate(seen):
        if place >= first + limit:
            break
        if place >= first:
            page.append(answers.version(schema, is_more=call.is_more, aliases=aliases.get(schema.subject, ())))
    return page


async def types(_: Call) -> object:
    return list(KINDS)


async def by_id(call: Call) -> object:
    schema = _by_id(call)
    state = call.registry.state
    max_id = state.contexts[context_of(schema.subject)].max_id if call.flag("fetchMaxId") else None
    return answers.text(schema, await shown(call, schema), is_more=call.is_more, max_id=max_id)


async def text_by_id(call: Call) -> object:
    return (await shown(call, _by_id(call))).encode()


async def subjects_by_id(call: Call) -> object:
    found = _uses(call)
    return call.page(list(dict.fromkeys(item.subject for item in found)))


async def versions_by_id(call: Call) -> object:
    found = _uses(call)
    return call.page([{"subject": item.subject, "version": item.version} for item in found])


async def by_guid(call: Call) -> object:
    schema = _by_guid(call)[0]
    return answers.text(schema, await shown(call, schema), is_more=call.is_more)


async def ids_by_guid(call: Call) -> object:
    return [{"context": context_of(item.subject), "id": item.id} for item in _by_guid(call)]


async def contexts(call: Call) -> object:
    return call.page(looking.contexts(call.registry.state, call.sees))


def _by_guid(call: Call) -> list[Schema]:
    all_found = looking.by_guid(call.registry.state, call.names["guid"])
    found = [seen for item in all_found if (seen := _seen(call, item)) is not None]
    if not found:
        raise errors.schema_not_found(call.names["guid"])
    return found


def _by_id(call: Call) -> Schema:
    number = read_number(call.names["id"])
    found = looking.by_id(call.registry.state, number, call.parameter_subject)
    schema = None if found is None else _seen(call, found)
    if schema is None:
        raise errors.schema_not_found(number)
    return schema


def _seen(call: Call, schema: Schema) -> Schema | None:
    """The schema under a subject that may be read."""
    if call.sees(schema.subject):
        return schema
    uses = looking.uses_of(call.registry.state, schema, with_deleted=True)
    return next((item for item in uses if call.sees(item.subject)), None)


def _uses(call: Call) -> list[Schema]:
    found = looking.uses_of(call.registry.state, _by_id(call), with_deleted=call.flag("deleted"))
    return [item for item in found if call.sees(item.subject)]


def _has_rule(schema: Schema, wanted: str) -> bool:
    groups = (schema.rule_set or {}).values()
    return any(rule.get("type") == wanted for rules in groups if isinstance(rules, list) for rule in rules)

"""What is answered, in Confluent's form: fields that say nothing are left out. Pure.

Who sends the header `Confluent-Accept-Unknown-Properties: true` gets what newer registries tell, too (`is_more`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.registry.registry import Registered
from ottla.registry.subjects.schema import Schema
from ottla.registry.subjects.settings import LEVEL, Config


def version(schema: Schema, *, is_more: bool, aliases: Sequence[str] = ()) -> dict[str, Any]:
    """One version of a subject."""
    found: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if is_more:
        found["guid"] = schema.guid
    found |= schema.details()
    found["schema"] = schema.text
    if is_more and schema.is_deleted:
        found["deleted"] = True
    if aliases:
        found["aliases"] = list(aliases)
    return found


def text(schema: Schema, shown: str, *, is_more: bool, max_id: int | None = None) -> dict[str, Any]:
    """A schema by its id or GUID."""
    found: dict[str, Any] = {}
    if is_more:
        found |= {"subject": schema.subject, "version": schema.version, "id": schema.id, "guid": schema.guid}
    found |= schema.details()
    found["schema"] = shown
    if max_id is not None:
        found["maxId"] = max_id
    return found


def registered(result: Registered, *, is_more: bool) -> dict[str, Any]:
    schema = result.schema
    if not (is_more or result.is_more):
        return {"id": schema.id}
    found: dict[str, Any] = {"id": schema.id, "version": schema.version}
    if is_more:
        found["guid"] = schema.guid
    return {**found, **schema.details(), "schema": schema.text} if result.is_more else found


def config(found: Config) -> dict[str, Any]:
    return dict(found)


def config_request(changes: Config) -> dict[str, Any]:
    """A change of a configuration is answered with itself; there the level has another name."""
    found = {name: value for name, value in changes.items() if value is not None and name != LEVEL}
    level = changes.get(LEVEL)
    return found if level is None else {**found, "compatibility": level}


def verdict(problems: Sequence[str], *, is_verbose: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"is_compatible": not problems}
    if is_verbose:
        found["messages"] = list(problems)
    return found

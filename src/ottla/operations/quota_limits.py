"""Limits of users, clients and addresses as rows and as words; and which of them count for somebody. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.quota_words import entity_words, number_text
from ottla.client.quotas import Entity, Quota
from ottla.quotas import entities
from ottla.quotas import rules as rules_of

COLUMNS: Final = ("USER", "CLIENT", "IP", "QUOTA", "LIMIT")
KINDS: Final = ("user", "client-id", "ip")
DEFAULT: Final = "<default>"  # as Kafka has it in its nodes and metrics
NONE: Final = "-"


def sort_key(entity: Entity) -> list[tuple[bool, bool, str]]:
    """In the order in which Kafka looks for the rule of a client: who is named comes first, users before clients."""
    return [(kind not in entity, entity.get(kind) is None, entity.get(kind) or "") for kind in KINDS]


def rows(quotas: Iterable[Quota]) -> list[tuple[str, ...]]:
    """One row a limit."""
    return [
        (*entity_columns(quota.entity), key, number_text(value))
        for quota in sorted(quotas, key=lambda quota: sort_key(quota.entity))
        for key, value in sorted(quota.limits.items())
    ]


def entity_columns(entity: Entity) -> tuple[str, ...]:
    names = (entity.get(kind, NONE) for kind in KINDS)
    return tuple(DEFAULT if name is None else name for name in names)


def as_words(quotas: Sequence[Quota]) -> list[Mapping[str, object]]:
    """As files and tests have them."""
    found = sorted(quotas, key=lambda quota: sort_key(quota.entity))
    return [{**entity_words(quota.entity), **dict(sorted(quota.limits.items()))} for quota in found]


# ---- which limits count for whom


class Applied(NamedTuple):
    """A limit on the way of somebody: the first of its key counts, the others would if that one were not there.

    `user` and `client_id` say whose requests share it; "" where that does not matter.
    """

    key: str
    limit: float
    entity: dict[str, str | None]
    counts: bool
    user: str = ""
    client_id: str = ""


def applied_to(quotas: Iterable[Quota], user: str = "", client_id: str = "", host: str = "") -> list[Applied]:
    """What holds for requests of a user with a client id, and for connections from an address, by Kafka's precedence.
    Nobody has a user or client id of "": then only the default is asked for.
    """
    known = {_entity(quota.entity): quota.limits for quota in quotas}
    asked: list[entities.Entity] = [*rules_of.levels(user, client_id)] if user or client_id else []
    if host:
        asked += [entities.of_address(entities.address(host) or host), entities.of_address(None)]
    found: list[Applied] = []
    seen: set[str] = set()
    for entity in asked:
        for key, limit in sorted(known.get(entity, {}).items()):
            sharing = rules_of.sharing(entity, user, client_id)
            found.append(Applied(key, limit, dict(entity.parts), key not in seen, *sharing))
            seen.add(key)
    return sorted(found, key=lambda each: each.key)


def _entity(entity: Entity) -> entities.Entity:
    kinds = tuple(kind for kind in KINDS if kind in entity)
    names = tuple(entity[kind] for kind in kinds)
    if kinds == (entities.IP,) and names[0] is not None:
        return entities.of_address(entities.address(names[0]) or names[0])
    return entities.Entity(kinds, names)

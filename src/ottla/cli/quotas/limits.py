"""Limits of users, clients and addresses as rows and as words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.client.quota_words import entity_words, number_text
from ottla.client.quotas import Entity, Quota

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

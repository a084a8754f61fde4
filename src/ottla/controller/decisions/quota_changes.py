"""AlterClientQuotas (KIP-546). Pure; error codes and messages are Kafka's.

Quotas are settings of users, clients and addresses, next to others such as passwords, which do not change. The quotas
of an entity change completely or not at all; other entities of the request are processed. The node of an entity is
deleted with its last quota, unless it is a user: user nodes also have other settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, check_readable
from ottla.controller.image import MetadataImage
from ottla.controller.quota_nodes import parent_paths, quota_path
from ottla.controller.stores.store import CreateNode, DeleteNode, SetNode, StoreOperation
from ottla.quotas.entities import CLIENT_ID, KEYS, USER, Entity, check_value, invalid, read_entity, value_text

EntityParts = tuple[tuple[str, str | None], ...]


class QuotaOperation(NamedTuple):
    """One quota to set, or to remove (None)."""

    key: str
    value: float | None


class QuotaAlteration(NamedTuple):
    """The changes of one entity, with its name in the request."""

    entity_parts: EntityParts
    operations: tuple[QuotaOperation, ...]


class QuotaResult(NamedTuple):
    """The result for one entity."""

    parts: EntityParts
    error: Error = Error.NONE
    message: str | None = None


class _QuotaChanges:
    """The changed settings by entity, and their store operations."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.users: dict[str, Mapping[str, str]] = {}
        self.quotas: dict[str, Mapping[str, str] | None] = {}
        self.operations: list[StoreOperation] = []

    def set(self, entity: Entity, config: Mapping[str, str]) -> None:
        path = quota_path(entity)
        full = f"{tree.CONFIG}/{path}"
        if entity.kinds == (USER,):
            self._set_user(entity.names[0] or "", full, config)
        elif config:
            self._make_parents(entity, path)
            write = SetNode if path in self.image.quota_configs else CreateNode
            self.operations.append(write(full, tree.encode_config(config)))
            self.quotas[path] = config
        elif path in self.image.quota_configs:
            self.operations.append(DeleteNode(full))
            self.quotas[path] = None

    def _set_user(self, name: str, full: str, config: Mapping[str, str]) -> None:
        is_there = name in self.image.user_configs or name in self.users
        if is_there or config:
            write = SetNode if is_there else CreateNode
            self.operations.append(write(full, tree.encode_config(config)))
            self.users[name] = config

    def _make_parents(self, entity: Entity, path: str) -> None:
        """Create the two parents of the node of a user's client, the user's own node first."""
        if entity.kinds != (USER, CLIENT_ID):
            return
        user, clients = parent_paths(path)
        name = entity.names[0] or ""
        if name not in self.image.user_configs and name not in self.users:
            self.operations.append(CreateNode(f"{tree.CONFIG}/{user}", tree.encode_config({})))
            self.users[name] = {}
        if clients not in self.image.quota_configs and clients not in self.quotas:
            self.operations.append(CreateNode(f"{tree.CONFIG}/{clients}", b""))
            self.quotas[clients] = {}

    def image_after(self) -> MetadataImage:
        after = self.image.with_user_configs(self.users) if self.users else self.image
        return after.with_quota_configs(self.quotas) if self.quotas else after


def decide_quota_changes(image: MetadataImage, alterations: Sequence[QuotaAlteration]) -> Decision[list[QuotaResult]]:
    """Return one result for each entity, in the order of the request."""
    changes = _QuotaChanges(image)
    results: dict[frozenset[tuple[str, str | None]], QuotaResult] = {}
    times = Counter(frozenset(dict(alteration.entity_parts).items()) for alteration in alterations)
    for alteration in alterations:
        parts = tuple(dict(alteration.entity_parts).items())
        named = frozenset(parts)
        try:
            keys = [operation.key for operation in alteration.operations]
            if times[named] > 1 or len(set(keys)) < len(keys):
                raise invalid(f"Ignoring duplicate entity {entity_text(parts)}")
            entity = read_entity(parts)
            check_readable(image, f"{tree.CONFIG}/{quota_path(entity)}")
            old = current_config(image, entity)
            new = apply_alteration(entity, old, alteration)
        except KafkaError as refusal:
            results[named] = QuotaResult(parts, refusal.error, refusal.message)
            continue
        results[named] = QuotaResult(parts)
        if new != old:
            changes.set(entity, new)
    return Decision(tuple(changes.operations), changes.image_after(), list(results.values()))


def current_config(image: MetadataImage, entity: Entity) -> Mapping[str, str]:
    if entity.kinds == (USER,):
        return image.user_configs.get(entity.names[0] or "", {})
    return image.quota_configs.get(quota_path(entity), {})


def apply_alteration(entity: Entity, old: Mapping[str, str], alteration: QuotaAlteration) -> dict[str, str]:
    """Return all settings of an entity after a change. Raises KafkaError(INVALID_REQUEST)."""
    new = dict(old)
    for key, value in alteration.operations:
        if value is None:
            if key in KEYS:  # this API must not remove passwords
                new.pop(key, None)
        else:
            check_value(entity, key, value)
            new[key] = value_text(key, value)
    return new


def entity_text(parts: EntityParts) -> str:
    """Return the entity as Java prints it."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    return f"ClientQuotaEntity(entries={{{entries}}})"

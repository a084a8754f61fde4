"""The iteration order of a Java HashMap.

Kafka's tools print topics and settings in this order. It is arbitrary but stable, so ottla's output equals Kafka's line
by line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

from ottla.base.names import TopicPartition

if TYPE_CHECKING:
    from ottla.client.quotas import Entity, Quota

DEFAULT_CAPACITY = 16

K = TypeVar("K")


def hash_map_order(keys: Collection[str], capacity: int = DEFAULT_CAPACITY) -> list[str]:
    """The keys in the iteration order of a HashMap of this initial capacity, inserted in the given order."""
    return _in_order(keys, capacity, java_hash)


def partition_order(keys: Collection[TopicPartition], capacity: int = DEFAULT_CAPACITY) -> list[TopicPartition]:
    """The same for topic partitions."""
    return _in_order(keys, capacity, partition_hash)


def quota_order(quotas: Collection[Quota]) -> list[Quota]:
    """The same for quotas by entity, in a map created with their number as capacity."""
    return _in_order(quotas, len(quotas), lambda quota: entity_hash(quota.entity))


def entity_hash(entity: Entity) -> int:
    """ClientQuotaEntity.hashCode() as an unsigned number."""
    hashes = (java_hash(kind) ^ (java_hash(name) if name is not None else 0) for kind, name in entity.items())
    return (31 + sum(hashes)) & 0xFFFFFFFF


def partition_hash(partition: TopicPartition) -> int:
    """TopicPartition.hashCode() as an unsigned number."""
    return (31 * (31 + partition.partition) + java_hash(partition.topic)) & 0xFFFFFFFF


def java_hash(text: Iterable[str]) -> int:
    """String.hashCode() as an unsigned number."""
    value = 0
    units = "".join(text).encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _in_order(keys: Collection[K], capacity: int, hash_of: Callable[[K], int]) -> list[K]:
    size = _table_size(max(capacity, 1))
    while len(keys) > size * 3 // 4:
        size *= 2
    # A bucket iterates in insertion order, and sorting is stable.
    return sorted(keys, key=lambda key: _spread(hash_of(key)) & (size - 1))


def _spread(value: int) -> int:
    return value ^ value >> 16


def _table_size(capacity: int) -> int:
    return 1 << (capacity - 1).bit_length()

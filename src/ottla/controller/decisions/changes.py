"""How changed partitions are written: the operations for the store and the image that follows.

Pure, under the rules of machine.py. A partition whose replicas change stands in two nodes: the topic's says who holds
copies, the partition's own says who leads. Its own is written in either case, because its version is the partition's
epoch: a leader that knows the old epoch must not get an answer to a proposal that it made for the old replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.decisions.liveness import Liveness
from ottla.controller.decisions.single_broker_leaders import leader_operations
from ottla.controller.image import MetadataImage, PartitionImage
from ottla.controller.stores.store import SetNode, StoreOperation

PartitionChanges = Mapping[TopicPartition, PartitionImage]
PARTS: Final = (
    *("acls", "brokers", "broker_configs", "group_configs", "client_metrics_configs", "user_configs", "quota_configs"),
    *("delegation_tokens", "features", "cluster_id", "damaged"),
)


def has_changed(old: MetadataImage, new: MetadataImage) -> bool:
    """Whether anything differs that others want to know, written by us or not."""
    return bool(new.changed_topics) or any(getattr(new, part) is not getattr(old, part) for part in PARTS)


def commit_partitions(
    image: MetadataImage, changes: PartitionChanges
) -> tuple[tuple[StoreOperation, ...], MetadataImage]:
    """Write partitions as they shall be; whoever changes one need not raise its epoch, that happens here."""
    operations: list[StoreOperation] = []
    topics = []
    for name, partitions in by_topic(changes).items():
        old = image.topics[name]
        rows = list(old.partitions)
        for index, partition in partitions.items():
            rows[index] = partition._replace(partition_epoch=old.partitions[index].partition_epoch + 1)
        new = old._replace(partitions=tuple(rows))
        topics.append(new)
        if any(has_other_replicas(old.partitions[index], new.partitions[index]) for index in partitions):
            operations.append(SetNode(tree.topic_path(name), tree.encode_topic(new.topic_id, new.partitions)))
        for index in partitions:
            operations.extend(leader_operations(image, old, index, new.partitions[index]))
    return tuple(operations), image.with_topics(topics)


def by_topic(changes: PartitionChanges) -> dict[str, dict[int, PartitionImage]]:
    grouped: dict[str, dict[int, PartitionImage]] = {}
    for (topic, index), partition in changes.items():
        grouped.setdefault(topic, {})[index] = partition
    return grouped


def has_other_replicas(old: PartitionImage, new: PartitionImage) -> bool:
    before = (old.replicas, old.adding_replicas, old.removing_replicas)
    return before != (new.replicas, new.adding_replicas, new.removing_replicas)


def without(brokers: Iterable[int], gone: Iterable[int]) -> tuple[int, ...]:
    """The brokers in their order, without those."""
    dropped = set(gone)
    return tuple(broker for broker in brokers if broker not in dropped)


class UsableBrokers:
    """Who can be given the lead of a partition: alive, not about to stop, and with a folder that works."""

    def __init__(self, image: MetadataImage, liveness: Liveness) -> None:
        self._image = image
        self._liveness = liveness
        self._everywhere = frozenset(image.brokers) - liveness.shutting_down

    def of(self, name: TopicPartition) -> frozenset[int]:
        topic_id = self._image.topics[name.topic].topic_id
        offline = self._liveness.offline
        failed = [broker for broker in offline if self._liveness.has_offline(broker, topic_id, name.partition)]
        return self._everywhere.difference(failed) if failed else self._everywhere

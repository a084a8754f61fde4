"""Who leads a partition: what changes when a broker comes up.  Pure, under the rules of machine.py."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller import tree
from ottla.controller.decisions.machine import Decision, encode_state
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import CreateNode, SetNode, StoreOperation


def decide_leaders(image: MetadataImage, broker: int) -> Decision[int]:
    """Make a broker that has just come up the leader of what only it can lead; the reply is how many.

    What it led before gets a new leader epoch, too: after a crash its log may have lost its tail, and only a new
    epoch lets others notice that the same offsets mean other records now (KIP-320).
    """
    operations: list[StoreOperation] = []
    topics = []
    count = 0
    elections: dict[PartitionImage, PartitionImage] = {}  # equal partitions go on sharing one value
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition not in elections:
                is_needed = needs_leader(image, partition, broker)
                elections[partition] = elected(partition, broker) if is_needed else partition
        partitions = tuple(elections[partition] for partition in topic.partitions)
        changed = [i for i, (old, new) in enumerate(zip(topic.partitions, partitions, strict=True)) if old != new]
        if not changed:
            continue
        count += len(changed)
        topics.append(topic._replace(partitions=partitions))
        for index in changed:
            operations.extend(leader_operations(image, topic, index, partitions[index]))
    return Decision(tuple(operations), image.with_topics(topics), count)


def needs_leader(image: MetadataImage, partition: PartitionImage, broker: int) -> bool:
    if broker not in partition.isr and not (partition.partition_epoch < 0 and broker in partition.replicas):
        return False
    return partition.leader in (broker, NO_LEADER) or partition.leader not in image.brokers


def elected(partition: PartitionImage, broker: int) -> PartitionImage:
    return partition._replace(
        leader=broker,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        isr=partition.isr or partition.replicas,
    )


def leader_operations(
    image: MetadataImage, topic: TopicImage, index: int, new: PartitionImage
) -> Iterator[StoreOperation]:
    old = topic.partitions[index]
    if old.is_damaged:
        return  # what changes is known to nobody but the controller
    path = tree.partition_state_path(topic.name, index)
    if old.partition_epoch < 0:  # the topic was created, but nobody lived to create the state of this partition
        yield CreateNode(tree.partition_path(topic.name, index))
        yield CreateNode(path, encode_state(image, new))
    else:
        yield SetNode(path, encode_state(image, new), old.partition_epoch)

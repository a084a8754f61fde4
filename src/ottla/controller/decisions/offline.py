"""Who leads a partition whose folder has failed: nobody.  Pure, under the rules of machine.py."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.names import TopicPartition
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.single_broker_leaders import leader_operations
from ottla.controller.image import NO_LEADER, MetadataImage, TopicImage
from ottla.controller.stores.store import StoreOperation


def decide_offline(image: MetadataImage, broker: int, names: Iterable[TopicPartition]) -> Decision[int]:
    """Take the leadership of these partitions from a broker; the reply is how many it had.

    It stays in the ISR: what it holds is complete, and it leads again when it comes back with the folder repaired.
    """
    operations: list[StoreOperation] = []
    changed: dict[str, TopicImage] = {}
    count = 0
    for name in names:
        topic = changed.get(name.topic) or image.topics.get(name.topic)
        old = image.partition(*name)
        if topic is None or old is None or old.leader != broker:
            continue
        new = old._replace(leader=NO_LEADER, leader_epoch=old.leader_epoch + 1, partition_epoch=old.partition_epoch + 1)
        operations.extend(leader_operations(image, image.topics[name.topic], name.partition, new))
        partitions = (*topic.partitions[: name.partition], new, *topic.partitions[name.partition + 1 :])
        changed[name.topic] = topic._replace(partitions=partitions)
        count += 1
    return Decision(tuple(operations), image.with_topics(changed.values()), count)

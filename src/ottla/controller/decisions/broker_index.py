"""Where brokers occur, kept up to date change by change: nobody has to look at all partitions to find a broker's.

Pure, and the one thing here that changes: it belongs to the active controller, which lets it follow each image that it
publishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.controller.decisions.reassignment import is_moving
from ottla.controller.decisions.slow_brokers import Share
from ottla.controller.image import MetadataImage, PartitionImage

NOTHING: Sequence[PartitionImage] = ()


class BrokerIndex:
    """Of one image after the other."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: dict[int, dict[str, int]] = {}  # by broker: in how many partitions of a topic it occurs
        self._moving: dict[str, int] = {}  # by topic: partitions on the move
        self._replicas: dict[int, int] = {}  # by broker: how many it holds, or is to hold
        self._held: dict[int, int] = {}  # by broker: those that it holds beside others
        self._behind: dict[int, int] = {}  # by broker: those of them that are out of sync
        for topic in image.topics.values():
            for partition in topic.partitions:
                self._count(topic.name, partition, 1)

    def follow(self, image: MetadataImage) -> None:
        """The next image: only what differs from the last one is looked at."""
        old, self._image = self._image, image
        for name in image.changed_topics_since(old):
            before, after = old.topics.get(name), image.topics.get(name)
            gone = before.partitions if before is not None else NOTHING
            new = after.partitions if after is not None else NOTHING
            for index in range(max(len(gone), len(new))):
                left = gone[index] if index < len(gone) else None
                right = new[index] if index < len(new) else None
                if left is not right:
                    if left is not None:
                        self._count(name, left, -1)
                    if right is not None:
                        self._count(name, right, 1)

    def topics_of(self, brokers: Iterable[int]) -> list[str]:
        """Topics with a partition that names one of these: as replica, in sync, eligible or leader."""
        return list(dict.fromkeys(name for broker in brokers for name in self._topics.get(broker, ())))

    @property
    def holders(self) -> frozenset[int]:
        """Brokers that hold anything, alive or not."""
        return frozenset(self._replicas)

    @property
    def moving_topics(self) -> list[str]:
        return list(self._moving)

    def shares(self, brokers: Iterable[int]) -> Mapping[int, Share]:
        """How far these keep up."""
        return {broker: Share(self._held.get(broker, 0), self._behind.get(broker, 0)) for broker in brokers}

    def _count(self, topic: str, partition: PartitionImage, step: int) -> None:
        named = {partition.leader, *partition.replicas, *partition.isr}
        named.update(partition.eligible, partition.last_known_eligible)
        for broker in named:
            add(self._topics.setdefault(broker, {}), topic, step)
            if not self._topics[broker]:
                del self._topics[broker]
        if is_moving(partition):
            add(self._moving, topic, step)
        for broker in partition.replicas:
            add(self._replicas, broker, step)
        if len(partition.replicas) == 1 or partition.is_damaged:
            return
        for broker in partition.replicas:
            if broker not in partition.adding_replicas:
                add(self._held, broker, step)
                if broker not in partition.isr:
                    add(self._behind, broker, step)

    def __repr__(self) -> str:
        return f"<BrokerIndex of {len(self._topics)} brokers, {len(self._moving)} topics on the move>"


def add(counts: dict, key: object, step: int) -> None:  # type: ignore[type-arg]
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        del counts[key]

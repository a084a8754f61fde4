"""Where brokers occur, kept up to date change by change: nobody has to look at all partitions to find a broker's.

Pure, and the one thing here that changes: it belongs to the active controller, which lets it follow each image that it
publishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.controller.decisions.changes import without
from ottla.controller.decisions.reassignment import is_moving
from ottla.controller.decisions.slow_brokers import Share
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage

NOTHING: Sequence[PartitionImage] = ()
NO_PARTITION: Final = PartitionImage(NO_LEADER, -1, (), ())
K = TypeVar("K")


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
                self._replace(topic.name, NO_PARTITION, partition)

    def follow(self, image: MetadataImage) -> None:
        """The next image: only what differs from the last one is looked at."""
        old, self._image = self._image, image
        for name in image.changed_topics_since(old):
            before, after = old.topics.get(name), image.topics.get(name)
            gone = before.partitions if before is not None else NOTHING
            new = after.partitions if after is not None else NOTHING
            for index in range(max(len(gone), len(new))):
                left = gone[index] if index < len(gone) else NO_PARTITION
                right = new[index] if index < len(new) else NO_PARTITION
                if left is not right and left != right:
                    self._replace(name, left, right)

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

    def _replace(self, topic: str, old: PartitionImage, new: PartitionImage) -> None:
        """Mostly a leader or an ISR has changed: then hardly anything has to be counted anew."""
        before, after = named(old), named(new)
        if before != after:
            for broker in before - after:
                topics = self._topics[broker]
                add(topics, topic, -1)
                if not topics:
                    del self._topics[broker]
            for broker in after - before:
                add(self._topics.setdefault(broker, {}), topic, 1)
        if is_moving(old) != is_moving(new):
            add(self._moving, topic, 1 if is_moving(new) else -1)
        if old.replicas != new.replicas:
            count(self._replicas, old.replicas, new.replicas)
        old_held, new_held = held(old), held(new)
        if old_held != new_held:
            count(self._held, old_held, new_held)
        if old_held != new_held or old.isr != new.isr:
            count(self._behind, without(old_held, old.isr), without(new_held, new.isr))

    def __repr__(self) -> str:
        return f"<BrokerIndex of {len(self._topics)} brokers, {len(self._moving)} topics on the move>"


def named(partition: PartitionImage) -> set[int]:
    """Whoever decisions about a partition look at."""
    found = {*partition.replicas, *partition.isr, *partition.eligible, *partition.last_known_eligible}
    if partition.leader != NO_LEADER:
        found.add(partition.leader)
    return found


def held(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that tell whether a broker keeps up (slow_brokers.py)."""
    if len(partition.replicas) == 1 or partition.is_damaged:
        return ()
    return without(partition.replicas, partition.adding_replicas) if partition.adding_replicas else partition.replicas


def count(counts: dict[int, int], old: Iterable[int], new: Iterable[int]) -> None:
    for broker in old:
        add(counts, broker, -1)
    for broker in new:
        add(counts, broker, 1)


def add(counts: dict[K, int], key: K, step: int) -> None:
    """What is zero is not there."""
    number = counts.get(key, 0) + step
    if number:
        counts[key] = number
    else:
        counts.pop(key, None)

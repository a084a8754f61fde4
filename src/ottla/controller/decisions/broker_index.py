"""An index of the partitions that refer to each broker, updated with every image instead of scanning all partitions.

Pure, but mutable as the only object of this package: the active controller owns it and updates it with every image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.controller.decisions.demoted_brokers import ReplicaLag
from ottla.controller.decisions.leader_eligibility import excluding
from ottla.controller.decisions.reassignment import is_reassigning
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage

NO_PARTITIONS: Sequence[PartitionImage] = ()
ABSENT_PARTITION: Final = PartitionImage(NO_LEADER, -1, (), ())
K = TypeVar("K")


class BrokerIndex:
    """The index of the current image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: dict[int, dict[str, int]] = {}  # broker -> topic -> number of partitions that refer to the broker
        self._moving: dict[str, int] = {}  # topic -> number of partitions that are being reassigned
        self._replicas: dict[int, int] = {}  # broker -> number of replicas, with those being added
        self._shared_replicas: dict[int, int] = {}  # broker -> number of replicas that show whether it keeps up
        self._out_of_sync: dict[int, int] = {}  # broker -> number of these that are out of sync
        for topic in image.topics.values():
            for partition in topic.partitions:
                self._replace(topic.name, ABSENT_PARTITION, partition)

    def update(self, image: MetadataImage) -> None:
        """Update to the next image; only the differences are visited."""
        old, self._image = self._image, image
        for name in image.changed_topics_since(old):
            before, after = old.topics.get(name), image.topics.get(name)
            gone = before.partitions if before is not None else NO_PARTITIONS
            new = after.partitions if after is not None else NO_PARTITIONS
            for index in range(max(len(gone), len(new))):
                left = gone[index] if index < len(gone) else ABSENT_PARTITION
                right = new[index] if index < len(new) else ABSENT_PARTITION
                if left is not right and left != right:
                    self._replace(name, left, right)

    def topics_of(self, brokers: Iterable[int]) -> list[str]:
        """Return the topics with a partition that has one of these brokers as replica or leader, or in ISR or ELR."""
        return list(dict.fromkeys(name for broker in brokers for name in self._topics.get(broker, ())))

    @property
    def brokers_with_replicas(self) -> frozenset[int]:
        """Return the brokers with replicas, alive or not."""
        return frozenset(self._replicas)

    @property
    def moving_topics(self) -> list[str]:
        return list(self._moving)

    def replica_lags(self, brokers: Iterable[int]) -> Mapping[int, ReplicaLag]:
        """Return the shares of these brokers that are out of sync."""
        return {
            broker: ReplicaLag(self._shared_replicas.get(broker, 0), self._out_of_sync.get(broker, 0))
            for broker in brokers
        }

    def _replace(self, topic: str, old: PartitionImage, new: PartitionImage) -> None:
        """Update the counts; most changes affect only a leader or an ISR, and skip most of this."""
        before, after = referenced_brokers(old), referenced_brokers(new)
        if before != after:
            for broker in before - after:
                topics = self._topics[broker]
                add_to_count(topics, topic, -1)
                if not topics:
                    del self._topics[broker]
            for broker in after - before:
                add_to_count(self._topics.setdefault(broker, {}), topic, 1)
        if is_reassigning(old) != is_reassigning(new):
            add_to_count(self._moving, topic, 1 if is_reassigning(new) else -1)
        if old.replicas != new.replicas:
            update_counts(self._replicas, old.replicas, new.replicas)
        old_held, new_held = shared_replicas(old), shared_replicas(new)
        if old_held != new_held:
            update_counts(self._shared_replicas, old_held, new_held)
        if old_held != new_held or old.isr != new.isr:
            update_counts(self._out_of_sync, excluding(old_held, old.isr), excluding(new_held, new.isr))

    def __repr__(self) -> str:
        return f"<BrokerIndex of {len(self._topics)} brokers, {len(self._moving)} topics being reassigned>"


def referenced_brokers(partition: PartitionImage) -> set[int]:
    """Return the brokers that decisions about a partition depend on."""
    found = {*partition.replicas, *partition.isr, *partition.elr, *partition.last_known_elr}
    if partition.leader != NO_LEADER:
        found.add(partition.leader)
    return found


def shared_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that show whether a broker keeps up (demoted_brokers.py)."""
    if len(partition.replicas) == 1 or partition.is_damaged:
        return ()
    return excluding(partition.replicas, partition.adding_replicas) if partition.adding_replicas else partition.replicas


def update_counts(counts: dict[int, int], old: Iterable[int], new: Iterable[int]) -> None:
    for broker in old:
        add_to_count(counts, broker, -1)
    for broker in new:
        add_to_count(counts, broker, 1)


def add_to_count(counts: dict[K, int], key: K, step: int) -> None:
    """Add to a count; zero counts are removed."""
    number = counts.get(key, 0) + step
    if number:
        counts[key] = number
    else:
        counts.pop(key, None)

"""What is known of a cluster at one moment of a roll, and what speaks against stopping a broker now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Partition, Topic
from ottla.operations.doctor.findings import brokers_text, some

UNKNOWN_EPOCH: Final = -1  # brokers of versions that do not tell it
NO_LEADER: Final = -1


class BrokerSeen(NamedTuple):
    """A broker that is registered."""

    id: int
    host: str
    port: int
    rack: str | None = None
    epoch: int = UNKNOWN_EPOCH  # another one after every restart


class Look(NamedTuple):
    """The cluster, as its controller tells it."""

    controller_id: int
    brokers: Mapping[int, BrokerSeen]
    topics: Sequence[Topic]
    moving: frozenset[TopicPartition] = frozenset()
    minimums: Mapping[str, int] = {}  # min.insync.replicas by topic; 1 where it is not known
    maintained: frozenset[int] = frozenset()  # brokers that somebody works at

    @property
    def epochs(self) -> dict[int, int]:
        return {broker.id: broker.epoch for broker in self.brokers.values()}

    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        for topic in self.topics:
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.number), partition


class Obstacle(NamedTuple):
    """Why a broker should not be stopped now."""

    reason: str
    may_pass: bool = True  # False: waiting does not help


def holders(look: Look) -> set[int]:
    """Everybody who is registered or should be, because he holds replicas."""
    return {*look.brokers, *(replica for _, partition in look.partitions() for replica in partition.replicas)}


def not_whole(look: Look) -> Obstacle | None:
    """What keeps the cluster from being whole: everybody there, everything led, at rest and in sync."""
    if look.controller_id < 0:
        return Obstacle("the cluster has no controller")
    away = holders(look) - set(look.brokers)
    if away:
        return Obstacle(f"{brokers_text(away)} {'is' if len(away) == 1 else 'are'} away")
    offline = [str(name) for name, partition in look.partitions() if partition.leader == NO_LEADER]
    if offline:
        return Obstacle(f"{some(offline)}: no leader")
    if look.moving:
        return Obstacle(f"replicas are being moved: {some(sorted(map(str, look.moving)))}")
    behind = [str(name) for name, partition in look.partitions() if set(partition.isr) != set(partition.replicas)]
    if behind:
        return Obstacle(f"not in sync: {some(behind)}")
    return None


def obstacle(look: Look, broker_id: int, *, may_interrupt: bool = False) -> Obstacle | None:
    """What speaks against stopping this broker now; `may_interrupt`: some partitions may be away with it."""
    broken = not_whole(look)
    if broken is not None:
        return broken
    if broker_id not in look.brokers:  # it holds nothing, or it would have been missed above
        return Obstacle(f"broker {broker_id} is away")
    others = look.maintained - {broker_id}
    if others:
        return Obstacle(f"{brokers_text(others)} {'is' if len(others) == 1 else 'are'} in maintenance")
    return None if may_interrupt else interruption(look, [broker_id])


def interruption(look: Look, broker_ids: Iterable[int]) -> Obstacle | None:
    """The first of these brokers that is needed. No wait helps, so a roll asks for all of them before it begins."""
    for broker_id in broker_ids:
        needed = unwritable_without(look, broker_id)
        if needed:
            return Obstacle(
                f"without broker {broker_id} nobody could write to {some(map(str, needed))} (min.insync.replicas, or "
                "no other replica): give them more replicas, or let them be interrupted (--allow-interruption)",
                may_pass=False,
            )
    return None


def unwritable_without(look: Look, broker_id: int) -> list[TopicPartition]:
    """Partitions whose replicas would be too few without a broker, though all the others were in sync."""
    return [
        name
        for name, partition in look.partitions()
        if broker_id in partition.replicas and len(partition.replicas) - 1 < max(1, look.minimums.get(name.topic, 1))
    ]


def led_beside_others(look: Look, broker_id: int) -> list[TopicPartition]:
    """What a broker leads though another replica in sync could."""
    return [
        name for name, partition in look.partitions() if partition.leader == broker_id and len(set(partition.isr)) > 1
    ]


def not_led(look: Look, broker_id: int) -> list[TopicPartition]:
    """What a broker should lead, because it is the preferred replica, and does not."""
    return [
        name
        for name, partition in look.partitions()
        if partition.replicas[:1] == [broker_id] and partition.leader != broker_id
    ]


def next_broker(left: Collection[int], controller_id: int) -> int:
    """The controller comes last: every change of it is a moment in which nobody elects leaders."""
    return min(left, key=lambda broker_id: (broker_id == controller_id, broker_id))


def order(wanted: Collection[int], controller_id: int) -> list[int]:
    left, found = set(wanted), []
    while left:
        found.append(next_broker(left, controller_id))
        left.remove(found[-1])
    return found

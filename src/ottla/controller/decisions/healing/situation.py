"""What healing looks at beside the image, and what keeps it from beginning anything at all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.changes import without
from ottla.controller.decisions.liveness import Liveness, Rules
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage

NAMES_MAX: Final = 5  # that a reason tells


class Limits(NamedTuple):
    """The settings of healing."""

    after_ms: int = 600_000  # -1: it is off
    brokers_max: int = 1
    throttle_rate: int = 50_000_000
    moves_max: int = 10
    disk_max_percentage: int = 85


class Folder(NamedTuple):
    """A log folder that works: the file system on which it lies."""

    total_bytes: int
    usable_bytes: int
    path: str = ""


class Disks(NamedTuple):
    """What a broker has told about its folders and the replicas in them."""

    folders: tuple[Folder, ...] = ()
    sizes: Mapping[TopicPartition, int] = {}


class Situation(NamedTuple):
    """What is, beside the image."""

    limits: Limits = Limits()
    liveness: Liveness = Liveness()
    rules: Rules = Rules()
    away: frozenset[int] = frozenset()  # all that hold something and are not there
    lost: frozenset[int] = frozenset()  # of these for long enough
    failing: frozenset[int] = frozenset()  # there, with replicas that have been offline for long enough
    in_maintenance: frozenset[int] = frozenset()
    racks: Mapping[int, str | None] = {}  # of all brokers that were ever seen
    disks: Mapping[int, Disks] = {}  # of those who have answered
    refusals: frozenset[tuple[TopicPartition, int]] = frozenset()  # who has said that it cannot have it anew


def is_on(image: MetadataImage, limits: Limits) -> bool:
    return limits.after_ms >= 0 and ottla_version.level(image) >= ottla_version.SELF_OPERATION


def row_of(partition: PartitionImage) -> tuple[int, ...]:
    """Who holds a partition, or will when its move has ended."""
    return without(partition.replicas, partition.removing_replicas)


def lost_replicas(image: MetadataImage, situation: Situation) -> dict[TopicPartition, frozenset[int]]:
    """By partition: who has lost it for good, as far as healing is concerned."""
    lost = situation.lost - image.brokers.keys() - situation.in_maintenance
    failing = (situation.failing & image.brokers.keys()) - situation.in_maintenance
    found = {}
    for topic in image.topics.values() if lost or failing else ():
        for index, partition in enumerate(topic.partitions):
            gone = {broker for broker in row_of(partition) if broker in lost}
            gone |= {broker for broker in row_of(partition) if is_failed(situation, failing, topic, index, broker)}
            if gone:
                found[TopicPartition(topic.name, index)] = frozenset(gone)
    return found


def is_failed(situation: Situation, failing: Collection[int], topic: TopicImage, index: int, broker: int) -> bool:
    return broker in failing and situation.liveness.has_offline(broker, topic.topic_id, index)


def hindrances(image: MetadataImage, situation: Situation) -> list[str]:
    """Why nothing is begun, whatever is lost: when much is away at once, it is no broker that has died."""
    found = []
    away = situation.away - image.brokers.keys()
    ailing = away | (situation.liveness.offline.keys() & image.brokers.keys())
    if len(ailing) > situation.limits.brokers_max:
        limit = f"ottla.heal.brokers.max ({situation.limits.brokers_max})"
        found.append(f"{len(ailing)} brokers are away or have failed folders ({numbers(ailing)}), more than {limit}")
    if 2 * len(image.brokers) <= len(image.brokers.keys() | away):
        found.append(f"not more than half of the brokers are there ({numbers(image.brokers)})")
    found += [
        f"all of rack {rack} is away (broker {numbers(brokers)})" for rack, brokers in dead_racks(situation, away)
    ]
    maintained = (situation.lost | situation.failing) & situation.in_maintenance
    found += [f"broker {broker} is in maintenance" for broker in sorted(maintained)]
    return found


def dead_racks(situation: Situation, away: Collection[int]) -> list[tuple[str, list[int]]]:
    """Racks of which nobody is there.

    Where every broker has a rack of its own its name says no more than the broker's number: racks count for nothing.
    """
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(situation.racks.items()):
        if rack is not None:
            by_rack.setdefault(rack, []).append(broker)
    if len(by_rack) < 2 or all(len(brokers) == 1 for brokers in by_rack.values()):
        return []
    return [(rack, brokers) for rack, brokers in sorted(by_rack.items()) if all(each in away for each in brokers)]


def numbers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def partitions_text(names: Sequence[TopicPartition]) -> str:
    """`3 partitions (a-0, a-1, b-0)`."""
    more = ", ..." if len(names) > NAMES_MAX else ""
    word = "partition" if len(names) == 1 else "partitions"
    return f"{len(names)} {word} ({', '.join(map(str, names[:NAMES_MAX]))}{more})"

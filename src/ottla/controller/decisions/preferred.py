"""Leaders by request and by the clock: preferred replicas, and replicas that are not in sync.

Pure, under the rules of machine.py. The preferred leader of a partition is the first of its replicas: placement spreads
these evenly, so a cluster whose partitions are led by them is balanced. An unclean election gives a partition without a
leader to a replica that may lack acknowledged records; it happens only where somebody asks for it. A preferred replica
whose broker rests (in maintenance, or slow) gets nothing that somebody else leads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.decisions.changes import UsableBrokers, commit_partitions
from ottla.controller.decisions.leader_election import RECOVERING
from ottla.controller.decisions.liveness import Liveness, Rules, rules_of, with_isr
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.reassignment import is_moving
from ottla.controller.image import MetadataImage, PartitionImage

MESSAGES: Final = {
    Error.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    Error.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    Error.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


class ElectionType(IntEnum):
    """What kind of leader is asked for, by its number on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """What became of one partition."""

    partition: TopicPartition
    error: Error = Error.NONE
    message: str | None = None


def decide_elections(
    image: MetadataImage,
    kind: ElectionType,
    wanted: Sequence[TopicPartition] | None,
    liveness: Liveness,
    defaults: Rules,
) -> Decision[list[ElectionResult]]:
    """Elect in these partitions, or in all; of all only those are told whose election was needed."""
    names = all_partitions(image) if wanted is None else wanted
    results = []
    changes: dict[TopicPartition, PartitionImage] = {}
    brokers = UsableBrokers(image, liveness)
    for name in names:
        old = image.partition(*name)
        if old is None:
            results.append(unknown(image, name))
            continue
        usable = brokers.of(name)
        if kind is ElectionType.PREFERRED:
            answer = elected_preferred(old, usable, liveness.resting)
        else:
            answer = elected_unclean(old, image.brokers, usable, rules_of(image, name.topic, defaults))
        if isinstance(answer, PartitionImage):
            changes[name] = answer
            results.append(ElectionResult(name))
        elif wanted is not None or answer is not Error.ELECTION_NOT_NEEDED:
            results.append(ElectionResult(name, answer, MESSAGES[answer]))
    return Decision(*commit_partitions(image, changes), results)


def decide_balance(image: MetadataImage, percentage_max: int, liveness: Liveness) -> Decision[int]:
    """Give leadership back to preferred replicas, broker by broker, where too many partitions have strayed.

    `percentage_max` is how many of the partitions that a broker should lead may be led by others. Partitions on the
    move and those whose preferred replica is not in sync or rests are left alone. The reply is how many leaders changed
    hands.
    """
    should, strayed = preferences(image)
    brokers = UsableBrokers(image, liveness)
    changes: dict[TopicPartition, PartitionImage] = {}
    for broker, names in strayed.items():
        if broker not in image.brokers or 100 * len(names) <= percentage_max * should[broker]:
            continue
        for name in names:
            old = image.topics[name.topic].partitions[name.partition]
            if is_moving(old):
                continue
            answer = elected_preferred(old, brokers.of(name), liveness.resting)
            if isinstance(answer, PartitionImage):
                changes[name] = answer
    return Decision(*commit_partitions(image, changes), len(changes))


def preferences(image: MetadataImage) -> tuple[dict[int, int], dict[int, list[TopicPartition]]]:
    """For each broker how many partitions prefer it, and which of those are led by another."""
    should: dict[int, int] = {}
    strayed: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            should[preferred] = should.get(preferred, 0) + 1
            if partition.leader != preferred:
                strayed.setdefault(preferred, []).append(TopicPartition(topic.name, index))
    return should, strayed


def elected_preferred(
    old: PartitionImage, usable: Collection[int], resting: Collection[int] = ()
) -> PartitionImage | Error:
    preferred = old.replicas[0]
    if old.leader == preferred and preferred in usable:
        return Error.ELECTION_NOT_NEEDED
    if old.is_damaged or preferred not in old.isr or preferred not in usable:
        return Error.PREFERRED_LEADER_NOT_AVAILABLE
    if preferred in resting and old.leader in usable:
        return Error.PREFERRED_LEADER_NOT_AVAILABLE
    return old._replace(leader=preferred, leader_epoch=old.leader_epoch + 1)


def elected_unclean(
    old: PartitionImage, alive: Collection[int], usable: Collection[int], rules: Rules
) -> PartitionImage | Error:
    """A leader at any price, but no higher a price than needed: replicas that have everything come first."""
    if old.leader in alive:
        return Error.ELECTION_NOT_NEEDED
    if old.is_damaged:  # who has what is not known: even the price is not
        return Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
    living = [replica for replica in old.replicas if replica in usable]
    epoch = old.leader_epoch + 1
    for replica in first_of(living, old.isr):
        return old._replace(leader=replica, leader_epoch=epoch)
    for replica in first_of(living, old.eligible):
        return with_isr(old, (replica,), rules)._replace(leader=replica, leader_epoch=epoch)
    if not living:
        return Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return old._replace(
        leader=living[0],
        leader_epoch=epoch,
        isr=(living[0],),
        leader_recovery_state=RECOVERING,
        eligible=(),
        last_known_eligible=(),
    )


def first_of(replicas: Iterable[int], wanted: Collection[int]) -> Iterator[int]:
    return (replica for replica in replicas if replica in wanted)


def all_partitions(image: MetadataImage) -> list[TopicPartition]:
    return [TopicPartition(topic.name, n) for topic in image.topics.values() for n in range(len(topic.partitions))]


def unknown(image: MetadataImage, name: TopicPartition) -> ElectionResult:
    what = f"partition as {name.topic}-{name.partition}" if name.topic in image.topics else f"topic as {name.topic}"
    return ElectionResult(name, Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")

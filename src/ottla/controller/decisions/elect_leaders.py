"""Preferred and unclean leader elections by request (ElectLeaders). Pure.

The preferred leader of a partition is its first replica: placement distributes these evenly, so a cluster is balanced
when they lead. An unclean election makes a replica the leader that may lack acknowledged records, only by request and
only without a leader. A preferred replica on a demoted broker (in maintenance, or slow) does not replace a leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.controller.decisions.decision import Decision, partition_operations
from ottla.controller.decisions.leader_election import LEADER_RECOVERING
from ottla.controller.decisions.leader_eligibility import (
    BrokerAvailability,
    ElectionRules,
    LeaderCandidates,
    topic_rules,
    with_isr,
)
from ottla.controller.image import MetadataImage, PartitionImage

MESSAGES: Final = {
    Error.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    Error.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    Error.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


class ElectionType(IntEnum):
    """The type of an election, with the numbers of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """The result for one partition."""

    partition: TopicPartition
    error: Error = Error.NONE
    message: str | None = None


def decide_elections(
    image: MetadataImage,
    kind: ElectionType,
    wanted: Sequence[TopicPartition] | None,
    liveness: BrokerAvailability,
    defaults: ElectionRules,
) -> Decision[list[ElectionResult]]:
    """Elect leaders of these partitions, or of all; then the reply has only those that needed an election."""
    names = all_partitions(image) if wanted is None else wanted
    results = []
    changes: dict[TopicPartition, PartitionImage] = {}
    brokers = LeaderCandidates(image, liveness)
    for name in names:
        old = image.partition(*name)
        if old is None:
            results.append(unknown_partition(image, name))
            continue
        usable = brokers.for_partition(name)
        if kind is ElectionType.PREFERRED:
            answer = elect_preferred(old, usable, liveness.demoted)
        else:
            answer = elect_unclean(old, image.brokers, usable, topic_rules(image, name.topic, defaults))
        if isinstance(answer, PartitionImage):
            changes[name] = answer
            results.append(ElectionResult(name))
        elif wanted is not None or answer is not Error.ELECTION_NOT_NEEDED:
            results.append(ElectionResult(name, answer, MESSAGES[answer]))
    return Decision(*partition_operations(image, changes), results)


def elect_preferred(
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


def elect_unclean(
    old: PartitionImage, alive: Collection[int], usable: Collection[int], rules: ElectionRules
) -> PartitionImage | Error:
    """Elect a leader with the least loss: replicas in the ISR first, then in the ELR, then any live replica."""
    if old.leader in alive:
        return Error.ELECTION_NOT_NEEDED
    if old.is_damaged:  # ISR and ELR are unknown
        return Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
    living = [replica for replica in old.replicas if replica in usable]
    epoch = old.leader_epoch + 1
    for replica in replicas_among(living, old.isr):
        return old._replace(leader=replica, leader_epoch=epoch)
    for replica in replicas_among(living, old.elr):
        return with_isr(old, (replica,), rules)._replace(leader=replica, leader_epoch=epoch)
    if not living:
        return Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return old._replace(
        leader=living[0],
        leader_epoch=epoch,
        isr=(living[0],),
        leader_recovery_state=LEADER_RECOVERING,
        elr=(),
        last_known_elr=(),
    )


def replicas_among(replicas: Iterable[int], wanted: Collection[int]) -> Iterator[int]:
    return (replica for replica in replicas if replica in wanted)


def all_partitions(image: MetadataImage) -> list[TopicPartition]:
    return [TopicPartition(topic.name, n) for topic in image.topics.values() for n in range(len(topic.partitions))]


def unknown_partition(image: MetadataImage, name: TopicPartition) -> ElectionResult:
    what = f"partition as {name.topic}-{name.partition}" if name.topic in image.topics else f"topic as {name.topic}"
    return ElectionResult(name, Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")

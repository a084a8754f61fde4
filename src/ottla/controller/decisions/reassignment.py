"""Partition reassignments (KIP-455). Pure, by the rules of decision.py.

A reassignment has three steps. Its state is in the topic node, so any controller can continue it:

    start     replicas = target + removing replicas; adding and removing are listed. Followers start to copy.
    catch up  the leader adds the new replicas to the ISR one by one; no decision is needed here.
    complete  when all adding replicas are in sync: replicas = target, one of them leads, the others delete their logs.

Rule 1: a reassignment never reduces availability: it is not completed while that would leave fewer replicas in sync
        than min.insync.replicas, although enough are in sync now.
Rule 2: a removed replica leaves the ISR and the replicas in the same write, under a new leader epoch.
Rule 3: a new request during a reassignment changes its target; replicas that were added only for the old target are
        removed. The original replicas stay until the completion.
Rule 4: a cancellation removes the added replicas and keeps the current order of the others (as in Kafka: the first
        original replica in the target stays first).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.new_partitions import check_manual_replicas
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, check_readable, partition_operations
from ottla.controller.decisions.leader_election import LEADER_RECOVERING
from ottla.controller.decisions.leader_eligibility import (
    BrokerAvailability,
    ElectionRules,
    LeaderCandidates,
    excluding,
    topic_rules,
    with_isr,
)
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage

R = TypeVar("R")


class ReassignmentRequest(NamedTuple):
    """The requested replicas of a partition; None cancels its reassignment."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None


class ReassignmentResult(NamedTuple):
    """The result for one partition."""

    partition: TopicPartition
    error: Error = Error.NONE
    message: str | None = None


class OngoingReassignment(NamedTuple):
    """A reassignment in progress."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return excluding(self.replicas, self.removing)


def decide_reassignments(
    image: MetadataImage,
    requests: Sequence[ReassignmentRequest],
    liveness: BrokerAvailability,
    defaults: ElectionRules,
    *,
    may_change_factor: bool = True,
) -> Decision[list[ReassignmentResult]]:
    """Start, change or cancel reassignments; of several requests for one partition the last one is used."""
    results = []
    changes: dict[TopicPartition, PartitionImage] = {}
    brokers = LeaderCandidates(image, liveness)
    for request in requests:
        try:
            old = find_partition(image, request.partition)
            usable = brokers.for_partition(request.partition)
            rules = topic_rules(image, request.partition.topic, defaults)
            if request.replicas is None:
                new = cancel_reassignment(request.partition, old, usable, rules)
            else:
                check_target(image, old, request.replicas, may_change_factor)
                new = start_reassignment(request.partition, old, request.replicas, usable, rules)
        except KafkaError as refusal:
            results.append(ReassignmentResult(request.partition, refusal.error, refusal.message))
            continue
        results.append(ReassignmentResult(request.partition))
        if new != old:
            changes[request.partition] = new
        else:
            changes.pop(request.partition, None)
    return Decision(*partition_operations(image, changes), results)


def decide_completed_reassignments(
    image: MetadataImage, topics: Iterable[str], liveness: BrokerAvailability, defaults: ElectionRules
) -> Decision[int]:
    """Complete the reassignments of these topics whose replicas have caught up; the reply is their number."""
    changes: dict[TopicPartition, PartitionImage] = {}
    brokers: LeaderCandidates | None = None
    for move in ongoing_reassignments(image, topics):
        if tree.topic_path(move.partition.topic) in image.damaged:
            continue
        old = image.topics[move.partition.topic].partitions[move.partition.partition]
        brokers = brokers or LeaderCandidates(image, liveness)
        usable = brokers.for_partition(move.partition)
        new = complete_if_caught_up(old, usable, topic_rules(image, move.partition.topic, defaults))
        if new != old:
            changes[move.partition] = new
    return Decision(*partition_operations(image, changes), len(changes)) if changes else Decision((), image, 0)


def with_completed_reassignments(
    old: MetadataImage,
    decision: Decision[R],
    liveness: BrokerAvailability,
    defaults: ElectionRules,
    reassigning_topics: Iterable[str] | None = None,
) -> Decision[R]:
    """Add to any decision the completions of reassignments in the topics that it changes.

    `reassigning_topics` are the topics of the old image with reassignments, if they are known.
    """
    new = decision.image
    if new is old:
        return decision
    # A completion may have waited for a restarted broker.
    topics: Iterable[str] = new.changed_topics_since(old)
    if new.brokers is not old.brokers:
        topics = new.topics if reassigning_topics is None else {*topics, *reassigning_topics}
    steps = decide_completed_reassignments(new, topics, liveness, defaults)
    if not steps.operations:
        return decision
    return decision._replace(operations=(*decision.operations, *steps.operations), image=steps.image)


def ongoing_reassignments(image: MetadataImage, topics: Iterable[str] | None = None) -> Iterator[OngoingReassignment]:
    """Yield the reassignments in progress, of all topics or of these."""
    for name in image.topics if topics is None else topics:
        topic = image.topics.get(name)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            if is_reassigning(partition):
                names = TopicPartition(name, index)
                yield OngoingReassignment(
                    names, partition.replicas, partition.adding_replicas, partition.removing_replicas
                )


def is_reassigning(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# ---- the steps


def start_reassignment(
    name: TopicPartition, old: PartitionImage, target: Sequence[int], usable: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """Return the partition with a new target; completed at once if no replica must be copied."""
    origin = excluding(old.replicas, old.adding_replicas)
    going = excluding(origin, target)
    replicas = (*target, *going)
    dropped = excluding(old.replicas, replicas)
    kept = drop_replicas(name, old, dropped, usable, rules)
    wanted = kept._replace(
        replicas=replicas, adding_replicas=excluding(target, origin), removing_replicas=excluding(going, target)
    )
    return complete_if_caught_up(wanted, usable, rules)


def cancel_reassignment(
    name: TopicPartition, old: PartitionImage, usable: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """Return the partition without its reassignment; the order of the replicas may have changed."""
    if not is_reassigning(old):
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    kept = drop_replicas(name, old, old.adding_replicas, usable, rules)
    return kept._replace(adding_replicas=(), removing_replicas=())


def complete_if_caught_up(old: PartitionImage, usable: Collection[int], rules: ElectionRules) -> PartitionImage:
    """Return the partition with only its target replicas, or unchanged if it cannot be completed yet."""
    if not is_reassigning(old) or old.is_damaged:
        return old
    isr = excluding(old.isr, old.removing_replicas)
    target = excluding(old.replicas, old.removing_replicas)
    if not isr or any(replica not in isr for replica in old.adding_replicas):
        return old
    if len(isr) < min(rules.min_insync_replicas, len(target), len(old.isr)):  # rule 1
        return old
    if old.leader != NO_LEADER and not any(replica in usable for replica in isr):
        return old
    new = remove_replicas(old, old.removing_replicas, isr, usable, rules)
    return new._replace(adding_replicas=(), removing_replicas=())


def drop_replicas(
    name: TopicPartition, old: PartitionImage, gone: Collection[int], usable: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """Remove replicas that were being added; rejected if no replica in sync would remain."""
    isr = excluding(old.isr, gone)
    if isr or not gone:
        return remove_replicas(old, gone, isr, usable, rules)
    if not rules.unclean_leader_election:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name.topic}:{name.partition} because it would require an "
            "unclean leader election.",
        )
    first = excluding(old.replicas, gone)[:1]
    new = remove_replicas(old, gone, first, usable, rules)
    return new._replace(leader_recovery_state=LEADER_RECOVERING, elr=(), last_known_elr=())


def remove_replicas(
    old: PartitionImage, gone: Collection[int], isr: tuple[int, ...], usable: Collection[int], rules: ElectionRules
) -> PartitionImage:
    """Remove replicas from all lists (rule 2); the new leader epoch informs the removed ones."""
    if not gone:
        return old
    left = old._replace(
        replicas=excluding(old.replicas, gone),
        elr=excluding(old.elr, gone),
        last_known_elr=excluding(old.last_known_elr, gone),
    )
    leader = next_leader(old.leader, left.replicas, isr, usable)
    return with_isr(left, isr, rules)._replace(leader=leader, leader_epoch=old.leader_epoch + 1)


def next_leader(leader: int, replicas: Sequence[int], isr: Collection[int], usable: Collection[int]) -> int:
    """Return the leader if it is usable, otherwise the first usable replica in sync."""
    if leader in isr and leader in usable:
        return leader
    return next((replica for replica in replicas if replica in isr and replica in usable), NO_LEADER)


# ---- checks


def find_partition(image: MetadataImage, name: TopicPartition) -> PartitionImage:
    if name.topic not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name.topic}.")
    partition = image.partition(*name)
    if partition is None:
        message = f"Unable to find partition {name.topic}:{name.partition}."
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, message)
    check_readable(image, tree.topic_path(name.topic), tree.partition_state_path(*name))
    return partition


def check_target(image: MetadataImage, old: PartitionImage, target: Sequence[int], may_change_factor: bool) -> None:
    """Check a target: brokers that are down may keep replicas but get no new ones."""
    held = excluding(old.replicas, old.adding_replicas)
    check_manual_replicas({*image.brokers, *held}, target, None)
    before = len(excluding(old.replicas, old.removing_replicas))
    if not may_change_factor and len(target) != before:
        message = f"The replication factor is changed from {before} to {len(target)}"
        raise KafkaError(Error.INVALID_REPLICATION_FACTOR, message)

"""Replicas that move: from the wish to the last step.  Pure, under the rules of machine.py.

A move has three steps, and what is under way stands in the topic's node, so that any controller can go on with it:

    wish      replicas = target + what goes; adding and removing say which is which. Followers begin to copy.
    catch up  the leader takes the new replicas into the ISR one after the other; nothing is decided here.
    switch    when all that are added are in sync: replicas = target, one of them leads, the others delete their logs.

Rule 1: a move never costs availability: the switch waits while it would leave fewer replicas in sync than
        min.insync.replicas asks for, although enough are in sync now.
Rule 2: a replica that goes leaves the ISR in the same write in which it leaves the replicas, under a new leader epoch.
Rule 3: whoever asks for something else while a move is under way changes its target; what was being added for the old
        target only is dropped. The brokers that held the partition before the move stay until the switch.
Rule 4: cancelling drops what was added, in the order that the brokers have by then (as Kafka: the first of the target
        that held the partition before stays in front).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.placement.new_partitions import check_manual_replicas
from ottla.controller import tree
from ottla.controller.decisions.changes import UsableBrokers, commit_partitions, without
from ottla.controller.decisions.leader_election import RECOVERING
from ottla.controller.decisions.liveness import Liveness, Rules, rules_of, with_isr
from ottla.controller.decisions.machine import Decision, check_readable
from ottla.controller.image import NO_LEADER, MetadataImage, PartitionImage

R = TypeVar("R")


class Wish(NamedTuple):
    """Who shall hold a partition; None ends a move that is under way."""

    partition: TopicPartition
    replicas: tuple[int, ...] | None


class MoveResult(NamedTuple):
    """What became of one wish."""

    partition: TopicPartition
    error: Error = Error.NONE
    message: str | None = None


class Move(NamedTuple):
    """A move that is under way."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return without(self.replicas, self.removing)


def decide_reassignments(
    image: MetadataImage,
    wishes: Sequence[Wish],
    liveness: Liveness,
    defaults: Rules,
    *,
    may_change_factor: bool = True,
) -> Decision[list[MoveResult]]:
    """Begin, change or end moves; of several wishes for one partition the last one counts."""
    results = []
    changes: dict[TopicPartition, PartitionImage] = {}
    brokers = UsableBrokers(image, liveness)
    for wish in wishes:
        try:
            old = find_partition(image, wish.partition)
            usable = brokers.of(wish.partition)
            rules = rules_of(image, wish.partition.topic, defaults)
            if wish.replicas is None:
                new = cancelled(wish.partition, old, usable, rules)
            else:
                check_wish(image, old, wish.replicas, may_change_factor)
                new = begun(wish.partition, old, wish.replicas, usable, rules)
        except KafkaError as refusal:
            results.append(MoveResult(wish.partition, refusal.error, refusal.message))
            continue
        results.append(MoveResult(wish.partition))
        if new != old:
            changes[wish.partition] = new
        else:
            changes.pop(wish.partition, None)
    return Decision(*commit_partitions(image, changes), results)


def decide_next_steps(
    image: MetadataImage, topics: Iterable[str], liveness: Liveness, defaults: Rules
) -> Decision[int]:
    """Switch over all moves in these topics whose replicas have caught up; the reply is how many."""
    changes: dict[TopicPartition, PartitionImage] = {}
    brokers: UsableBrokers | None = None
    for move in moves(image, topics):
        if tree.topic_path(move.partition.topic) in image.damaged:
            continue
        old = image.topics[move.partition.topic].partitions[move.partition.partition]
        brokers = brokers or UsableBrokers(image, liveness)
        usable = brokers.of(move.partition)
        new = switched(old, usable, rules_of(image, move.partition.topic, defaults))
        if new != old:
            changes[move.partition] = new
    return Decision(*commit_partitions(image, changes), len(changes)) if changes else Decision((), image, 0)


def with_next_steps(
    old: MetadataImage,
    decision: Decision[R],
    liveness: Liveness,
    defaults: Rules,
    moving: Iterable[str] | None = None,
) -> Decision[R]:
    """A decision about anything, and what follows from it for moves in the topics that it changes: one write.

    `moving` are the topics of the old image with moves, if anybody knows them.
    """
    new = decision.image
    if new is old:
        return decision
    # A broker that is back may be the one that a switch was waiting for.
    topics: Iterable[str] = new.changed_topics_since(old)
    if new.brokers is not old.brokers:
        topics = new.topics if moving is None else {*topics, *moving}
    steps = decide_next_steps(new, topics, liveness, defaults)
    if not steps.operations:
        return decision
    return decision._replace(operations=(*decision.operations, *steps.operations), image=steps.image)


def moves(image: MetadataImage, topics: Iterable[str] | None = None) -> Iterator[Move]:
    """All moves that are under way, of all topics or of these."""
    for name in image.topics if topics is None else topics:
        topic = image.topics.get(name)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            if is_moving(partition):
                names = TopicPartition(name, index)
                yield Move(names, partition.replicas, partition.adding_replicas, partition.removing_replicas)


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


# ---- the steps


def begun(
    name: TopicPartition, old: PartitionImage, target: Sequence[int], usable: Collection[int], rules: Rules
) -> PartitionImage:
    """The partition with a new target; already switched over if nothing has to be copied."""
    origin = without(old.replicas, old.adding_replicas)
    going = without(origin, target)
    replicas = (*target, *going)
    dropped = without(old.replicas, replicas)
    kept = drop_replicas(name, old, dropped, usable, rules)
    wanted = kept._replace(
        replicas=replicas, adding_replicas=without(target, origin), removing_replicas=without(going, target)
    )
    return switched(wanted, usable, rules)


def cancelled(name: TopicPartition, old: PartitionImage, usable: Collection[int], rules: Rules) -> PartitionImage:
    """The partition as it was before the move, but for the order of its replicas."""
    if not is_moving(old):
        raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    kept = drop_replicas(name, old, old.adding_replicas, usable, rules)
    return kept._replace(adding_replicas=(), removing_replicas=())


def switched(old: PartitionImage, usable: Collection[int], rules: Rules) -> PartitionImage:
    """The partition on its target alone, or as it is if that would be too early."""
    if not is_moving(old) or old.is_damaged:
        return old
    isr = without(old.isr, old.removing_replicas)
    target = without(old.replicas, old.removing_replicas)
    if not isr or any(replica not in isr for replica in old.adding_replicas):
        return old
    if len(isr) < min(rules.min_insync_replicas, len(target), len(old.isr)):  # rule 1
        return old
    if old.leader != NO_LEADER and not any(replica in usable for replica in isr):
        return old
    new = remove_replicas(old, old.removing_replicas, isr, usable, rules)
    return new._replace(adding_replicas=(), removing_replicas=())


def drop_replicas(
    name: TopicPartition, old: PartitionImage, gone: Collection[int], usable: Collection[int], rules: Rules
) -> PartitionImage:
    """Without replicas that were only on their way; refused if nothing that is in sync would be left."""
    isr = without(old.isr, gone)
    if isr or not gone:
        return remove_replicas(old, gone, isr, usable, rules)
    if not rules.unclean_leader_election:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name.topic}:{name.partition} because it would require an "
            "unclean leader election.",
        )
    first = without(old.replicas, gone)[:1]
    new = remove_replicas(old, gone, first, usable, rules)
    return new._replace(leader_recovery_state=RECOVERING, eligible=(), last_known_eligible=())


def remove_replicas(
    old: PartitionImage, gone: Collection[int], isr: tuple[int, ...], usable: Collection[int], rules: Rules
) -> PartitionImage:
    """Rule 2: out of everything at once, and the leader's epoch tells those who go that they are out."""
    if not gone:
        return old
    left = old._replace(
        replicas=without(old.replicas, gone),
        eligible=without(old.eligible, gone),
        last_known_eligible=without(old.last_known_eligible, gone),
    )
    leader = next_leader(old.leader, left.replicas, isr, usable)
    return with_isr(left, isr, rules)._replace(leader=leader, leader_epoch=old.leader_epoch + 1)


def next_leader(leader: int, replicas: Sequence[int], isr: Collection[int], usable: Collection[int]) -> int:
    """The leader stays if it can; else the first replica that is in sync and can be given work."""
    if leader in isr and leader in usable:
        return leader
    return next((replica for replica in replicas if replica in isr and replica in usable), NO_LEADER)


# ---- refusals


def find_partition(image: MetadataImage, name: TopicPartition) -> PartitionImage:
    if name.topic not in image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name.topic}.")
    partition = image.partition(*name)
    if partition is None:
        message = f"Unable to find partition {name.topic}:{name.partition}."
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, message)
    check_readable(image, tree.topic_path(name.topic), tree.partition_state_path(*name))
    return partition


def check_wish(image: MetadataImage, old: PartitionImage, target: Sequence[int], may_change_factor: bool) -> None:
    """A broker that is down may keep what it has, but gets nothing new."""
    held = without(old.replicas, old.adding_replicas)
    check_manual_replicas({*image.brokers, *held}, target, None)
    before = len(without(old.replicas, old.removing_replicas))
    if not may_change_factor and len(target) != before:
        message = f"The replication factor is changed from {before} to {len(target)}"
        raise KafkaError(Error.INVALID_REPLICATION_FACTOR, message)


def grouped(results: Iterable[MoveResult]) -> Mapping[str, list[MoveResult]]:
    """Results by topic, in the order in which they came."""
    found: dict[str, list[MoveResult]] = {}
    for result in results:
        found.setdefault(result.partition.topic, []).append(result)
    return found

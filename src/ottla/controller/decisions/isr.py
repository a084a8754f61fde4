"""Who is in sync: what becomes of a leader's proposals (AlterPartition, KIP-497). Pure, rules of machine.py.

A leader proposes the ISR that it sees; it counts only if the leader is still the one that the controller knows, knows
the newest state of the partition, and only for replicas that are not dead, about to stop, or restarted since (KIP-841,
KIP-903). The order of the checks and the codes are Kafka's, but the eligible part of a proposal is taken over: the
answer tells which ISR counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.controller.decisions.leader_election import RECOVERING
from ottla.controller.decisions.liveness import Liveness, Rules, rules_of, with_isr
from ottla.controller.decisions.machine import Decision
from ottla.controller.decisions.single_broker_leaders import leader_operations
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import StoreOperation

ANY_EPOCH: Final = -1  # of a broker in a proposed ISR: its leader does not say which life it means


class IsrChange(NamedTuple):
    """What a leader proposes for one partition."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int  # of the state that the proposal is about
    isr: tuple[tuple[int, int], ...]  # brokers and their epochs
    leader_recovery_state: int = 0


class IsrAnswer(NamedTuple):
    """What became of it; without an error, the partition as it is now."""

    change: IsrChange
    error: Error = Error.NONE
    partition: PartitionImage | None = None


def check_broker_epoch(image: MetadataImage, broker: int, epoch: int) -> None:
    """Refuse what an earlier life of a broker has sent. Raises KafkaError(STALE_BROKER_EPOCH)."""
    known = image.brokers.get(broker)
    if known is None or known.epoch != epoch:
        raise KafkaError(Error.STALE_BROKER_EPOCH)


def decide_alter_partitions(
    image: MetadataImage,
    broker: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
    liveness: Liveness,
    defaults: Rules,
) -> Decision[list[IsrAnswer]]:
    """Take over what can be taken over; a proposal for what already is changes nothing and is answered with it."""
    check_broker_epoch(image, broker, broker_epoch)
    operations: list[StoreOperation] = []
    changed: dict[str, dict[int, PartitionImage]] = {}
    answers = []
    for change in changes:
        topic = image.topics_by_id.get(change.topic_id)
        error = problem(broker, change, topic)
        if topic is not None and change.partition in changed.get(topic.name, {}):
            error = Error.INVALID_REQUEST  # twice in one request
        if error is not Error.NONE or topic is None:
            answers.append(IsrAnswer(change, error))
            continue
        old = topic.partitions[change.partition]
        eligible = eligible_part(image, change, topic, old, liveness)
        new = altered(image, topic, old, eligible, defaults)
        if eligible is not change and new is old:
            answers.append(IsrAnswer(change, Error.INELIGIBLE_REPLICA))
            continue
        if new is not old:
            changed.setdefault(topic.name, {})[change.partition] = new
            operations.extend(leader_operations(image, topic, change.partition, new))
        answers.append(IsrAnswer(change, Error.NONE, new))
    topics = [with_partitions(image.topics[name], partitions) for name, partitions in changed.items()]
    return Decision(tuple(operations), image.with_topics(topics) if topics else image, answers)


def problem(broker: int, change: IsrChange, topic: TopicImage | None) -> Error:
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    if not 0 <= change.partition < len(topic.partitions):
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[change.partition]
    if partition.is_damaged:
        return Error.INVALID_UPDATE_VERSION  # the leader asks again; by then somebody may have restored the state
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return Error.NOT_CONTROLLER  # the leader has seen a later controller than this one
    if change.leader_epoch < partition.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if broker != partition.leader:
        return Error.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return Error.INVALID_UPDATE_VERSION
    return isr_problem(change, partition)


def isr_problem(change: IsrChange, partition: PartitionImage) -> Error:
    isr = [broker for broker, _ in change.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return Error.INVALID_REQUEST
    if change.leader_recovery_state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state != RECOVERING):
        return Error.INVALID_REQUEST
    return Error.NONE


def eligible_part(
    image: MetadataImage, change: IsrChange, topic: TopicImage, partition: PartitionImage, liveness: Liveness
) -> IsrChange:
    """The change without replicas that must not be in sync: one that is dead does not keep others from joining."""
    isr = tuple(
        (broker, epoch)
        for broker, epoch in change.isr
        if broker == partition.leader or is_eligible(image, broker, epoch, topic, change.partition, liveness)
    )
    return change if isr == change.isr else change._replace(isr=isr)


def is_eligible(
    image: MetadataImage, broker: int, epoch: int, topic: TopicImage, index: int, liveness: Liveness
) -> bool:
    known = image.brokers.get(broker)
    if known is None or epoch not in (ANY_EPOCH, known.epoch):
        return False
    return broker not in liveness.shutting_down and not liveness.has_offline(broker, topic.topic_id, index)


def altered(
    image: MetadataImage, topic: TopicImage, old: PartitionImage, change: IsrChange, defaults: Rules
) -> PartitionImage:
    isr = tuple(broker for broker in old.replicas if broker in {member for member, _ in change.isr})
    if set(isr) == set(old.isr) and change.leader_recovery_state == old.leader_recovery_state:
        return old
    new = with_isr(old, isr, rules_of(image, topic.name, defaults))
    return new._replace(leader_recovery_state=change.leader_recovery_state, partition_epoch=old.partition_epoch + 1)


def with_partitions(topic: TopicImage, changed: dict[int, PartitionImage]) -> TopicImage:
    return topic._replace(
        partitions=tuple(changed.get(index, partition) for index, partition in enumerate(topic.partitions))
    )

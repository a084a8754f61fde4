"""AlterPartition: ISR proposals of leaders (KIP-497). Pure, by the rules of decision.py.

A proposal is accepted only from the current leader with the current epochs. Replicas on brokers that are down, shutting
down, or restarted since are not accepted (KIP-841, KIP-903). The order of the checks and the error codes are Kafka's.
Unlike in Kafka, the eligible part of a proposal is accepted: the response has the resulting ISR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.controller.decisions.decision import Decision, partition_state_operations
from ottla.controller.decisions.leader_election import LEADER_RECOVERING
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules, topic_rules, with_isr
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.controller.stores.store import StoreOperation

ANY_BROKER_EPOCH: Final = -1  # the broker epoch in a proposal of a leader that sends none


class IsrChange(NamedTuple):
    """A leader's proposal for one partition."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int  # of the state that the leader knows
    isr: tuple[tuple[int, int], ...]  # brokers and their epochs
    leader_recovery_state: int = 0


class IsrChangeResult(NamedTuple):
    """The result of a proposal; without an error it has the resulting partition."""

    change: IsrChange
    error: Error = Error.NONE
    partition: PartitionImage | None = None


def check_broker_epoch(image: MetadataImage, broker: int, epoch: int) -> None:
    """Check the epoch. Raises KafkaError(STALE_BROKER_EPOCH) for a request of a broker's previous registration."""
    known = image.brokers.get(broker)
    if known is None or known.epoch != epoch:
        raise KafkaError(Error.STALE_BROKER_EPOCH)


def decide_alter_partitions(
    image: MetadataImage,
    broker: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
    liveness: BrokerAvailability,
    defaults: ElectionRules,
) -> Decision[list[IsrChangeResult]]:
    """Decide the proposals; one that equals the current state changes nothing."""
    check_broker_epoch(image, broker, broker_epoch)
    operations: list[StoreOperation] = []
    changed: dict[str, dict[int, PartitionImage]] = {}
    answers = []
    for change in changes:
        topic = image.topics_by_id.get(change.topic_id)
        error = change_error(broker, change, topic)
        if topic is not None and change.partition in changed.get(topic.name, {}):
            error = Error.INVALID_REQUEST  # a duplicate in the request
        if error is not Error.NONE or topic is None:
            answers.append(IsrChangeResult(change, error))
            continue
        old = topic.partitions[change.partition]
        eligible = without_ineligible(image, change, topic, old, liveness)
        new = apply_isr_change(image, topic, old, eligible, defaults)
        if eligible is not change and new is old:
            answers.append(IsrChangeResult(change, Error.INELIGIBLE_REPLICA))
            continue
        if new is not old:
            changed.setdefault(topic.name, {})[change.partition] = new
            operations.extend(partition_state_operations(image, topic, change.partition, new))
        answers.append(IsrChangeResult(change, Error.NONE, new))
    topics = [replace_partitions(image.topics[name], partitions) for name, partitions in changed.items()]
    return Decision(tuple(operations), image.with_topics(topics) if topics else image, answers)


def change_error(broker: int, change: IsrChange, topic: TopicImage | None) -> Error:
    if topic is None:
        return Error.UNKNOWN_TOPIC_ID
    if not 0 <= change.partition < len(topic.partitions):
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partitions[change.partition]
    if partition.is_damaged:
        return Error.INVALID_UPDATE_VERSION  # the leader retries, and the state may be restored by then
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        return Error.NOT_CONTROLLER  # the leader has seen a later controller than this one
    if change.leader_epoch < partition.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    if broker != partition.leader:
        return Error.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return Error.INVALID_UPDATE_VERSION
    return isr_error(change, partition)


def isr_error(change: IsrChange, partition: PartitionImage) -> Error:
    isr = [broker for broker, _ in change.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return Error.INVALID_REQUEST
    if change.leader_recovery_state == LEADER_RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state != LEADER_RECOVERING
    ):
        return Error.INVALID_REQUEST
    return Error.NONE


def without_ineligible(
    image: MetadataImage, change: IsrChange, topic: TopicImage, partition: PartitionImage, liveness: BrokerAvailability
) -> IsrChange:
    """Return the proposal without ineligible replicas, so that one of them does not prevent others from joining."""
    isr = tuple(
        (broker, epoch)
        for broker, epoch in change.isr
        if broker == partition.leader or is_eligible_for_isr(image, broker, epoch, topic, change.partition, liveness)
    )
    return change if isr == change.isr else change._replace(isr=isr)


def is_eligible_for_isr(
    image: MetadataImage, broker: int, epoch: int, topic: TopicImage, index: int, liveness: BrokerAvailability
) -> bool:
    known = image.brokers.get(broker)
    if known is None or epoch not in (ANY_BROKER_EPOCH, known.epoch):
        return False
    return broker not in liveness.shutting_down and not liveness.has_offline(broker, topic.topic_id, index)


def apply_isr_change(
    image: MetadataImage, topic: TopicImage, old: PartitionImage, change: IsrChange, defaults: ElectionRules
) -> PartitionImage:
    isr = tuple(broker for broker in old.replicas if broker in {member for member, _ in change.isr})
    if set(isr) == set(old.isr) and change.leader_recovery_state == old.leader_recovery_state:
        return old
    new = with_isr(old, isr, topic_rules(image, topic.name, defaults))
    return new._replace(leader_recovery_state=change.leader_recovery_state, partition_epoch=old.partition_epoch + 1)


def replace_partitions(topic: TopicImage, changed: dict[int, PartitionImage]) -> TopicImage:
    return topic._replace(
        partitions=tuple(changed.get(index, partition) for index, partition in enumerate(topic.partitions))
    )

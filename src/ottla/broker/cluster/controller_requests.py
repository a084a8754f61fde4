"""Requests of this broker to the controller: topics, producer ids, ISR changes, controlled shutdown.

The controller may be this broker (always on a standalone broker) or another one; this makes no difference for callers.
In a cluster requests are retried while there is no controller; after the timeout they raise KafkaError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller.auto_topic_creation import AutoTopicCreationManager
from ottla.controller.decisions.isr_changes import IsrChange, IsrChangeResult
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult
from ottla.controller.image import PartitionImage
from ottla.controller.producer_ids import ProducerIdManager
from ottla.protocol.messages.inter_broker import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlteredPartition,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.replication.leader_state import AlterPartitionProposal

if TYPE_CHECKING:
    from ottla.broker.cluster.controller_channel import ControllerChannel
    from ottla.broker.node import Node
    from ottla.controller.cluster.membership import ClusterMembership
    from ottla.controller.image import MetadataImage
    from ottla.controller.service import ControllerService

CREATE_TIMEOUT_MS: Final = 15_000
PRODUCER_IDS_TIMEOUT_MS: Final = 10_000
ALTER_PARTITION_TIMEOUT_MS: Final = 10_000
IMAGE_WAIT_SECONDS: Final = 5.0  # between the controller's response and the image with the new topic


class AlterPartitionResult(NamedTuple):
    """The result of an ISR proposal; without an error, the current state of the partition."""

    error: Error
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


class ControllerRequests:
    """Sends requests to the local or remote controller."""

    def __init__(
        self,
        node: Node,
        controller: ControllerService,
        cluster: ClusterMembership | None = None,
        link: ControllerChannel | None = None,
    ) -> None:
        """`cluster` and `link` are None on a standalone broker."""
        self._node = node
        self._controller = controller
        self._membership = cluster
        self._channel = link
        self._auto_creation = AutoTopicCreationManager(self.create_topics, node.clock)
        self.producer_ids = ProducerIdManager(self.allocate_producer_ids)

    @property
    def _remote_controller(self) -> ControllerChannel | None:
        """The channel to the controller; None if the controller is on this broker."""
        return None if self._membership is None or self._membership.is_controller else self._channel

    # ---- topics

    async def auto_create(self, names: Iterable[str]) -> None:
        """Create missing topics with the defaults; the image shows which exist."""
        await self._auto_creation.create_missing(names)

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicResult]:
        """Create topics. Usually they are in this broker's image when this returns."""
        if (link := self._remote_controller) is not None:
            answer = await link.send(
                CreateTopicsRequest(topics=[to_creatable(topic) for topic in wanted], timeout_ms=CREATE_TIMEOUT_MS),
                CreateTopicsResponse,
                timeout_ms=CREATE_TIMEOUT_MS,
                is_not_controller=lambda made: any(row.error_code == Error.NOT_CONTROLLER for row in made.topics),
            )
            if answer is not None:
                await self.wait_for_topics({row.name for row in answer.topics if row.error_code in TOPIC_EXISTS_ERRORS})
                return [TopicResult(row.name, Error(row.error_code), row.error_message) for row in answer.topics]
        return await self._controller.create_topics(wanted)

    async def wait_for_topics(self, names: set[str]) -> None:
        """Wait until this broker's image contains these topics."""
        images = self._node.images
        missing = names - images.image.topics.keys()
        if not missing:
            return
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(_: MetadataImage, new: MetadataImage) -> None:
            if not seen.done() and missing <= new.topics.keys():
                seen.set_result(None)

        images.add_listener(look)
        try:
            await asyncio.wait((seen,), timeout=IMAGE_WAIT_SECONDS)
        finally:
            images.remove_listener(look)

    # ---- producer ids

    async def allocate_producer_ids(self) -> range:
        """Return a block of producer ids for this broker."""
        if (link := self._remote_controller) is not None:
            answer = await link.send(
                AllocateProducerIdsRequest(broker_id=self._node.id, broker_epoch=self._broker_epoch),
                AllocateProducerIdsResponse,
                timeout_ms=PRODUCER_IDS_TIMEOUT_MS,
                is_not_controller=lambda given: given.error_code in RETRIABLE_ERRORS,
            )
            if answer is not None:
                if answer.error_code != Error.NONE:
                    raise KafkaError(Error(answer.error_code))
                return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
        return await self._controller.allocate_producer_ids()

    @property
    def _broker_epoch(self) -> int:
        cluster = self._membership
        return cluster.broker_epoch if cluster is not None else -1

    # ---- in-sync replicas

    async def alter_partitions(self, proposals: Sequence[AlterPartitionProposal]) -> list[AlterPartitionResult]:
        """Return the result of each proposal, in order. Raises KafkaError if all results are unknown."""
        if (link := self._remote_controller) is not None:
            answer = await link.send(
                alter_partition_request(proposals, self._node.id, self._broker_epoch),
                AlterPartitionResponse,
                timeout_ms=ALTER_PARTITION_TIMEOUT_MS,
                is_not_controller=lambda altered: altered.error_code == Error.NOT_CONTROLLER,
            )
            if answer is not None:
                return parse_results(proposals, answer)
        cluster = self._membership
        assert cluster is not None, "a standalone broker has no followers"
        changes = [to_isr_change(proposal) for proposal in proposals]
        answers = await cluster.controller.alter_partitions(self._node.id, self._broker_epoch, changes)
        return [to_result(answer) for answer in answers]

    # ---- shutdown

    async def controlled_shutdown(self, timeout_ms: int) -> list[TopicPartition]:
        """Transfer the leadership of this broker's partitions; returns those that no other replica can lead."""
        if (link := self._remote_controller) is not None:
            answer = await link.send(
                ControlledShutdownRequest(broker_id=self._node.id, broker_epoch=self._broker_epoch),
                ControlledShutdownResponse,
                timeout_ms=timeout_ms,
                is_not_controller=lambda moved: moved.error_code == Error.NOT_CONTROLLER,
            )
            if answer is not None:
                if answer.error_code != Error.NONE:
                    raise KafkaError(Error(answer.error_code))
                return [TopicPartition(row.topic_name, row.partition_index) for row in answer.remaining_partitions]
        cluster = self._membership
        if cluster is None:
            return []
        return await cluster.controller.controlled_shutdown(self._node.id, self._broker_epoch)

    def __repr__(self) -> str:
        return f"<ControllerRequests {self._remote_controller or 'here'}>"


TOPIC_EXISTS_ERRORS: Final = (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
# A broker that has just registered again may be known under its old epoch for a moment.
RETRIABLE_ERRORS: Final = (Error.NOT_CONTROLLER, Error.STALE_BROKER_EPOCH)


def to_creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in topic.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )


def alter_partition_request(
    proposals: Sequence[AlterPartitionProposal], broker_id: int, epoch: int
) -> AlterPartitionRequest:
    topics: dict[UUID, AlterPartitionTopic] = {}
    for proposal in proposals:
        topic = topics.setdefault(proposal.topic_id, AlterPartitionTopic(topic_id=proposal.topic_id))
        topic.partitions.append(
            AlterPartitionPartition(
                partition_index=proposal.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr=[broker for broker, _ in proposal.isr],
                new_isr_with_epochs=[BrokerState(broker_id=broker, broker_epoch=life) for broker, life in proposal.isr],
                leader_recovery_state=int(proposal.is_recovering),
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=list(topics.values()))


def parse_results(
    proposals: Sequence[AlterPartitionProposal], answer: AlterPartitionResponse
) -> list[AlterPartitionResult]:
    if answer.error_code != Error.NONE:
        raise KafkaError(Error(answer.error_code))
    rows: Mapping[tuple[UUID, int], AlteredPartition] = {
        (topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions
    }
    return [
        result_from_row(rows[key]) if (key := (proposal.topic_id, proposal.partition)) in rows else NO_RESULT
        for proposal in proposals
    ]


NO_RESULT: Final = AlterPartitionResult(Error.UNKNOWN_SERVER_ERROR)


def result_from_row(row: AlteredPartition) -> AlterPartitionResult:
    return AlterPartitionResult(
        Error(row.error_code),
        row.leader_id,
        row.leader_epoch,
        tuple(row.isr),
        row.partition_epoch,
        row.leader_recovery_state,
    )


def to_isr_change(proposal: AlterPartitionProposal) -> IsrChange:
    return IsrChange(
        proposal.topic_id,
        proposal.partition,
        proposal.leader_epoch,
        proposal.partition_epoch,
        proposal.isr,
        int(proposal.is_recovering),
    )


def to_result(answer: IsrChangeResult) -> AlterPartitionResult:
    partition: PartitionImage | None = answer.partition
    if partition is None:
        return AlterPartitionResult(answer.error)
    return AlterPartitionResult(
        answer.error,
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )

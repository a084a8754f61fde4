"""What this broker itself wants of the controller: topics, producer ids, other in-sync replicas, leave to stop.

The controller may be this very broker, always so when it is alone, or any other one: callers need not know. In a
cluster a question is asked again while there is no controller, until its time is up; then KafkaError tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.controller.auto_create import AutoCreation
from ottla.controller.decisions.isr import IsrAnswer, IsrChange
from ottla.controller.decisions.machine import NewTopic, TopicResult
from ottla.controller.image import PartitionImage
from ottla.controller.producer_ids import ProducerIds
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
from ottla.replication.leading import IsrProposal

if TYPE_CHECKING:
    from ottla.broker.cluster.controller_link import ControllerLink
    from ottla.broker.node import Node
    from ottla.controller.cluster.membership import Membership
    from ottla.controller.image import MetadataImage
    from ottla.controller.service import ControllerService

CREATE_MS_MAX: Final = 15_000
IDS_MS_MAX: Final = 10_000
ALTER_MS_MAX: Final = 10_000
IMAGE_SECONDS_MAX: Final = 5.0  # between the controller's answer and the news that a topic is there


class IsrVerdict(NamedTuple):
    """What became of a proposal; without an error, the partition as it is now."""

    error: Error
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


class Control:
    """One for each broker."""

    def __init__(
        self,
        node: Node,
        controller: ControllerService,
        cluster: Membership | None = None,
        link: ControllerLink | None = None,
    ) -> None:
        """`cluster` and `link` are None on a broker that is alone."""
        self._node = node
        self._controller = controller
        self._cluster = cluster
        self._link = link
        self._auto_creation = AutoCreation(self.create_topics, node.clock)
        self.producer_ids = ProducerIds(self.allocate_producer_ids)

    @property
    def _elsewhere(self) -> ControllerLink | None:
        """The way to the controller; None if it is here."""
        return None if self._cluster is None or self._cluster.is_controller else self._link

    # ---- topics

    async def auto_create(self, names: Iterable[str]) -> None:
        """Create topics that somebody asked for, with the defaults; the image tells which of them exist."""
        await self._auto_creation.ensure(names)

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicResult]:
        """Those that were made are in this broker's image when this returns, unless the news is very late."""
        if (link := self._elsewhere) is not None:
            answer = await link.ask(
                CreateTopicsRequest(topics=[to_creatable(topic) for topic in wanted], timeout_ms=CREATE_MS_MAX),
                CreateTopicsResponse,
                timeout_ms=CREATE_MS_MAX,
                is_elsewhere=lambda made: any(row.error_code == Error.NOT_CONTROLLER for row in made.topics),
            )
            if answer is not None:
                await self.see({row.name for row in answer.topics if row.error_code in MADE})
                return [TopicResult(row.name, Error(row.error_code), row.error_message) for row in answer.topics]
        return await self._controller.create_topics(wanted)

    async def see(self, names: set[str]) -> None:
        """Wait until the news that these topics exist has come here, too."""
        images = self._node.images
        missing = names - images.image.topics.keys()
        if not missing:
            return
        seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(_: MetadataImage, new: MetadataImage) -> None:
            if not seen.done() and missing <= new.topics.keys():
                seen.set_result(None)

        images.on_image(look)
        try:
            await asyncio.wait((seen,), timeout=IMAGE_SECONDS_MAX)
        finally:
            images.forget(look)

    # ---- producer ids

    async def allocate_producer_ids(self) -> range:
        """A block of ids for this broker."""
        if (link := self._elsewhere) is not None:
            answer = await link.ask(
                AllocateProducerIdsRequest(broker_id=self._node.id, broker_epoch=self._broker_epoch),
                AllocateProducerIdsResponse,
                timeout_ms=IDS_MS_MAX,
                is_elsewhere=lambda given: given.error_code in ASK_AGAIN,
            )
            if answer is not None:
                if answer.error_code != Error.NONE:
                    raise KafkaError(Error(answer.error_code))
                return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
        return await self._controller.allocate_producer_ids()

    @property
    def _broker_epoch(self) -> int:
        cluster = self._cluster
        return cluster.broker_epoch if cluster is not None else -1

    # ---- in-sync replicas

    async def alter_partitions(self, proposals: Sequence[IsrProposal]) -> list[IsrVerdict]:
        """What became of each proposal, in their order. KafkaError: nothing is known of any of them."""
        if (link := self._elsewhere) is not None:
            answer = await link.ask(
                alter_partition_request(proposals, self._node.id, self._broker_epoch),
                AlterPartitionResponse,
                timeout_ms=ALTER_MS_MAX,
                is_elsewhere=lambda altered: altered.error_code == Error.NOT_CONTROLLER,
            )
            if answer is not None:
                return verdicts_of(proposals, answer)
        cluster = self._cluster
        assert cluster is not None, "alone there is nobody who could be in sync"
        changes = [to_change(proposal) for proposal in proposals]
        answers = await cluster.controller.alter_partitions(self._node.id, self._broker_epoch, changes)
        return [to_verdict(answer) for answer in answers]

    # ---- the end

    async def controlled_shutdown(self, timeout_ms: int) -> list[TopicPartition]:
        """Have the leaderships of this broker moved; what is left has nobody else who could lead it."""
        if (link := self._elsewhere) is not None:
            answer = await link.ask(
                ControlledShutdownRequest(broker_id=self._node.id, broker_epoch=self._broker_epoch),
                ControlledShutdownResponse,
                timeout_ms=timeout_ms,
                is_elsewhere=lambda moved: moved.error_code == Error.NOT_CONTROLLER,
            )
            if answer is not None:
                if answer.error_code != Error.NONE:
                    raise KafkaError(Error(answer.error_code))
                return [TopicPartition(row.topic_name, row.partition_index) for row in answer.remaining_partitions]
        cluster = self._cluster
        if cluster is None:
            return []
        return await cluster.controller.controlled_shutdown(self._node.id, self._broker_epoch)

    def __repr__(self) -> str:
        return f"<Control {self._elsewhere or 'here'}>"


MADE: Final = (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
# A broker that has just registered again may be known under its old epoch for a moment.
ASK_AGAIN: Final = (Error.NOT_CONTROLLER, Error.STALE_BROKER_EPOCH)


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


def alter_partition_request(proposals: Sequence[IsrProposal], broker_id: int, epoch: int) -> AlterPartitionRequest:
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


def verdicts_of(proposals: Sequence[IsrProposal], answer: AlterPartitionResponse) -> list[IsrVerdict]:
    if answer.error_code != Error.NONE:
        raise KafkaError(Error(answer.error_code))
    rows: Mapping[tuple[UUID, int], AlteredPartition] = {
        (topic.topic_id, row.partition_index): row for topic in answer.topics for row in topic.partitions
    }
    return [
        from_row(rows[key]) if (key := (proposal.topic_id, proposal.partition)) in rows else NOT_ANSWERED
        for proposal in proposals
    ]


NOT_ANSWERED: Final = IsrVerdict(Error.UNKNOWN_SERVER_ERROR)


def from_row(row: AlteredPartition) -> IsrVerdict:
    return IsrVerdict(
        Error(row.error_code),
        row.leader_id,
        row.leader_epoch,
        tuple(row.isr),
        row.partition_epoch,
        row.leader_recovery_state,
    )


def to_change(proposal: IsrProposal) -> IsrChange:
    return IsrChange(
        proposal.topic_id,
        proposal.partition,
        proposal.leader_epoch,
        proposal.partition_epoch,
        proposal.isr,
        int(proposal.is_recovering),
    )


def to_verdict(answer: IsrAnswer) -> IsrVerdict:
    partition: PartitionImage | None = answer.partition
    if partition is None:
        return IsrVerdict(answer.error)
    return IsrVerdict(
        answer.error,
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )

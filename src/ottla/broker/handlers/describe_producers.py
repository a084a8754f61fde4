"""DescribeProducers (key 61), v0: the active producers of a partition (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error, KafkaError
from ottla.base.names import topic_name_problem
from ottla.base.security import Operation, ResourceType
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.transactions import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)
from ottla.storage.producer_state import ProducerStateEntry

if TYPE_CHECKING:
    from ottla.broker.context import Context

UNKNOWN_PARTITION = "This server does not host this topic-partition."


async def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    topics = []
    turn = TimeSlice()
    async for topic in in_slices(request.topics, turn):
        refusal = refusal_of_topic(topic.name, context)
        partitions = [
            describe(topic.name, index, refusal, context) async for index in in_slices(topic.partition_indexes, turn)
        ]
        topics.append(DescribeProducersTopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def refusal_of_topic(name: str, context: Context) -> KafkaError | None:
    problem = topic_name_problem(name)
    if problem is not None:
        return KafkaError(Error.INVALID_TOPIC_EXCEPTION, problem)
    if not context.is_authorized(Operation.READ, ResourceType.TOPIC, name):
        return KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    if name not in context.broker.image.topics:
        return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION)
    return None


def describe(
    topic: str, index: int, refusal: KafkaError | None, context: Context
) -> DescribeProducersPartitionResponse:
    answer = DescribeProducersPartitionResponse(partition_index=index)
    try:
        if refusal is not None:
            raise refusal
        partition = context.broker.replicas.get(topic, index)
        if partition is None:
            raise context.broker.error_for_missing_partition(topic, index)
        answer.active_producers = [state_of(producer) for producer in partition.log.producers.by_id.values()]
    except KafkaError as error:
        answer.error_code, answer.error_message = error.error, error.message
    return answer


def state_of(producer: ProducerStateEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_txn_first_offset,
    )

"""DescribeTopicPartitions (key 75), v0: topics by name, one page of partitions at a time (KIP-966)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.base.errors import Error
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.security import Operation, ResourceType
from ottla.broker.authorization import topic_operations
from ottla.broker.context import Context
from ottla.broker.encoded_topics_cache import missing_topic_error, offline_replicas, reachable_isr, reachable_leader
from ottla.broker.offload import in_slices
from ottla.controller.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from ottla.protocol.messages.topics import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

NEWEST_METADATA: Final = 13  # errors are those of the newest Metadata version


async def handle(request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics})
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (names and cursor.topic_name not in names)):
        return await refuse_cursor(names)
    names = names or sorted(visible_topics(context))
    limit = max(1, min(request.response_partition_limit, context.broker.settings.max_request_partition_size_limit))
    return await one_page(context, names, cursor, limit)


async def refuse_cursor(names: list[str]) -> DescribeTopicPartitionsResponse:
    rows = [
        DescribeTopicPartitionsResponseTopic(error_code=Error.INVALID_REQUEST, name=name)
        async for name in in_slices(names)
    ]
    return DescribeTopicPartitionsResponse(topics=rows)


def visible_topics(context: Context) -> list[str]:
    names = context.broker.image.topics
    return [name for name in names if context.is_visible(Operation.DESCRIBE, ResourceType.TOPIC, name)]


async def one_page(
    context: Context, names: list[str], cursor: Cursor | None, limit: int
) -> DescribeTopicPartitionsResponse:
    """Return at most `limit` partitions from the cursor on; the next cursor is the start of the rest."""
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    async for name in in_slices(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        if limit <= 0:
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=Cursor(topic_name=name, partition_index=0))
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        row, rest = describe(context, name, first, limit)
        rows.append(row)
        limit -= len(row.partitions)
        if rest is not None:
            return DescribeTopicPartitionsResponse(
                topics=rows, next_cursor=Cursor(topic_name=name, partition_index=rest)
            )
    return DescribeTopicPartitionsResponse(topics=rows)


def describe(
    context: Context, name: str, first: int, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """Return a topic with some of its partitions, and the first omitted partition."""
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
        error = Error.TOPIC_AUTHORIZATION_FAILED
        return DescribeTopicPartitionsResponseTopic(error_code=error, name=name), None
    image = context.broker.image
    row = DescribeTopicPartitionsResponseTopic(
        name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=topic_operations(context, name)
    )
    topic = image.topics.get(name)
    if topic is None:
        row.error_code = missing_topic_error(image, name)
        return row, None
    row.topic_id = topic.topic_id
    row.partitions = describe_partitions(image, context.listener_name, topic.partitions, first, limit)
    end = first + limit
    return row, end if end < len(topic.partitions) else None


def describe_partitions(
    image: MetadataImage, listener: str, partitions: tuple[PartitionImage, ...], first: int, limit: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    end = min(first + limit, len(partitions))
    return [describe_partition(image.brokers, listener, index, partitions[index]) for index in range(first, end)]


def describe_partition(
    brokers: Mapping[int, BrokerImage], listener: str, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    leader, error = reachable_leader(brokers, listener, NEWEST_METADATA, partition)
    offline = offline_replicas(brokers, listener, partition)
    # The image keeps the last in-sync replicas of an offline partition; Kafka calls them eligible leader replicas.
    last = [replica for replica in partition.isr if partition.leader == NO_LEADER and replica in offline]
    return DescribeTopicPartitionsResponsePartition(
        error_code=Error.NONE
        if partition.leader == NO_LEADER
        else error,  # as in Kafka, which reports it here by the missing leader only
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=reachable_isr(brokers, listener, partition),
        eligible_leader_replicas=list(dict.fromkeys((*last, *partition.elr))),
        last_known_elr=list(dict.fromkeys((*last, *partition.last_known_elr))),
        offline_replicas=offline,
    )

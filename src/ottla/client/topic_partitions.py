"""DescribeTopicPartitions (KIP-966): partitions page by page, with the replicas that may be elected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.base.errors import Error
from ottla.client.admin import Partition, Topic
from ottla.client.client import Client
from ottla.client.errors import refusal
from ottla.protocol.messages.topics import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsTopic,
)

ABSENT = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID})


def is_supported(client: Client) -> bool:
    return client.supports(DescribeTopicPartitionsRequest)


def describe_topic_partitions(client: Client, names: Sequence[str], partitions_per_answer: int) -> Iterator[Topic]:
    """The topics of the given names that exist, sorted by name as the API wants them."""
    left = sorted(names)
    cursor: Cursor | None = None
    current: Topic | None = None
    while left:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopic(name=name) for name in left],
            response_partition_limit=partitions_per_answer,
            cursor=cursor,
        )
        answer = client.call(request, DescribeTopicPartitionsResponse)
        for found in answer.topics:
            if found.error_code in ABSENT:
                continue
            if found.error_code:
                raise refusal(found.error_code)
            partitions = [_partition(item) for item in found.partitions]
            if current is not None and current.name == found.name:
                current.partitions.extend(partitions)  # the rest of a topic that was cut at the last page's end
                continue
            if current is not None:
                yield current
            current = Topic(found.name or "", found.topic_id, found.is_internal, partitions)
        if answer.next_cursor is None or (cursor is not None and _place(answer.next_cursor) <= _place(cursor)):
            break
        cursor = answer.next_cursor
        left = [name for name in left if name >= cursor.topic_name]
    if current is not None:
        yield current


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _partition(item: DescribeTopicPartitionsResponsePartition) -> Partition:
    return Partition(
        item.partition_index,
        item.leader_id,
        item.replica_nodes,
        item.isr_nodes,
        item.eligible_leader_replicas,
        item.last_known_elr,
    )

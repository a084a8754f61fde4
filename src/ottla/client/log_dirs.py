"""Log directories of brokers, and the replicas in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, error_of, raise_for_error
from ottla.client.offsets import by_topic
from ottla.protocol.messages.topics import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class Replica(NamedTuple):
    """The size of one partition in a log directory; a future replica is being moved there from another directory."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """One log directory; the disk space is -1 if an old broker does not return it."""

    path: str
    error: Error
    replicas: list[Replica]
    total_bytes: int
    usable_bytes: int


def describe_log_dirs(
    client: Client, brokers: Sequence[int], partitions: Iterable[TopicPartition] | None = None
) -> dict[int, list[LogDir]]:
    """The log directories of the given brokers, in each broker's order; optionally for some partitions only."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=rows) for name, rows in by_topic(partitions).items()]
    return {broker: _folders(client, broker, topics) for broker in brokers}


def _folders(client: Client, broker: int, topics: list[DescribableLogDirTopic] | None) -> list[LogDir]:
    answer = client.call_broker(broker, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    raise_for_error(answer.error_code)
    return [
        LogDir(
            result.log_dir,
            error_of(result.error_code),
            [
                Replica(
                    TopicPartition(topic.name, item.partition_index),
                    item.partition_size,
                    item.offset_lag,
                    item.is_future_key,
                )
                for topic in result.topics
                for item in topic.partitions
            ],
            result.total_bytes,
            result.usable_bytes,
        )
        for result in answer.results
    ]


class TopicPartitionReplica(NamedTuple):
    """A replica on a given broker."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


def alter_replica_log_dirs(
    client: Client, wanted: Mapping[TopicPartitionReplica, str]
) -> dict[TopicPartitionReplica, BrokerError | None]:
    """Move replicas to other log directories; returns the outcome of each, None for a move that has begun."""
    found: dict[TopicPartitionReplica, BrokerError | None] = {}
    for broker in sorted({replica.broker for replica in wanted}):
        here = {replica.partition: path for replica, path in wanted.items() if replica.broker == broker}
        folders: dict[str, dict[str, list[int]]] = {}
        for partition, path in here.items():
            folders.setdefault(path, {}).setdefault(partition.topic, []).append(partition.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirTopic(name=name, partitions=rows) for name, rows in topics.items()],
                )
                for path, topics in folders.items()
            ]
        )
        answer = client.call_broker(broker, request, AlterReplicaLogDirsResponse)
        for topic in answer.results:
            for item in topic.partitions:
                replica = TopicPartitionReplica(TopicPartition(topic.topic_name, item.partition_index), broker)
                found[replica] = error_from_code(item.error_code) if item.error_code else None
    return found

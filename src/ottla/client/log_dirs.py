"""The folders that brokers keep their logs in, and what lies there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import RefusedError, error_of, refusal
from ottla.client.offsets import by_topic
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


class Replica(NamedTuple):
    """What one partition takes in a folder; a future replica is on its way there from another folder."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class Folder(NamedTuple):
    """One folder of a broker; the room on its disk is -1 where an old broker does not tell."""

    path: str
    error: Error
    replicas: list[Replica]
    total_bytes: int
    usable_bytes: int


def describe_log_dirs(
    client: Client, brokers: Sequence[int], partitions: Iterable[TopicPartition] | None = None
) -> dict[int, list[Folder]]:
    """The folders of the given brokers, in the order in which each lists them; on request only some partitions."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=rows) for name, rows in by_topic(partitions).items()]
    return {broker: _folders(client, broker, topics) for broker in brokers}


def _folders(client: Client, broker: int, topics: list[DescribableLogDirTopic] | None) -> list[Folder]:
    answer = client.call_broker(broker, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    if answer.error_code:
        raise refusal(answer.error_code)
    return [
        Folder(
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


class PlacedReplica(NamedTuple):
    """A replica on a certain broker."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


def alter_replica_log_dirs(
    client: Client, wanted: Mapping[PlacedReplica, str]
) -> dict[PlacedReplica, RefusedError | None]:
    """Put replicas into other folders of their brokers; what became of each, None is a move that has begun."""
    found: dict[PlacedReplica, RefusedError | None] = {}
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
                replica = PlacedReplica(TopicPartition(topic.topic_name, item.partition_index), broker)
                found[replica] = refusal(item.error_code) if item.error_code else None
    return found

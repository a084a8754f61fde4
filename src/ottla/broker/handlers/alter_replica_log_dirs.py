"""AlterReplicaLogDirs (key 34), v1-2: moves replicas between log directories of this broker. v2 flexible.

The response is sent when the move has started; DescribeLogDirs reports its progress. For a partition without a replica
here the directory is stored; the error is unknown, or not available if its replicas are on other brokers.

Unlike in Kafka, a replica in a failed directory can be recovered: if it is no longer in sync, it is copied from
its leader into the given directory. Healing uses this.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.topics import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.storage.log_dir import DIR_NAME_LENGTH_MAX, FUTURE_SUFFIX

FUTURE_NAME_LENGTH: Final = len(f".{'0' * 32}{FUTURE_SUFFIX}")


async def handle(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Start the moves. Of duplicate partitions, the last one is used, as in Kafka."""
    turn = TimeSlice()
    folders = {
        TopicPartition(topic.name, index): folder.path
        async for folder in in_slices(request.dirs, turn)
        async for topic in in_slices(folder.topics, turn)
        async for index in in_slices(topic.partitions, turn)
    }
    is_allowed = context.is_authorized(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    async for name, path in in_slices(folders.items(), turn):
        error = Error.NONE
        try:
            if not is_allowed:
                raise KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED)
            move(name, path, context)
        except KafkaError as refusal:
            error = refusal.error
        row = AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=error)
        topics.setdefault(name.topic, AlterReplicaLogDirTopicResult(topic_name=name.topic)).partitions.append(row)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def move(name: TopicPartition, path: str, context: Context) -> None:
    broker = context.broker
    log_dirs = broker.replicas.log_dirs
    if len(str(name)) + FUTURE_NAME_LENGTH > DIR_NAME_LENGTH_MAX:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, "The topic name is too long")
    target = log_dirs.find(path)
    if target is None:
        raise KafkaError(Error.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config")
    if target.offline_reason is not None:
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
    if path in log_dirs.cordoned_paths:
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
    partition = broker.replicas.get(*name)
    if partition is None:
        if broker.restore_replica(name, path):
            return
        refusal = broker.error_for_missing_partition(*name)
        if refusal.error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER):
            log_dirs.maybe_update_preferred_log_dir(name, path)
        if refusal.error is Error.NOT_LEADER_OR_FOLLOWER:  # it may be on its way to this broker: tools retry
            raise KafkaError(Error.REPLICA_NOT_AVAILABLE)
        raise refusal
    broker.log_dir_moves.start(partition, target)

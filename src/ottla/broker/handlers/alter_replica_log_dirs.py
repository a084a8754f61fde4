"""AlterReplicaLogDirs (key 34), v1-2: put partitions into other folders of this broker.  v2 flexible.

The answer comes when the move has begun; DescribeLogDirs tells how far it is. For a partition that is not here yet the
folder is remembered, and the answer says that the partition is unknown, or not available if it is somewhere else.

Other than with Kafka a replica in a folder that has failed is no lost case: if nobody counts on it any more, it is
copied anew from its leader into the folder that is named. Healing asks for that.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.slices import Turn, in_slices
from ottla.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.storage.log_dir import FOLDER_NAME_LENGTH_MAX, FUTURE_SUFFIX

FUTURE_NAME_LENGTH: Final = len(f".{'0' * 32}{FUTURE_SUFFIX}")


async def handle(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Of a partition that is named twice the last folder counts, as with Kafka."""
    turn = Turn()
    folders = {
        TopicPartition(topic.name, index): folder.path
        async for folder in in_slices(request.dirs, turn)
        async for topic in in_slices(folder.topics, turn)
        async for index in in_slices(topic.partitions, turn)
    }
    is_allowed = context.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
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
    if len(str(name)) + FUTURE_NAME_LENGTH > FOLDER_NAME_LENGTH_MAX:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, "The topic name is too long")
    target = log_dirs.folder(path)
    if target is None:
        raise KafkaError(Error.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config")
    if target.failure is not None:
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
    if path in log_dirs.cordoned:
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
    partition = broker.replicas.get(*name)
    if partition is None:
        if broker.have_anew(name, path):
            return
        refusal = broker.why_not_here(*name)
        if refusal.error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER):
            log_dirs.prefer(name, path)
        if refusal.error is Error.NOT_LEADER_OR_FOLLOWER:  # it may be on its way to this broker: tools ask again
            raise KafkaError(Error.REPLICA_NOT_AVAILABLE)
        raise refusal
    broker.moves.start(partition, target)

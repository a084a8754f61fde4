"""OffsetCommit (key 8), v2-10: how far a group has read.

v9 also for members of the new protocol; v10 topic ids instead of names.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

IDS_SINCE: Final = 10


def handle(request: OffsetCommitRequest, context: Context) -> Any:
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse_all(request, Error.GROUP_AUTHORIZATION_FAILED)
    refused = [row for topic in request.topics if (row := check_topic(topic, context)) is not None]
    request.topics = [topic for topic in request.topics if topic.partitions]
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    version = context.api_version
    try:
        return context.broker.coordinators.ask_group(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.commit(request, reply_to, refused, now_ms, version),
        )
    except KafkaError as error:
        response = refuse_all(request, error.error)
        response.topics += refused
        return response


def check_topic(topic: OffsetCommitRequestTopic, context: Context) -> OffsetCommitResponseTopic | None:
    """Name and id of the topic; what cannot be committed is taken out of the request: the answer for that."""
    image = context.broker.image
    if context.api_version >= IDS_SINCE:
        known = image.topics_by_id.get(topic.topic_id)
        unknown = Error.UNKNOWN_TOPIC_ID
    else:
        known = image.topics.get(topic.name)
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    if known is not None:
        topic.name, topic.topic_id = known.name, known.topic_id
    if topic.name and not context.may(Operation.READ, ResourceType.TOPIC, topic.name):
        rows, error = topic.partitions, Error.TOPIC_AUTHORIZATION_FAILED
    elif known is None:
        rows, error = topic.partitions, unknown
    else:
        count = len(known.partitions)
        rows = [row for row in topic.partitions if not 0 <= row.partition_index < count]
        error = Error.UNKNOWN_TOPIC_OR_PARTITION
    if not rows:
        return None
    topic.partitions = [row for row in topic.partitions if row not in rows]
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error) for row in rows
        ],
    )


def refuse_all(request: OffsetCommitRequest, error: Error) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

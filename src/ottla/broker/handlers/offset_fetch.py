"""OffsetFetch (key 9), v1-10: how far groups have read.

v2 all topics of a group; v7 wait for open transactions; v8 many groups at once; v9 a member of the new protocol says
who it is; v10 topic ids instead of names.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.coordination.machine import Decision, Reply
from ottla.groups.offsets import Committed
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.schema import ZERO_UUID

GROUP_ERROR_SINCE: Final = 2
GROUPS_SINCE: Final = 8
IDS_SINCE: Final = 10
NOTHING: Final = Committed(-1, -1, "", -1)


def handle(request: OffsetFetchRequest, context: Context) -> Any:
    """Every group may be with another shard; the answer goes out when the last one is sure of its part."""
    asked = request.groups if context.api_version >= GROUPS_SINCE else [single_group(request)]
    answers: list[OffsetFetchResponseGroup | None] = [None] * len(asked)
    if not asked:
        return OffsetFetchResponse()

    def answered(index: int, answer: OffsetFetchResponseGroup) -> None:
        answers[index] = answer
        if None not in answers:
            context.responder.answer(respond(context, [each for each in answers if each is not None]))

    for index, group in enumerate(asked):
        fetch_group(group, request.require_stable, context, lambda answer, place=index: answered(place, answer))
    return context.responder.keep()


def single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def fetch_group(group: OffsetFetchRequestGroup, require_stable: bool, context: Context, answered: Any) -> None:
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        answered(refused(group, Error.GROUP_AUTHORIZATION_FAILED))
        return
    groups = context.broker.coordinators.groups
    try:
        shard = groups.shard(group.group_id)
    except KafkaError as error:
        answered(refused(group, error.error))
        return
    machine = shard.machine
    problem = machine.fetch_problem(group.group_id, group.member_id, group.member_epoch)
    if problem is not Error.NONE:
        answered(refused(group, problem))
        return
    wanted = wanted_topics(group, context)
    if wanted is None:
        held = machine.offsets.topics(group.group_id)
        wanted = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id(name, context), partition_indexes=list(partitions))
            for name, partitions in held.items()
            if context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    topics = []
    for topic in wanted:
        problem = topic_problem(topic, context)
        rows = [
            row_for(machine, group.group_id, topic.name, index, problem, require_stable)
            for index in topic.partition_indexes
        ]
        topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows))
    answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
    groups.run(shard, Decision(replies=[Reply(answered, answer)], is_read=True))


def wanted_topics(group: OffsetFetchRequestGroup, context: Context) -> list[OffsetFetchRequestTopics] | None:
    """The topics asked for, with their names; None = all that the group has."""
    if group.topics is None or context.api_version < IDS_SINCE:
        return group.topics
    for topic in group.topics:
        known = context.broker.image.topics_by_id.get(topic.topic_id)
        topic.name = known.name if known is not None else ""
    return sorted(group.topics, key=lambda topic: not topic.name)  # those that nobody knows come last


def topic_problem(topic: OffsetFetchRequestTopics, context: Context) -> Error:
    if context.api_version >= IDS_SINCE and not topic.name:
        return Error.UNKNOWN_TOPIC_ID
    if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    return Error.NONE


def topic_id(name: str, context: Context) -> Any:
    known = context.broker.image.topics.get(name)
    return known.topic_id if known is not None else ZERO_UUID


def row_for(
    machine: Any, group_id: str, topic: str, index: int, error: Error, require_stable: bool
) -> OffsetFetchResponsePartitions:
    commit = NOTHING
    if error is Error.NONE:
        if require_stable and machine.offsets.is_pending(group_id, topic, index):
            error = Error.UNSTABLE_OFFSET_COMMIT
        else:
            commit = machine.offsets.get(group_id, topic, index) or NOTHING
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        error_code=error,
    )


def refused(group: OffsetFetchRequestGroup, error: Error) -> OffsetFetchResponseGroup:
    """Before version 8 the error is also told with every partition that was asked for."""
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
                for index in topic.partition_indexes
            ],
        )
        for topic in group.topics or ()
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error)


def respond(context: Context, answers: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if context.api_version >= GROUPS_SINCE:
        for answer in answers:
            if answer.error_code != Error.NONE:
                answer.topics = []
        return OffsetFetchResponse(groups=answers)
    only = answers[0]
    topics = [
        OffsetFetchResponseTopic(name=topic.name, partitions=[older_row(row) for row in topic.partitions])
        for topic in only.topics
    ]
    if context.api_version >= GROUP_ERROR_SINCE and only.error_code != Error.NONE:
        topics = []
    return OffsetFetchResponse(topics=topics, error_code=only.error_code)


def older_row(row: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=row.partition_index,
        committed_offset=row.committed_offset,
        committed_leader_epoch=row.committed_leader_epoch,
        metadata=row.metadata,
        error_code=row.error_code,
    )

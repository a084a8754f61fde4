"""OffsetFetch (key 9), v1-10: committed offsets of groups.

v2 all topics of a group; v7 wait for open transactions; v8 several groups; v9 member id and epoch; v10 topic ids
instead of names.
"""

from __future__ import annotations

from asyncio import Future
from typing import Any, Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service.coordinators import start_decision
from ottla.broker.offload import TimeSlice, in_slices
from ottla.coordination.machine import Decision, Reply
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.offsets import OffsetAndMetadata
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
NO_OFFSET: Final = OffsetAndMetadata(-1, -1, "", -1)


async def handle(request: OffsetFetchRequest, context: Context) -> OffsetFetchResponse:
    """Return the offsets of all groups, when all their shards have responded."""
    turn = TimeSlice()
    asked = request.groups if context.api_version >= GROUPS_SINCE else [await single_group(request, turn)]
    fetched: list[OffsetFetchResponseGroup | Future[Any]] = []
    async for group in in_slices(asked, turn):
        try:
            fetched.append(await fetch_group(group, request.require_stable, context, turn))
        except KafkaError as error:
            fetched.append(await refused(group, error.error, turn))
    answers = [
        each if isinstance(each, OffsetFetchResponseGroup) else await each async for each in in_slices(fetched, turn)
    ]
    return await respond(context, answers, turn)


async def single_group(request: OffsetFetchRequest, turn: TimeSlice) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            async for topic in in_slices(request.topics, turn)
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


async def fetch_group(
    group: OffsetFetchRequestGroup, require_stable: bool, context: Context, turn: TimeSlice
) -> Future[Any]:
    """Return the response for a group, when its state is committed. Raises KafkaError for errors of the group."""
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)
    groups = context.broker.coordinators.groups
    shard = groups.shard(group.group_id)
    machine = shard.machine
    problem = machine.offset_manager.validate_fetch(group.group_id, group.member_id, group.member_epoch)
    if problem is not Error.NONE:
        raise KafkaError(problem)
    topics = []
    async for topic in in_slices(await wanted_topics(group, machine, context, turn), turn):
        problem = topic_problem(topic, context)
        rows = [
            partition_row(machine, group.group_id, topic.name, index, problem, require_stable)
            async for index in in_slices(topic.partition_indexes, turn)
        ]
        topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows))
    answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
    if groups.shard(group.group_id) is not shard:
        raise KafkaError(Error.NOT_COORDINATOR)  # lost at an unknown time
    return start_decision(
        groups, group.group_id, lambda _, reply_to, __: Decision(replies=[Reply(reply_to, answer)], is_read=True)
    )


async def wanted_topics(
    group: OffsetFetchRequestGroup, machine: GroupCoordinator, context: Context, turn: TimeSlice
) -> list[OffsetFetchRequestTopics]:
    """Return the requested topics with their names; without any, all topics of the group."""
    if group.topics is None:
        held = list(machine.offsets.topics(group.group_id).items())
        return [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id(name, context), partition_indexes=list(partitions))
            async for name, partitions in in_slices(held, turn)
            if context.is_visible(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    if context.api_version < IDS_SINCE:
        return group.topics
    unknown: list[OffsetFetchRequestTopics] = []
    named: list[OffsetFetchRequestTopics] = []
    async for topic in in_slices(group.topics, turn):
        known = context.broker.image.topics_by_id.get(topic.topic_id)
        topic.name = known.name if known is not None else ""
        (unknown if known is None else named).append(topic)
    return named + unknown


def topic_problem(topic: OffsetFetchRequestTopics, context: Context) -> Error:
    if context.api_version >= IDS_SINCE and not topic.name:
        return Error.UNKNOWN_TOPIC_ID
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    return Error.NONE


def topic_id(name: str, context: Context) -> Any:
    known = context.broker.image.topics.get(name)
    return known.topic_id if known is not None else ZERO_UUID


def partition_row(
    machine: Any, group_id: str, topic: str, index: int, error: Error, require_stable: bool
) -> OffsetFetchResponsePartitions:
    commit = NO_OFFSET
    if error is Error.NONE:
        if require_stable and machine.offsets.is_pending(group_id, topic, index):
            error = Error.UNSTABLE_OFFSET_COMMIT
        else:
            commit = machine.offsets.get(group_id, topic, index) or NO_OFFSET
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        error_code=error,
    )


async def refused(group: OffsetFetchRequestGroup, error: Error, turn: TimeSlice) -> OffsetFetchResponseGroup:
    """Return the error; before version 8 it is repeated for every requested partition."""
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
                async for index in in_slices(topic.partition_indexes, turn)
            ],
        )
        async for topic in in_slices(group.topics or (), turn)
    ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error)


async def respond(context: Context, answers: list[OffsetFetchResponseGroup], turn: TimeSlice) -> OffsetFetchResponse:
    if context.api_version >= GROUPS_SINCE:
        async for answer in in_slices(answers, turn):
            if answer.error_code != Error.NONE:
                answer.topics = []
        return OffsetFetchResponse(groups=answers)
    only = answers[0]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[older_row(row) async for row in in_slices(topic.partitions, turn)]
        )
        async for topic in in_slices(only.topics, turn)
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

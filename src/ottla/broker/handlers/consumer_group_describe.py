"""ConsumerGroupDescribe (key 69), v0-1: groups of the consumer protocol and their members."""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.authorization import group_operations
from ottla.broker.context import Context
from ottla.broker.handlers.consumer_group_heartbeat import serves_new_protocol
from ottla.broker.offload import in_slices
from ottla.groups.consumer_heartbeat import describe_group
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


async def handle(request: ConsumerGroupDescribeRequest, context: Context) -> ConsumerGroupDescribeResponse:
    asked = {
        group_id: None async for group_id in in_slices(request.group_ids)
    }  # without duplicates: a group may be large
    rows = [describe(group_id, context) async for group_id in in_slices(asked)]
    if request.include_authorized_operations:
        async for row in in_slices(rows):
            if row.error_code == Error.NONE:
                row.authorized_operations = group_operations(context, row.group_id)
    return ConsumerGroupDescribeResponse(groups=rows)


def describe(group_id: str, context: Context) -> DescribedConsumerGroup:
    if not serves_new_protocol(context):
        return refused(group_id, Error.UNSUPPORTED_VERSION)
    if not context.is_authorized(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return refused(group_id, Error.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return refused(group_id, Error.INVALID_GROUP_ID)
    try:
        machine = context.broker.coordinators.groups.shard(group_id).machine
    except KafkaError as error:
        return refused(group_id, error.error)
    group = machine.consumer.groups.get(group_id)
    if group is None:
        is_classic = group_id in machine.groups
        problem = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
        return refused(group_id, Error.GROUP_ID_NOT_FOUND, problem)
    assignors = machine.settings.consumer_assignors
    row = describe_group(group, assignors, context.broker.coordinators.catalog())
    names = {
        topic.topic_name
        for member in row.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if not all(context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        problem = "The group has described topic(s) that the client is not authorized to describe."
        return refused(group_id, Error.TOPIC_AUTHORIZATION_FAILED, problem)
    return row


def refused(group_id: str, error: Error, message: str | None = None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )

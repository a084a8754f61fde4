"""CreatePartitions (key 37), v0-3.  v2 flexible; v3 quota errors."""

from __future__ import annotations

from collections import Counter

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.slices import in_slices
from ottla.controller.decisions.machine import MorePartitions, TopicResult
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    results = [
        TopicResult(name, Error.INVALID_REQUEST, "Duplicate topic name.")
        async for name, count in in_slices(times.items())
        if count > 1
    ]
    wanted = []
    async for topic in in_slices(request.topics):
        if times[topic.name] > 1:
            continue
        if context.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
            wanted.append(more_partitions(topic))
        else:
            results.append(TopicResult(topic.name, Error.TOPIC_AUTHORIZATION_FAILED))
    if wanted:
        results += await create(request, context, wanted)
    return CreatePartitionsResponse(results=[row(result) async for result in in_slices(results)])


def more_partitions(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)
    return MorePartitions(topic.name, topic.count, assignments)


async def create(request: CreatePartitionsRequest, context: Context, wanted: list[MorePartitions]) -> list[TopicResult]:
    controller = context.broker.controller
    try:
        results = await controller.create_partitions(
            wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )
    except KafkaError as refusal:
        return [TopicResult(more.name, refusal.error, refusal.message) for more in wanted]
    await context.broker.publisher.settled()
    return results


def row(result: TopicResult) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=result.name or "", error_code=result.error, error_message=result.message)


def refuse(request: CreatePartitionsRequest, error: Error, message: str | None, _: int) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message)
            for topic in request.topics
        ]
    )

"""CreatePartitions (key 37), v0-3: adds partitions to topics. v2 flexible; v3 quota errors."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.broker.quota_charges import QUOTA_EXCEEDED
from ottla.controller.decisions.topic_changes import NewPartitions, TopicResult
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

QUOTA_ERROR_SINCE: Final = 3


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
        if context.is_authorized(Operation.ALTER, ResourceType.TOPIC, topic.name):
            wanted.append(more_partitions(topic))
        else:
            results.append(TopicResult(topic.name, Error.TOPIC_AUTHORIZATION_FAILED))
    wanted = within_quota(request, context, wanted, results)
    if wanted:
        results += await create(request, context, wanted)
    return CreatePartitionsResponse(results=[row(result) async for result in in_slices(results)])


def more_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)
    return NewPartitions(topic.name, topic.count, assignments)


def within_quota(
    request: CreatePartitionsRequest, context: Context, wanted: list[NewPartitions], results: list[TopicResult]
) -> list[NewPartitions]:
    """Return the topics within the controller mutation quota (KIP-599); the others are rejected."""
    mutations = (
        context.broker.quotas.controller_mutations(context, QUOTA_ERROR_SINCE) if not request.validate_only else None
    )
    if mutations is None:
        return wanted
    accepted = []
    for more in wanted:
        topic = context.broker.image.topics.get(more.name)
        added = more.partition_count - len(topic.partitions) if topic is not None else 0
        if added <= 0 or mutations.try_charge(added):
            accepted.append(more)
        else:
            results.append(TopicResult(more.name, Error.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED))
    return accepted


async def create(request: CreatePartitionsRequest, context: Context, wanted: list[NewPartitions]) -> list[TopicResult]:
    controller = context.broker.controller
    try:
        results = await controller.create_partitions(
            wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )
    except KafkaError as refusal:
        return [TopicResult(more.name, refusal.error, refusal.message) for more in wanted]
    await context.broker.publisher.wait_until_applied(request.timeout_ms)
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

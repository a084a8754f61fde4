"""DeleteTopics (key 20), v1-6: deletes topics. v4 flexible; v5 error messages; v6 by topic id."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final
from uuid import UUID

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.broker.quota_charges import QUOTA_EXCEEDED
from ottla.controller.decisions.topic_changes import TopicResult
from ottla.protocol.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.schema import ZERO_UUID

IDS_SINCE: Final = 6
QUOTA_ERROR_SINCE: Final = 5
DISABLED_ERROR_SINCE: Final = 3

Wanted = tuple[str | None, UUID | None]


async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    states = request.topics
    if context.api_version < IDS_SINCE:
        states = [DeleteTopicState(name=name) async for name in in_slices(request.topic_names)]
    wanted: list[Wanted] = [
        (state.name, state.topic_id if state.topic_id != ZERO_UUID else None) async for state in in_slices(states)
    ]
    results, accepted = await filter_refused(context, wanted)
    accepted = within_quota(context, accepted, results)
    if accepted:
        results += await delete(request, context, accepted)
    if context.api_version < DISABLED_ERROR_SINCE:
        results = [without_disabled(result) async for result in in_slices(results)]
    return DeleteTopicsResponse(responses=[row(result) async for result in in_slices(results)])


async def filter_refused(context: Context, wanted: list[Wanted]) -> tuple[list[TopicResult], list[Wanted]]:
    """Return the errors of malformed, repeated and unauthorized topics, and the other topics for the controller."""
    times = Counter(wanted)
    refused, accepted = [], []
    async for name, topic_id in in_slices(times):
        problem = malformed(name, topic_id, times[name, topic_id])
        if problem is not None:
            refused.append(TopicResult(name, Error.INVALID_REQUEST, problem, topic_id=topic_id))
            continue
        refusal = unauthorized(context, name, topic_id)
        if refusal is not None:
            refused.append(refusal)
        else:
            accepted.append((name, topic_id))
    return refused, accepted


def malformed(name: str | None, topic_id: UUID | None, times: int) -> str | None:
    if name is None and topic_id is None:
        return "Neither topic name nor id were specified."
    if name is not None and topic_id is not None:
        return "You may not specify both topic name and topic id."
    if times > 1:
        return "Duplicate topic name." if topic_id is None else "Duplicate topic id."
    return None


def unauthorized(context: Context, name: str | None, topic_id: UUID | None) -> TopicResult | None:
    """Return the error for an unauthorized client. Without Describe permission it must not reveal the name of an id."""
    topic = context.broker.image.topics_by_id.get(topic_id) if topic_id is not None else None
    known_name = topic.name if topic is not None else name
    if known_name is None or context.is_granted(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    sees = context.is_visible(Operation.DESCRIBE, ResourceType.TOPIC, known_name)
    if sees and known_name not in context.broker.image.topics:
        return None  # clients that may describe all topics may see that it does not exist
    if context.is_authorized(Operation.DELETE, ResourceType.TOPIC, known_name):
        return None
    shown = known_name if sees or topic_id is None else None
    return TopicResult(shown, Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.", topic_id=topic_id)


def within_quota(context: Context, wanted: list[Wanted], results: list[TopicResult]) -> list[Wanted]:
    """Return the topics within the controller mutation quota (KIP-599); the others are rejected."""
    mutations = context.broker.quotas.controller_mutations(context, QUOTA_ERROR_SINCE)
    if mutations is None:
        return wanted
    image = context.broker.image
    accepted = []
    for name, topic_id in wanted:
        topic = image.topics_by_id.get(topic_id) if topic_id is not None else image.topics.get(name or "")
        if topic is None or mutations.try_charge(len(topic.partitions)):
            accepted.append((name, topic_id))
        else:
            results.append(TopicResult(name, Error.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED, topic_id=topic_id))
    return accepted


async def delete(request: DeleteTopicsRequest, context: Context, accepted: list[Wanted]) -> list[TopicResult]:
    try:
        results = await context.broker.controller.delete_topics(accepted, timeout_ms=request.timeout_ms)
    except KafkaError as refusal:
        return [TopicResult(name, refusal.error, refusal.message, topic_id=topic_id) for name, topic_id in accepted]
    await context.broker.publisher.wait_until_applied(request.timeout_ms)
    return results


def without_disabled(result: TopicResult) -> TopicResult:
    """Return the result for old versions, which have no error for disabled deletion."""
    return result._replace(error=Error.INVALID_REQUEST) if result.error is Error.TOPIC_DELETION_DISABLED else result


def row(result: TopicResult) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=result.name,
        topic_id=result.topic_id or ZERO_UUID,
        error_code=result.error,
        error_message=result.message,
    )


def refuse(request: DeleteTopicsRequest, error: Error, message: str | None, version: int) -> Any:
    if version >= IDS_SINCE:
        rows = [
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=message)
            for topic in request.topics
        ]
    else:
        rows = [
            DeletableTopicResult(name=name, error_code=error, error_message=message) for name in request.topic_names
        ]
    return DeleteTopicsResponse(responses=rows)

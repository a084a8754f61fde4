"""CreateTopics (key 19), v2-7: creates topics. v4 -1 for defaults; v5 flexible, settings of the topic; v7 its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.configs.config_entries import EntrySelection, topic_entries
from ottla.broker.context import Context
from ottla.broker.offload import in_slices
from ottla.broker.quota_charges import QUOTA_EXCEEDED
from ottla.controller.decisions.topic_changes import NewTopic, TopicResult
from ottla.protocol.messages.configs import DescribeConfigsResourceResult
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

DETAILS_SINCE: Final = 5
QUOTA_ERROR_SINCE: Final = 6


async def handle(request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    unique = [topic for topic in request.topics if times[topic.name] == 1]
    may_all = context.is_granted(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed = {
        topic.name: new_topic(topic)
        async for topic in in_slices(unique)
        if may_all or context.is_authorized(Operation.CREATE, ResourceType.TOPIC, topic.name)
    }
    results, accepted = within_quota(request, context, list(allowed.values()))
    results += await create(request, context, accepted) if accepted else []
    results += [
        TopicResult(topic.name, Error.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        async for topic in in_slices(unique)
        if topic.name not in allowed
    ]
    results += [
        TopicResult(name, Error.INVALID_REQUEST, "Duplicate topic name.")
        async for name, count in in_slices(times.items())
        if count > 1
    ]
    settings = EffectiveTopicConfigs(context)
    return CreateTopicsResponse(topics=[row(context, result, settings) async for result in in_slices(results)])


def new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def within_quota(
    request: CreateTopicsRequest, context: Context, wanted: list[NewTopic]
) -> tuple[list[TopicResult], list[NewTopic]]:
    """Apply the controller mutation quota (KIP-599). Validation only is not charged."""
    mutations = (
        context.broker.quotas.controller_mutations(context, QUOTA_ERROR_SINCE) if not request.validate_only else None
    )
    if mutations is None:
        return [], wanted
    settings = context.broker.settings
    image = context.broker.image
    refused, accepted = [], []
    for topic in wanted:
        asked = topic.partition_count if topic.partition_count > 0 else settings.num_partitions
        count = len(topic.assignments) or asked
        if topic.name in image.topics or mutations.try_charge(count):  # existing topics are not charged
            accepted.append(topic)
        else:
            refused.append(TopicResult(topic.name, Error.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED))
    return refused, accepted


async def create(request: CreateTopicsRequest, context: Context, wanted: list[NewTopic]) -> list[TopicResult]:
    controller = context.broker.controller
    try:
        results = await controller.create_topics(
            wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )
    except KafkaError as refusal:
        return [TopicResult(topic.name, refusal.error, refusal.message) for topic in wanted]
    await context.broker.publisher.wait_until_applied(request.timeout_ms)
    return results


def row(context: Context, result: TopicResult, settings: EffectiveTopicConfigs) -> CreatableTopicResult:
    made = CreatableTopicResult(
        name=result.name or "", error_code=result.error, error_message=result.message, configs=[]
    )
    topic = result.topic
    if topic is None:
        return made
    made.topic_id = topic.topic_id
    if context.api_version < DETAILS_SINCE:
        return made
    if not context.is_visible(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        made.topic_config_error_code = Error.TOPIC_AUTHORIZATION_FAILED
        return made
    made.num_partitions = len(topic.partitions)
    made.replication_factor = len(topic.partitions[0].replicas)
    made.configs = settings.of(result.configs or {})
    return made


class EffectiveTopicConfigs:
    """The effective settings of new topics; topics with equal own settings share a list."""

    def __init__(self, context: Context) -> None:
        self._broker = context.broker.settings
        self._made: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def of(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        key = tuple(sorted(own.items()))
        if key not in self._made:
            self._made[key] = [config_row(entry) for entry in topic_entries(self._broker, own, EntrySelection())]
        return self._made[key]


def config_row(entry: DescribeConfigsResourceResult) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.config_source,
        is_sensitive=entry.is_sensitive,
    )


def refuse(request: CreateTopicsRequest, error: Error, message: str | None, _: int) -> CreateTopicsResponse:
    rows = [CreatableTopicResult(name=topic.name, error_code=error, error_message=message) for topic in request.topics]
    return CreateTopicsResponse(topics=rows)

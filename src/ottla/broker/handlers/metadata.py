"""Metadata (key 3), v0-13: brokers, topics, who leads what.

v0: an empty list of topics means all; v1: null does, an empty list means none; v4: the client may forbid that topics
are created; v8: authorized operations (KIP-430); v10: topic ids; v12: topics may be asked for by id; v13: an error
for the whole response.

A topic that does not exist is created if the settings and the client allow it. Kafka answers UNKNOWN_TOPIC_OR_PARTITION
meanwhile and the client asks again after its back-off; here the first answer waits for the topic, which is there in
milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error
from ottla.base.names import INTERNAL_TOPICS, topic_name_problem
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.authorized_operations import cluster_operations, topic_operations
from ottla.broker.context import Context
from ottla.broker.metadata_topics import describe_topic, encode_response
from ottla.controller.image import MetadataImage, TopicImage
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.protocol.schema import ZERO_UUID

IDS_SINCE: Final = 12  # v10 and v11 have the field, but the server could not use it
SLICE_TOPICS: Final = 500


async def handle(request: MetadataRequest, context: Context) -> MetadataResponse | EncodedBody:
    problem = malformed(request, context.api_version)
    if problem is not None:
        return problem
    if is_all_topics(request, context.api_version):
        return await answer(request, context, all_topics(context), [])
    wanted = request.topics or []
    if any(topic.topic_id != ZERO_UUID for topic in wanted):
        return await answer(request, context, *topics_by_id(context, wanted))
    return await answer(request, context, *await topics_by_name(request, context, wanted))


def is_all_topics(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def malformed(request: MetadataRequest, version: int) -> MetadataResponse | None:
    """Ids in versions that cannot use them, and topics with neither a name nor an id."""
    topics = request.topics or []
    if version < IDS_SINCE:
        is_wrong = any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics)
    else:
        is_wrong = any(topic.name is None and topic.topic_id == ZERO_UUID for topic in topics)
    if not is_wrong:
        return None
    rows = [
        MetadataResponseTopic(error_code=Error.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
        for topic in topics
    ]
    return MetadataResponse(topics=rows)


async def answer(
    request: MetadataRequest, context: Context, found: list[TopicImage], others: list[MetadataResponseTopic]
) -> MetadataResponse | EncodedBody:
    """`found` are topics of the image, `others` rows for what cannot be told."""
    image, version = context.broker.image, context.api_version
    response = MetadataResponse(
        brokers=reachable_brokers(image, context.listener_name),
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=others,
    )
    may_see_cluster = context.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context) if may_see_cluster else 0
    if not request.include_topic_authorized_operations:
        return encode_response(response, await encoded_topics(context, image, found), version)
    response.topics = [describe_topic(image, context.listener_name, version, topic) for topic in found] + others
    for row in response.topics:
        row.topic_authorized_operations = topic_operations(context, row.name or "")
    return response


async def encoded_topics(context: Context, image: MetadataImage, topics: list[TopicImage]) -> list[bytes]:
    """In slices: a client that asks for all of ten thousand topics must not keep everybody else waiting."""
    kept: list[bytes] = []
    for start in range(0, len(topics), SLICE_TOPICS):
        if start:
            await asyncio.sleep(0)
        some = topics[start : start + SLICE_TOPICS]
        kept += context.broker.metadata_topics.encoded(image, context.listener_name, context.api_version, some)
    return kept


def reachable_brokers(image: MetadataImage, listener: str) -> list[MetadataResponseBroker]:
    """Brokers that have the listener the client came through, under the address that they advertise for it."""
    rows = []
    for broker in image.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            row = MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            rows.append(row)
    return rows


def all_topics(context: Context) -> list[TopicImage]:
    topics = context.broker.image.topics.values()
    if context.broker.authorizer is None:
        return list(topics)
    return [topic for topic in topics if context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)]


def topics_by_id(
    context: Context, wanted: list[MetadataRequestTopic]
) -> tuple[list[TopicImage], list[MetadataResponseTopic]]:
    """As in Kafka, a request that names an id is about ids only: names beside them are not answered."""
    found, others = [], []
    for topic_id in dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id != ZERO_UUID):
        topic = context.broker.image.topics_by_id.get(topic_id)
        if topic is None:
            others.append(MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        elif not context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            error = Error.TOPIC_AUTHORIZATION_FAILED
            others.append(MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
        else:
            found.append(topic)
    return found, others


async def topics_by_name(
    request: MetadataRequest, context: Context, wanted: list[MetadataRequestTopic]
) -> tuple[list[TopicImage], list[MetadataResponseTopic]]:
    names = dict.fromkeys(topic.name or "" for topic in wanted)
    may_describe = {name: None for name in names if context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)}
    others = [unknown(name, Error.TOPIC_AUTHORIZATION_FAILED) for name in names if name not in may_describe]
    missing = [name for name in may_describe if name not in context.broker.image.topics]
    if missing and request.allow_auto_topic_creation and context.broker.settings.auto_create_topics_enable:
        await create_missing(context, missing)
    topics = context.broker.image.topics
    others += [unknown(name, absence(name)) for name in may_describe if name not in topics]
    return [topics[name] for name in may_describe if name in topics], others


async def create_missing(context: Context, names: list[str]) -> None:
    may_all = context.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed = [name for name in names if may_all or context.may(Operation.CREATE, ResourceType.TOPIC, name)]
    creatable = [name for name in allowed if topic_name_problem(name) is None]
    if creatable:
        await context.broker.controller.auto_create(creatable)
        await context.broker.publisher.settled()


def absence(name: str) -> Error:
    """Why a topic is not there."""
    return Error.UNKNOWN_TOPIC_OR_PARTITION if topic_name_problem(name) is None else Error.INVALID_TOPIC_EXCEPTION


def unknown(name: str, error: Error) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)

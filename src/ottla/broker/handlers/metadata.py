"""Metadata (key 3), v0-13: brokers, topics, leaders.

v0: an empty list means all topics; v1: null does, an empty list means none; v4: the client may disable auto-creation;
v8: authorized operations (KIP-430); v10: topic ids; v12: topics by id; v13: an error of the response.

Missing topics are created if the settings and the client allow it. Kafka returns UNKNOWN_TOPIC_OR_PARTITION meanwhile,
and the client retries after its backoff. Here the first response waits for the topic, which takes milliseconds.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.base import tasks
from ottla.base.errors import Error
from ottla.base.names import INTERNAL_TOPICS, topic_name_problem
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.audit.request_auditor import record_auto_created_topics
from ottla.broker.authorization import cluster_operations, topic_operations
from ottla.broker.cluster.controller_requests import CREATE_TIMEOUT_MS, TOPIC_EXISTS_ERRORS
from ottla.broker.cluster.forwarding import decode_if_encoded, forwarded
from ottla.broker.context import Context
from ottla.broker.encoded_topics_cache import (
    describe_topic,
    encode_response,
    encode_topic,
    missing_topic_error,
    reachable_controller,
)
from ottla.broker.offload import chunks, in_slices
from ottla.controller import tree
from ottla.controller.image import MetadataImage, TopicImage
from ottla.protocol.apis import APIS
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.schema import ZERO_UUID

IDS_SINCE: Final = 12  # v10 and v11 have the field, but servers cannot use it
TOPICS_PER_SLICE: Final = 50
HIDDEN: Final = (
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.UNKNOWN_TOPIC_ID,
)  # no other fields of such a topic are returned
CREATE_TOPICS: Final = 19
QUOTA_ERROR_SINCE: Final = 6  # the first version of CreateTopics with quota errors
AUTO_CREATED_MAX: Final = 2000  # per request; more would be rejected anyway (see controller/auto_topic_creation.py)


async def handle(request: MetadataRequest, context: Context) -> MetadataResponse | EncodedBody:
    if is_all_topics(request, context.api_version):
        return await answer(request, context, await all_topics(context), [])
    wanted = await without_repetitions(request.topics or [])
    has_wrong, has_ids = await check_topics(wanted, context.api_version)
    if has_wrong:
        return await malformed(wanted)
    if has_ids:
        return await answer(request, context, *await topics_by_id(context, wanted))
    return await answer(request, context, *await topics_by_name(request, context, wanted))


def is_all_topics(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


async def without_repetitions(wanted: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Remove duplicates, in slices: a frame of two megabytes can name the same topic a million times."""
    if len(wanted) <= 1:
        return wanted
    found: dict[tuple[str | None, UUID], MetadataRequestTopic] = {}
    async for topic in in_slices(wanted):
        found[topic.name, topic.topic_id] = topic
    return list(found.values())


async def check_topics(topics: list[MetadataRequestTopic], version: int) -> tuple[bool, bool]:
    """Return whether a topic is malformed (an id in versions without ids, neither a name nor an id), and whether one
    has an id.
    """
    has_wrong = has_ids = False
    async for topic in in_slices(topics):
        has_id = topic.topic_id != ZERO_UUID
        has_ids = has_ids or has_id
        if topic.name is None:
            has_wrong = has_wrong or not has_id or version < IDS_SINCE
        elif has_id and version < IDS_SINCE:
            has_wrong = True
    return has_wrong, has_ids


async def malformed(topics: list[MetadataRequestTopic]) -> MetadataResponse:
    rows = [
        MetadataResponseTopic(error_code=Error.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
        async for topic in in_slices(topics)
    ]
    return MetadataResponse(topics=rows)


async def answer(
    request: MetadataRequest, context: Context, found: list[TopicImage], others: list[MetadataResponseTopic]
) -> MetadataResponse | EncodedBody:
    """Return the response. `found` are topics of the image, `others` rows with errors."""
    image, version = context.broker.image, context.api_version
    response = MetadataResponse(
        brokers=reachable_brokers(image, context.listener_name),
        cluster_id=image.cluster_id,
        controller_id=reachable_controller(image, context.broker.membership),
        topics=others,
    )
    if request.include_cluster_authorized_operations:
        may_see_cluster = context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = cluster_operations(context) if may_see_cluster else 0
    if not request.include_topic_authorized_operations:
        response.topics = []
        rows = await encoded_others(others, version) + await encoded_topics(context, image, found)
        return encode_response(response, rows, version)
    response.topics = [
        describe_topic(image, context.listener_name, version, topic) async for topic in in_slices(found)
    ] + others
    async for row in in_slices(response.topics):
        if row.error_code not in HIDDEN:
            row.topic_authorized_operations = topic_operations(context, row.name or "")
    return response


async def encoded_topics(context: Context, image: MetadataImage, topics: list[TopicImage]) -> list[bytes]:
    """Return the encoded topics. Works in slices: ten thousand topics must not block other clients."""
    kept: list[bytes] = []
    async for some in in_slices(chunks(topics, TOPICS_PER_SLICE)):
        kept += context.broker.encoded_topics_cache.encode_topics(
            image, context.listener_name, context.api_version, some
        )
    return kept


async def encoded_others(others: list[MetadataResponseTopic], version: int) -> list[bytes]:
    return [encode_topic(topic, version) async for topic in in_slices(others)]


def reachable_brokers(image: MetadataImage, listener: str) -> list[MetadataResponseBroker]:
    """Return the brokers with the client's listener, with their advertised addresses."""
    rows = []
    for broker in image.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            row = MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            rows.append(row)
    return rows


async def all_topics(context: Context) -> list[TopicImage]:
    topics = list(context.broker.image.topics.values())
    if context.broker.authorizer is None:
        return topics
    return [
        topic
        async for topic in in_slices(topics)
        if context.is_visible(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]


async def topics_by_id(
    context: Context, wanted: list[MetadataRequestTopic]
) -> tuple[list[TopicImage], list[MetadataResponseTopic]]:
    """Return topics by id. As in Kafka, a request with an id ignores names."""
    found, others = [], []
    ids = dict.fromkeys([topic.topic_id async for topic in in_slices(wanted) if topic.topic_id != ZERO_UUID])
    async for topic_id in in_slices(ids):
        topic = context.broker.image.topics_by_id.get(topic_id)
        if topic is None:
            others.append(MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        elif not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            error = Error.TOPIC_AUTHORIZATION_FAILED
            others.append(MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
        else:
            found.append(topic)
    return found, others


async def topics_by_name(
    request: MetadataRequest, context: Context, wanted: list[MetadataRequestTopic]
) -> tuple[list[TopicImage], list[MetadataResponseTopic]]:
    names = [topic.name or "" for topic in wanted]
    may_describe: list[str] = []
    missing: list[str] = []
    others: list[MetadataResponseTopic] = []
    known = context.broker.image.topics
    async for name in in_slices(names):
        if context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
            may_describe.append(name)
            if name not in known and tree.topic_path(name) not in context.broker.image.damaged:
                missing.append(name)
        else:
            others.append(MetadataResponseTopic(error_code=Error.TOPIC_AUTHORIZATION_FAILED, name=name))
    refused: set[str] = set()
    if missing and request.allow_auto_topic_creation and context.broker.settings.auto_create_topics_enable:
        refused = await create_missing(context, missing)
    topics = context.broker.image.topics
    found: list[TopicImage] = []
    async for name in in_slices(may_describe):
        topic = topics.get(name)
        if name in refused:
            others.append(unknown(name, Error.TOPIC_AUTHORIZATION_FAILED))
        elif topic is None:
            others.append(unknown(name, missing_topic_error(context.broker.image, name)))
        else:
            found.append(topic)
    return found, others


async def create_missing(context: Context, names: list[str]) -> set[str]:
    """Create topics; returns those that the client may not create. Create on the cluster covers all topics."""
    refused: set[str] = set()
    if not context.is_granted(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        async for name in in_slices(names):
            if not context.is_authorized(Operation.CREATE, ResourceType.TOPIC, name):
                refused.add(name)
    allowed = [name for name in names if name not in refused][:AUTO_CREATED_MAX]
    creatable = [name for name in allowed if topic_name_problem(name) is None]
    if creatable:
        before = context.broker.image
        if context.broker.quotas.controller_mutations(context, QUOTA_ERROR_SINCE) is None:
            await context.broker.controller_requests.auto_create(creatable)
        else:  # in a task: an eagerly started coroutine has none (base/eager_tasks.py)
            await tasks.spawn_awaited(create_with_client_quota(context, creatable), "topics that a client asked for")
        await context.broker.publisher.wait_until_applied(CREATE_TIMEOUT_MS)
        await record_auto_created_topics(creatable, before, context)
    return refused


async def create_with_client_quota(context: Context, names: list[str]) -> None:
    """Create topics under the client's mutation quota (KIP-599), which may reject some. As in Kafka, rejected topics
    are then unknown. The client is not throttled, and retries.
    """
    broker, key = context.broker, CREATE_TOPICS
    responder = context.responder.make_inner_responder(key, APIS[key].name, QUOTA_ERROR_SINCE, context.correlation_id)
    asker = Context(
        broker, responder, context.client, key, QUOTA_ERROR_SINCE, context.correlation_id, context.client_id
    )
    topics = [
        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        for name in names
        if name not in INTERNAL_TOPICS
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=CREATE_TIMEOUT_MS)
    answer = decode_if_encoded(await responder.result_of(forwarded(broker.apis[key])(request, asker)), asker)
    await broker.controller_requests.wait_for_topics(
        {row.name for row in answer.topics if row.error_code in TOPIC_EXISTS_ERRORS}
    )


def unknown(name: str, error: Error) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)

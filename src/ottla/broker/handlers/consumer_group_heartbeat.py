"""ConsumerGroupHeartbeat (key 68), v0-1: the consumer rebalance protocol (KIP-848).

v1 regular expressions; the client generates its member id (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.handlers.api_versions import feature_level
from ottla.groups.classic_group import RequestClient
from ottla.groups.consumer_group import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
)
from ottla.protocol.messages.consumer_groups import (
    CONSUMER,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

OWN_ID_SINCE: Final = 1


def handle(request: ConsumerGroupHeartbeatRequest, context: Context) -> Any:
    try:
        check(request, context)
        if not request.member_id:
            request.member_id = str(uuid4())
        pattern = request.subscribed_topic_regex
        if pattern and not context.broker.coordinators.topic_patterns.is_checked(pattern):
            return _answer_checked(request, context, pattern)
        return _answer(request, context)
    except KafkaError as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)


async def _answer_checked(request: ConsumerGroupHeartbeatRequest, context: Context, pattern: str) -> Any:
    await context.broker.coordinators.topic_patterns.check(pattern)
    try:
        return _answer(request, context)
    except KafkaError as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)


def _answer(request: ConsumerGroupHeartbeatRequest, context: Context) -> Any:
    client = RequestClient(context.client_id or "", f"/{context.client_host}")
    catalog = context.broker.coordinators.catalog(visible_topics(context))
    return context.broker.coordinators.run_group_decision(
        context,
        request.group_id,
        lambda machine, reply_to, now_ms: machine.consumer_heartbeat(request, client, catalog, reply_to, now_ms),
    )


def check(request: ConsumerGroupHeartbeatRequest, context: Context) -> None:
    """Reject requests that are invalid for any group."""
    if not serves_new_protocol(context):
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if not context.is_authorized(Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)
    for name in dict.fromkeys(request.subscribed_topic_names or ()):
        if not context.is_authorized(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
    problem = malformed(request, context.api_version)
    if problem is not None:
        raise KafkaError(Error.INVALID_REQUEST, problem)
    known = context.broker.settings.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        raise KafkaError(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )


def visible_topics(context: Context) -> Callable[[str], bool] | None:
    """Return a filter of the topics that a pattern may match, so that it reveals no others, or None."""
    if context.broker.authorizer is None:
        return None
    return lambda name: context.is_visible(Operation.DESCRIBE, ResourceType.TOPIC, name)


def serves_new_protocol(context: Context) -> bool:
    """Return whether settings and the feature level enable the consumer protocol."""
    is_listed = CONSUMER in context.broker.settings.group_coordinator_rebalance_protocols
    return is_listed and feature_level(context.broker.image, "group.version") > 0


def malformed(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str | None:
    epoch = request.member_epoch
    if not request.group_id.strip():
        return "GroupId can't be empty."
    has_id = bool(request.member_id.strip()) if api_version >= OWN_ID_SINCE else bool(request.member_id)
    if not has_id and (api_version >= OWN_ID_SINCE or epoch != JOIN_GROUP_MEMBER_EPOCH):
        return "MemberId can't be empty."
    if request.instance_id is not None and not request.instance_id.strip():
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if epoch == JOIN_GROUP_MEMBER_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < min(LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH) else None

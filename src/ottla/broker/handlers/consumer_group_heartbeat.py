"""ConsumerGroupHeartbeat (key 68), v0-1: the new group protocol (KIP-848).

v1 regular expressions; the client makes its own member id (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.handlers.api_versions import feature_level
from ottla.groups.classic_answers import Client
from ottla.groups.consumer_group import JOINING, LEFT, LEFT_FOR_A_WHILE
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.consumer_protocol import CONSUMER

OWN_ID_SINCE: Final = 1


def handle(request: ConsumerGroupHeartbeatRequest, context: Context) -> Any:
    try:
        check(request, context)
        if not request.member_id:
            request.member_id = str(uuid4())
        client = Client(context.client_id or "", f"/{context.client_host}")
        catalog = context.broker.coordinators.catalog(visible_topics(context))
        return context.broker.coordinators.ask_group(
            context,
            request.group_id,
            lambda machine, reply_to, now_ms: machine.consumer_heartbeat(request, client, catalog, reply_to, now_ms),
        )
    except KafkaError as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)


def check(request: ConsumerGroupHeartbeatRequest, context: Context) -> None:
    """What makes no sense whatever the group is."""
    if not serves_new_protocol(context):
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)
    for name in dict.fromkeys(request.subscribed_topic_names or ()):
        if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
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
    """What a pattern may match: it must not tell of topics that its sender may not know of."""
    if context.broker.authorizer is None:
        return None
    return lambda name: context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)


def serves_new_protocol(context: Context) -> bool:
    """Somebody may have switched it off, by a setting or by the feature's level."""
    is_listed = CONSUMER in context.broker.settings.group_coordinator_rebalance_protocols
    return is_listed and feature_level(context.broker.image, "group.version") > 0


def malformed(request: ConsumerGroupHeartbeatRequest, api_version: int) -> str | None:
    epoch = request.member_epoch
    if not request.group_id.strip():
        return "GroupId can't be empty."
    has_id = bool(request.member_id.strip()) if api_version >= OWN_ID_SINCE else bool(request.member_id)
    if not has_id and (api_version >= OWN_ID_SINCE or epoch != JOINING):
        return "MemberId can't be empty."
    if request.instance_id is not None and not request.instance_id.strip():
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < min(LEFT, LEFT_FOR_A_WHILE) else None

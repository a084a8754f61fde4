"""DescribeConfigs (key 32), v1-4: settings of resources. v1 sources and synonyms; v3 documentation; v4 flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.names import topic_name_problem
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.base.setting_types import BadValueError, parse_int, trim
from ottla.broker.configs.config_admin import logger_levels
from ottla.broker.configs.config_entries import (
    EntrySelection,
    broker_entries,
    client_metrics_entries,
    cluster_default_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from ottla.broker.offload import TimeSlice, in_slices
from ottla.controller.decisions.config_changes import ConfigResourceType
from ottla.controller.decisions.demoted_brokers import MAINTENANCE_UNTIL_KEY
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import Context

MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to "
    "an incompatible broker. See the broker logs for more details."
)


async def handle(request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    """Return a result for each resource; unauthorized ones come last, as in Kafka."""
    turn = TimeSlice()
    results: list[DescribeConfigsResult] = []
    refused: list[DescribeConfigsResult] = []
    async for resource in in_slices(request.resources, turn):
        refusal = authorization_refusal(resource, context)
        row = describe(resource, request, context, refusal)
        (results if refusal is None else refused).append(row)
    return DescribeConfigsResponse(results=results + refused)


def authorization_refusal(resource: DescribeConfigsResource, context: Context) -> KafkaError | None:
    if resource.resource_type == ConfigResourceType.TOPIC:
        if not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name):
            return KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    elif resource.resource_type == ConfigResourceType.GROUP:
        if not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, resource.resource_name):
            return KafkaError(Error.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    elif not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return KafkaError(Error.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    return None


def describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: Context, refusal: KafkaError | None
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        if refusal is not None:
            raise refusal
        wanted = EntrySelection(
            frozenset(resource.configuration_keys or ()), request.include_synonyms, request.include_documentation
        )
        result.configs = entries(resource.resource_type, resource.resource_name, wanted, context)
    except KafkaError as error:
        result.error_code = error.error
        result.error_message = error.message or ""
    return result


def entries(
    resource_type: int, name: str, wanted: EntrySelection, context: Context
) -> list[DescribeConfigsResourceResult]:
    if resource_type == ConfigResourceType.TOPIC:
        return topic_entries(current_settings(context), topic_overrides(name, context), wanted)
    if resource_type == ConfigResourceType.BROKER:
        if not name:
            return cluster_default_entries(current_settings(context), wanted)
        if wanted.names == {MAINTENANCE_UNTIL_KEY}:  # for any broker: it may be stopped for maintenance
            stored = context.broker.image.broker_configs.get(name, {})
            return broker_entries(BrokerSettings().with_dynamic({}, stored), wanted)
        check_broker_id(name, context.broker.node_id, " or empty string,")
        return broker_entries(current_settings(context), wanted)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        check_not_empty(name, "Broker id")
        check_broker_id(name, context.broker.node_id, "")
        return logger_entries(logger_levels(), wanted)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        check_not_empty(name, "Client metrics subscription name")
        return client_metrics_entries(context.broker.image.client_metrics_configs.get(name, {}), wanted)
    if resource_type == ConfigResourceType.GROUP:
        check_not_empty(name, "Group name")
        return group_entries(current_settings(context), context.broker.image.group_configs.get(name, {}), wanted)
    raise KafkaError(Error.INVALID_REQUEST, MALFORMED)


def current_settings(context: Context) -> BrokerSettings:
    """Return the settings with the changes of this image."""
    changes = context.broker.image.broker_configs
    return context.broker.settings.with_dynamic(changes.get("", {}), changes.get(str(context.broker.node_id), {}))


def topic_overrides(name: str, context: Context) -> dict[str, str]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, problem)
    if name not in context.broker.image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    return dict(context.broker.image.topic_configs.get(name, {}))


def check_not_empty(name: str, what: str) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, f"{what} must not be empty")


def check_broker_id(name: str, node_id: int, alternative: str) -> None:
    """Check that the request is for this broker. Raises KafkaError."""
    try:
        broker_id = parse_int(name) if name == trim(name) else None
    except BadValueError:
        broker_id = None
    if broker_id is None:
        raise KafkaError(Error.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if broker_id != node_id:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}{alternative} but received {broker_id}"
        )

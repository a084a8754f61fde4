"""ListConfigResources (key 74), v0-1: resources with settings. v0 client metrics subscriptions only; v1 any type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.controller.decisions.config_changes import ConfigResourceType
from ottla.controller.image import MetadataImage
from ottla.protocol.messages.configs import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

TYPES_SINCE: Final = 1
TYPES: Final = (
    ConfigResourceType.GROUP,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.BROKER,
    ConfigResourceType.TOPIC,
)


def handle(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    if not context.is_authorized(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return ListConfigResourcesResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    asked = request.resource_types if context.api_version >= TYPES_SINCE else [ConfigResourceType.CLIENT_METRICS]
    if any(number not in TYPES for number in asked):
        return ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in TYPES
            if not asked or kind in asked
            for name in names_of(kind, context.broker.image)
        ]
    )


def names_of(kind: ConfigResourceType, image: MetadataImage) -> Iterable[str]:
    """Return all topics and brokers; groups and subscriptions only with settings."""
    if kind is ConfigResourceType.TOPIC:
        return image.topics
    if kind is ConfigResourceType.GROUP:
        return image.group_configs
    if kind is ConfigResourceType.CLIENT_METRICS:
        return image.client_metrics_configs
    return map(str, image.brokers)

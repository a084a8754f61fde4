"""DescribeCluster (key 60), v0-2: brokers, controller, cluster id. v1 endpoint type; v2 fenced brokers.

Every version contains the broker epochs in a tagged field of ottla: tools for rolling restarts see which brokers have
restarted.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.authorization import cluster_operations
from ottla.broker.context import Context
from ottla.broker.encoded_topics_cache import reachable_controller
from ottla.controller.image import MetadataImage
from ottla.protocol.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

ENDPOINT_TYPE_SINCE: Final = 1
BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if context.api_version >= ENDPOINT_TYPE_SINCE and request.endpoint_type != BROKERS:
        return wrong_endpoint_type(request.endpoint_type)
    image = context.broker.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=reachable_controller(image, context.broker.membership),
        brokers=reachable_brokers(image, context.listener_name),
    )
    if request.include_cluster_authorized_operations:
        may_see = context.is_authorized(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = cluster_operations(context) if may_see else 0
    return response


def wrong_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        error = Error.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        error = Error.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=error, error_message=message, cluster_id="")


def reachable_brokers(image: MetadataImage, listener: str) -> list[DescribeClusterBroker]:
    """Return the brokers with the client's listener. The image contains live brokers only: none is fenced."""
    return [
        DescribeClusterBroker(
            broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack, broker_epoch=broker.epoch
        )
        for broker in image.brokers.values()
        if (endpoint := broker.endpoints.get(listener)) is not None
    ]

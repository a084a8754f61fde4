"""ClusterPoll (key 10000), v0-1: metadata deltas for another broker (ottla's own inter-broker API).

v1 the supported level of the caller, and the reason of a rejection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.controller.cluster.encoded_deltas import encode_answer
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.inter_broker import ClusterPollRequest, ClusterPollResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


async def handle(request: ClusterPollRequest, context: Context) -> ClusterPollResponse | EncodedBody:
    if not context.is_authorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return ClusterPollResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.membership
    if cluster is None:
        return ClusterPollResponse(error_code=Error.NOT_CONTROLLER)
    broker_id = request.broker_id
    # A closed polling connection is the first sign of a failed broker.
    context.responder.on_disconnect(f"poll of broker {broker_id}", lambda: cluster.suspect_broker(broker_id))
    response = await cluster.poll(request)
    if not response.deltas:
        return response
    deltas = [await cluster.controller.feed.encoded(delta) for delta in response.deltas]
    return encode_answer(response, deltas, context.api_version)

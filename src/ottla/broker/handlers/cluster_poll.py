"""ClusterPoll (key 10000), v0: what other brokers have not seen of the metadata yet (our own, between brokers only)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.protocol.messages.cluster_poll import ClusterPollRequest, ClusterPollResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.controller.cluster.membership import Membership


async def handle(request: ClusterPollRequest, context: Context) -> ClusterPollResponse:
    if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return ClusterPollResponse(error_code=Error.CLUSTER_AUTHORIZATION_FAILED)
    cluster = context.broker.cluster
    if cluster is None:
        return ClusterPollResponse(error_code=Error.NOT_CONTROLLER)
    context.connection.waiting.add(Heartbeat(cluster, request.broker_id))
    return await cluster.poll(request)


class Heartbeat:
    """A connection over which a broker polls: its end is the first sign of the broker's death. One a connection."""

    def __init__(self, cluster: Membership, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id

    def cancel(self) -> None:
        """Called when the connection is closed."""
        self._cluster.suspect_broker(self._broker_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heartbeat) and other._broker_id == self._broker_id

    def __hash__(self) -> int:
        return hash(("heartbeat", self._broker_id))

"""Current leader in produce and fetch errors (KIP-951).

The response to a produce (v10) or fetch (v16) at the wrong broker names the leader and its endpoint, which saves a
metadata request. Leader and endpoint come from the image, for the client's listener.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.base.errors import Error
from ottla.controller.image import NO_LEADER, MetadataImage
from ottla.protocol.messages import fetch, produce

if TYPE_CHECKING:
    from ottla.broker.context import Context

PRODUCE_SINCE: Final = 10
FETCH_SINCE: Final = 16
FETCH_ERRORS: Final = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)

Address = tuple[int, str, int, str | None]  # broker, host, port, rack


def set_current_leader_for_producer(answer: produce.PartitionProduceResponse, topic: str, context: Context) -> int:
    """Add the current leader to a NOT_LEADER_OR_FOLLOWER response of a partition; returns the leader's id."""
    leader, epoch = leader_of(context.broker.image, topic, answer.index)
    answer.current_leader = produce.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return leader


def add_node_endpoints_for_producer(
    response: produce.ProduceResponse, leaders: Iterable[int], context: Context
) -> None:
    response.node_endpoints = [
        produce.NodeEndpoint(node_id=broker, host=host, port=port, rack=rack)
        for broker, host, port, rack in node_endpoints(context, leaders)
    ]


def set_current_leader_for_consumer(data: fetch.PartitionData, topic: str, topic_id: UUID, context: Context) -> int:
    """Add the current leader to a partition of a fetch response; returns the leader's id."""
    image = context.broker.image
    known = image.topics_by_id.get(topic_id) if not topic else None
    leader, epoch = leader_of(image, known.name if known is not None else topic, data.partition_index)
    data.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return leader


def add_node_endpoints_for_consumer(response: fetch.FetchResponse, leaders: Iterable[int], context: Context) -> None:
    response.node_endpoints = [
        fetch.NodeEndpoint(node_id=broker, host=host, port=port, rack=rack)
        for broker, host, port, rack in node_endpoints(context, leaders)
    ]


def leader_of(image: MetadataImage, topic: str, index: int) -> tuple[int, int]:
    state = image.partition(topic, index)
    return (state.leader, state.leader_epoch) if state is not None else (NO_LEADER, -1)


def node_endpoints(context: Context, brokers: Iterable[int]) -> list[Address]:
    """Return the endpoints of live brokers with the client's listener."""
    found: list[Address] = []
    for broker_id in sorted(brokers):
        broker = context.broker.image.brokers.get(broker_id)
        endpoint = broker.endpoints.get(context.listener_name) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append((broker_id, endpoint.host, endpoint.port, broker.rack))
    return found

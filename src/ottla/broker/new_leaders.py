"""Who leads a partition that a client looked for in the wrong place (KIP-951).

The answer to a produce (v10) or a fetch (v16) that came to the wrong broker names the leader and where it is, so the
client need not ask for metadata first. All of it is as the image says, for the listener that the client came through.
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


def name_leader_to_producer(answer: produce.PartitionProduceResponse, topic: str, context: Context) -> int:
    """Put the leader of its partition into an answer that says NOT_LEADER_OR_FOLLOWER; who that is."""
    leader, epoch = leader_of(context.broker.image, topic, answer.index)
    answer.current_leader = produce.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return leader


def add_addresses_for_producer(response: produce.ProduceResponse, leaders: Iterable[int], context: Context) -> None:
    response.node_endpoints = [
        produce.NodeEndpoint(node_id=broker, host=host, port=port, rack=rack)
        for broker, host, port, rack in addresses(context, leaders)
    ]


def name_leader_to_consumer(data: fetch.PartitionData, topic: str, topic_id: UUID, context: Context) -> int:
    """The same for a partition that a consumer looked for in the wrong place."""
    image = context.broker.image
    known = image.topics_by_id.get(topic_id) if not topic else None
    leader, epoch = leader_of(image, known.name if known is not None else topic, data.partition_index)
    data.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return leader


def add_addresses_for_consumer(response: fetch.FetchResponse, leaders: Iterable[int], context: Context) -> None:
    response.node_endpoints = [
        fetch.NodeEndpoint(node_id=broker, host=host, port=port, rack=rack)
        for broker, host, port, rack in addresses(context, leaders)
    ]


def leader_of(image: MetadataImage, topic: str, index: int) -> tuple[int, int]:
    state = image.partition(topic, index)
    return (state.leader, state.leader_epoch) if state is not None else (NO_LEADER, -1)


def addresses(context: Context, brokers: Iterable[int]) -> list[Address]:
    """Of those that are alive and have the client's listener."""
    found: list[Address] = []
    for broker_id in sorted(brokers):
        broker = context.broker.image.brokers.get(broker_id)
        endpoint = broker.endpoints.get(context.listener_name) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append((broker_id, endpoint.host, endpoint.port, broker.rack))
    return found

"""What brokers tell one another about transactions: markers to write, partitions that take part.

Both go over connections of their own, one request at a time to each broker, with all that came up meanwhile: an answer
to markers waits for their replicas, and must not keep anything else waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.tasks import tell
from ottla.broker.cluster.call_batching import CallBatcher
from ottla.network.peer import PeerError
from ottla.protocol.messages.transaction_steps import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.machine import SendMarkers
from ottla.transactions.transaction import Identity

logger = logging.getLogger(__name__)

MARKERS: Final = "markers"
PARTITIONS: Final = "transactions"

Place = tuple[str, int]
Errors = dict[Place, Error]
Call = Callable[[int, str, Any, type[Any]], Awaitable[Any]]
"""Ask a broker over its connection for a purpose; raises PeerError."""


class MarkerCall(NamedTuple):
    order: SendMarkers
    epoch: int
    places: list[Place]
    answered: Callable[[Place, Error], None]


class MarkerMessengers:
    """Takes markers to the leaders of their partitions."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._calls: CallBatcher[MarkerCall] = CallBatcher(self._carry)
        self._silent: set[int] = set()  # brokers that did not answer last: told once

    def send(
        self, broker: int, order: SendMarkers, epoch: int, places: list[Place], answered: Callable[[Place, Error], None]
    ) -> None:
        self._calls.send(broker, MarkerCall(order, epoch, places, answered))

    async def _carry(self, broker: int, calls: list[MarkerCall]) -> None:
        request = WriteTxnMarkersRequest(markers=[marker_of(call) for call in calls])
        try:
            response = await self._call(broker, MARKERS, request, WriteTxnMarkersResponse)
            self._silent.discard(broker)
        except PeerError as error:
            if broker not in self._silent:
                logger.info("broker %d did not take the markers of %d transactions: %s", broker, len(calls), error)
            self._silent.add(broker)
            response = WriteTxnMarkersResponse(markers=[])
        for place, call in enumerate(calls):
            errors = marker_errors(response, place, call)
            for wanted in call.places:
                tell(call.answered, wanted, errors.get(wanted, Error.NETWORK_EXCEPTION))

    def close(self) -> None:
        self._calls.close()


def marker_of(call: MarkerCall) -> WritableTxnMarker:
    order = call.order
    return WritableTxnMarker(
        producer_id=order.producer_id,
        producer_epoch=order.epoch,
        transaction_result=order.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=ids) for topic, ids in by_topic(call.places).items()
        ],
        coordinator_epoch=call.epoch,
        transaction_version=order.version,
    )


def marker_errors(response: WriteTxnMarkersResponse, place: int, call: MarkerCall) -> Errors:
    """Answers come in the order of the questions; what is not answered is asked again."""
    if place >= len(response.markers) or response.markers[place].producer_id != call.order.producer_id:
        return {}
    return {
        (topic.name, row.partition_index): error_of(row.error_code)
        for topic in response.markers[place].topics
        for row in topic.partitions
    }


class PartitionCall(NamedTuple):
    transactional_id: str
    who: Identity
    places: list[Place]
    is_verifying: bool  # or else adding
    answered: Callable[[Errors], None]


class PartitionMessengers:
    """Asks transaction coordinators on other brokers to add partitions, or whether they take part (KIP-890)."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._calls: CallBatcher[PartitionCall] = CallBatcher(self._carry)
        self._silent: set[int] = set()

    def send(self, broker: int, call: PartitionCall) -> None:
        self._calls.send(broker, call)

    async def _carry(self, broker: int, calls: list[PartitionCall]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[transaction_of(call) for call in calls])
        error = Error.NONE
        try:
            response = await self._call(broker, PARTITIONS, request, AddPartitionsToTxnResponse)
            self._silent.discard(broker)
            error = error_of(response.error_code)
        except PeerError as failure:
            if broker not in self._silent:
                logger.info("broker %d did not answer for %d transactions: %s", broker, len(calls), failure)
            self._silent.add(broker)
            response = AddPartitionsToTxnResponse()
            error = Error.NETWORK_EXCEPTION
        for place, call in enumerate(calls):
            errors = partition_errors(response, place, call) if error is Error.NONE else {}
            tell(call.answered, {each: errors.get(each, error or Error.NETWORK_EXCEPTION) for each in call.places})

    def close(self) -> None:
        self._calls.close()


def transaction_of(call: PartitionCall) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=call.transactional_id,
        producer_id=call.who.producer_id,
        producer_epoch=call.who.epoch,
        verify_only=call.is_verifying,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=ids) for topic, ids in by_topic(call.places).items()],
    )


def partition_errors(response: AddPartitionsToTxnResponse, place: int, call: PartitionCall) -> Errors:
    results = response.results_by_transaction
    if place >= len(results) or results[place].transactional_id != call.transactional_id:
        return {}
    return {
        (topic.name, row.partition_index): error_of(row.partition_error_code)
        for topic in results[place].topic_results
        for row in topic.results_by_partition
    }


def error_of(code: int) -> Error:
    """A newer broker may know codes that we do not."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR


def by_topic(places: list[Place]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return topics

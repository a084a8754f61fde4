"""What brokers tell one another about transactions: markers to write, partitions that take part.

Both go over connections of their own, one request at a time to each broker, with all that came up meanwhile: an answer
to markers waits for their replicas, and must not keep anything else waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ottla.base.errors import Error
from ottla.broker.cluster.errands import Errands
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
from ottla.transactions.machine import Identity, SendMarkers

logger = logging.getLogger(__name__)

MARKERS: Final = "markers"
PARTITIONS: Final = "transactions"

Place = tuple[str, int]
Errors = dict[Place, Error]
Call = Callable[[int, str, Any, type[Any]], Awaitable[Any]]
"""Ask a broker over its connection for a purpose; raises PeerError."""


class MarkerErrand(NamedTuple):
    order: SendMarkers
    epoch: int
    places: list[Place]
    answered: Callable[[Place, Error], None]


class MarkerMessengers:
    """Takes markers to the leaders of their partitions."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._errands: Errands[MarkerErrand] = Errands(self._carry)
        self._silent: set[int] = set()  # brokers that did not answer last: told once

    def send(
        self, broker: int, order: SendMarkers, epoch: int, places: list[Place], answered: Callable[[Place, Error], None]
    ) -> None:
        self._errands.send(broker, MarkerErrand(order, epoch, places, answered))

    async def _carry(self, broker: int, errands: list[MarkerErrand]) -> None:
        request = WriteTxnMarkersRequest(markers=[marker_of(errand) for errand in errands])
        try:
            response = await self._call(broker, MARKERS, request, WriteTxnMarkersResponse)
            self._silent.discard(broker)
        except PeerError as error:
            if broker not in self._silent:
                logger.info("broker %d did not take the markers of %d transactions: %s", broker, len(errands), error)
            self._silent.add(broker)
            response = WriteTxnMarkersResponse(markers=[])
        for place, errand in enumerate(errands):
            errors = marker_errors(response, place, errand)
            for wanted in errand.places:
                errand.answered(wanted, errors.get(wanted, Error.NETWORK_EXCEPTION))

    def close(self) -> None:
        self._errands.close()


def marker_of(errand: MarkerErrand) -> WritableTxnMarker:
    order = errand.order
    return WritableTxnMarker(
        producer_id=order.producer_id,
        producer_epoch=order.epoch,
        transaction_result=order.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=ids) for topic, ids in by_topic(errand.places).items()
        ],
        coordinator_epoch=errand.epoch,
        transaction_version=order.version,
    )


def marker_errors(response: WriteTxnMarkersResponse, place: int, errand: MarkerErrand) -> Errors:
    """Answers come in the order of the questions; what is not answered is asked again."""
    if place >= len(response.markers) or response.markers[place].producer_id != errand.order.producer_id:
        return {}
    return {
        (topic.name, row.partition_index): error_of(row.error_code)
        for topic in response.markers[place].topics
        for row in topic.partitions
    }


class PartitionErrand(NamedTuple):
    transactional_id: str
    who: Identity
    places: list[Place]
    is_verifying: bool  # or else adding
    answered: Callable[[Errors], None]


class PartitionMessengers:
    """Asks transaction coordinators on other brokers to add partitions, or whether they take part (KIP-890)."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._errands: Errands[PartitionErrand] = Errands(self._carry)
        self._silent: set[int] = set()

    def send(self, broker: int, errand: PartitionErrand) -> None:
        self._errands.send(broker, errand)

    async def _carry(self, broker: int, errands: list[PartitionErrand]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[transaction_of(errand) for errand in errands])
        error = Error.NONE
        try:
            response = await self._call(broker, PARTITIONS, request, AddPartitionsToTxnResponse)
            self._silent.discard(broker)
            error = error_of(response.error_code)
        except PeerError as failure:
            if broker not in self._silent:
                logger.info("broker %d did not answer for %d transactions: %s", broker, len(errands), failure)
            self._silent.add(broker)
            response = AddPartitionsToTxnResponse()
            error = Error.NETWORK_EXCEPTION
        for place, errand in enumerate(errands):
            errors = partition_errors(response, place, errand) if error is Error.NONE else {}
            errand.answered({each: errors.get(each, error or Error.NETWORK_EXCEPTION) for each in errand.places})

    def close(self) -> None:
        self._errands.close()


def transaction_of(errand: PartitionErrand) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=errand.transactional_id,
        producer_id=errand.who.producer_id,
        producer_epoch=errand.who.epoch,
        verify_only=errand.is_verifying,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=ids) for topic, ids in by_topic(errand.places).items()],
    )


def partition_errors(response: AddPartitionsToTxnResponse, place: int, errand: PartitionErrand) -> Errors:
    results = response.results_by_transaction
    if place >= len(results) or results[place].transactional_id != errand.transactional_id:
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

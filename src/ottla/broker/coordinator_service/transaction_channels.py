"""Channels to other brokers for transactions: markers to write (Kafka's TransactionMarkerChannelManager) and partitions
to add or verify (AddPartitionsToTxnManager).

Both use separate connections, with one batched request at a time per broker: responses to markers wait for replication
and must not delay other requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla.base import tasks
from ottla.base.errors import Error
from ottla.base.tasks import notify_safely
from ottla.network.peer import PeerError
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import TransactionMarkers

E = TypeVar("E")

BATCH_CALLS_MAX: Final = 500
WAITING_CALLS_MAX: Final = 20 * BATCH_CALLS_MAX

logger = logging.getLogger(__name__)

MARKERS: Final = "markers"
PARTITIONS: Final = "transactions"

PartitionName = tuple[str, int]
Errors = dict[PartitionName, Error]
SendRequest = Callable[[int, str, Any, type[Any]], Awaitable[Any]]
"""Sends a request to a broker over the connection for a purpose; raises PeerError."""


class CallBatcher(Generic[E]):
    """Batches calls per broker: calls that arrive while a request is in flight form the next request.

    Every call is answered once. Nothing is retried here.
    """

    def __init__(
        self, carry: Callable[[int, list[E]], Awaitable[list[Errors]]], answer: Callable[[E, Errors], None]
    ) -> None:
        """`carry(broker, calls)` returns the errors for each call; `answer(call, {})` means that it was not carried."""
        self._send_batch = carry
        self._answer = answer
        self._waiting: dict[int, deque[E]] = {}
        self._running: dict[int, asyncio.Task[None]] = {}

    def send(self, broker: int, call: E) -> None:
        waiting = self._waiting.setdefault(broker, deque())
        if len(waiting) >= WAITING_CALLS_MAX:  # the broker is down or slow; callers try again after a pause
            asyncio.get_running_loop().call_soon(notify_safely, self._answer, call, {})
            return
        waiting.append(call)
        if broker not in self._running:
            self._running[broker] = tasks.spawn_restarting(lambda: self._work(broker), f"calls to broker {broker}")

    async def _work(self, broker: int) -> None:
        line = self._waiting[broker]
        while line:
            together = [line.popleft() for _ in range(min(len(line), BATCH_CALLS_MAX))]
            results: list[Errors] = []
            try:
                results = await self._send_batch(broker, together)
            except Exception:
                tasks.counts.failed += 1
                logger.exception("%d calls to broker %d failed", len(together), broker)
            for place, call in enumerate(together):
                notify_safely(self._answer, call, results[place] if place < len(results) else {})
        del self._running[broker], self._waiting[broker]

    def close(self) -> None:
        for task in self._running.values():
            task.cancel()

    def __repr__(self) -> str:
        return f"<CallBatcher to {sorted(self._running)}, {sum(map(len, self._waiting.values()))} waiting>"


class MarkerCall(NamedTuple):
    order: TransactionMarkers
    epoch: int
    partitions: list[PartitionName]
    on_result: Callable[[PartitionName, Error], None]


class TransactionMarkerChannelManager:
    """Sends markers to the leaders of their partitions."""

    def __init__(self, call: SendRequest) -> None:
        self._call = call
        self._calls: CallBatcher[MarkerCall] = CallBatcher(self._send_batch, answer_markers)
        self._silent: set[int] = set()  # brokers that did not respond last: logged once

    def send(
        self,
        broker: int,
        order: TransactionMarkers,
        epoch: int,
        places: list[PartitionName],
        answered: Callable[[PartitionName, Error], None],
    ) -> None:
        self._calls.send(broker, MarkerCall(order, epoch, places, answered))

    async def _send_batch(self, broker: int, calls: list[MarkerCall]) -> list[Errors]:
        request = WriteTxnMarkersRequest(markers=[to_writable_marker(call) for call in calls])
        try:
            response = await self._call(broker, MARKERS, request, WriteTxnMarkersResponse)
            self._silent.discard(broker)
        except PeerError as error:
            if broker not in self._silent:
                logger.info("broker %d did not take the markers of %d transactions: %s", broker, len(calls), error)
            self._silent.add(broker)
            return []
        return [marker_errors(response, place, call) for place, call in enumerate(calls)]

    def close(self) -> None:
        self._calls.close()


def answer_markers(call: MarkerCall, errors: Errors) -> None:
    for wanted in call.partitions:
        notify_safely(call.on_result, wanted, errors.get(wanted, Error.NETWORK_EXCEPTION))


def to_writable_marker(call: MarkerCall) -> WritableTxnMarker:
    order = call.order
    return WritableTxnMarker(
        producer_id=order.producer_id,
        producer_epoch=order.producer_epoch,
        transaction_result=order.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=topic, partition_indexes=ids)
            for topic, ids in group_by_topic(call.partitions).items()
        ],
        coordinator_epoch=call.epoch,
        transaction_version=order.transaction_version,
    )


def marker_errors(response: WriteTxnMarkersResponse, place: int, call: MarkerCall) -> Errors:
    """Return the errors in the order of the request; partitions without a result are sent again."""
    if place >= len(response.markers) or response.markers[place].producer_id != call.order.producer_id:
        return {}
    return {
        (topic.name, row.partition_index): Error(row.error_code)
        for topic in response.markers[place].topics
        for row in topic.partitions
    }


class PartitionCall(NamedTuple):
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: list[PartitionName]
    is_verifying: bool  # otherwise adding
    on_result: Callable[[Errors], None]


class AddPartitionsToTxnManager:
    """Asks transaction coordinators on other brokers to add or verify partitions (KIP-890)."""

    def __init__(self, call: SendRequest) -> None:
        self._call = call
        self._calls: CallBatcher[PartitionCall] = CallBatcher(self._send_batch, answer_partitions)
        self._silent: set[int] = set()

    def send(self, broker: int, call: PartitionCall) -> None:
        self._calls.send(broker, call)

    async def _send_batch(self, broker: int, calls: list[PartitionCall]) -> list[Errors]:
        request = AddPartitionsToTxnRequest(transactions=[to_transaction(call) for call in calls])
        try:
            response = await self._call(broker, PARTITIONS, request, AddPartitionsToTxnResponse)
            self._silent.discard(broker)
        except PeerError as failure:
            if broker not in self._silent:
                logger.info("broker %d did not answer for %d transactions: %s", broker, len(calls), failure)
            self._silent.add(broker)
            return []
        if response.error_code != Error.NONE:
            return [dict.fromkeys(call.partitions, Error(response.error_code)) for call in calls]
        return [partition_errors(response, place, call) for place, call in enumerate(calls)]

    def close(self) -> None:
        self._calls.close()


def answer_partitions(call: PartitionCall, errors: Errors) -> None:
    call.on_result({each: errors.get(each, Error.NETWORK_EXCEPTION) for each in call.partitions})


def to_transaction(call: PartitionCall) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=call.transactional_id,
        producer_id=call.producer.producer_id,
        producer_epoch=call.producer.epoch,
        verify_only=call.is_verifying,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=ids)
            for topic, ids in group_by_topic(call.partitions).items()
        ],
    )


def partition_errors(response: AddPartitionsToTxnResponse, place: int, call: PartitionCall) -> Errors:
    results = response.results_by_transaction
    if place >= len(results) or results[place].transactional_id != call.transactional_id:
        return {}
    return {
        (topic.name, row.partition_index): Error(row.partition_error_code)
        for topic in results[place].topic_results
        for row in topic.results_by_partition
    }


def group_by_topic(places: list[PartitionName]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return topics

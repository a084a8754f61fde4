"""WriteTxnMarkers (key 27), v1-2: the end of transactions, told to the partitions that took part.

For transaction coordinators on other brokers, and for an administrator who aborts a transaction whose coordinator has
lost it. The answer waits until the markers are replicated; those that are not in time are sent again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.slices import Turn, in_slices
from ottla.network.peer import SOFTWARE_NAME
from ottla.protocol.messages.transaction_steps import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.machine import SendMarkers

WAIT_SECONDS_MAX: Final = 3.0  # one partition whose replicas are slow must not hold up the others for long


async def handle(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    may = context.is_granted(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or context.may(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    writing = Writing(context)
    turn = Turn()
    results = [await write(marker, may, writing, turn) async for marker in in_slices(request.markers, turn)]
    await writing.wait()
    return WriteTxnMarkersResponse(markers=results)


class Writing:
    """The markers of one request on their way."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._left = 0
        self._done = asyncio.Event()
        self._is_told_plainly = context.client.software_name == SOFTWARE_NAME  # no right: only a wording

    def write(self, order: SendMarkers, epoch: int, topic: str, row: WritableTxnMarkerPartitionResult) -> None:
        broker = self._context.broker
        if broker.replicas.get(topic, row.partition_index) is None:
            row.error_code = broker.why_not_here(topic, row.partition_index).error
            return
        self._left += 1

        def answered(error: Error) -> None:
            row.error_code = self._told(error)
            self._left -= 1
            if self._left == 0:
                self._done.set()

        broker.coordinators.markers.write(order, topic, row.partition_index, epoch, answered)

    def _told(self, error: Error) -> Error:
        """Kafka has no code to tell people that a transaction is over; brokers must know.

        Anybody can call himself a broker, and learns this one thing. Who may write markers is another question: whoever
        has the right to act for the cluster, or to alter it; without an authorizer everybody, as with Kafka.
        """
        is_over = error is Error.INVALID_PRODUCER_EPOCH
        return Error.UNKNOWN_SERVER_ERROR if is_over and not self._is_told_plainly else error

    async def wait(self) -> None:
        if self._left:
            self._done.clear()  # those before may all have been answered at once
            try:
                await asyncio.wait_for(self._done.wait(), WAIT_SECONDS_MAX)
            except TimeoutError:
                return  # the rows say so already


async def write(marker: WritableTxnMarker, may: bool, writing: Writing, turn: Turn) -> WritableTxnMarkerResult:
    order = SendMarkers(
        "",
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        frozenset(),
        marker.transaction_version,
    )
    topics = []
    async for topic in in_slices(marker.topics, turn):
        error = Error.REQUEST_TIMED_OUT if may else Error.CLUSTER_AUTHORIZATION_FAILED
        rows = []
        async for index in in_slices(topic.partition_indexes, turn):
            row = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            rows.append(row)
            if may:
                writing.write(order, marker.coordinator_epoch, topic.name, row)
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

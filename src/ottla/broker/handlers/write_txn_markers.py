"""WriteTxnMarkers (key 27), v1-2: writes transaction markers to partitions.

For transaction coordinators on other brokers, and for administrators who abort a hanging transaction. The response
waits until the markers are replicated; late ones are sent again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.offload import TimeSlice, in_slices
from ottla.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID
from ottla.transactions.transaction_coordinator import TransactionMarkers

WAIT_SECONDS_MAX: Final = 3.0  # one partition with slow replicas must not delay the others for long


async def handle(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    may = context.is_granted(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or context.is_authorized(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    writing = PendingMarkers(context)
    turn = TimeSlice()
    results = [await write(marker, may, writing, turn) async for marker in in_slices(request.markers, turn)]
    await writing.wait()
    return WriteTxnMarkersResponse(markers=results)


class PendingMarkers:
    """The markers of one request."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._left = 0
        self._done = asyncio.Event()

    def write(self, order: TransactionMarkers, epoch: int, topic: str, row: WritableTxnMarkerPartitionResult) -> None:
        broker = self._context.broker
        if broker.replicas.get(topic, row.partition_index) is None:
            row.error_code = broker.error_for_missing_partition(topic, row.partition_index).error
            return
        self._left += 1

        def answered(error: Error) -> None:
            row.error_code = error
            self._left -= 1
            if self._left == 0:
                self._done.set()

        broker.coordinators.markers.write(order, topic, row.partition_index, epoch, answered)

    async def wait(self) -> None:
        if self._left:
            self._done.clear()  # all previous markers may be written
            try:
                await asyncio.wait_for(self._done.wait(), WAIT_SECONDS_MAX)
            except TimeoutError:
                return  # the rows have the errors


async def write(
    marker: WritableTxnMarker, may: bool, writing: PendingMarkers, turn: TimeSlice
) -> WritableTxnMarkerResult:
    order = TransactionMarkers(
        "",
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        frozenset(),
        marker.transaction_version,
    )
    topics = []
    async for topic in in_slices(marker.topics, turn):
        error = first_answer(marker, may)
        rows = []
        async for index in in_slices(topic.partition_indexes, turn):
            row = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
            rows.append(row)
            if error is Error.REQUEST_TIMED_OUT:
                writing.write(order, marker.coordinator_epoch, topic.name, row)
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def first_answer(marker: WritableTxnMarker, may: bool) -> Error:
    """Return the initial result:

    REQUEST_TIMED_OUT until the marker is written, or the error of an invalid producer id or epoch.
    """
    if not may:
        return Error.CLUSTER_AUTHORIZATION_FAILED
    is_nobody = marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch == NO_EPOCH
    return Error.UNKNOWN_SERVER_ERROR if is_nobody else Error.REQUEST_TIMED_OUT

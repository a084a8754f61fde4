"""WriteTxnMarkers (key 27), v1-2: the end of transactions, told to the partitions that took part.

For brokers, and for an administrator who aborts a transaction whose coordinator has lost it.
"""

from __future__ import annotations

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.markers import append_marker, is_over
from ottla.protocol.messages.transaction_steps import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transactions.machine import SendMarkers


def handle(request: WriteTxnMarkersRequest, context: Context) -> WriteTxnMarkersResponse:
    may = context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME) or context.may(
        Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
    )
    return WriteTxnMarkersResponse(markers=[write(marker, may, context) for marker in request.markers])


def write(marker: WritableTxnMarker, may: bool, context: Context) -> WritableTxnMarkerResult:
    order = SendMarkers(
        "",
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        frozenset(),
        marker.transaction_version,
    )
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=[
                WritableTxnMarkerPartitionResult(
                    partition_index=index,
                    error_code=write_one(order, marker.coordinator_epoch, topic.name, index, context)
                    if may
                    else Error.CLUSTER_AUTHORIZATION_FAILED,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


def write_one(order: SendMarkers, coordinator_epoch: int, topic: str, index: int, context: Context) -> Error:
    partition = context.broker.replicas.get(topic, index)
    if partition is None:
        return context.broker.why_not_here(topic, index).error
    known = partition.log.producers.by_id.get(order.producer_id)
    if known is not None and coordinator_epoch < known.coordinator_epoch:
        return Error.TRANSACTION_COORDINATOR_FENCED
    if is_over(partition, order):
        return Error.UNKNOWN_SERVER_ERROR  # Kafka has no better code for this either
    try:
        append_marker(partition, order, coordinator_epoch, context.broker.clock.now_ms())
    except KafkaError as error:
        return error.error
    context.broker.coordinators.tell_group(topic, index, order)
    return Error.NONE

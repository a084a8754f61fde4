"""Produce (key 0), v3-13: append record batches to partition leaders.

v5 log start offset in the answer; v7 zstd; v8 errors of single records (KIP-467); v9 flexible; v10 new leaders in the
answer (KIP-951); v12 transactions v2 (KIP-890); v13 topic ids instead of names.

Started in order, answered later: the batch is in the log when handle() returns, the reply waits for the high watermark
if the producer asked for acks=all and other replicas have to follow.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.batches import ATTRIBUTES_POSITION, CODEC_MASK, TRANSACTIONAL_FLAG
from ottla.protocol.compression import ZSTD
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.records import InvalidRecords
from ottla.replication.partition import Partition
from ottla.replication.waiting import WaitingProduce

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
TOPIC_IDS_SINCE: Final = 13
ZSTD_SINCE: Final = 7
ATTRIBUTES_AT: Final = ATTRIBUTES_POSITION + 1  # their low byte
SEQUENCE_ERRORS: Final = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH)

# partition, last offset, the answer that becomes an error if replication does not happen in time
Unreplicated = tuple[Partition, int, PartitionProduceResponse]


def handle(request: ProduceRequest, context: Context) -> ProduceResponse | None:
    if request.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return _refuse_all(request, Error.INVALID_REQUIRED_ACKS)
    unreplicated: list[Unreplicated] = []
    now_ms = context.broker.clock.now_ms()
    responses = [_append_topic(topic, request, context, now_ms, unreplicated) for topic in request.topic_data]
    response = ProduceResponse(responses=responses)
    if request.acks == ACKS_NONE:
        _end_without_reply(response, context)
        return None
    if unreplicated:
        _ReplicationWait(context, response, unreplicated, request.timeout_ms)
        return None
    return response


def _append_topic(
    topic: TopicProduceData, request: ProduceRequest, context: Context, now_ms: int, unreplicated: list[Unreplicated]
) -> TopicProduceResponse:
    name = topic.name
    missing = Error.UNKNOWN_TOPIC_OR_PARTITION
    if context.api_version >= TOPIC_IDS_SINCE:
        known = context.broker.image.topics_by_id.get(topic.topic_id)
        name = known.name if known is not None else ""
        missing = Error.UNKNOWN_TOPIC_ID if known is None else missing
    allowed = context.may(Operation.WRITE, ResourceType.TOPIC, name)
    answers = []
    for data in topic.partition_data:
        if not allowed:
            answers.append(_error(data.index, Error.TOPIC_AUTHORIZATION_FAILED, None))
            continue
        partition = context.broker.replicas.get(name, data.index)
        if partition is None:
            error = missing if name == "" else context.broker.why_not_here(name, data.index).error
            answers.append(_error(data.index, error, None))
        else:
            answers.append(_append(partition, data, request, context, now_ms, unreplicated))
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)


def _append(
    partition: Partition,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: Context,
    now_ms: int,
    unreplicated: list[Unreplicated],
) -> PartitionProduceResponse:
    records = data.records
    if records is None:
        return _error(data.index, Error.INVALID_RECORD, "Produce requests must carry a record batch for each partition")
    try:
        _check_request(records, request, context.api_version)
        appended = partition.append(records, request.acks == ACKS_ALL, now_ms)
    except InvalidRecords as invalid:
        answer = _error(data.index, invalid.error, invalid.message)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in invalid.record_errors
        ]
        return answer
    except KafkaError as error:
        if error.error not in SEQUENCE_ERRORS:
            return _error(data.index, error.error, error.message)
        answer = _error(data.index, error.error, None)
        answer.log_start_offset = partition.log.log_start_offset  # tells the producer whether its records are gone
        return answer
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )
    must_wait = request.acks == ACKS_ALL or partition.is_flushing
    if must_wait and not partition.is_replicated(appended.last_offset):
        unreplicated.append((partition, appended.last_offset, answer))
    return answer


def _check_request(records: memoryview, request: ProduceRequest, api_version: int) -> None:
    """What the batch may not be because of the request around it."""
    if len(records) <= ATTRIBUTES_AT:
        return  # too short for a batch: the log says so in Kafka's words
    attributes = records[ATTRIBUTES_AT]
    if attributes & TRANSACTIONAL_FLAG:
        # There is no transaction coordinator yet, so no transaction that this batch could belong to.
        no_id = request.transactional_id is None
        raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if no_id else Error.INVALID_TXN_STATE)
    if attributes & CODEC_MASK == ZSTD and api_version < ZSTD_SINCE:
        raise KafkaError(
            Error.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {api_version} are not allowed to use ZStandard compression",
        )


def _error(index: int, error: Error, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error, base_offset=-1, error_message=message)


def _refuse_all(request: ProduceRequest, error: Error) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_error(data.index, error, None) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _end_without_reply(response: ProduceResponse, context: Context) -> None:
    """acks=0 gets no answer; closing the connection is the only way to tell of an error."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                context.connection.abandon(f"acks=0 produce failed: {Error(partition.error_code).name}")
                return


def _why_not_replicated(partition: Partition) -> Error:
    if partition.log.failure is not None:
        return Error.KAFKA_STORAGE_ERROR
    return Error.REQUEST_TIMED_OUT if partition.is_leader else Error.NOT_LEADER_OR_FOLLOWER


class _ReplicationWait:
    """Parks an acks=all produce until the in-sync replicas have its records or its time is up."""

    def __init__(
        self, context: Context, response: ProduceResponse, unreplicated: list[Unreplicated], timeout_ms: int
    ) -> None:
        self._context = context
        self._response = response
        self._unreplicated = unreplicated
        self._waiting = WaitingProduce(len(unreplicated), self._on_ready)
        context.park()
        context.connection.waiting.add(self)
        for partition, last_offset, _ in unreplicated:
            partition.wait_for_replication(last_offset, self._waiting)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(max(0, timeout_ms) / 1000, self._waiting.wake)

    def _on_ready(self) -> None:
        self._deadline.cancel()
        self._context.connection.waiting.discard(self)
        for partition, last_offset, answer in self._unreplicated:
            if not partition.is_replicated(last_offset):
                answer.error_code = _why_not_replicated(partition)
        self._context.answer(self._response)

    def cancel(self) -> None:
        self._deadline.cancel()
        self._waiting.is_done = True

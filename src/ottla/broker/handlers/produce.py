"""Produce (key 0), v3-13: appends record batches to partition leaders.

v5 log start offset in the response; v7 zstd; v8 errors of single records (KIP-467); v9 flexible; v10 current leaders in
the response (KIP-951); v12 transactions V2 (KIP-890); v13 topic ids instead of names.

Requests start in order and get their responses later: the batch is in the log when handle() returns. With acks=all and
followers, the response waits for the high watermark.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import AUDIT_TOPIC, INTERNAL_TOPICS
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service import transactional_produce
from ottla.broker.coordinator_service.transactional_produce import PartitionErrors
from ottla.broker.current_leaders import add_node_endpoints_for_producer
from ottla.broker.delayed_produce import DelayedProduce, UnreplicatedBatch, add_current_leader
from ottla.broker.offload import TimeSlice, chunks
from ottla.broker.responder import Responder
from ottla.network.close_reason import CloseReason
from ottla.protocol.batches import CODEC_MASK, FLAGS_POSITION, TRANSACTIONAL_FLAG
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
from ottla.storage.errors import RecompressionNeededError

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
TOPIC_IDS_SINCE: Final = 13
PARTITIONS_PER_SLICE: Final = 50
ZSTD_SINCE: Final = 7
SEQUENCE_ERRORS: Final = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH)
NO_ERRORS: Final[PartitionErrors] = {}
NOT_ADDED: Final = "Partition was not added to the transaction"
ADMIN_CLIENT_ID: Final = "__admin_client"  # this client id may write to internal topics, as in Kafka


class BatchToRecompress:
    """A large batch that a worker thread recompresses with the topic's codec before the append."""

    __slots__ = ("data", "partition", "position", "records", "responses")

    def __init__(
        self, partition: Partition, data: PartitionProduceData, answers: list[PartitionProduceResponse]
    ) -> None:
        self.partition = partition
        self.data = data
        self.records = bytes(data.records or b"")  # a copy: the request buffer is reused
        self.responses = answers  # the list of its response …
        self.position = len(answers)  # … and its position there


class ProduceProgress:
    """The remaining work after all rows of a request were visited."""

    __slots__ = ("leaders", "messages", "uncompressed", "unreplicated")

    def __init__(self) -> None:
        self.uncompressed: list[BatchToRecompress] = []
        self.unreplicated: list[UnreplicatedBatch] = []
        self.messages = 0  # number of appended records
        self.leaders: set[int] = set()  # current leaders of partitions that this broker does not lead (KIP-951)


Answer = ProduceResponse | Responder


def handle(request: ProduceRequest, context: Context) -> Answer:
    if request.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return _refuse_all(request, Error.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        if not _is_transactional_id_authorized(request, context):
            return _finish(
                request, context, _refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ProduceProgress()
            )
        return transactional_produce.verify_and_append(
            request,
            context,
            lambda topic: _topic_name(topic, context),
            lambda refused: _append_all(request, context, refused),
        )
    return _append_all(request, context, NO_ERRORS)


async def handle_long(request: ProduceRequest, context: Context) -> Answer:
    """Handle hundreds of partitions in slices. No further request is read from this connection meanwhile."""
    if request.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return handle(request, context)
    turn = TimeSlice()
    if request.transactional_id is None:
        return await _append_in_slices(request, context, None, turn)
    if not _is_transactional_id_authorized(request, context):
        return _finish(
            request, context, _refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ProduceProgress()
        )
    questions = await transactional_produce.verify_in_slices(
        request, context, lambda topic: _topic_name(topic, context), turn
    )
    try:
        if context.responder.is_disconnected:
            return context.responder  # the producer retries
        return await _append_in_slices(request, context, questions, turn)
    finally:
        questions.end_guards()


async def _append_in_slices(
    request: ProduceRequest, context: Context, questions: transactional_produce.TxnVerifications | None, turn: TimeSlice
) -> Answer:
    unfinished = ProduceProgress()
    now_ms = context.broker.clock.now_ms()
    response = ProduceResponse(responses=[])
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        name = _topic_name(topic, context)
        for rows in chunks(topic.partition_data, PARTITIONS_PER_SLICE):
            refused = NO_ERRORS
            if questions is not None:  # a marker may have been written since the last piece
                refused = questions.errors([(name, data.index) for data in rows])
            _append_rows(topic, rows, request, context, now_ms, unfinished, refused, answers)
            if turn.is_used_up:
                await turn.yield_to_loop()
    return _recompress_or_finish(request, context, response, unfinished)


def _append_all(request: ProduceRequest, context: Context, refused: PartitionErrors) -> Answer:
    unfinished = ProduceProgress()
    now_ms = context.broker.clock.now_ms()
    responses = [_append_topic(topic, request, context, now_ms, unfinished, refused) for topic in request.topic_data]
    return _recompress_or_finish(request, context, ProduceResponse(responses=responses), unfinished)


def _recompress_or_finish(
    request: ProduceRequest, context: Context, response: ProduceResponse, unfinished: ProduceProgress
) -> Answer:
    if unfinished.leaders:
        add_node_endpoints_for_producer(response, unfinished.leaders, context)
    if unfinished.uncompressed:
        # No further request is read from this connection meanwhile: batches of a producer stay in order.
        return context.responder.run(_append_recompressed(request, context, response, unfinished))
    return _finish(request, context, response, unfinished)


def _finish(
    request: ProduceRequest, context: Context, response: ProduceResponse, unfinished: ProduceProgress
) -> Answer:
    """Finish after all batches are appended: respond now, wait, or send no response (acks=0)."""
    if context.broker.quotas.is_on:
        context.broker.quotas.charge_produce(context, context.request_bytes, unfinished.messages)
    unreplicated = unfinished.unreplicated
    if request.acks == ACKS_NONE:
        return _end_without_reply(response, context)
    if not unreplicated:
        return response
    return DelayedProduce(context, response, unreplicated, request.timeout_ms, request.acks == ACKS_ALL).begin()


def _is_transactional_id_authorized(request: ProduceRequest, context: Context) -> bool:
    """Return whether the client may use the transactional id. Otherwise every partition gets that error first."""
    return context.is_authorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id or "")


def _append_topic(
    topic: TopicProduceData,
    request: ProduceRequest,
    context: Context,
    now_ms: int,
    unfinished: ProduceProgress,
    refused: PartitionErrors,
) -> TopicProduceResponse:
    answers: list[PartitionProduceResponse] = []
    _append_rows(topic, topic.partition_data, request, context, now_ms, unfinished, refused, answers)
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)


def _append_rows(
    topic: TopicProduceData,
    rows: Sequence[PartitionProduceData],
    request: ProduceRequest,
    context: Context,
    now_ms: int,
    unfinished: ProduceProgress,
    refused: PartitionErrors,
    answers: list[PartitionProduceResponse],
) -> None:
    name = _topic_name(topic, context)
    is_unknown_id = name == "" and context.api_version >= TOPIC_IDS_SINCE
    missing = Error.UNKNOWN_TOPIC_ID if is_unknown_id else Error.UNKNOWN_TOPIC_OR_PARTITION
    allowed = is_unknown_id or context.is_authorized(Operation.WRITE, ResourceType.TOPIC, name)
    is_internal = name in INTERNAL_TOPICS and (context.client_id != ADMIN_CLIENT_ID or name == AUDIT_TOPIC)
    replicas = context.broker.replicas
    for data in rows:
        if not allowed:
            answers.append(_error(data.index, Error.TOPIC_AUTHORIZATION_FAILED, None))
            continue
        if refused and (name, data.index) in refused:
            error = refused[name, data.index]
            replicas.rejected_batches.add(error, name, data.index, data.records, now_ms)
            answers.append(_error(data.index, error, NOT_ADDED if error is Error.INVALID_TXN_STATE else None))
            continue
        if is_internal:
            answers.append(_error(data.index, Error.INVALID_TOPIC_EXCEPTION, None))
            continue
        partition = replicas.get(name, data.index)
        if partition is not None and topic.topic_id != partition.topic_id and context.api_version >= TOPIC_IDS_SINCE:
            # The hosted partition belongs to a deleted topic; the request is for a new topic with the same name.
            answers.append(_error(data.index, Error.UNKNOWN_TOPIC_ID, None))
        elif partition is None:
            error = missing if name == "" else context.broker.error_for_missing_partition(name, data.index).error
            if name:  # it may be created for the producer's next batch
                replicas.rejected_batches.add(error, name, data.index, data.records, now_ms)
            context.broker.counters.note_error(context.api_key, error)
            answers.append(add_current_leader(_error(data.index, error, None), name, context, unfinished.leaders))
        else:
            try:
                answers.append(_append(partition, data, request, context, now_ms, unfinished))
            except RecompressionNeededError:
                unfinished.uncompressed.append(BatchToRecompress(partition, data, answers))
                answers.append(_error(data.index, Error.NONE, None))


def _topic_name(topic: TopicProduceData, context: Context) -> str:
    if context.api_version < TOPIC_IDS_SINCE:
        return topic.name
    known = context.broker.image.topics_by_id.get(topic.topic_id)
    return known.name if known is not None else ""


def _append(
    partition: Partition,
    data: PartitionProduceData,
    request: ProduceRequest,
    context: Context,
    now_ms: int,
    unfinished: ProduceProgress,
) -> PartitionProduceResponse:
    records = data.records
    if records is None:
        return _error(data.index, Error.INVALID_RECORD, "Produce requests must carry a record batch for each partition")
    rejected_batches = context.broker.replicas.rejected_batches
    try:
        _check_request(records, request, context.api_version)
        quotas, quota = context.broker.quotas, partition.log.settings.quota
        if quotas.is_on or quota is not None:
            quotas.check_append(partition, quota)
        if rejected_batches:
            rejected_batches.check(*partition.name, partition.log, records, now_ms)
        appended = partition.append(records, request.acks == ACKS_ALL, now_ms)
    except InvalidRecords as invalid:
        _count_refusal(partition, invalid.error, records, context)
        answer = _error(data.index, invalid.error, invalid.message)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in invalid.record_errors
        ]
        return answer
    except KafkaError as error:
        _count_refusal(partition, error.error, records, context)
        rejected_batches.add(error.error, *partition.name, records, now_ms)
        if error.error not in SEQUENCE_ERRORS:
            refusal = _error(data.index, error.error, error.message)
            return add_current_leader(refusal, partition.name.topic, context, unfinished.leaders)
        answer = _error(data.index, error.error, None)
        answer.log_start_offset = partition.log.log_start_offset  # shows the producer whether its records were deleted
        return answer
    except AssertionError:  # one damaged partition must not stop the others
        logger.exception("cannot append to %s", partition.name)
        return _error(data.index, Error.UNKNOWN_SERVER_ERROR, None)
    traffic = partition.traffic
    traffic.appends += 1
    messages = appended.last_offset - appended.base_offset + 1
    traffic.messages_in += messages
    unfinished.messages += messages
    if quota is not None:
        quotas.charge_append(context, partition, quota, len(records), messages)
    traffic.bytes_in += len(records)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )
    must_wait = request.acks == ACKS_ALL or partition.is_flushing
    if must_wait and not partition.is_replicated(appended.last_offset):
        unfinished.unreplicated.append(UnreplicatedBatch(partition, appended.last_offset, answer))
    return answer


async def _append_recompressed(
    request: ProduceRequest,
    context: Context,
    response: ProduceResponse,
    unfinished: ProduceProgress,
) -> Answer:
    """Append large batches that were recompressed with the topic's compression.type."""
    loop = asyncio.get_running_loop()
    broker = context.broker
    for item in unfinished.uncompressed:
        partition, data = item.partition, item.data
        try:
            batch = await loop.run_in_executor(broker.workers, partition.log.recompressed, item.records)
            data.records = memoryview(batch)
            answer = _append(partition, data, request, context, broker.clock.now_ms(), unfinished)
            if not answer.error_code:  # Kafka counts received records, not stored ones
                partition.traffic.bytes_in += len(item.records) - len(batch)
        except KafkaError as refusal:
            answer = _error(data.index, refusal.error, refusal.message)
        except RecompressionNeededError:  # the topic's codec has changed meanwhile: the producer retries
            answer = _error(data.index, Error.NOT_LEADER_OR_FOLLOWER, None)
        item.responses[item.position] = answer
    if unfinished.leaders:
        add_node_endpoints_for_producer(response, unfinished.leaders, context)
    return _finish(request, context, response, unfinished)


def _count_refusal(partition: Partition, error: Error, records: memoryview, context: Context) -> None:
    partition.traffic.refuse_append(error, len(records))
    context.broker.counters.note_error(context.api_key, error)


def _check_request(records: memoryview, request: ProduceRequest, api_version: int) -> None:
    """Check a batch against the version and the transactional id of the request. Raises KafkaError."""
    if len(records) <= FLAGS_POSITION:
        return  # too short for a batch: the log raises Kafka's error
    attributes = records[FLAGS_POSITION]
    if attributes & TRANSACTIONAL_FLAG and request.transactional_id is None:
        raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
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


def _end_without_reply(response: ProduceResponse, context: Context) -> Responder:
    """End a request with acks=0. Closing the connection is the only way to report an error."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                why = f"acks=0 produce failed: {Error(partition.error_code).name}"
                return context.responder.fail(CloseReason.UNACKNOWLEDGED_PRODUCE, why)
    return context.responder.complete_without_response()

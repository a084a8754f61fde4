"""Produce (key 0), v3-13: append record batches to partition leaders.

v5 log start offset in the answer; v7 zstd; v8 errors of single records (KIP-467); v9 flexible; v10 new leaders in the
answer (KIP-951); v12 transactions v2 (KIP-890); v13 topic ids instead of names.

Started in order, answered later: the batch is in the log when handle() returns, the reply waits for the high watermark
if the producer asked for acks=all and other replicas have to follow.
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
from ottla.broker.coordinators import transactional_produce
from ottla.broker.coordinators.transactional_produce import Refused
from ottla.broker.new_leaders import add_addresses_for_producer
from ottla.broker.produce_waiting import ReplicationWait, Unreplicated, elsewhere
from ottla.broker.responder import Responder
from ottla.broker.slices import Turn, pieces_of
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
ROWS_AT_ONCE: Final = 50
ZSTD_SINCE: Final = 7
SEQUENCE_ERRORS: Final = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH)
NOTHING_REFUSED: Final[Refused] = {}
NOT_ADDED: Final = "Partition was not added to the transaction"
ADMIN_CLIENT_ID: Final = "__admin_client"  # who so calls itself may write to internal topics, with Kafka, too


class Uncompressed:
    """A large batch that gets the topic's own codec first, in a worker thread."""

    __slots__ = ("answers", "data", "partition", "place", "records")

    def __init__(
        self, partition: Partition, data: PartitionProduceData, answers: list[PartitionProduceResponse]
    ) -> None:
        self.partition = partition
        self.data = data
        self.records = bytes(data.records or b"")  # a copy: the buffer behind a request is used again
        self.answers = answers  # where its answer belongs …
        self.place = len(answers)  # … and in which place


class Unfinished:
    """What is left to do when all rows of a request were looked at."""

    __slots__ = ("leaders", "messages", "uncompressed", "unreplicated")

    def __init__(self) -> None:
        self.uncompressed: list[Uncompressed] = []
        self.unreplicated: list[Unreplicated] = []
        self.messages = 0  # that were stored
        self.leaders: set[int] = set()  # brokers that lead what was looked for here: the answer names them (KIP-951)


Answer = ProduceResponse | Responder


def handle(request: ProduceRequest, context: Context) -> Answer:
    if request.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return _refuse_all(request, Error.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        if not _may_transact(request, context):
            return _end(
                request, context, _refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), Unfinished()
            )
        return transactional_produce.begin(
            request,
            context,
            lambda topic: _topic_name(topic, context),
            lambda refused: _append_all(request, context, refused),
        )
    return _append_all(request, context, NOTHING_REFUSED)


async def handle_long(request: ProduceRequest, context: Context) -> Answer:
    """The same for hundreds of partitions: others are served in between. Nothing else of this connection is."""
    if request.acks not in (ACKS_ALL, ACKS_NONE, 1):
        return handle(request, context)
    turn = Turn()
    if request.transactional_id is None:
        return await _append_in_slices(request, context, None, turn)
    if not _may_transact(request, context):
        return _end(request, context, _refuse_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), Unfinished())
    questions = await transactional_produce.begin_long(
        request, context, lambda topic: _topic_name(topic, context), turn
    )
    try:
        if context.responder.is_gone:
            return context.responder  # whoever sent it sends it again, or gives it up
        return await _append_in_slices(request, context, questions, turn)
    finally:
        questions.lower_guards()


async def _append_in_slices(
    request: ProduceRequest, context: Context, questions: transactional_produce.Questions | None, turn: Turn
) -> Answer:
    unfinished = Unfinished()
    now_ms = context.broker.clock.now_ms()
    response = ProduceResponse(responses=[])
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        name = _topic_name(topic, context)
        for rows in pieces_of(topic.partition_data, ROWS_AT_ONCE):
            refused = NOTHING_REFUSED
            if questions is not None:  # a marker may have come since the piece before
                refused = questions.refused([(name, data.index) for data in rows])
            _append_rows(topic, rows, request, context, now_ms, unfinished, refused, answers)
            if turn.is_over:
                await turn.give_way()
    return _conclude(request, context, response, unfinished)


def _append_all(request: ProduceRequest, context: Context, refused: Refused) -> Answer:
    unfinished = Unfinished()
    now_ms = context.broker.clock.now_ms()
    responses = [_append_topic(topic, request, context, now_ms, unfinished, refused) for topic in request.topic_data]
    return _conclude(request, context, ProduceResponse(responses=responses), unfinished)


def _conclude(request: ProduceRequest, context: Context, response: ProduceResponse, unfinished: Unfinished) -> Answer:
    if unfinished.leaders:
        add_addresses_for_producer(response, unfinished.leaders, context)
    if unfinished.uncompressed:
        # Meanwhile nothing more is taken from this connection, so that the order of a producer's batches stays.
        return context.responder.run(_append_recompressed(request, context, response, unfinished))
    return _end(request, context, response, unfinished)


def _end(request: ProduceRequest, context: Context, response: ProduceResponse, unfinished: Unfinished) -> Answer:
    """Everything is appended: is there an answer, and does it have to wait?"""
    if context.broker.quotas.is_on:
        context.broker.quotas.note_produce(context, context.request_bytes, unfinished.messages)
    unreplicated = unfinished.unreplicated
    if request.acks == ACKS_NONE:
        return _end_without_reply(response, context)
    if not unreplicated:
        return response
    return ReplicationWait(context, response, unreplicated, request.timeout_ms, request.acks == ACKS_ALL).begin()


def _may_transact(request: ProduceRequest, context: Context) -> bool:
    """Whoever may not is told so about everything, whatever else is to be said about his topics."""
    return context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id or "")


def _append_topic(
    topic: TopicProduceData,
    request: ProduceRequest,
    context: Context,
    now_ms: int,
    unfinished: Unfinished,
    refused: Refused,
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
    unfinished: Unfinished,
    refused: Refused,
    answers: list[PartitionProduceResponse],
) -> None:
    name = _topic_name(topic, context)
    is_unknown_id = name == "" and context.api_version >= TOPIC_IDS_SINCE
    missing = Error.UNKNOWN_TOPIC_ID if is_unknown_id else Error.UNKNOWN_TOPIC_OR_PARTITION
    allowed = is_unknown_id or context.may(Operation.WRITE, ResourceType.TOPIC, name)
    is_internal = name in INTERNAL_TOPICS and (context.client_id != ADMIN_CLIENT_ID or name == AUDIT_TOPIC)
    replicas = context.broker.replicas
    for data in rows:
        if not allowed:
            answers.append(_error(data.index, Error.TOPIC_AUTHORIZATION_FAILED, None))
            continue
        if refused and (name, data.index) in refused:
            error = refused[name, data.index]
            replicas.refused_sequences.note(error, name, data.index, data.records, now_ms)
            answers.append(_error(data.index, error, NOT_ADDED if error is Error.INVALID_TXN_STATE else None))
            continue
        if is_internal:
            answers.append(_error(data.index, Error.INVALID_TOPIC_EXCEPTION, None))
            continue
        partition = replicas.get(name, data.index)
        if partition is not None and topic.topic_id != partition.topic_id and context.api_version >= TOPIC_IDS_SINCE:
            # It is about to make room for a new topic of the same name.
            answers.append(_error(data.index, Error.UNKNOWN_TOPIC_ID, None))
        elif partition is None:
            error = missing if name == "" else context.broker.why_not_here(name, data.index).error
            if name:  # it may be here for this producer's next batch
                replicas.refused_sequences.note(error, name, data.index, data.records, now_ms)
            context.broker.counters.note_error(context.api_key, error)
            answers.append(elsewhere(_error(data.index, error, None), name, context, unfinished.leaders))
        else:
            try:
                answers.append(_append(partition, data, request, context, now_ms, unfinished))
            except RecompressionNeededError:
                unfinished.uncompressed.append(Uncompressed(partition, data, answers))
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
    unfinished: Unfinished,
) -> PartitionProduceResponse:
    records = data.records
    if records is None:
        return _error(data.index, Error.INVALID_RECORD, "Produce requests must carry a record batch for each partition")
    refused_sequences = context.broker.replicas.refused_sequences
    try:
        _check_request(records, request, context.api_version)
        quotas, quota = context.broker.quotas, partition.log.settings.quota
        if quotas.is_on or quota is not None:
            quotas.check_append(partition, quota)
        if refused_sequences:
            refused_sequences.check(*partition.name, partition.log, records, now_ms)
        appended = partition.append(records, request.acks == ACKS_ALL, now_ms)
    except InvalidRecords as invalid:
        _note_refusal(partition, invalid.error, records, context)
        answer = _error(data.index, invalid.error, invalid.message)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in invalid.record_errors
        ]
        return answer
    except KafkaError as error:
        _note_refusal(partition, error.error, records, context)
        refused_sequences.note(error.error, *partition.name, records, now_ms)
        if error.error not in SEQUENCE_ERRORS:
            refusal = _error(data.index, error.error, error.message)
            return elsewhere(refusal, partition.name.topic, context, unfinished.leaders)
        answer = _error(data.index, error.error, None)
        answer.log_start_offset = partition.log.log_start_offset  # tells the producer whether its records are gone
        return answer
    except AssertionError:  # one bad partition must not stop the others
        logger.exception("cannot append to %s", partition.name)
        return _error(data.index, Error.UNKNOWN_SERVER_ERROR, None)
    traffic = partition.traffic
    traffic.appends += 1
    messages = appended.last_offset - appended.base_offset + 1
    traffic.messages_in += messages
    unfinished.messages += messages
    if quota is not None:
        quotas.note_append(context, partition, quota, len(records), messages)
    traffic.bytes_in += len(records)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )
    must_wait = request.acks == ACKS_ALL or partition.is_flushing
    if must_wait and not partition.is_replicated(appended.last_offset):
        unfinished.unreplicated.append(Unreplicated(partition, appended.last_offset, answer))
    return answer


async def _append_recompressed(
    request: ProduceRequest,
    context: Context,
    response: ProduceResponse,
    unfinished: Unfinished,
) -> Answer:
    """Large batches of topics with a codec of their own."""
    loop = asyncio.get_running_loop()
    broker = context.broker
    for item in unfinished.uncompressed:
        partition, data = item.partition, item.data
        try:
            batch = await loop.run_in_executor(broker.workers, partition.log.recompressed, item.records)
            data.records = memoryview(batch)
            answer = _append(partition, data, request, context, broker.clock.now_ms(), unfinished)
            if not answer.error_code:  # Kafka counts what came, not what is kept
                partition.traffic.bytes_in += len(item.records) - len(batch)
        except KafkaError as refusal:
            answer = _error(data.index, refusal.error, refusal.message)
        except RecompressionNeededError:  # the topic's codec was changed meanwhile: let the producer try again
            answer = _error(data.index, Error.NOT_LEADER_OR_FOLLOWER, None)
        item.answers[item.place] = answer
    if unfinished.leaders:
        add_addresses_for_producer(response, unfinished.leaders, context)
    return _end(request, context, response, unfinished)


def _note_refusal(partition: Partition, error: Error, records: memoryview, context: Context) -> None:
    partition.traffic.refuse_append(error, len(records))
    context.broker.counters.note_error(context.api_key, error)


def _check_request(records: memoryview, request: ProduceRequest, api_version: int) -> None:
    """What the batch may not be because of the request around it."""
    if len(records) <= FLAGS_POSITION:
        return  # too short for a batch: the log says so in Kafka's words
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
    """acks=0 gets no answer; closing the connection is the only way to tell of an error."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                return context.responder.fail(f"acks=0 produce failed: {Error(partition.error_code).name}")
    return context.responder.end()

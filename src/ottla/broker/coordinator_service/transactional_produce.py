"""Transactional produce: each partition is added to the transaction, or verified, before its first batch is written
(KIP-890).

For newer producers (Produce v12) the broker adds the partitions; for older ones it verifies them. A late batch of a
completed transaction is rejected; it would otherwise open a transaction that never ends.

The coordinator may be on another broker. Until it responds, no further request is read from the connection: a later
batch of the same producer must not be written before this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.broker.coordinator_service.transaction_verification import VerificationGuard
from ottla.broker.offload import TimeSlice, chunks, in_slices
from ottla.broker.responder import Responder
from ottla.protocol.batches import FLAGS_POSITION, HEADER_BYTES, TRANSACTIONAL_FLAG, read_batch_header
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.transactions.transaction import ProducerIdAndEpoch

ABORTABLE_SINCE: Final = 11
ADDED_BY_BROKER_SINCE: Final = 12

PartitionName = tuple[str, int]
PartitionErrors = dict[PartitionName, Error]
ProduceResult = ProduceResponse | Responder
PartitionsToVerify = dict[ProducerIdAndEpoch, dict[PartitionName, Partition]]
AppendRequest = Callable[[PartitionErrors], ProduceResult]

# NOT_ENOUGH_REPLICAS replaces these coordinator errors: every producer retries it.
RETRIABLE: Final = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.NETWORK_EXCEPTION,
)


def verify_and_append(
    request: ProduceRequest,
    context: Context,
    name_of: Callable[[TopicProduceData], str],
    append: AppendRequest,
) -> ProduceResult:
    """Ensure that every partition of this request is part of its transaction, then call `go_on`.

    Usually all partitions are, or the coordinator responds at once: then the request neither waits nor is copied.
    """
    is_trusted = not context.broker.settings.transaction_partition_verification_enable
    if is_trusted and context.api_version < ADDED_BY_BROKER_SINCE:
        return append({})
    newcomers = find_partitions_to_verify(request, context, name_of)
    if not newcomers:
        return append({})
    questions = TxnVerifications(request, context)
    for who, partitions in newcomers.items():
        questions.request(who, partitions)
    if not questions.is_answered:
        copy_records(request)
        return context.responder.run(append_after_verification(context, questions, append))
    try:
        return append(questions.errors())
    finally:
        questions.end_guards()


async def verify_in_slices(
    request: ProduceRequest, context: Context, name_of: Callable[[TopicProduceData], str], turn: TimeSlice
) -> TxnVerifications:
    """Verify thousands of partitions in slices; errors are checked right before each partition is written."""
    questions = TxnVerifications(request, context)
    is_trusted = not context.broker.settings.transaction_partition_verification_enable
    if is_trusted and context.api_version < ADDED_BY_BROKER_SINCE:
        return questions
    newcomers: PartitionsToVerify = {}
    async for topic in in_slices(request.topic_data, turn):
        name = name_of(topic)
        for rows in chunks(topic.partition_data):
            add_partitions_to_verify(name, rows, context, newcomers)
            if turn.is_used_up:
                await turn.yield_to_loop()
    try:
        async for who, partitions in in_slices(newcomers.items(), turn):
            questions.request(who, partitions)
        await questions.wait()
    except BaseException:
        questions.end_guards()
        raise
    return questions


def find_partitions_to_verify(
    request: ProduceRequest, context: Context, name_of: Callable[[TopicProduceData], str]
) -> PartitionsToVerify:
    found: PartitionsToVerify = {}
    for topic in request.topic_data:
        add_partitions_to_verify(name_of(topic), topic.partition_data, context, found)
    return found


def add_partitions_to_verify(
    name: str, rows: Sequence[PartitionProduceData], context: Context, found: PartitionsToVerify
) -> None:
    """Collect the local partitions with write permission and without an open transaction of this producer."""
    if name in INTERNAL_TOPICS or not context.is_visible(Operation.WRITE, ResourceType.TOPIC, name):
        return  # rejected later
    for data in rows:
        who = producer_of(data)
        partition = context.broker.replicas.get(name, data.index)
        if who is None or partition is None or not partition.is_leader:
            continue  # not transactional, or rejected later
        if not has_open_transaction(partition.log, who):
            found.setdefault(who, {})[partition.name] = partition


def producer_of(data: PartitionProduceData) -> ProducerIdAndEpoch | None:
    records = data.records
    if records is None or len(records) < HEADER_BYTES or not records[FLAGS_POSITION] & TRANSACTIONAL_FLAG:
        return None
    try:
        header = read_batch_header(records, 0)
    except KafkaError:
        return None  # the log reports the error
    return ProducerIdAndEpoch(header.producer_id, header.producer_epoch)


def has_open_transaction(log: Log, who: ProducerIdAndEpoch) -> bool:
    producers = log.producers
    producer = producers.by_id.get(who.producer_id)
    return producer is not None and producer.epoch == who.epoch and who.producer_id in producers.ongoing_txns


class TxnVerifications:
    """The verification requests of one produce, and their results."""

    def __init__(self, request: ProduceRequest, context: Context) -> None:
        self._transactional_id = request.transactional_id or ""
        self._context = context
        self._errors: PartitionErrors = {}
        self._guards: dict[PartitionName, list[tuple[int, VerificationGuard]]] = {}  # producer id
        self._pending = 0
        self._all_answered: asyncio.Event | None = None

    def request(self, who: ProducerIdAndEpoch, partitions: dict[PartitionName, Partition]) -> None:
        coordinators = self._context.broker.coordinators
        is_verifying = self._context.api_version < ADDED_BY_BROKER_SINCE
        if is_verifying:  # otherwise the epoch of the batch shows whether its transaction is over
            for place, partition in partitions.items():
                guard = coordinators.guards.begin(partition, who.producer_id)
                self._guards.setdefault(place, []).append((who.producer_id, guard))
        self._pending += 1
        coordinators.verification.request(self._transactional_id, who, list(partitions), is_verifying, self._on_answer)

    def _on_answer(self, errors: PartitionErrors) -> None:
        self._pending -= 1
        for place, error in errors.items():
            if error is not Error.NONE:
                self._errors[place] = error_for_version(error, self._context.api_version)
        if self._pending == 0 and self._all_answered is not None:
            self._all_answered.set()

    @property
    def is_answered(self) -> bool:
        return self._pending == 0

    async def wait(self) -> None:
        if self._pending:
            self._all_answered = asyncio.Event()
            await self._all_answered.wait()

    def errors(self, places: Iterable[PartitionName] | None = None) -> PartitionErrors:
        """Return the partitions that are not in the transaction, or whose transaction was ended by a marker meanwhile;
        with `places` only those.
        """
        for place in self._guards if places is None else places:
            for _, guard in self._guards.get(place, ()):
                if guard.has_moved:
                    self._errors.setdefault(place, Error.NOT_LEADER_OR_FOLLOWER)
                elif guard.is_cancelled:
                    self._errors.setdefault(place, Error.INVALID_TXN_STATE)
        return self._errors

    def end_guards(self) -> None:
        guards = self._context.broker.coordinators.guards
        for guarded in self._guards.values():
            for producer_id, guard in guarded:
                guards.end(guard, producer_id)


async def append_after_verification(
    context: Context, questions: TxnVerifications, go_on: AppendRequest
) -> ProduceResult:
    try:
        await questions.wait()
        if context.responder.is_disconnected:
            return context.responder  # the producer retries
        return go_on(questions.errors())
    finally:
        questions.end_guards()


def copy_records(request: ProduceRequest) -> None:
    """Copy the records: the request buffer is reused as soon as the handler returns."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def error_for_version(error: Error, api_version: int) -> Error:
    """Return the error for a producer of this version."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error in RETRIABLE:
        return Error.NOT_ENOUGH_REPLICAS
    if error is Error.CONCURRENT_TRANSACTIONS and api_version < ADDED_BY_BROKER_SINCE:
        return Error.NOT_ENOUGH_REPLICAS
    if error is Error.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error

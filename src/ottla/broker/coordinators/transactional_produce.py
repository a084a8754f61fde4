"""Batches of transactions: each partition takes part in the transaction before its first batch is written (KIP-890).

Newer producers (Produce v12) leave it to the broker to add a partition; of older ones it is verified that they did.
A late batch of a transaction that is over finds no transaction, and is refused instead of hanging in the log for ever.

The coordinator may be another broker. While its answer is on the way nothing more is taken from the connection: a later
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
from ottla.broker.coordinators.verification_guards import VerificationGuard
from ottla.broker.responder import Responder
from ottla.broker.slices import Turn, in_slices, pieces_of
from ottla.protocol.batches import FLAGS_POSITION, HEADER_BYTES, TRANSACTIONAL_FLAG, read_batch_header
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.transactions.transaction import Identity

ABORTABLE_SINCE: Final = 11
ADDED_BY_BROKER_SINCE: Final = 12

Place = tuple[str, int]
Refused = dict[Place, Error]
Answer = ProduceResponse | Responder
Newcomers = dict[Identity, dict[Place, Partition]]
GoOn = Callable[[Refused], Answer]

# Errors of a coordinator, to which no producer expects to talk here: NOT_ENOUGH_REPLICAS makes all of them try again.
RETRIABLE: Final = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.NETWORK_EXCEPTION,
)


def begin(
    request: ProduceRequest,
    context: Context,
    name_of: Callable[[TopicProduceData], str],
    go_on: GoOn,
) -> Answer:
    """Make sure that every partition of this request takes part in its transaction, then `go_on`.

    Mostly all of them do already, or the coordinator answers at once: then nothing waits and nothing is copied.
    """
    is_trusted = not context.broker.settings.transaction_partition_verification_enable
    if is_trusted and context.api_version < ADDED_BY_BROKER_SINCE:
        return go_on({})
    newcomers = find_newcomers(request, context, name_of)
    if not newcomers:
        return go_on({})
    questions = Questions(request, context)
    for who, partitions in newcomers.items():
        questions.ask(who, partitions)
    if not questions.is_answered:
        keep_records(request)
        return context.responder.run(go_on_later(context, questions, go_on))
    try:
        return go_on(questions.refused())
    finally:
        questions.lower_guards()


async def begin_long(
    request: ProduceRequest, context: Context, name_of: Callable[[TopicProduceData], str], turn: Turn
) -> Questions:
    """The same for thousands of partitions: what is refused is asked of the questions right before each is written."""
    questions = Questions(request, context)
    is_trusted = not context.broker.settings.transaction_partition_verification_enable
    if is_trusted and context.api_version < ADDED_BY_BROKER_SINCE:
        return questions
    newcomers: Newcomers = {}
    async for topic in in_slices(request.topic_data, turn):
        name = name_of(topic)
        for rows in pieces_of(topic.partition_data):
            note_newcomers(name, rows, context, newcomers)
            if turn.is_over:
                await turn.give_way()
    try:
        async for who, partitions in in_slices(newcomers.items(), turn):
            questions.ask(who, partitions)
        await questions.wait()
    except BaseException:
        questions.lower_guards()
        raise
    return questions


def find_newcomers(request: ProduceRequest, context: Context, name_of: Callable[[TopicProduceData], str]) -> Newcomers:
    found: Newcomers = {}
    for topic in request.topic_data:
        note_newcomers(name_of(topic), topic.partition_data, context, found)
    return found


def note_newcomers(name: str, rows: Sequence[PartitionProduceData], context: Context, found: Newcomers) -> None:
    """Partitions of ours where this producer has no open transaction, and to which it may write."""
    if name in INTERNAL_TOPICS or not context.sees(Operation.WRITE, ResourceType.TOPIC, name):
        return  # will be refused
    for data in rows:
        who = producer_of(data)
        partition = context.broker.replicas.get(name, data.index)
        if who is None or partition is None or not partition.is_leader:
            continue  # without a transaction, or refused anyway
        if not has_open_transaction(partition.log, who):
            found.setdefault(who, {})[partition.name] = partition


def producer_of(data: PartitionProduceData) -> Identity | None:
    records = data.records
    if records is None or len(records) < HEADER_BYTES or not records[FLAGS_POSITION] & TRANSACTIONAL_FLAG:
        return None
    try:
        header = read_batch_header(records, 0)
    except KafkaError:
        return None  # the log says what is wrong with it
    return Identity(header.producer_id, header.producer_epoch)


def has_open_transaction(log: Log, who: Identity) -> bool:
    producers = log.producers
    producer = producers.by_id.get(who.producer_id)
    return producer is not None and producer.epoch == who.epoch and who.producer_id in producers.open_transactions


class Questions:
    """What one request asks of coordinators, and what they answer."""

    def __init__(self, request: ProduceRequest, context: Context) -> None:
        self._transactional_id = request.transactional_id or ""
        self._context = context
        self._refused: Refused = {}
        self._guarded: dict[Place, list[tuple[int, VerificationGuard]]] = {}  # producer id
        self._open = 0
        self._all_answered: asyncio.Event | None = None

    def ask(self, who: Identity, partitions: dict[Place, Partition]) -> None:
        coordinators = self._context.broker.coordinators
        is_verifying = self._context.api_version < ADDED_BY_BROKER_SINCE
        if is_verifying:  # else the epoch of the batch tells whether its transaction is over
            for place, partition in partitions.items():
                guard = coordinators.guards.begin(partition, who.producer_id)
                self._guarded.setdefault(place, []).append((who.producer_id, guard))
        self._open += 1
        coordinators.verification.ask(self._transactional_id, who, list(partitions), is_verifying, self._on_answer)

    def _on_answer(self, errors: Refused) -> None:
        self._open -= 1
        for place, error in errors.items():
            if error is not Error.NONE:
                self._refused[place] = told(error, self._context.api_version)
        if self._open == 0 and self._all_answered is not None:
            self._all_answered.set()

    @property
    def is_answered(self) -> bool:
        return self._open == 0

    async def wait(self) -> None:
        if self._open:
            self._all_answered = asyncio.Event()
            await self._all_answered.wait()

    def refused(self, places: Iterable[Place] | None = None) -> Refused:
        """The partitions that are not in the transaction, or where a marker has ended it meanwhile; with `places` this
        is sure of those only."""
        for place in self._guarded if places is None else places:
            for _, guard in self._guarded.get(place, ()):
                if guard.has_moved:
                    self._refused.setdefault(place, Error.NOT_LEADER_OR_FOLLOWER)
                elif guard.is_cancelled:
                    self._refused.setdefault(place, Error.INVALID_TXN_STATE)
        return self._refused

    def lower_guards(self) -> None:
        guards = self._context.broker.coordinators.guards
        for guarded in self._guarded.values():
            for producer_id, guard in guarded:
                guards.end(guard, producer_id)


async def go_on_later(context: Context, questions: Questions, go_on: GoOn) -> Answer:
    try:
        await questions.wait()
        if context.responder.is_gone:
            return context.responder  # whoever sent it sends it again, or gives it up
        return go_on(questions.refused())
    finally:
        questions.lower_guards()


def keep_records(request: ProduceRequest) -> None:
    """The buffer behind a request is used again as soon as its handler returns."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def told(error: Error, api_version: int) -> Error:
    """What a producer of this age is told."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error in RETRIABLE:
        return Error.NOT_ENOUGH_REPLICAS
    if error is Error.CONCURRENT_TRANSACTIONS and api_version < ADDED_BY_BROKER_SINCE:
        return Error.NOT_ENOUGH_REPLICAS
    if error is Error.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return Error.INVALID_TXN_STATE
    return error

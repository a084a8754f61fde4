"""Batches of transactions: each partition takes part in the transaction before its first batch is written (KIP-890).

Newer producers (Produce v12) leave it to the broker to add a partition; of older ones it is verified that they did.
A late batch of a transaction that is over finds no transaction, and is refused instead of hanging in the log for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.security import Operation, ResourceType
from ottla.broker.context import Context
from ottla.protocol.batches import FLAGS_POSITION, HEADER_BYTES, TRANSACTIONAL_FLAG, read_batch_header
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.storage.log import Log
from ottla.transactions.machine import Identity

ABORTABLE_SINCE: Final = 11
ADDED_BY_BROKER_SINCE: Final = 12
ACKS_NONE: Final = 0

Place = tuple[str, int]
Refused = dict[Place, Error]

# What a producer that knows no better takes as "try again".
RETRIABLE: Final = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.CONCURRENT_TRANSACTIONS,
)


def begin(
    request: ProduceRequest,
    context: Context,
    name_of: Callable[[TopicProduceData], str],
    go_on: Callable[[Refused], ProduceResponse | None],
) -> ProduceResponse | None:
    """Make sure that every partition of this request takes part in its transaction, then `go_on`.

    Mostly all of them do already, or the coordinator answers at once: then nothing waits and nothing is copied.
    """
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id or ""):
        places = [(name_of(topic), data.index) for topic in request.topic_data for data in topic.partition_data]
        return go_on(dict.fromkeys(places, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    is_trusted = not context.broker.settings.transaction_partition_verification_enable
    if is_trusted and context.api_version < ADDED_BY_BROKER_SINCE:
        return go_on({})
    newcomers = find_newcomers(request, context, name_of)
    if not newcomers:
        return go_on({})
    gate = _Gate(request, context, go_on)
    for who, places in newcomers.items():
        gate.ask(who, places)
    return gate.pass_or_wait()


def find_newcomers(
    request: ProduceRequest, context: Context, name_of: Callable[[TopicProduceData], str]
) -> dict[Identity, list[Place]]:
    """Partitions where this producer has no open transaction."""
    found: dict[Identity, list[Place]] = {}
    for topic in request.topic_data:
        name = name_of(topic)
        if name in INTERNAL_TOPICS:
            continue  # will be refused
        for data in topic.partition_data:
            who = producer_of(data)
            partition = context.broker.replicas.get(name, data.index)
            if who is not None and partition is not None and not has_open_transaction(partition.log, who):
                found.setdefault(who, []).append((name, data.index))
    return found


def producer_of(data: PartitionProduceData) -> Identity | None:
    records = data.records
    if records is None or len(records) < HEADER_BYTES or not records[FLAGS_POSITION] & TRANSACTIONAL_FLAG:
        return None
    header = read_batch_header(records, 0)
    return Identity(header.producer_id, header.producer_epoch)


def has_open_transaction(log: Log, who: Identity) -> bool:
    producers = log.producers
    producer = producers.by_id.get(who.producer_id)
    return producer is not None and producer.epoch == who.epoch and who.producer_id in producers.open_transactions


class _Gate:
    """Collects the coordinator's answers for one request."""

    def __init__(
        self, request: ProduceRequest, context: Context, go_on: Callable[[Refused], ProduceResponse | None]
    ) -> None:
        self._request = request
        self._context = context
        self._go_on = go_on
        self._refused: Refused = {}
        self._open = 0
        self._is_waiting = False

    def ask(self, who: Identity, places: list[Place]) -> None:
        transactional_id = self._request.transactional_id or ""
        transactions = self._context.broker.coordinators.transactions
        try:
            shard = transactions.shard(transactional_id)
        except KafkaError as error:
            self._refuse(places, error.error)
            return
        if self._context.api_version < ADDED_BY_BROKER_SINCE:
            error_of_all, errors = shard.machine.verify_partitions(transactional_id, who, places)
            for place in places:
                self._refuse([place], errors.get(place, error_of_all))
            return
        self._open += 1

        def answered(error: Error) -> None:
            self._open -= 1
            self._refuse(places, error)
            if self._open == 0 and self._is_waiting:
                self._answer()

        decision = shard.machine.add_partitions(transactional_id, who, places, 2, answered, transactions.now_ms())
        transactions.run(shard, decision)

    def _answer(self) -> None:
        """Unless the batches wait once more, now for their replicas: then whoever waits for these answers."""
        response = self._go_on(self._refused)
        if response is not None or self._request.acks == ACKS_NONE:
            self._context.answer(response)

    def _refuse(self, places: list[Place], error: Error) -> None:
        if error is not Error.NONE:
            self._refused |= dict.fromkeys(places, told(error, self._context.api_version))

    def pass_or_wait(self) -> ProduceResponse | None:
        if self._open == 0:
            return self._go_on(self._refused)
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:  # the buffer behind it is used again
                    data.records = memoryview(bytearray(data.records))
        self._is_waiting = True
        self._context.park()
        return None


def told(error: Error, api_version: int) -> Error:
    """What a producer of this age is told."""
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if api_version >= ABORTABLE_SINCE:
        return error
    if error is Error.TRANSACTION_ABORTABLE:
        return Error.INVALID_TXN_STATE
    return Error.NOT_ENOUGH_REPLICAS if error in RETRIABLE else error

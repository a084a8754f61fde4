"""Transactions as administrators see them: list, describe, the producers of a partition, and how to end one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import Answers, KeyType, ask_coordinator, ask_coordinators
from ottla.client.errors import RefusedError, refusal
from ottla.client.offsets import Answer, Failures, ask_leaders, by_topic
from ottla.protocol.messages import transaction_steps, transactions
from ottla.protocol.messages.transaction_steps import ListedTransaction
from ottla.protocol.messages.transactions import ProducerState

ANY_DURATION = -1
NO_TRANSACTION = -1  # as a start offset or a start time
ABORT = False  # as the result of a transaction
Producers = dict[TopicPartition, list[ProducerState]]


class Described(NamedTuple):
    """One transactional id; the start time is None while no transaction is open."""

    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: list[TopicPartition]


class Marker(NamedTuple):
    """What ends a transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class ListRefusedError(RefusedError):
    """A broker that does not list its transactions; which one it was."""

    def __init__(self, refused: RefusedError, broker: int) -> None:
        super().__init__(str(refused), refused.error, refused.said)
        self.broker = broker


def list_transactions(
    client: Client,
    producer_ids: Collection[int] = (),
    duration_ms: int = ANY_DURATION,
    pattern: str | None = None,
) -> dict[int, list[ListedTransaction]]:
    """The transactional ids that each broker coordinates."""
    request = transaction_steps.ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )
    found = {}
    for broker in client.cluster().brokers:
        try:
            answer = client.call_broker(
                broker.node_id, request, transaction_steps.ListTransactionsResponse, _check_listed
            )
        except RefusedError as problem:
            raise ListRefusedError(problem, broker.node_id) from None
        found[broker.node_id] = answer.transaction_states
    return found


def describe_transactions(client: Client, transactional_ids: Iterable[str]) -> Answers[Described]:
    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, Described | RefusedError]]:
        request = transaction_steps.DescribeTransactionsRequest(transactional_ids=list(led))
        answer = client.call_broker(broker, request, transaction_steps.DescribeTransactionsResponse)
        for item in answer.transaction_states:
            refused = refusal(item.error_code) if item.error_code else None
            yield item.transactional_id, refused or _described(item, broker)

    return ask_coordinators(client, KeyType.TRANSACTION, transactional_ids, ask)


def describe_producers(
    client: Client, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> tuple[Producers, Failures]:
    """What the leader of each partition, or one certain broker, remembers of the partition's producers."""

    def ask(broker: int, led: Sequence[TopicPartition]) -> Answer[list[ProducerState]]:
        topics = [
            transactions.DescribeProducersTopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(led).items()
        ]
        request = transactions.DescribeProducersRequest(topics=topics)
        for topic in client.call_broker(broker, request, transactions.DescribeProducersResponse).topics:
            for item in topic.partitions:
                refused = refusal(item.error_code, item.error_message) if item.error_code else None
                yield TopicPartition(topic.name, item.partition_index), refused or item.active_producers

    if broker_id is None:
        return ask_leaders(client, partitions, ask)
    found: Producers = {}
    failures: Failures = {}
    for partition, answer in ask(broker_id, list(partitions)):
        if isinstance(answer, RefusedError):
            failures[partition] = answer
        else:
            found[partition] = answer
    return found, failures


def abort_transaction(client: Client, marker: Marker) -> None:
    """End a transaction in one partition, whatever its coordinator thinks; raises what the leader refuses."""

    def ask(broker: int, led: Sequence[TopicPartition]) -> Answer[None]:
        wanted = transaction_steps.WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=ABORT,
            topics=[
                transaction_steps.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(led).items()
            ],
            coordinator_epoch=marker.coordinator_epoch,
        )
        request = transaction_steps.WriteTxnMarkersRequest(markers=[wanted])
        for result in client.call_broker(broker, request, transaction_steps.WriteTxnMarkersResponse).markers:
            for topic in result.topics:
                for item in topic.partitions:
                    refused = refusal(item.error_code) if item.error_code else None
                    yield TopicPartition(topic.name, item.partition_index), refused

    _, failures = ask_leaders(client, [marker.partition], ask)
    for problem in failures.values():
        raise problem


def fence_producer(client: Client, transactional_id: str) -> None:
    """Take the transactional id away from its producer: a transaction that is open is aborted by that."""
    request = transactions.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=client.timeout_ms
    )

    def ask(broker: int) -> None:
        answer = client.call_broker(broker, request, transactions.InitProducerIdResponse)
        if answer.error_code:
            raise refusal(answer.error_code)

    ask_coordinator(client, KeyType.TRANSACTION, transactional_id, ask)


def _check_listed(answer: transaction_steps.ListTransactionsResponse) -> None:
    if answer.error_code:
        raise refusal(answer.error_code)


def _described(item: transaction_steps.DescribedTransaction, broker: int) -> Described:
    return Described(
        broker,
        item.transactional_id,
        item.producer_id,
        item.producer_epoch,
        item.transaction_state,
        item.transaction_timeout_ms,
        None if item.transaction_start_time_ms < 0 else item.transaction_start_time_ms,
        [TopicPartition(topic.topic, number) for topic in item.topics for number in topic.partitions],
    )

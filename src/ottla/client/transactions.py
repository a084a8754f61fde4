"""Administration of transactions: list, describe, producers of a partition, abort and fence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import Answers, KeyType, call_coordinator, call_coordinators
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.client.offsets import Answer, Failures, by_topic, call_leaders
from ottla.protocol.messages import transactions
from ottla.protocol.messages.transactions import ListedTransaction, ProducerState

ANY_DURATION = -1
NO_TRANSACTION = -1  # for a start offset or a start time
ABORT = False  # as the result of a transaction
Producers = dict[TopicPartition, list[ProducerState]]


class DescribedTransaction(NamedTuple):
    """One transactional id; the start time is None without an open transaction."""

    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: list[TopicPartition]


class Marker(NamedTuple):
    """A marker that ends a transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class ListRefusedError(BrokerError):
    """The error of a broker that does not list its transactions; has the broker's id."""

    def __init__(self, refused: BrokerError, broker: int) -> None:
        super().__init__(str(refused), refused.error, refused.broker_message)
        self.broker = broker


def list_transactions(
    client: Client,
    producer_ids: Collection[int] = (),
    duration_ms: int = ANY_DURATION,
    pattern: str | None = None,
) -> dict[int, list[ListedTransaction]]:
    """The transactional ids by coordinator."""
    request = transactions.ListTransactionsRequest(
        state_filters=[],
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )
    found = {}
    for broker in client.cluster().brokers:
        try:
            answer = client.call_broker(
                broker.node_id,
                request,
                transactions.ListTransactionsResponse,
                lambda answer: raise_for_error(answer.error_code),
            )
        except BrokerError as problem:
            raise ListRefusedError(problem, broker.node_id) from None
        found[broker.node_id] = answer.transaction_states
    return found


def describe_transactions(client: Client, transactional_ids: Iterable[str]) -> Answers[DescribedTransaction]:
    def ask(broker: int, led: Sequence[str]) -> Iterator[tuple[str, DescribedTransaction | BrokerError]]:
        request = transactions.DescribeTransactionsRequest(transactional_ids=list(led))
        answer = client.call_broker(broker, request, transactions.DescribeTransactionsResponse)
        for item in answer.transaction_states:
            refused = error_from_code(item.error_code) if item.error_code else None
            yield item.transactional_id, refused or _described(item, broker)

    return call_coordinators(client, KeyType.TRANSACTION, transactional_ids, ask)


def describe_producers(
    client: Client, partitions: Iterable[TopicPartition], broker_id: int | None = None
) -> tuple[Producers, Failures]:
    """The known producers of each partition, from its leader or from one given broker."""

    def ask(broker: int, led: Sequence[TopicPartition]) -> Answer[list[ProducerState]]:
        topics = [
            transactions.DescribeProducersTopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(led).items()
        ]
        request = transactions.DescribeProducersRequest(topics=topics)
        for topic in client.call_broker(broker, request, transactions.DescribeProducersResponse).topics:
            for item in topic.partitions:
                refused = error_from_code(item.error_code, item.error_message) if item.error_code else None
                yield TopicPartition(topic.name, item.partition_index), refused or item.active_producers

    if broker_id is None:
        return call_leaders(client, partitions, ask)
    found: Producers = {}
    failures: Failures = {}
    for partition, answer in ask(broker_id, list(partitions)):
        if isinstance(answer, BrokerError):
            failures[partition] = answer
        else:
            found[partition] = answer
    return found, failures


def abort_transaction(client: Client, marker: Marker) -> None:
    """Write an abort marker to one partition, whatever the coordinator's state; raises the leader's error."""

    def ask(broker: int, led: Sequence[TopicPartition]) -> Answer[None]:
        wanted = transactions.WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=ABORT,
            topics=[
                transactions.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(led).items()
            ],
            coordinator_epoch=marker.coordinator_epoch,
        )
        request = transactions.WriteTxnMarkersRequest(markers=[wanted])
        for result in client.call_broker(broker, request, transactions.WriteTxnMarkersResponse).markers:
            for topic in result.topics:
                for item in topic.partitions:
                    refused = error_from_code(item.error_code) if item.error_code else None
                    yield TopicPartition(topic.name, item.partition_index), refused

    _, failures = call_leaders(client, [marker.partition], ask)
    for problem in failures.values():
        raise problem


def fence_producer(client: Client, transactional_id: str) -> None:
    """Fence the producer of a transactional id; this aborts its open transaction."""
    request = transactions.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=client.timeout_ms
    )

    def ask(broker: int) -> None:
        answer = client.call_broker(broker, request, transactions.InitProducerIdResponse)
        raise_for_error(answer.error_code)

    call_coordinator(client, KeyType.TRANSACTION, transactional_id, ask)


def _described(item: transactions.DescribedTransaction, broker: int) -> DescribedTransaction:
    return DescribedTransaction(
        broker,
        item.transactional_id,
        item.producer_id,
        item.producer_epoch,
        item.transaction_state,
        item.transaction_timeout_ms,
        None if item.transaction_start_time_ms < 0 else item.transaction_start_time_ms,
        [TopicPartition(topic.topic, number) for topic in item.topics for number in topic.partitions],
    )

"""Hanging transactions: open in a partition, but unknown to any coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError, error_from_code
from ottla.client.transactions import (
    NO_TRANSACTION,
    DescribedTransaction,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from ottla.protocol.messages.transactions import ProducerState

PARTITIONS_PER_REQUEST = 500  # partitions in one request


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerState


class SearchError(Exception):
    """A failed step of the search, and which one."""

    def __init__(self, what: str, problem: ClientError) -> None:
        super().__init__(what)
        self.step = what
        self.problem = problem


def find_hanging(
    client: Client, topic: str | None, partition: int | None, broker_id: int | None, before_ms: int
) -> list[OpenTransaction]:
    """Hanging transactions whose last record is older than `before_ms`, in one topic or on one broker."""
    if topic is not None and partition is not None:
        places = [TopicPartition(topic, partition)]
    else:
        places = _partitions(client, topic, broker_id)
    found: list[OpenTransaction] = []
    for start in range(0, len(places), PARTITIONS_PER_REQUEST):
        found += _open_transactions(client, places[start : start + PARTITIONS_PER_REQUEST], broker_id, before_ms)
    if not found:
        return []
    ids = _transactional_ids(client, {item.producer.producer_id for item in found})
    return filter_hanging(found, ids, _descriptions(client, ids.values()))


def filter_hanging(
    found: Sequence[OpenTransaction], ids: Mapping[int, str], descriptions: Mapping[str, DescribedTransaction]
) -> list[OpenTransaction]:
    """Those that no coordinator lists with this partition."""

    def is_known(item: OpenTransaction) -> bool:
        description = descriptions.get(ids.get(item.producer.producer_id, ""))
        return description is not None and item.partition in description.partitions

    return [item for item in found if not is_known(item)]


def _partitions(client: Client, topic: str | None, broker_id: int | None) -> list[TopicPartition]:
    topics = Admin(client).topics(None if topic is None else [topic])
    if not topics and topic is not None:
        raise SearchError("Failed to describe 1 topics", error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION))
    return [
        TopicPartition(found.name, item.number)
        for found in topics
        for item in found.partitions
        if broker_id is None or broker_id in item.replicas
    ]


def _open_transactions(
    client: Client, places: Sequence[TopicPartition], broker_id: int | None, before_ms: int
) -> list[OpenTransaction]:
    whom = "Optional.empty" if broker_id is None else f"Optional[{broker_id}]"
    failure = f"Failed to describe producers for {len(places)} partitions on broker {whom}"
    try:
        producers, failures = describe_producers(client, places, broker_id)
    except ClientError as problem:
        raise SearchError(failure, problem) from None
    for refused in failures.values():
        raise SearchError(failure, refused)
    return [
        OpenTransaction(place, state)
        for place, states in producers.items()
        for state in states
        if state.current_txn_start_offset != NO_TRANSACTION and state.last_timestamp < before_ms
    ]


def _transactional_ids(client: Client, producer_ids: Collection[int]) -> dict[int, str]:
    listed = list_transactions(client, producer_ids)
    return {item.producer_id: item.transactional_id for items in listed.values() for item in items}


def _descriptions(client: Client, transactional_ids: Collection[str]) -> dict[str, DescribedTransaction]:
    found = {}
    for name, answer in describe_transactions(client, transactional_ids).items():
        if isinstance(answer, DescribedTransaction):
            found[name] = answer
        elif isinstance(answer, BrokerError) and answer.error is not Error.TRANSACTIONAL_ID_NOT_FOUND:
            raise SearchError(f"Failed to describe {len(transactional_ids)} transactions", answer)
    return found

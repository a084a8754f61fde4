"""Transactions that nobody will end: open in a partition, but not known to any coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import ClientError, RefusedError, refusal
from ottla.client.transactions import (
    NO_TRANSACTION,
    Described,
    describe_producers,
    describe_transactions,
    list_transactions,
)
from ottla.protocol.messages.transactions import ProducerState

BATCH = 500  # partitions in one request


class OpenTransaction(NamedTuple):
    """A transaction that has begun in a partition and not ended there."""

    partition: TopicPartition
    producer: ProducerState


class SearchError(Exception):
    """A step of the search that failed; says which."""

    def __init__(self, what: str, problem: ClientError) -> None:
        super().__init__(what)
        self.what = what
        self.problem = problem


def find_hanging(
    client: Client, topic: str | None, partition: int | None, broker_id: int | None, before_ms: int
) -> list[OpenTransaction]:
    """Those whose last record is older than `before_ms`, in one topic or in the partitions of a broker."""
    if topic is not None and partition is not None:
        places = [TopicPartition(topic, partition)]
    else:
        places = _partitions(client, topic, broker_id)
    found: list[OpenTransaction] = []
    for start in range(0, len(places), BATCH):
        found += _open(client, places[start : start + BATCH], broker_id, before_ms)
    if not found:
        return []
    ids = _transactional_ids(client, {item.producer.producer_id for item in found})
    return hanging(found, ids, _descriptions(client, ids.values()))


def hanging(
    found: Sequence[OpenTransaction], ids: Mapping[int, str], descriptions: Mapping[str, Described]
) -> list[OpenTransaction]:
    """Those whose coordinator does not know that it still has to end them in this partition."""

    def is_known(item: OpenTransaction) -> bool:
        description = descriptions.get(ids.get(item.producer.producer_id, ""))
        return description is not None and item.partition in description.partitions

    return [item for item in found if not is_known(item)]


def _partitions(client: Client, topic: str | None, broker_id: int | None) -> list[TopicPartition]:
    topics = Admin(client).topics(None if topic is None else [topic])
    if not topics and topic is not None:
        raise SearchError("Failed to describe 1 topics", refusal(Error.UNKNOWN_TOPIC_OR_PARTITION))
    return [
        TopicPartition(found.name, item.number)
        for found in topics
        for item in found.partitions
        if broker_id is None or broker_id in item.replicas
    ]


def _open(
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


def _descriptions(client: Client, transactional_ids: Collection[str]) -> dict[str, Described]:
    found = {}
    for name, answer in describe_transactions(client, transactional_ids).items():
        if isinstance(answer, Described):
            found[name] = answer
        elif isinstance(answer, RefusedError) and answer.error is not Error.TRANSACTIONAL_ID_NOT_FOUND:
            raise SearchError(f"Failed to describe {len(transactional_ids)} transactions", answer)
    return found

"""Produces single messages and small batches with acks=all.

Rules:
1. The partition is chosen as in Kafka's producers: the given one, else by the hash of the key (murmur2), else any with
   a leader.
2. Nothing is sent twice: only a request that was refused before anything was written is retried. If the response is
   lost, the error says that the message may have been written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.connection import best_version
from ottla.client.errors import ClientError, error_from_code
from ottla.client.offsets import partitions_by_leader
from ottla.operations.messages.expressions.evaluator import Headers
from ottla.operations.messages.offset_ranges import partitions_of
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records import Record
from ottla.protocol.schema import layout_of

ALL_IN_SYNC = -1
NAMES_VERSION = 12  # the last version with topic names; later ones have topic IDs
TRIES = 5
LEADER_ERRORS = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.LEADER_NOT_AVAILABLE, Error.UNKNOWN_LEADER_EPOCH})
MAYBE_WRITTEN = "the message may have been written"


def is_outcome_unknown(problem: ClientError) -> bool:
    """Whether the messages may have been written despite the error."""
    return MAYBE_WRITTEN in str(problem)


class NewMessage(NamedTuple):
    """A message to produce; None means no partition chosen, or the current time."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducedOffset(NamedTuple):
    partition: int
    offset: int


def produce(
    client: Client,
    topic: str,
    message: NewMessage,
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    choose: Callable[[Sequence[int]], int] = random.choice,
) -> ProducedOffset:
    """Produce one message. Raises ClientError."""
    numbers = partitions_of(client, topic)
    if message.partition is not None and message.partition not in numbers:
        raise ClientError(
            f"{topic} has no partition {message.partition}: it has {len(numbers)}, from 0 on",
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        )
    return _produce_batch(
        client, topic, numbers, lambda leaders: _partition(message, numbers, leaders, choose), [message], now_ms
    )


def produce_batch(
    client: Client,
    topic: str,
    partition: int,
    messages: Sequence[NewMessage],
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> ProducedOffset:
    """Produce all messages in this order, or none; returns the offset of the first. Raises ClientError."""
    return _produce_batch(client, topic, [partition], lambda _: partition, messages, now_ms)


def _produce_batch(
    client: Client,
    topic: str,
    numbers: Sequence[int],
    choose: Callable[[dict[int, int]], int],
    messages: Sequence[NewMessage],
    now_ms: Callable[[], int],
) -> ProducedOffset:
    """Produce one batch; `choose` picks the partition once the leaders are known."""
    now = now_ms()
    batch = bytes(build_batch(_record(message, now) for message in messages))
    for tries_left in reversed(range(TRIES)):
        by_leader, failures = partitions_by_leader(client, [TopicPartition(topic, number) for number in numbers])
        leaders = {item.partition: leader for leader, items in by_leader.items() for item in items}
        partition = choose(leaders)
        try:
            if partition not in leaders:
                raise next(iter(failures.values()), error_from_code(Error.LEADER_NOT_AVAILABLE))
            return ProducedOffset(partition, _send(client, leaders[partition], topic, partition, batch))
        except ClientError as problem:
            if problem.error not in LEADER_ERRORS or not tries_left:
                raise
        client.metadata = None
        client.sleep(0.2)
    raise AssertionError("the last try returns or raises")


def _record(message: NewMessage, now_ms: int) -> Record:
    timestamp = now_ms if message.timestamp_ms is None else message.timestamp_ms
    return Record(-1, timestamp, message.key, message.value, tuple(message.headers))


def partition_of_key(key: bytes, partitions: Sequence[int]) -> int:
    """The partition of a key, as in Kafka's default partitioner."""
    return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]


def _partition(
    message: NewMessage, numbers: Sequence[int], leaders: dict[int, int], choose: Callable[[Sequence[int]], int]
) -> int:
    if message.partition is not None:
        return message.partition
    if message.key is not None:
        return partition_of_key(message.key, numbers)
    return choose(sorted(leaders) or numbers)


def _send(client: Client, leader: int, topic: str, partition: int, batch: bytes) -> int:
    """Send the batch; returns its base offset. If the connection breaks after sending, the outcome is unknown."""
    connection = client.connection_to(leader)
    version = best_version(layout_of(ProduceRequest), connection.versions)
    if version is None:
        raise ClientError(f"the broker {connection.address} does not offer Produce in a version that we know")
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=ALL_IN_SYNC,
        timeout_ms=client.timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    try:
        answer = connection.call(request, ProduceResponse, min(version, NAMES_VERSION), client.timeout_ms)
    except ClientError as problem:
        client.close()
        raise ClientError(f"{problem} ({MAYBE_WRITTEN})") from None
    for response in answer.responses:
        for item in response.partition_responses:
            if not item.error_code:
                return item.base_offset
            words = item.error_message or next(
                (each.batch_index_error_message for each in item.record_errors if each.batch_index_error_message), None
            )
            refused = error_from_code(item.error_code, words)
            if refused.error in (Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                raise ClientError(f"{refused} ({MAYBE_WRITTEN})", refused.error)
            raise refused
    raise ClientError(f"{connection.address} did not answer for {topic}-{partition} ({MAYBE_WRITTEN})")


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, as an unsigned number."""
    length = len(data)
    result = 0x9747B28C ^ length
    for start in range(0, length - length % 4, 4):
        word = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        result = (result * 0x5BD1E995 & 0xFFFFFFFF) ^ word
    if length % 4:
        result = (result ^ int.from_bytes(data[length - length % 4 :], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    result = (result ^ result >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return result ^ result >> 15

"""Writes single messages, for people: one batch with one record, acknowledged by all replicas in sync.

Rules:
1. Who gets the message is decided as Kafka's producers do it: the partition that was named, else that of the key
   (murmur2), else any that has a leader.
2. Nothing is sent twice: only what a broker has refused before it wrote anything is tried again. If the answer is lost,
   the sentence says that the message may have been written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import ClientError, refusal
from ottla.client.offsets import partitions_by_leader
from ottla.client.versions import best_version
from ottla.operations.messages.expressions.matching import Headers
from ottla.operations.messages.windows import partitions_of
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
NAMES_VERSION = 12  # the last version that names topics; later ones have ids
TRIES = 5
MOVED = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.LEADER_NOT_AVAILABLE, Error.UNKNOWN_LEADER_EPOCH})
UNSURE = "the message may have been written"


def is_unsure(problem: ClientError) -> bool:
    """Whether what was to be written may have been written."""
    return UNSURE in str(problem)


class NewMessage(NamedTuple):
    """None: no partition was chosen, the time is now."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Written(NamedTuple):
    partition: int
    offset: int


def produce(
    client: Client,
    topic: str,
    message: NewMessage,
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    choose: Callable[[Sequence[int]], int] = random.choice,
) -> Written:
    """Raises ClientError."""
    numbers = partitions_of(client, topic)
    if message.partition is not None and message.partition not in numbers:
        raise ClientError(
            f"{topic} has no partition {message.partition}: it has {len(numbers)}, from 0 on",
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        )
    return _deliver(
        client, topic, numbers, lambda leaders: _partition(message, numbers, leaders, choose), [message], now_ms
    )


def produce_batch(
    client: Client,
    topic: str,
    partition: int,
    messages: Sequence[NewMessage],
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> Written:
    """All of them, in this order, or none; the offset is that of the first. Raises ClientError."""
    return _deliver(client, topic, [partition], lambda _: partition, messages, now_ms)


def _deliver(
    client: Client,
    topic: str,
    numbers: Sequence[int],
    choose: Callable[[dict[int, int]], int],
    messages: Sequence[NewMessage],
    now_ms: Callable[[], int],
) -> Written:
    """One batch, to the partition that is chosen when the leaders are known."""
    now = now_ms()
    batch = bytes(build_batch(_record(message, now) for message in messages))
    for tries_left in reversed(range(TRIES)):
        by_leader, failures = partitions_by_leader(client, [TopicPartition(topic, number) for number in numbers])
        leaders = {item.partition: leader for leader, items in by_leader.items() for item in items}
        partition = choose(leaders)
        try:
            if partition not in leaders:
                raise next(iter(failures.values()), refusal(Error.LEADER_NOT_AVAILABLE))
            return Written(partition, _send(client, leaders[partition], topic, partition, batch))
        except ClientError as problem:
            if problem.error not in MOVED or not tries_left:
                raise
        client.metadata = None
        client.sleep(0.2)
    raise AssertionError("the last try returns or raises")


def _record(message: NewMessage, now_ms: int) -> Record:
    timestamp = now_ms if message.timestamp_ms is None else message.timestamp_ms
    return Record(-1, timestamp, message.key, message.value, tuple(message.headers))


def partition_of_key(key: bytes, partitions: Sequence[int]) -> int:
    """Where Kafka's producers put a key."""
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
    """The offset of the message; a connection that breaks after the request was sent leaves us in doubt."""
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
        raise ClientError(f"{problem} ({UNSURE})") from None
    for response in answer.responses:
        for item in response.partition_responses:
            if not item.error_code:
                return item.base_offset
            words = item.error_message or next(
                (each.batch_index_error_message for each in item.record_errors if each.batch_index_error_message), None
            )
            refused = refusal(item.error_code, words)
            if refused.error in (Error.REQUEST_TIMED_OUT, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                raise ClientError(f"{refused} ({UNSURE})", refused.error)
            raise refused
    raise ClientError(f"{connection.address} did not answer for {topic}-{partition} ({UNSURE})")


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's producers spread keys, as an unsigned number."""
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

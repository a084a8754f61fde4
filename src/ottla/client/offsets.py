"""Offsets of partitions by timestamp, and deletion of records below an offset; each leader gets its own partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError, error_from_code
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NO_OFFSET = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER = -1  # the replica id of consumers
# The version of ListOffsets with each special timestamp; an older broker would take it for a time before 1970.
VERSION_OF_TIME = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
PAUSES_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6)  # a new topic, or one whose leader has just died, needs a moment

T = TypeVar("T")
Failures = dict[TopicPartition, ClientError]
# One leader's answers for its partitions: a value or an error for each.
Answer = Iterator[tuple[TopicPartition, "T | BrokerError"]]
RequestToLeader = Callable[[int, Sequence[TopicPartition]], "Answer[T]"]


class OffsetAndTimestamp(NamedTuple):
    """An offset by timestamp; NO_OFFSET if no record is that late."""

    offset: int
    timestamp_ms: int


def list_offsets(
    client: Client, partitions: Iterable[TopicPartition], time: int, isolation_level: int = READ_UNCOMMITTED
) -> tuple[dict[TopicPartition, OffsetAndTimestamp], Failures]:
    """The offset of each partition at a timestamp (or a special one, see above), and the errors of the others.

    With READ_COMMITTED the latest offset is the last stable offset.
    """
    from ottla.protocol.messages import offsets as wire  # noqa: PLC0415 (start-up of the other use)

    if client.version_of(wire.ListOffsetsRequest) < VERSION_OF_TIME.get(time, 0):
        return {}, {partition: error_from_code(Error.UNSUPPORTED_VERSION) for partition in partitions}
    return call_leaders(
        client, partitions, lambda leader, led: list_offsets_of_leader(client, leader, led, time, isolation_level)
    )


def list_offsets_of_leader(
    client: Client, leader: int, led: Sequence[TopicPartition], time: int, isolation_level: int = READ_UNCOMMITTED
) -> Answer[OffsetAndTimestamp]:
    """One broker's answers for partitions that it leads."""
    from ottla.protocol.messages import offsets as wire  # noqa: PLC0415 (start-up of the other use)

    topics = [
        wire.ListOffsetsTopic(
            name=topic,
            partitions=[wire.ListOffsetsPartition(partition_index=number, timestamp=time) for number in numbers],
        )
        for topic, numbers in by_topic(led).items()
    ]
    request = wire.ListOffsetsRequest(
        replica_id=CONSUMER, isolation_level=isolation_level, topics=topics, timeout_ms=client.timeout_ms
    )
    for result in client.call_broker(leader, request, wire.ListOffsetsResponse).topics:
        for item in result.partitions:
            refused = error_from_code(item.error_code) if item.error_code else None
            yield (
                TopicPartition(result.name, item.partition_index),
                refused or OffsetAndTimestamp(item.offset, item.timestamp),
            )


def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> tuple[dict[TopicPartition, int], Failures]:
    """Delete the records below an offset (-1: all committed ones); returns the new log start offsets."""
    from ottla.protocol.messages import topics as wire  # noqa: PLC0415

    def ask(leader: int, led: Sequence[TopicPartition]) -> Answer[int]:
        topics = [
            wire.DeleteRecordsTopic(
                name=topic,
                partitions=[
                    wire.DeleteRecordsPartition(partition_index=number, offset=before[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(led).items()
        ]
        request = wire.DeleteRecordsRequest(topics=topics, timeout_ms=client.timeout_ms)
        for result in client.call_broker(leader, request, wire.DeleteRecordsResponse).topics:
            for item in result.partitions:
                refused = error_from_code(item.error_code) if item.error_code else None
                yield TopicPartition(result.name, item.partition_index), refused or item.low_watermark

    return call_leaders(client, before, ask)


def call_leaders(
    client: Client, partitions: Iterable[TopicPartition], ask: RequestToLeader[T]
) -> tuple[dict[TopicPartition, T], Failures]:
    """Ask every leader about its partitions; retriable errors are retried."""
    found: dict[TopicPartition, T] = {}
    failures: Failures = {}
    left = list(partitions)
    for pause in (*PAUSES_SECONDS, None):
        by_leader, failed = partitions_by_leader(client, left)
        failures |= failed
        for leader, led in by_leader.items():
            try:
                for partition, answer in ask(leader, led):
                    if isinstance(answer, BrokerError):
                        failures[partition] = answer
                    else:
                        found[partition] = answer
            except BrokerError as problem:  # the leader does not support the request at all
                failures |= dict.fromkeys(led, problem)
        left = [partition for partition in left if partition not in found and failures[partition].is_retriable]
        if not left or pause is None:
            break
        client.sleep(pause)
    return found, {partition: problem for partition, problem in failures.items() if partition not in found}


def partitions_by_leader(
    client: Client, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], Failures]:
    """Partitions by leader, and the errors of partitions without one."""
    wanted = list(partitions)
    names = dict.fromkeys(partition.topic for partition in wanted)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    leaders = {
        TopicPartition(topic.name or "", item.partition_index): item.leader_id
        for topic in client.call(request, MetadataResponse).topics
        for item in topic.partitions
    }
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    failures: Failures = {}
    for partition in wanted:
        leader = leaders.get(partition)
        if leader is None:
            failures[partition] = error_from_code(Error.UNKNOWN_TOPIC_OR_PARTITION)
        elif leader < 0:
            failures[partition] = error_from_code(Error.LEADER_NOT_AVAILABLE)
        else:
            by_leader[leader].append(partition)
    return by_leader, failures


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partition numbers of each topic."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic].append(partition.partition)
    return numbers

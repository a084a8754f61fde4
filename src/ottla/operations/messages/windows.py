"""Which offsets are meant: those between two bounds of some partitions of a topic, cut into ranges. Asks the leaders.

Rules:
1. A time becomes an offset as Kafka does it: that of the first record that is not earlier.
2. A partition that cannot be asked is told as Unread, and the others are read.
3. The end is fixed at the beginning: what is written later is not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import ClientError, refusal
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, READ_COMMITTED, READ_UNCOMMITTED, Failures, list_offsets
from ottla.operations.messages.walking import OFFSET_MAX, Unread
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


class Bound(NamedTuple):
    """Where to begin or to end: one of both, or neither for the earliest or latest there is."""

    offset: int | None = None
    time_ms: int | None = None


class Window(NamedTuple):
    """What somebody wants to read; no partitions means all."""

    topic: str
    partitions: frozenset[int] = frozenset()
    start: Bound = Bound()
    end: Bound = Bound()


class Extent(NamedTuple):
    """Offsets start … end - 1 of one partition; from `stable` on transactions may be open."""

    partition: int
    start: int
    end: int
    stable: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def partitions_of(client: Client, topic: str) -> list[int]:
    """The partitions that a topic has; raises ClientError if there is no such topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

    def check(answer: MetadataResponse) -> None:
        for found in answer.topics:
            if found.error_code and found.error_code != Error.LEADER_NOT_AVAILABLE:
                is_missing = found.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
                raise refusal(found.error_code, f"topic {topic} does not exist" if is_missing else None)

    answer = client.call(request, MetadataResponse, check)
    return sorted(item.partition_index for found in answer.topics for item in found.partitions)


def find_extents(client: Client, window: Window) -> tuple[list[Extent], list[Unread]]:
    """What lies in a window now; raises ClientError for a topic or partition that does not exist."""
    numbers = partitions_of(client, window.topic)
    missing = sorted(window.partitions - set(numbers))
    if missing:
        have = f"it has {len(numbers)}, from 0 on" if numbers else "it has none"
        raise ClientError(f"{window.topic} has no partition {missing[0]}: {have}", Error.UNKNOWN_TOPIC_OR_PARTITION)
    wanted = [TopicPartition(window.topic, number) for number in numbers if number in (window.partitions or numbers)]
    asking = _Asking(client, wanted)
    earliest = asking.offsets(EARLIEST)
    latest = asking.offsets(LATEST)
    stable = asking.offsets(LATEST, READ_COMMITTED)
    starts = asking.bound(window.start, earliest, latest)
    ends = asking.bound(window.end, latest, latest)
    failures = asking.failures
    extents = []
    for partition in wanted:
        if partition not in failures:
            start = min(max(starts[partition], earliest[partition]), latest[partition])
            end = max(start, min(ends[partition], latest[partition]))
            extents.append(Extent(partition.partition, start, end, stable[partition]))
    return extents, [_unasked(partition, failures[partition]) for partition in wanted if partition in failures]


class _Asking:
    """Asks about partitions; whoever has failed once is not asked again, because that takes seconds."""

    def __init__(self, client: Client, wanted: Sequence[TopicPartition]) -> None:
        self.client = client
        self.wanted = wanted
        self.failures: Failures = {}

    def offsets(self, time: int, isolation_level: int = READ_UNCOMMITTED) -> dict[TopicPartition, int]:
        left = [partition for partition in self.wanted if partition not in self.failures]
        found, failed = list_offsets(self.client, left, time, isolation_level)
        self.failures |= failed
        return {partition: item.offset for partition, item in found.items()}

    def bound(
        self, bound: Bound, default: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if bound.offset is not None:
            return dict.fromkeys(self.wanted, bound.offset)
        if bound.time_ms is None:
            return default
        found = self.offsets(max(0, bound.time_ms))
        return {partition: latest[partition] if offset == NO_OFFSET else offset for partition, offset in found.items()}


def _unasked(partition: TopicPartition, problem: ClientError) -> Unread:
    return Unread(partition.partition, 0, OFFSET_MAX, str(problem))

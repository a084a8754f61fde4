"""Offset ranges of a topic: resolved from bounds, split into chunks, and read.

Rules for resolving a window:
1. A time resolves to the first record that is not earlier, as in Kafka.
2. A partition whose leader does not respond is reported as Unread; the others are read.
3. The end is fixed at the beginning: later records are not read.

Order of chunks: oldest first reads one partition after the other. Newest first reads a chunk at the end of each
partition, then the chunks before those, so that the latest records of all partitions come first. Offsets beyond the
last stable offset form a chunk of their own, because the outcome of their transactions is unknown.

Damaged ranges are reported and skipped. Apache Kafka sends a damaged batch unchanged, and record_reader.py detects it;
our brokers refuse it with CORRUPT_MESSAGE. Then the next readable offset is searched by trial.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import ClientError, error_from_code
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, READ_COMMITTED, READ_UNCOMMITTED, Failures, list_offsets
from ottla.operations.fetched_batches import FetchedDataError
from ottla.operations.messages.record_reader import OFFSET_MAX, UnreadRange
from ottla.operations.range_fetcher import FetchedRecords, FetchError, FetchOptions, OffsetRange, RangeFetcher
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

CHUNK_BYTES = 8 << 20
FIRST_CHUNK_BYTES = 1 << 20  # so that the first hits come soon
BYTES_PER_OFFSET = 1024.0  # until the first response


class Chunk(NamedTuple):
    """Offsets start … end - 1 that are read in one go."""

    partition: int
    start: int
    end: int
    is_stable: bool


class ChunkPlan:
    """The chunks of a window, to be iterated once. advance() and left() track the progress."""

    def __init__(self, extents: Iterable[OffsetExtent], is_newest_first: bool) -> None:
        self.is_newest_first = is_newest_first
        self.total = 0
        self._left: dict[int, OffsetExtent] = {}  # by partition: not read yet
        self._noted = (0, 0)  # offsets and bytes so far
        for extent in extents:
            if extent.size:
                self._left[extent.partition] = extent
                self.total += extent.size

    def __iter__(self) -> Iterator[Chunk]:
        while self._left:
            for partition in list(self._left):
                while (extent := self._left.get(partition)) is not None:
                    yield self._next_of(extent)
                    if self.is_newest_first:
                        break

    def add_sizes(self, offsets: int, read_bytes: int) -> None:
        """Adapt the size of later chunks to the record size."""
        self._noted = (self._noted[0] + offsets, self._noted[1] + read_bytes)

    def advance(self, chunk: Chunk, position: int) -> None:
        """Mark a chunk as processed up to `position`; newest first, only whole chunks count."""
        extent = self._left[chunk.partition]
        if not self.is_newest_first:
            self._set_remaining(extent._replace(start=position))
        elif position >= chunk.end:
            self._set_remaining(extent._replace(end=chunk.start))

    def retreat(self, chunk: Chunk, end: int) -> None:
        """Newest first, processing ends here: offsets before `end` were not reported."""
        self._set_remaining(self._left.get(chunk.partition, OffsetExtent(*chunk[:3], chunk.end))._replace(end=end))

    def abandon(self, partition: int) -> list[OffsetExtent]:
        """Give up the rest of a partition, and return it."""
        extent = self._left.pop(partition, None)
        return [] if extent is None else [extent]

    def remaining(self) -> list[OffsetExtent]:
        return list(self._left.values())

    def _set_remaining(self, extent: OffsetExtent) -> None:
        if extent.size:
            self._left[extent.partition] = extent
        else:
            self._left.pop(extent.partition, None)

    def _next_of(self, extent: OffsetExtent) -> Chunk:
        if not self.is_newest_first:
            is_stable = extent.start < extent.stable
            end = min(extent.end, extent.stable) if is_stable else extent.end
            return Chunk(extent.partition, extent.start, end, is_stable)
        is_stable = extent.end <= extent.stable
        floor = extent.start if is_stable else max(extent.start, extent.stable)
        return Chunk(extent.partition, max(floor, extent.end - self._chunk_offsets()), extent.end, is_stable)

    def _chunk_offsets(self) -> int:
        offsets, read_bytes = self._noted
        wanted = CHUNK_BYTES if offsets else FIRST_CHUNK_BYTES
        return max(1, int(wanted / max(1.0, read_bytes / offsets if offsets else BYTES_PER_OFFSET)))

    def __repr__(self) -> str:
        return f"<ChunkPlan left={sum(extent.size for extent in self._left.values())} of {self.total}>"


class OffsetBound(NamedTuple):
    """A start or end: an offset, a time, or neither for the earliest or latest offset."""

    offset: int | None = None
    time_ms: int | None = None


class OffsetWindow(NamedTuple):
    """A requested range; no partitions means all."""

    topic: str
    partitions: frozenset[int] = frozenset()
    start: OffsetBound = OffsetBound()
    end: OffsetBound = OffsetBound()


class OffsetExtent(NamedTuple):
    """Offsets start … end - 1 of one partition; from `stable` on transactions may be open."""

    partition: int
    start: int
    end: int
    stable: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def partitions_of(client: Client, topic: str) -> list[int]:
    """The partitions of a topic. Raises ClientError if it does not exist."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

    def check(answer: MetadataResponse) -> None:
        for found in answer.topics:
            if found.error_code and found.error_code != Error.LEADER_NOT_AVAILABLE:
                is_missing = found.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
                raise error_from_code(found.error_code, f"topic {topic} does not exist" if is_missing else None)

    answer = client.call(request, MetadataResponse, check)
    return sorted(item.partition_index for found in answer.topics for item in found.partitions)


def find_extents(client: Client, window: OffsetWindow) -> tuple[list[OffsetExtent], list[UnreadRange]]:
    """The offsets in a window now. Raises ClientError if the topic or a partition does not exist."""
    numbers = partitions_of(client, window.topic)
    missing = sorted(window.partitions - set(numbers))
    if missing:
        have = f"it has {len(numbers)}, from 0 on" if numbers else "it has none"
        raise ClientError(f"{window.topic} has no partition {missing[0]}: {have}", Error.UNKNOWN_TOPIC_OR_PARTITION)
    wanted = [TopicPartition(window.topic, number) for number in numbers if number in (window.partitions or numbers)]
    asking = _OffsetResolver(client, wanted)
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
            extents.append(OffsetExtent(partition.partition, start, end, stable[partition]))
    return extents, [_unread_partition(partition, failures[partition]) for partition in wanted if partition in failures]


class _OffsetResolver:
    """Sends ListOffsets; a partition that failed once is not asked again, because that takes seconds."""

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
        self, bound: OffsetBound, default: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        if bound.offset is not None:
            return dict.fromkeys(self.wanted, bound.offset)
        if bound.time_ms is None:
            return default
        found = self.offsets(max(0, bound.time_ms))
        return {partition: latest[partition] if offset == NO_OFFSET else offset for partition, offset in found.items()}


def _unread_partition(partition: TopicPartition, problem: ClientError) -> UnreadRange:
    return UnreadRange(partition.partition, 0, OFFSET_MAX, str(problem))


# ---- reading a range
DAMAGED = "the broker reports that this part of the log is damaged"


def fetch_range(
    client: Client, wanted: OffsetRange, options: FetchOptions, on_unread: Callable[[UnreadRange], None]
) -> Generator[tuple[FetchedRecords, int], None, None]:
    """The responses for a range, each with the offset after it. Raises ClientError or FetchError if reading cannot
    continue.

    A caller that stops early must close this iterator; otherwise a late response stays in the connection.
    """
    position = wanted.start
    while position < wanted.end:
        lost: list[str] = []
        fetcher = RangeFetcher(client, wanted._replace(start=position), options, lost.append)
        try:
            for fetched in fetcher:
                if lost:
                    on_unread(UnreadRange(wanted.partition, position, fetched.first, lost.pop()))
                position = min(fetcher.position, wanted.end)
                yield fetched, position
            if lost:
                on_unread(UnreadRange(wanted.partition, position, wanted.end, lost.pop()))
            return
        except FetchedDataError as problem:
            on_unread(UnreadRange(wanted.partition, position, wanted.end, str(problem)))
            return
        except FetchError as problem:
            if problem.error is not Error.CORRUPT_MESSAGE:
                raise
            after = _next_readable(client, wanted._replace(start=position), options)
            on_unread(UnreadRange(wanted.partition, position, after, DAMAGED))
            position = after
        finally:
            if fetcher.position < wanted.end:
                client.close()  # a response may be in flight


def _next_readable(client: Client, damaged: OffsetRange, options: FetchOptions) -> int:
    """The first readable offset after a damaged one; the end if there is none."""
    low, step = damaged.start, 1  # offset `low` is unreadable
    while low + step < damaged.end and not _is_readable(client, damaged._replace(start=low + step), options):
        low += step
        step *= 2
    high = min(low + step, damaged.end)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_readable(client, damaged._replace(start=middle), options):
            high = middle
        else:
            low = middle
    return high


def _is_readable(client: Client, wanted: OffsetRange, options: FetchOptions) -> bool:
    try:
        return next(iter(RangeFetcher(client, wanted, options, lambda _: None)), None) is not None
    except (FetchError, FetchedDataError, ClientError):
        return False
    finally:
        client.close()

"""Pages of messages: the newest of all partitions, or those from a start on, with a cursor for the next page.

Rules:
1. Newest first: the last messages of each partition, merged by descending timestamp.
2. From a start on (oldest, an offset, a time): merged by timestamp, with the order of each partition kept.
3. A page has at most `limit` messages and reads about `read_bytes`; unreadable ranges are reported.
4. The cursor has the next offset of each partition, so pages neither miss nor repeat a message.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.offsets import MAX_TIMESTAMP, list_offsets
from ottla.operations.messages.offset_ranges import OffsetBound, OffsetExtent, OffsetWindow, fetch_range, find_extents
from ottla.operations.messages.record_reader import Record, RecordState, UnreadRange, merge_unread, walk
from ottla.operations.range_fetcher import FetchedRecords, FetchError, FetchSettings, OffsetRange

LIMIT_MAX = 1000
READ_BYTES = 64 << 20  # of a page
FETCH_BYTES = 1 << 20
QUIET_TIMEOUT_MS = 3_000  # a user waits for the page
FIRST_STEP = 16  # offsets; each further step is four times as long
ROUNDS_MAX = 20  # a compacted partition may have few records in many offsets


@dataclass(frozen=True)
class PageRequest:
    """`positions` is the cursor of the previous page: the next offset by partition."""

    topic: str
    limit: int = 50
    partitions: frozenset[int] = frozenset()
    start: OffsetBound | None = None  # None: newest first
    positions: Mapping[int, int] | None = None
    with_aborted: bool = False
    with_markers: bool = False
    read_bytes: int = READ_BYTES

    @property
    def is_newest_first(self) -> bool:
        return self.start is None


class Page(NamedTuple):
    """`positions` is the cursor of the next page; a partition that did not respond keeps its offset."""

    records: list[Record]
    positions: dict[int, int]
    has_more: bool  # in this direction
    unread: list[UnreadRange]
    extents: list[OffsetExtent]  # the whole partitions, to jump to a position


def read_page(client: Client, request: PageRequest) -> Page:
    """Read a page. Raises ClientError if the topic or a partition does not exist."""
    extents, unread = find_extents(
        client, OffsetWindow(request.topic, request.partitions, request.start or OffsetBound())
    )
    reader = _Reader(client, request, unread)
    page = reader.read_newest(extents) if request.is_newest_first else reader.read_forward(extents)
    return page._replace(unread=merge_unread(unread), extents=extents)


def read_one(client: Client, topic: str, partition: int, offset: int) -> Record | None:
    """The message at an offset, also a marker; None if there is none."""
    start = OffsetBound(offset=offset)
    request = PageRequest(topic, 1, frozenset({partition}), start, with_aborted=True, with_markers=True)
    for record in read_page(client, request).records:
        if record.offset == offset:
            return record
    return None


class _Read(NamedTuple):
    """The messages in an offset range that was read completely."""

    records: list[Record]
    start: int
    end: int


class _Reader:
    """Reads the partitions of one page in turn."""

    def __init__(self, client: Client, request: PageRequest, unread: list[UnreadRange]) -> None:
        self.client = client
        self.request = request
        self.unread = unread
        self.bytes_left = 0  # for the current partition

    def read_newest(self, extents: Iterable[OffsetExtent]) -> Page:
        """Read each partition backwards from its position in the cursor."""
        given = self.request.positions or {}
        bounds = {item.partition: _clamp_end(item, given.get(item.partition, item.end)) for item in extents}
        wanted = self._candidate_partitions(bounds)
        found = {bound.partition: self._read_last(bound, len(wanted)) for bound in wanted}
        order = heapq.merge(*(reversed(read.records) for read in found.values()), key=lambda record: -_time(record))
        shown = _first(order, self.request.limit)
        positions = {partition: bound.end for partition, bound in bounds.items()}
        positions |= {partition: read.start for partition, read in found.items() if not read.records}
        positions |= {record.partition: record.offset for record in shown}
        for partition, read in found.items():
            if read.records and positions[partition] == read.records[0].offset:
                positions[partition] = read.start
        has_more = any(positions[partition] > bound.start for partition, bound in bounds.items())
        return Page(shown, {**given, **positions}, has_more, [], [])

    def read_forward(self, extents: Iterable[OffsetExtent]) -> Page:
        """Read each partition from its start, or from its position in the cursor."""
        given = self.request.positions or {}
        bounds = {item.partition: _clamp_start(item, given.get(item.partition, item.start)) for item in extents}
        wanted = [bound for bound in bounds.values() if bound.size]
        found = {bound.partition: self._read_first(bound, len(wanted)) for bound in wanted}
        order = heapq.merge(*(read.records for read in found.values()), key=_time)
        shown = _first(order, self.request.limit)
        positions = {partition: bound.start for partition, bound in bounds.items()}
        positions |= {partition: read.end for partition, read in found.items() if not read.records}
        positions |= {record.partition: record.offset + 1 for record in shown}
        for partition, read in found.items():
            if read.records and positions[partition] == read.records[-1].offset + 1:
                positions[partition] = read.end
        has_more = any(positions[partition] < bound.end for partition, bound in bounds.items())
        return Page(shown, {**given, **positions}, has_more, [], [])

    def _candidate_partitions(self, bounds: Mapping[int, OffsetExtent]) -> list[OffsetExtent]:
        """With more partitions than messages, only those with the latest timestamps."""
        wanted = [bound for bound in bounds.values() if bound.size]
        if len(wanted) <= self.request.limit or self.request.positions:
            return wanted
        partitions = [TopicPartition(self.request.topic, bound.partition) for bound in wanted]
        latest, failures = list_offsets(self.client, partitions, MAX_TIMESTAMP)
        if failures:  # an older Kafka does not support it
            return wanted
        times = {partition.partition: found.timestamp_ms for partition, found in latest.items()}
        return heapq.nlargest(self.request.limit, wanted, key=lambda bound: times[bound.partition])

    def _read_last(self, extent: OffsetExtent, partitions: int) -> _Read:
        """The last `limit` messages before the end; in steps, because they may be large."""
        self.bytes_left = max(1, self.request.read_bytes // partitions)
        found: list[Record] = []
        step = min(self.request.limit, FIRST_STEP)
        start = extent.end
        for _ in range(ROUNDS_MAX):
            end, start = start, max(extent.start, start - step)
            found = [*self._read_between(extent, start, end).records, *found]
            if len(found) >= self.request.limit or start == extent.start or self.bytes_left <= 0:
                break
            step *= 4
        found = found[-self.request.limit :]
        return _Read(found, found[0].offset if len(found) == self.request.limit else start, extent.end)

    def _read_first(self, extent: OffsetExtent, partitions: int) -> _Read:
        self.bytes_left = max(1, self.request.read_bytes // partitions)
        read = self._read_between(extent, extent.start, extent.end, self.request.limit)
        if len(read.records) <= self.request.limit:
            return read
        records = read.records[: self.request.limit]
        return read._replace(records=records, end=records[-1].offset + 1)

    def _read_between(self, extent: OffsetExtent, start: int, end: int, limit: int | None = None) -> _Read:
        """All messages of the range; with a limit, until there are enough messages or bytes."""
        found: list[Record] = []
        position = start
        for is_stable in (True, False):
            part_end = min(end, extent.stable) if is_stable else end
            is_enough = limit is not None and (len(found) >= limit or self.bytes_left <= 0)
            if position < part_end and not is_enough:
                wanted = OffsetRange(self.request.topic, extent.partition, position, part_end)
                position = self._fetch(wanted, is_stable, found, limit)
        return _Read(found, start, position)

    def _fetch(self, wanted: OffsetRange, is_stable: bool, found: list[Record], limit: int | None) -> int:
        """Append the messages of a range to `found`; returns the offset after them."""
        answers = fetch_range(
            self.client, wanted, FetchSettings(FETCH_BYTES, is_stable, QUIET_TIMEOUT_MS), self.unread.append
        )
        position = wanted.start
        try:
            for fetched, after in answers:
                self.bytes_left -= len(fetched.records)
                self._collect(fetched, wanted, is_stable, found)
                position = after
                if limit is not None and (len(found) >= limit or self.bytes_left <= 0):
                    return position
        except (ClientError, FetchError) as problem:
            self.unread.append(UnreadRange(wanted.partition, position, wanted.end, str(problem)))
        finally:
            answers.close()
        return wanted.end

    def _collect(self, fetched: FetchedRecords, wanted: OffsetRange, is_stable: bool, found: list[Record]) -> None:
        request = self.request
        hidden = frozenset() if request.with_aborted else frozenset({RecordState.ABORTED})
        pieces = walk(fetched, wanted.partition, wanted.end, is_stable=is_stable, with_markers=request.with_markers)
        for piece in pieces:
            if isinstance(piece, UnreadRange):
                self.unread.append(piece)
            else:
                found += [piece.record(row) for row in range(piece.rows) if piece.state(row) not in hidden]

    def __repr__(self) -> str:
        return f"<_Reader of {self.request}>"


def _clamp_start(extent: OffsetExtent, start: int) -> OffsetExtent:
    return extent._replace(start=min(max(start, extent.start), extent.end))


def _clamp_end(extent: OffsetExtent, end: int) -> OffsetExtent:
    return extent._replace(end=max(min(end, extent.end), extent.start))


def _time(record: Record) -> int:
    return record.timestamp_ms


def _first(records: Iterator[Record], limit: int) -> list[Record]:
    return [record for record, _ in zip(records, range(limit), strict=False)]

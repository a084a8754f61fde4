"""One page of messages: the newest of all partitions, or those from a place on; with the way to the next page.

Rules:
1. Newest first: the last ones of each partition, the newest by timestamp of all of them on top.
2. From a place on (oldest, an offset, a time): merged by timestamp, the order of each partition kept.
3. A page has at most `limit` messages and reads about `read_bytes` at most; what cannot be read is told.
4. The cursor says for each partition where the next page goes on, so that pages neither miss nor repeat a message.
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
from ottla.operations.fetching import Fetched, FetchError, Range
from ottla.operations.messages.ranges import read_range
from ottla.operations.messages.walking import Record, State, Unread, merged, walk
from ottla.operations.messages.windows import Bound, Extent, Window, find_extents

LIMIT_MAX = 1000
READ_BYTES = 64 << 20  # of a page
FETCH_BYTES = 1 << 20
QUIET_TIMEOUT_MS = 3_000  # somebody waits for the page
FIRST_STEP = 16  # offsets; each further one is four times as long
ROUNDS_MAX = 20  # a compacted partition may have few records in many offsets


@dataclass(frozen=True)
class PageRequest:
    """`positions` is the cursor of the page before: by partition, where to go on."""

    topic: str
    limit: int = 50
    partitions: frozenset[int] = frozenset()
    start: Bound | None = None  # None: newest first
    positions: Mapping[int, int] | None = None
    with_aborted: bool = False
    with_markers: bool = False
    read_bytes: int = READ_BYTES

    @property
    def is_newest_first(self) -> bool:
        return self.start is None


class Page(NamedTuple):
    """`positions` is the cursor of the next page; a partition that could not be asked keeps its place in it."""

    records: list[Record]
    positions: dict[int, int]
    has_more: bool  # there is something in that direction already
    unread: list[Unread]
    extents: list[Extent]  # of the whole partitions, for whoever wants to jump


@dataclass(frozen=True)
class _FetchOptions:
    is_committed_only: bool
    fetch_bytes: int = FETCH_BYTES
    poll_timeout_ms: int = QUIET_TIMEOUT_MS


def read_page(client: Client, request: PageRequest) -> Page:
    """Raises ClientError if there is no such topic or partition."""
    extents, unread = find_extents(client, Window(request.topic, request.partitions, request.start or Bound()))
    reader = _Reader(client, request, unread)
    page = reader.newest(extents) if request.is_newest_first else reader.onwards(extents)
    return page._replace(unread=merged(unread), extents=extents)


def read_one(client: Client, topic: str, partition: int, offset: int) -> Record | None:
    """The message at an offset, marker or not; None if there is none."""
    start = Bound(offset=offset)
    request = PageRequest(topic, 1, frozenset({partition}), start, with_aborted=True, with_markers=True)
    for record in read_page(client, request).records:
        if record.offset == offset:
            return record
    return None


class _Read(NamedTuple):
    """What was found between two offsets of a partition; everything between them was looked at."""

    records: list[Record]
    start: int
    end: int


class _Reader:
    """Reads the partitions of one page one after the other."""

    def __init__(self, client: Client, request: PageRequest, unread: list[Unread]) -> None:
        self.client = client
        self.request = request
        self.unread = unread
        self.bytes_left = 0  # of the partition that is being read

    def newest(self, extents: Iterable[Extent]) -> Page:
        """Each partition is read backwards from where the page before has ended."""
        given = self.request.positions or {}
        bounds = {item.partition: _ending(item, given.get(item.partition, item.end)) for item in extents}
        wanted = self._worth_reading(bounds)
        found = {bound.partition: self._last_of(bound, len(wanted)) for bound in wanted}
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

    def onwards(self, extents: Iterable[Extent]) -> Page:
        """Each partition is read from its start, or from where the page before has ended."""
        given = self.request.positions or {}
        bounds = {item.partition: _starting(item, given.get(item.partition, item.start)) for item in extents}
        wanted = [bound for bound in bounds.values() if bound.size]
        found = {bound.partition: self._first_of(bound, len(wanted)) for bound in wanted}
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

    def _worth_reading(self, bounds: Mapping[int, Extent]) -> list[Extent]:
        """Where the newest can be: with more partitions than messages, those with the latest timestamps."""
        wanted = [bound for bound in bounds.values() if bound.size]
        if len(wanted) <= self.request.limit or self.request.positions:
            return wanted
        partitions = [TopicPartition(self.request.topic, bound.partition) for bound in wanted]
        latest, failures = list_offsets(self.client, partitions, MAX_TIMESTAMP)
        if failures:  # an older Kafka cannot tell
            return wanted
        times = {partition.partition: found.timestamp_ms for partition, found in latest.items()}
        return heapq.nlargest(self.request.limit, wanted, key=lambda bound: times[bound.partition])

    def _last_of(self, extent: Extent, partitions: int) -> _Read:
        """The last `limit` messages before the end of an extent; in steps, because they may be large."""
        self.bytes_left = max(1, self.request.read_bytes // partitions)
        found: list[Record] = []
        step = min(self.request.limit, FIRST_STEP)
        start = extent.end
        for _ in range(ROUNDS_MAX):
            end, start = start, max(extent.start, start - step)
            found = [*self._between(extent, start, end).records, *found]
            if len(found) >= self.request.limit or start == extent.start or self.bytes_left <= 0:
                break
            step *= 4
        found = found[-self.request.limit :]
        return _Read(found, found[0].offset if len(found) == self.request.limit else start, extent.end)

    def _first_of(self, extent: Extent, partitions: int) -> _Read:
        self.bytes_left = max(1, self.request.read_bytes // partitions)
        read = self._between(extent, extent.start, extent.end, self.request.limit)
        if len(read.records) <= self.request.limit:
            return read
        records = read.records[: self.request.limit]
        return read._replace(records=records, end=records[-1].offset + 1)

    def _between(self, extent: Extent, start: int, end: int, limit: int | None = None) -> _Read:
        """All between two offsets; with a limit, until that many are there or enough bytes were read."""
        found: list[Record] = []
        position = start
        for is_stable in (True, False):
            part_end = min(end, extent.stable) if is_stable else end
            is_enough = limit is not None and (len(found) >= limit or self.bytes_left <= 0)
            if position < part_end and not is_enough:
                wanted = Range(self.request.topic, extent.partition, position, part_end)
                position = self._fetch(wanted, is_stable, found, limit)
        return _Read(found, start, position)

    def _fetch(self, wanted: Range, is_stable: bool, found: list[Record], limit: int | None) -> int:
        """Adds what is wanted of a range to `found`; returns the offset after what was dealt with."""
        answers = read_range(self.client, wanted, _FetchOptions(is_stable), self.unread.append)
        position = wanted.start
        try:
            for fetched, after in answers:
                self.bytes_left -= len(fetched.records)
                self._take(fetched, wanted, is_stable, found)
                position = after
                if limit is not None and (len(found) >= limit or self.bytes_left <= 0):
                    return position
        except (ClientError, FetchError) as problem:
            self.unread.append(Unread(wanted.partition, position, wanted.end, str(problem)))
        finally:
            answers.close()
        return wanted.end

    def _take(self, fetched: Fetched, wanted: Range, is_stable: bool, found: list[Record]) -> None:
        request = self.request
        hidden = frozenset() if request.with_aborted else frozenset({State.ABORTED})
        pieces = walk(fetched, wanted.partition, wanted.end, is_stable=is_stable, with_markers=request.with_markers)
        for piece in pieces:
            if isinstance(piece, Unread):
                self.unread.append(piece)
            else:
                found += [piece.record(row) for row in range(piece.rows) if piece.state(row) not in hidden]

    def __repr__(self) -> str:
        return f"<_Reader of {self.request}>"


def _starting(extent: Extent, start: int) -> Extent:
    return extent._replace(start=min(max(start, extent.start), extent.end))


def _ending(extent: Extent, end: int) -> Extent:
    return extent._replace(end=max(min(end, extent.end), extent.start))


def _time(record: Record) -> int:
    return record.timestamp_ms


def _first(records: Iterator[Record], limit: int) -> list[Record]:
    return [record for record, _ in zip(records, range(limit), strict=False)]

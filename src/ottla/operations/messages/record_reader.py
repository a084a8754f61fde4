"""Iterates over the records of fetched batches, with their offsets and the state of their transactions.

Rules:
1. Unreadable batches (wrong checksum, broken compression, malformed records) are reported as Unread, never skipped
   silently; the batches around them are read.
2. Records of aborted transactions are returned and marked; the caller decides whether to show them. Beyond the last
   stable offset the outcome is unknown: they are marked as open.
3. Uncompressed batches are decoded in place; compressed ones are decompressed into one buffer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.operations.fetched_batches import AbortedFilter, BatchSpan, batch_span
from ottla.operations.messages.expressions.evaluator import Headers
from ottla.operations.range_fetcher import FetchedRecords
from ottla.protocol.batches import (
    ABORT_MARKER,
    COMMIT_MARKER,
    DECOMPRESSED_BYTES_CEILING,
    HEADER_BYTES,
    BatchHeader,
    control_record_type,
    is_crc_valid,
    read_batch_header,
    read_records,
)
from ottla.protocol.compression import CODEC_NAMES, decompress
from ottla.protocol.record_columns import RecordColumns

OFFSET_MAX = 2**63 - 1  # as an end: unknown
CHUNK_BYTES = 4 << 20  # decompressed bytes between two checks of deadlines


class RecordState(StrEnum):
    """The transaction state of a message, or the kind of a control record."""

    COMMITTED = "committed"  # also without a transaction
    ABORTED = "aborted"
    OPEN = "open"
    COMMIT_MARKER = "commit marker"
    ABORT_MARKER = "abort marker"
    CONTROL = "control record"


MARKERS = frozenset({RecordState.COMMIT_MARKER, RecordState.ABORT_MARKER, RecordState.CONTROL})


class UnreadRange(NamedTuple):
    """Offsets start … end - 1 of a partition that were not read, and why."""

    partition: int
    start: int
    end: int
    reason: str
    is_failure: bool = True  # False: a limit that the caller set

    def __str__(self) -> str:
        where = f", offsets {self.start} to {self.end - 1}" if self.end < OFFSET_MAX else ""
        return f"partition {self.partition}{where}: {self.reason}"


class Record(NamedTuple):
    """One record of the log."""

    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    state: RecordState
    codec: str
    producer_id: int


class _Batch(NamedTuple):
    header: BatchHeader
    state: RecordState
    position: int  # of the records in the fetched bytes
    payload: bytes | memoryview


class RecordChunk:
    """A chunk of batches: columns with the positions of their records, and record objects on request."""

    def __init__(
        self, partition: int, data: bytes, batches: Sequence[_Batch], spans: Sequence[BatchSpan], first: int, stop: int
    ) -> None:
        columns = RecordColumns(has_headers=True)
        self.partition = partition
        self.data = data
        self._batches = batches
        self._first_rows = []
        for span in spans:
            self._first_rows.append(columns.rows)
            columns.add(
                data,
                span.start,
                span.end,
                span.records,
                span.base_offset,
                span.timestamp,
                span.is_log_append_time,
                first,
                stop,
            )
        self.rows = columns.rows
        self.decoded_bytes = sum(span.end - span.start for span in spans)
        self.end = spans[-1].end if spans else 0
        self.offsets = memoryview(columns.offsets.getvalue()).cast("q")
        self._timestamps = memoryview(columns.timestamps.getvalue()).cast("q")
        self._keys = memoryview(columns.key_bounds.getvalue()).cast("q")
        self._values = memoryview(columns.value_bounds.getvalue()).cast("q")
        self._null_keys = frozenset(memoryview(columns.key_nulls.getvalue()).cast("q"))
        self._null_values = frozenset(memoryview(columns.value_nulls.getvalue()).cast("q"))
        self._header_ends = memoryview(columns.header_counts.getvalue()).cast("q")
        self._header_names = memoryview(columns.header_key_bounds.getvalue()).cast("q")
        self._header_values = memoryview(columns.header_value_bounds.getvalue()).cast("q")
        self._null_headers = frozenset(memoryview(columns.header_value_nulls.getvalue()).cast("q"))

    def starts(self) -> Sequence[int]:
        """The position of each row's key in `data`."""
        return self._keys[::2]

    def timestamp_ms(self, row: int) -> int:
        return self._timestamps[row] // 1000

    def key(self, row: int) -> bytes | None:
        return None if row in self._null_keys else self.data[self._keys[2 * row] : self._keys[2 * row + 1]]

    def value(self, row: int) -> bytes | None:
        return None if row in self._null_values else self.data[self._values[2 * row] : self._values[2 * row + 1]]

    def headers(self, row: int) -> Headers:
        start = self._header_ends[row - 1] if row else 0
        end = self._header_ends[row]
        return [(self._header_name(index), self._header_value(index)) for index in range(start, end)]

    def row_bytes(self, row: int) -> bytes:
        """All bytes of a row from its key on, headers included, up to the key of the next row."""
        end = self._keys[2 * row + 2] if row + 1 < self.rows else self.end
        return self.data[self._keys[2 * row] : end]

    def state(self, row: int) -> RecordState:
        return self._batch(row).state

    def record(self, row: int) -> Record:
        batch = self._batch(row)
        return Record(
            self.partition,
            self.offsets[row],
            self.timestamp_ms(row),
            batch.header.is_log_append_time,
            self.key(row),
            self.value(row),
            self.headers(row),
            batch.state,
            CODEC_NAMES[batch.header.codec],
            batch.header.producer_id,
        )

    def has_state(self, states: frozenset[RecordState]) -> bool:
        """Whether any batch is in one of these states."""
        return any(batch.state in states for batch in self._batches)

    def _batch(self, row: int) -> _Batch:
        return self._batches[bisect_right(self._first_rows, row) - 1]

    def _header_name(self, index: int) -> str:
        start, end = self._header_names[2 * index : 2 * index + 2]
        return self.data[start:end].decode("utf-8", "surrogateescape")

    def _header_value(self, index: int) -> bytes | None:
        start, end = self._header_values[2 * index : 2 * index + 2]
        return None if index in self._null_headers else self.data[start:end]

    def __repr__(self) -> str:
        return f"<RecordChunk of partition {self.partition}: {self.rows} rows in {len(self._batches)} batches>"


def walk(
    fetched: FetchedRecords, partition: int, stop: int, *, is_stable: bool = True, with_markers: bool = False
) -> Iterator[RecordChunk | UnreadRange]:
    """The records with offsets `fetched.first` … stop - 1, in order, and the ranges that cannot be read.

    `is_stable`: the fetch was read_committed, so aborted transactions are known.
    """
    voids = AbortedFilter(fetched.aborted)
    waiting: list[_Batch] = []
    waiting_bytes = 0
    for found in _batches(fetched, partition, voids, is_stable):
        if isinstance(found, _Batch):
            if found.header.next_offset <= fetched.first or found.header.base_offset >= stop:
                continue
            if found.state in MARKERS and not with_markers:
                continue
            if waiting and bool(waiting[-1].header.codec) != bool(found.header.codec):
                yield from _chunks(fetched, partition, waiting, stop)
                waiting, waiting_bytes = [], 0
            waiting.append(found)
            waiting_bytes += len(found.payload)
        elif found.end > fetched.first and found.start < stop:
            yield found
        if waiting_bytes >= CHUNK_BYTES:
            yield from _chunks(fetched, partition, waiting, stop)
            waiting, waiting_bytes = [], 0
    yield from _chunks(fetched, partition, waiting, stop)


def _batches(
    fetched: FetchedRecords, partition: int, voids: AbortedFilter, is_stable: bool
) -> Iterator[_Batch | UnreadRange]:
    data = fetched.records
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_batch_header(data, position)  # the fetcher has checked the format
        end = position + header.batch_bytes
        if end > len(data):
            return
        is_aborted = voids.is_aborted(header)
        try:
            if not is_crc_valid(data, position, header):
                raise KafkaError(
                    Error.CORRUPT_MESSAGE,
                    "the checksum of the record batch is wrong: the log or the connection damaged it",
                )
            state = _state(data, position, header, is_aborted, is_stable)
            if state is RecordState.ABORT_MARKER:
                voids.end_transaction(header.producer_id)
            payload: bytes | memoryview = memoryview(data)[position + HEADER_BYTES : end]
            if header.codec:
                payload = decompress(header.codec, payload, DECOMPRESSED_BYTES_CEILING)
            yield _Batch(header, state, position + HEADER_BYTES, payload)
        except KafkaError as problem:
            yield UnreadRange(partition, header.base_offset, header.next_offset, str(problem))
        position = end


def _state(data: bytes, position: int, header: BatchHeader, is_aborted: bool, is_stable: bool) -> RecordState:
    if header.is_control:
        view = memoryview(data)[position : position + header.batch_bytes]
        for record in read_records(view):
            kind = control_record_type(record.key)
            return {ABORT_MARKER: RecordState.ABORT_MARKER, COMMIT_MARKER: RecordState.COMMIT_MARKER}.get(
                kind, RecordState.CONTROL
            )
        return RecordState.CONTROL
    if is_aborted:
        return RecordState.ABORTED
    return RecordState.OPEN if header.is_transactional and not is_stable else RecordState.COMMITTED


def _chunks(
    fetched: FetchedRecords, partition: int, batches: list[_Batch], stop: int
) -> Iterator[RecordChunk | UnreadRange]:
    """One piece with all batches. If one is malformed, each batch becomes a piece of its own."""
    if not batches:
        return
    try:
        yield _chunk(fetched, partition, batches, stop)
    except KafkaError:
        for batch in batches:
            try:
                yield _chunk(fetched, partition, [batch], stop)
            except KafkaError as problem:
                yield UnreadRange(partition, batch.header.base_offset, batch.header.next_offset, str(problem))


def _chunk(fetched: FetchedRecords, partition: int, batches: list[_Batch], stop: int) -> RecordChunk:
    if not batches[0].header.codec:
        spans = [batch_span(batch.header, batch.position, batch.position + len(batch.payload)) for batch in batches]
        return RecordChunk(partition, fetched.records, batches, spans, fetched.first, stop)
    spans = []
    start = 0
    for batch in batches:
        spans.append(batch_span(batch.header, start, start + len(batch.payload)))
        start += len(batch.payload)
    data = bytes(batches[0].payload) if len(batches) == 1 else b"".join(batch.payload for batch in batches)
    return RecordChunk(partition, data, batches, spans, fetched.first, stop)


def merge_unread(unread: Iterable[UnreadRange]) -> list[UnreadRange]:
    """Adjacent ranges with the same reason, merged."""
    found: list[UnreadRange] = []
    for item in sorted(unread):
        last = found[-1] if found else None
        if last and last[0] == item[0] and last.end >= item.start and last[3:] == item[3:]:
            found[-1] = last._replace(end=max(last.end, item.end))
        else:
            found.append(item)
    return found

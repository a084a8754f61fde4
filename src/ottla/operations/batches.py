"""The answer to a fetch, taken apart: which record batches count, checked and decompressed, in pieces for the walk.

Rules:
1. A batch whose checksum is wrong, or in a format before Kafka 0.11, raises FetchedDataError; it is never skipped.
2. Markers of transactions are no records. With read_committed, records of aborted transactions are left out.
3. A piece ends with the batch that brings its decompressed bytes to PIECE_BYTES_MAX.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.base.errors import KafkaError
from ottla.protocol.batches import (
    ABORT_MARKER,
    DECOMPRESSED_BYTES_CEILING,
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    control_record_type,
    crc_is_right,
    read_batch_header,
    read_records,
)
from ottla.protocol.compression import decompress
from ottla.protocol.messages.fetch import AbortedTransaction

PIECE_BYTES_MAX = 64 << 20


class FetchedDataError(Exception):
    """The bytes that a broker sent are not what they should be; str() is a sentence for a person."""


class Span(NamedTuple):
    """The records of one batch inside the bytes that are walked."""

    start: int
    end: int
    records: int
    base_offset: int
    timestamp: int  # of the first record, or of all when the log has stamped them
    is_log_append_time: bool


class Piece(NamedTuple):
    """Some batches: the bytes to walk, where the records of each lie in them, and the offset after the last."""

    data: bytes
    spans: list[Span]
    next_offset: int


class _Payload(NamedTuple):
    """The records of a batch that are wanted, decompressed; a plain batch stays where it is in the fetched bytes."""

    header: BatchHeader
    position: int
    data: bytes | memoryview


class AbortedFilter:
    """Knows in the order of the log which transactions were aborted (KIP-98)."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda item: item.first_offset, reverse=True)
        self._producers: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch are void."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        return header.is_transactional and header.producer_id in self._producers

    def end(self, producer_id: int) -> None:
        """A marker has ended the transaction of this producer."""
        self._producers.discard(producer_id)

    def __repr__(self) -> str:
        return f"<AbortedFilter now={sorted(self._producers)} coming={len(self._coming)}>"


def pieces(
    records: bytes, partition: str, first: int, stop: int, aborted: Sequence[AbortedTransaction] = ()
) -> Iterator[Piece]:
    """The wanted batches among these bytes in pieces; a batch that is cut off at the end does not count."""
    voids = AbortedFilter(aborted)
    waiting: list[_Payload] = []
    waiting_bytes = 0
    next_offset = first
    for header, position in _headers(records, partition):
        if next_offset >= stop:
            break
        is_aborted = voids.is_aborted(header)
        if header.is_control:
            _note_marker(records, position, header, voids)
        elif not is_aborted and header.next_offset > first and header.base_offset < stop and header.record_count:
            waiting.append(_payload(records, position, header, partition))
            waiting_bytes += len(waiting[-1].data)
        next_offset = max(next_offset, header.next_offset)
        if waiting_bytes >= PIECE_BYTES_MAX:
            yield _piece(records, waiting, next_offset)
            waiting, waiting_bytes = [], 0
    if waiting or next_offset > first:
        yield _piece(records, waiting, next_offset)


def offset_after(records: bytes, partition: str) -> int | None:
    """The offset after the last batch that is there as a whole, told without checking the batches; None: no batch."""
    last = None
    for header, _ in _whole_batches(records, partition):
        last = header.next_offset
    return last


def checked_batches(records: bytes, partition: str) -> Iterator[tuple[BatchHeader, int, bytes | memoryview]]:
    """All batches that are there as a whole, markers too: header, position, and the records decompressed."""
    for header, position in _headers(records, partition):
        yield header, position, _payload(records, position, header, partition).data


def _headers(records: bytes, partition: str) -> Iterator[tuple[BatchHeader, int]]:
    """The batches that are there as a whole, their checksums proved."""
    for header, position in _whole_batches(records, partition):
        if not crc_is_right(records, position, header):
            raise FetchedDataError(
                f"{partition}: the checksum of the record batch at offset {header.base_offset} is wrong "
                f"({header.batch_bytes} bytes): the log or the way to it is damaged"
            )
        yield header, position


def _whole_batches(records: bytes, partition: str) -> Iterator[tuple[BatchHeader, int]]:
    position = 0
    while position + HEADER_BYTES <= len(records):
        if records[position + MAGIC_POSITION] < MAGIC:
            raise FetchedDataError(
                f"{partition}: the log holds records in a format older than Kafka 0.11, which this source does not "
                "read. Use the JVM connector, or have the topic written again"
            )
        try:
            header = read_batch_header(records, position)
        except KafkaError as problem:
            raise FetchedDataError(f"{partition}: {problem}") from None
        if position + header.batch_bytes > len(records):
            return
        yield header, position
        position += header.batch_bytes


def _note_marker(records: bytes, position: int, header: BatchHeader, voids: AbortedFilter) -> None:
    view = memoryview(records)[position : position + header.batch_bytes]
    for record in read_records(view):
        if control_record_type(record.key) == ABORT_MARKER:
            voids.end(header.producer_id)


def _payload(records: bytes, position: int, header: BatchHeader, partition: str) -> _Payload:
    data = memoryview(records)[position + HEADER_BYTES : position + header.batch_bytes]
    if not header.codec:
        return _Payload(header, position, data)
    try:
        return _Payload(header, position, decompress(header.codec, data, DECOMPRESSED_BYTES_CEILING))
    except KafkaError as problem:
        raise FetchedDataError(f"{partition}, record batch at offset {header.base_offset}: {problem}") from None


def _piece(records: bytes, wanted: list[_Payload], next_offset: int) -> Piece:
    """Plain batches are walked where they are; as soon as one was compressed, all are put together anew."""
    if not any(header.codec for header, _, _ in wanted):
        spans = [_span(header, at + HEADER_BYTES, at + header.batch_bytes) for header, at, _ in wanted]
        return Piece(records, spans, next_offset)
    spans = []
    start = 0
    for header, _, data in wanted:
        spans.append(_span(header, start, start + len(data)))
        start += len(data)
    return Piece(b"".join(data for _, _, data in wanted), spans, next_offset)


def _span(header: BatchHeader, start: int, end: int) -> Span:
    is_stamped = header.is_log_append_time
    timestamp = header.max_timestamp if is_stamped else header.base_timestamp
    return Span(start, end, header.record_count, header.base_offset, timestamp, is_stamped)

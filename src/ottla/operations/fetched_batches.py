"""Record batches of a Fetch response: checked, filtered, decompressed, and grouped into chunks for the decoder.

Rules:
1. A wrong checksum or a format before Kafka 0.11 raises FetchedDataError; no batch is skipped silently.
2. Transaction markers are not records. With read_committed, records of aborted transactions are left out.
3. A chunk ends with the batch that brings its decompressed size to PIECE_BYTES_MAX.
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
    is_crc_valid,
    read_batch_header,
    read_records,
)
from ottla.protocol.compression import decompress
from ottla.protocol.messages.fetch import AbortedTransaction

CHUNK_BYTES_MAX = 64 << 20


class FetchedDataError(Exception):
    """Fetched bytes are damaged or in an unsupported format; str() is a readable sentence."""


class BatchSpan(NamedTuple):
    """The records of one batch inside a chunk."""

    start: int
    end: int
    records: int
    base_offset: int
    timestamp: int  # of the first record; with LogAppendTime, of all
    is_log_append_time: bool


class RecordChunk(NamedTuple):
    """A chunk: the bytes to decode, the position of each batch in them, and the offset after the last batch."""

    data: bytes
    spans: list[BatchSpan]
    next_offset: int


class _Payload(NamedTuple):
    """The decompressed records of one batch. An uncompressed batch stays where it is in the fetched bytes."""

    header: BatchHeader
    position: int
    data: bytes | memoryview


class AbortedFilter:
    """Detects batches of aborted transactions while it sees headers in log order (KIP-98)."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda item: item.first_offset, reverse=True)
        self._producers: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of this batch belong to an aborted transaction."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._producers.add(self._coming.pop().producer_id)
        return header.is_transactional and header.producer_id in self._producers

    def end_transaction(self, producer_id: int) -> None:
        """The abort marker of this producer was read."""
        self._producers.discard(producer_id)

    def __repr__(self) -> str:
        return f"<AbortedFilter now={sorted(self._producers)} coming={len(self._coming)}>"


def record_chunks(
    records: bytes, partition: str, first: int, stop: int, aborted: Sequence[AbortedTransaction] = ()
) -> Iterator[RecordChunk]:
    """The batches of the offset range, in chunks. An incomplete batch at the end is ignored."""
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
        if waiting_bytes >= CHUNK_BYTES_MAX:
            yield _chunk(records, waiting, next_offset)
            waiting, waiting_bytes = [], 0
    if waiting or next_offset > first:
        yield _chunk(records, waiting, next_offset)


def offset_after(records: bytes, partition: str) -> int | None:
    """The offset after the last complete batch, read from the headers only; None without a complete batch."""
    last = None
    for header, _ in _whole_batches(records, partition):
        last = header.next_offset
    return last


def checked_batches(records: bytes, partition: str) -> Iterator[tuple[BatchHeader, int, bytes | memoryview]]:
    """All complete batches, markers included: header, position, decompressed records."""
    for header, position in _headers(records, partition):
        yield header, position, _payload(records, position, header, partition).data


def _headers(records: bytes, partition: str) -> Iterator[tuple[BatchHeader, int]]:
    """The complete batches, with verified checksums."""
    for header, position in _whole_batches(records, partition):
        if not is_crc_valid(records, position, header):
            raise FetchedDataError(
                f"{partition}: the checksum of the record batch at offset {header.base_offset} is wrong "
                f"({header.batch_bytes} bytes): the log or the connection damaged it"
            )
        yield header, position


def _whole_batches(records: bytes, partition: str) -> Iterator[tuple[BatchHeader, int]]:
    position = 0
    while position + HEADER_BYTES <= len(records):
        if records[position + MAGIC_POSITION] < MAGIC:
            raise FetchedDataError(
                f"{partition}: the log holds records in a format older than Kafka 0.11, which this source does not "
                "read. Use the JVM connector, or rewrite the topic"
            )
        try:
            header = read_batch_header(records, position)
        except KafkaError as problem:
            raise FetchedDataError(f"{partition}: {problem}") from None
        if position + header.batch_bytes > len(records):
            return
        yield header, position
        position += header.batch_bytes


def _note_marker(records: bytes, position: int, header: BatchHeader, aborted: AbortedFilter) -> None:
    view = memoryview(records)[position : position + header.batch_bytes]
    for record in read_records(view):
        if control_record_type(record.key) == ABORT_MARKER:
            aborted.end_transaction(header.producer_id)


def _payload(records: bytes, position: int, header: BatchHeader, partition: str) -> _Payload:
    data = memoryview(records)[position + HEADER_BYTES : position + header.batch_bytes]
    if not header.codec:
        return _Payload(header, position, data)
    try:
        return _Payload(header, position, decompress(header.codec, data, DECOMPRESSED_BYTES_CEILING))
    except KafkaError as problem:
        raise FetchedDataError(f"{partition}, record batch at offset {header.base_offset}: {problem}") from None


def _chunk(records: bytes, wanted: list[_Payload], next_offset: int) -> RecordChunk:
    """Uncompressed batches stay in place. If any batch is compressed, all are copied into one buffer."""
    if not any(header.codec for header, _, _ in wanted):
        spans = [batch_span(header, at + HEADER_BYTES, at + header.batch_bytes) for header, at, _ in wanted]
        return RecordChunk(records, spans, next_offset)
    spans = []
    start = 0
    for header, _, data in wanted:
        spans.append(batch_span(header, start, start + len(data)))
        start += len(data)
    return RecordChunk(b"".join(data for _, _, data in wanted), spans, next_offset)


def batch_span(header: BatchHeader, start: int, end: int) -> BatchSpan:
    is_stamped = header.is_log_append_time
    timestamp = header.max_timestamp if is_stamped else header.base_timestamp
    return BatchSpan(start, end, header.record_count, header.base_offset, timestamp, is_stamped)

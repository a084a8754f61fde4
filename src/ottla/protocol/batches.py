"""Record batches (format v2): header, checksum, the checks on produce, building and reading.

A batch is stored as the producer sent it: only the base offset and the leader epoch are written in place, both outside
the checksum. Compiled with mypyc where possible.

    base offset int64 | batch length int32 | leader epoch int32 | magic int8 | crc uint32 | attributes int16
    | last offset delta int32 | base timestamp int64 | max timestamp int64 | producer id int64 | producer epoch int16
    | base sequence int32 | record count int32 | records
The length counts from the leader epoch on; the CRC32C covers everything from the attributes on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.protocol.checksums import crc32c
from ottla.protocol.compression import CODEC_NAMES, compress, decompress, unknown_codec
from ottla.protocol.records import (
    INT64_MAX,
    NO_TIMESTAMP,
    InvalidRecords,
    Limits,
    Record,
    RecordReader,
    check_records,
    malformed,
    rejection_message,
    walk_records,
    write_plain_record,
    write_record,
)

HEADER_BYTES: Final = 61
LENGTH_PREFIX_BYTES: Final = 12  # base offset and length field, which the length does not include
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21  # the checksum covers everything from here on
FLAGS_POSITION: Final = ATTRIBUTES_POSITION + 1  # the low byte of the attributes: codec and flags
ABORT_MARKER: Final = 0  # the control record type of an abort
COMMIT_MARKER: Final = 1
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC_POSITION: Final = 16
MAGIC: Final = 2
LEGACY_RECORD_BYTES: Final = 14  # even the oldest record format needs more bytes than this

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

SEQUENCE_COUNT: Final = 2**31  # sequences wrap around to 0
DECOMPRESSED_RATIO_MAX: Final = 16  # a produced batch may decompress to this many times max.message.bytes,
DECOMPRESSED_BYTES_FLOOR: Final = 16 << 20  # or to this, if that is more,
DECOMPRESSED_BYTES_CEILING: Final = 128 << 20  # but never to more than this

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
OFFSET: Final = struct.Struct(">q")  # also timestamps
EPOCH: Final = struct.Struct(">i")  # also the length
CRC: Final = struct.Struct(">I")
ATTRIBUTES: Final = struct.Struct(">h")


class BatchHeader:
    """The header of one batch, from its thirteen numbers on the wire."""

    def __init__(self, fields: tuple[int, ...]) -> None:
        self.base_offset = fields[0]
        self.batch_bytes = fields[1] + LENGTH_PREFIX_BYTES
        self.leader_epoch = fields[2]
        self.magic = fields[3]
        self.crc = fields[4]
        self.attributes = fields[5]
        self.last_offset_delta = fields[6]
        self.base_timestamp = fields[7]
        self.max_timestamp = fields[8]
        self.producer_id = fields[9]
        self.producer_epoch = fields[10]
        self.base_sequence = fields[11]
        self.record_count = fields[12]

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_COUNT

    def __repr__(self) -> str:
        return (
            f"<BatchHeader offsets {self.base_offset}-{self.last_offset}, {self.record_count} records, "
            f"{self.batch_bytes} bytes, attributes {self.attributes:#x}, producer {self.producer_id}"
            f"/{self.producer_epoch} sequence {self.base_sequence}>"
        )


def read_batch_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Return the header at this position. Only its own 61 bytes are needed, not the records."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise KafkaError(Error.CORRUPT_MESSAGE, f"A record batch header needs {HEADER_BYTES} bytes")
    header = BatchHeader(HEADER.unpack_from(buffer, position))
    if header.batch_bytes < HEADER_BYTES:
        raise KafkaError(Error.CORRUPT_MESSAGE, f"A batch of {header.batch_bytes} bytes is smaller than its header")
    if header.magic != MAGIC:
        raise KafkaError(Error.CORRUPT_MESSAGE, f"Invalid magic found in record: {header.magic}")
    return header


def is_crc_valid(buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> bool:
    """Return whether the whole batch is present and its checksum is correct."""
    end = position + header.batch_bytes
    if end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end]) == header.crc)


def write_offsets(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set the offset and leader epoch of a batch in the log; the checksum does not cover these two fields."""
    OFFSET.pack_into(buffer, position, base_offset)
    EPOCH.pack_into(buffer, position + LENGTH_PREFIX_BYTES, leader_epoch)


def write_log_append_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> None:
    """Set the broker's timestamp: attribute bit, max timestamp, new checksum; also updates `header`."""
    _write_timestamp(buffer, position, header, True, now_ms)


def check_produced_batch(
    records: memoryview,
    *,
    is_compacted: bool,
    message_bytes_max: int,
    partition: str = "",
    is_log_append_time: bool = False,
    timestamp_min: int = -INT64_MAX,
    timestamp_max: int = INT64_MAX,
) -> BatchHeader:
    """Check one partition of a Produce request, in Kafka's order. Raises KafkaError.

    As in Kafka, a wrong max timestamp or a producer's log-append-time bit is corrected in place, not rejected.
    `timestamp_min` and `timestamp_max` come from message.timestamp.before.max.ms and after.max.ms. Sequence numbers
    across batches, and the producer's right to its transactional id, are checked elsewhere.
    """
    header = _single_batch_header(records)
    if header.base_offset != 0:
        raise KafkaError(Error.INVALID_RECORD, f"The base offset of a produced batch is 0, not {header.base_offset}")
    if header.batch_bytes > message_bytes_max:
        raise KafkaError(
            Error.MESSAGE_TOO_LARGE,
            f"The batch has {header.batch_bytes} bytes; max.message.bytes allows {message_bytes_max}",
        )
    if not is_crc_valid(records, 0, header):
        raise KafkaError(Error.CORRUPT_MESSAGE, "The checksum of the batch is wrong")
    _check_header(header)
    payload = bytes(records[HEADER_BYTES:])
    if header.attributes & CODEC_MASK:
        payload = decompress(header.codec, payload, decompressed_bytes_max(message_bytes_max))
    if is_log_append_time:
        timestamp_min = -INT64_MAX
    if is_log_append_time or timestamp_max > INT64_MAX:
        timestamp_max = INT64_MAX
    base_timestamp = header.base_timestamp
    delta_min = _as_int64(timestamp_min - base_timestamp)
    delta_max = _as_int64(timestamp_max - base_timestamp)
    newest, is_suspicious = walk_records(payload, header.record_count, delta_min, delta_max, is_compacted)
    if is_suspicious:
        limits = Limits(partition, is_compacted, timestamp_min, timestamp_max)
        check_records(payload, header.record_count, base_timestamp, limits)
    if is_log_append_time:
        _refuse_log_append_time(header)
        return header
    max_timestamp = max(NO_TIMESTAMP, base_timestamp + newest)
    if header.max_timestamp != max_timestamp or header.attributes & LOG_APPEND_TIME_FLAG:
        _write_timestamp(records, 0, header, False, max_timestamp)
    return header


def build_batch(
    records: Iterable[Record],
    *,
    codec: int = 0,
    level: int | None = None,
    base_offset: int = 0,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return one batch with these records; `last_offset` is for the cleaner, which may remove the last records."""
    payload = bytearray()
    count = 0
    offset = base_offset - 1
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for record in records:
        offset = offset + 1 if record.offset < 0 else record.offset
        if count == 0:
            base_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        write_record(payload, record, offset - base_offset, record.timestamp - base_timestamp)
        count += 1
    attributes = codec | (TRANSACTIONAL_FLAG if is_transactional else 0) | (CONTROL_FLAG if is_control else 0)
    last_offset_delta = (offset if last_offset is None else last_offset) - base_offset
    place = (base_offset, 0, leader_epoch, MAGIC, 0, attributes, last_offset_delta, base_timestamp, max_timestamp)
    header = BatchHeader((*place, producer_id, producer_epoch, base_sequence, count))
    return assemble_batch(header, compress(codec, payload, level) if codec else payload)


def build_plain_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Return one batch of keys and values with one timestamp and no headers, as coordinators write it."""
    payload = bytearray()
    count = 0
    for key, value in records:
        write_plain_record(payload, key, value, count)
        count += 1
    attributes = codec | (TRANSACTIONAL_FLAG if is_transactional else 0)
    header = BatchHeader(
        (0, 0, -1, MAGIC, 0, attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, -1, count)
    )
    return assemble_batch(header, compress(codec, payload, None) if codec else payload)


def assemble_batch(header: BatchHeader, payload: bytes | bytearray) -> bytearray:
    """Return header and (compressed) records as one batch, with its length and checksum."""
    header.batch_bytes = HEADER_BYTES + len(payload)
    batch = bytearray(HEADER_BYTES)
    batch += payload
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        header.batch_bytes - LENGTH_PREFIX_BYTES,
        header.leader_epoch,
        header.magic,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    header.crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    CRC.pack_into(batch, CRC_POSITION, header.crc)
    return batch


def read_records(batch: bytes | bytearray | memoryview) -> Iterator[Record]:
    """Yield the records of one batch, decompressed, with absolute offsets and their timestamps."""
    header = read_batch_header(batch, 0)
    payload = bytes(memoryview(batch)[HEADER_BYTES : header.batch_bytes])
    if header.codec:
        payload = decompress(header.codec, payload, DECOMPRESSED_BYTES_CEILING)
    reader = RecordReader(payload, header.base_offset, header.base_timestamp)
    for _ in range(header.record_count):
        record = reader.read_record()
        if header.is_log_append_time:
            record = record._replace(timestamp=header.max_timestamp)
        yield record


def control_record_type(key: bytes | None) -> int:
    """Return the type of a control record, such as a marker; -1 if the key is not valid."""
    if key is None or len(key) < 4:
        return -1
    return int.from_bytes(key[2:4], "big", signed=True)


def recompress(batch: bytes | bytearray | memoryview, codec: int, level: int | None = None) -> bytearray:
    """Return the same records with another codec; the rest of the header stays as it is."""
    header = read_batch_header(batch, 0)
    payload: bytes = bytes(memoryview(batch)[HEADER_BYTES : header.batch_bytes])
    payload = decompress(header.codec, payload, DECOMPRESSED_BYTES_CEILING)
    header.attributes = header.attributes & ~CODEC_MASK | codec
    return assemble_batch(header, compress(codec, payload, level))


def decompressed_bytes_max(message_bytes_max: int) -> int:
    """Return the limit for decompressing a produced batch: a few kilobytes must not become gigabytes."""
    wanted = max(DECOMPRESSED_BYTES_FLOOR, message_bytes_max * DECOMPRESSED_RATIO_MAX)
    return min(wanted, DECOMPRESSED_BYTES_CEILING)


def _single_batch_header(records: memoryview) -> BatchHeader:
    """Return the header of the one batch that a Produce request may have per partition."""
    if len(records) >= HEADER_BYTES:
        header = BatchHeader(HEADER.unpack_from(records, 0))
        if header.batch_bytes == len(records) and header.magic == MAGIC:
            return header
    raise _invalid_batch_count(records)


def _invalid_batch_count(records: memoryview) -> KafkaError:
    """Return Kafka's error for bytes that are not exactly one batch."""
    size = len(records)
    if size <= MAGIC_POSITION:
        return KafkaError(Error.INVALID_RECORD, f"There is no whole record batch in {size} bytes")
    length: int = EPOCH.unpack_from(records, OFFSET.size)[0]
    magic = records[MAGIC_POSITION]
    if length < LEGACY_RECORD_BYTES:
        problem = f"Record size {length} is less than the minimum record overhead ({LEGACY_RECORD_BYTES})"
        return KafkaError(Error.CORRUPT_MESSAGE, problem)
    if magic > MAGIC:
        signed = magic - 256 if magic > 127 else magic
        return KafkaError(Error.CORRUPT_MESSAGE, f"Invalid magic found in record: {signed}")
    if length + LENGTH_PREFIX_BYTES > size:
        return KafkaError(Error.INVALID_RECORD, f"There is no whole record batch in {size} bytes")
    if magic != MAGIC:
        return KafkaError(Error.INVALID_RECORD, f"Produce requests carry batches with magic 2, not {magic}")
    if length + LENGTH_PREFIX_BYTES < HEADER_BYTES:
        return KafkaError(Error.CORRUPT_MESSAGE, f"A batch of {length} bytes is smaller than its header")
    if not is_crc_valid(records, 0, read_batch_header(records, 0)):  # a wrong length is more likely than a second batch
        return KafkaError(Error.CORRUPT_MESSAGE, "The checksum of the batch is wrong")
    return KafkaError(Error.INVALID_RECORD, "Produce requests carry exactly one record batch per partition")


def _check_header(header: BatchHeader) -> None:
    """Check the consistency of a header's numbers."""
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise malformed(f"{header.record_count} records and last offset delta {header.last_offset_delta}")
    if header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
        if header.is_control:
            raise KafkaError(Error.INVALID_RECORD, "Clients are not allowed to write control records")
        if header.producer_id < 0:
            raise KafkaError(Error.INVALID_RECORD, "A transactional batch needs a producer id")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise KafkaError(
            Error.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in a batch of producer {header.producer_id}",
        )
    if header.codec >= len(CODEC_NAMES):
        raise unknown_codec(header.codec)


def _refuse_log_append_time(header: BatchHeader) -> None:
    """Reject a producer that sets the broker's timestamp type on a topic with LogAppendTime."""
    if header.is_log_append_time:
        problem = "Producer should not set timestamp type to LogAppendTime."
        message = rejection_message(Error.INVALID_TIMESTAMP, header.record_count, [])
        raise InvalidRecords(Error.INVALID_TIMESTAMP, message, [(0, problem)])


def _write_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, is_log_append_time: bool, timestamp: int
) -> None:
    view = memoryview(buffer)
    header.attributes &= ~LOG_APPEND_TIME_FLAG
    if is_log_append_time:
        header.attributes |= LOG_APPEND_TIME_FLAG
    header.max_timestamp = timestamp
    ATTRIBUTES.pack_into(view, position + ATTRIBUTES_POSITION, header.attributes)
    OFFSET.pack_into(view, position + MAX_TIMESTAMP_POSITION, timestamp)
    header.crc = crc32c(view[position + ATTRIBUTES_POSITION : position + header.batch_bytes])
    CRC.pack_into(view, position + CRC_POSITION, header.crc)


def _as_int64(value: int) -> int:
    """Clamp a number to the int64 range of the compiled code."""
    return max(-INT64_MAX, min(value, INT64_MAX))

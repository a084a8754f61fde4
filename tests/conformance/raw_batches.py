"""Record batches (magic 2) byte by byte, right or with one lie in them; independent of ottla's own builder."""

import gzip
import struct
import time
from dataclasses import dataclass

import cramjam
import crc32c
from tests.conformance.raw import varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_MASK = 0b111
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_POSITION = 17
CRC_COVERS_FROM = 21
LENGTH_COVERS_FROM = 12


@dataclass(frozen=True)
class BatchHeader:
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


def record(
    value: bytes | None,
    offset_delta: int = 0,
    *,
    key: bytes | None = None,
    timestamp_delta: int = 0,
    headers: list[tuple[bytes, bytes | None]] | None = None,
    header_count: int | None = None,
    key_length: int | None = None,
    length: int | None = None,
) -> bytes:
    """One record; `header_count`, `key_length` and `length` may lie."""
    pairs = headers or []
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta)
    body += _sized(key) if key_length is None else varint(key_length) + (key or b"")
    body += _sized(value)
    body += varint(len(pairs) if header_count is None else header_count)
    for name, content in pairs:
        body += _sized(name) + _sized(content)
    return varint(len(body) if length is None else length) + body


def batch(
    values: list[bytes | None] | None = None,
    *,
    records: list[bytes] | None = None,
    codec: int = NONE,
    attributes: int = 0,
    timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    magic: int = 2,
    crc: int | None = None,
    length: int | None = None,
    record_count: int | None = None,
    last_offset_delta: int | None = None,
    compressed: bytes | None = None,
    key: bytes | None = None,
) -> bytes:
    """A batch of the values (or of ready records); every header field may be replaced by a lie."""
    rows = records if records is not None else [record(v, n, key=key) for n, v in enumerate(values or [b"value"])]
    payload = compressed if compressed is not None else compress(codec, b"".join(rows))
    moment = int(time.time() * 1000) if timestamp is None else timestamp
    count = len(rows) if record_count is None else record_count
    delta = len(rows) - 1 if last_offset_delta is None else last_offset_delta
    tail = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        delta,
        moment,
        moment if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    covered = tail + payload
    checksum = crc32c.crc32c(covered) if crc is None else crc
    size = 9 + len(covered) if length is None else length
    return struct.pack(">qiibI", base_offset, size, -1, magic, checksum) + covered


def read_batches(data: bytes) -> list[BatchHeader]:
    """Headers of all whole batches of a fetched record set; every CRC is checked."""
    found, position = [], 0
    while position + HEADER.size <= len(data):
        header = BatchHeader(*HEADER.unpack_from(data, position))
        end = position + LENGTH_COVERS_FROM + header.length
        if end > len(data):
            break  # a broker may cut the last batch at the byte limit
        assert crc32c.crc32c(data[position + CRC_COVERS_FROM : end]) == header.crc, header
        found.append(header)
        position = end
    return found


def compress(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.compress(data)
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            return _lz4_frame(data)
        case 4:
            return bytes(cramjam.zstd.compress(data))
    return data


def _lz4_frame(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(block_linked=False)  # Java reads only frames of independent blocks
    compressor.compress(data)
    return bytes(compressor.finish())


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data

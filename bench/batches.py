"""Record batches for the load: built once before a measurement, sent many times."""

import random
import struct
import time
from functools import cache
from typing import NamedTuple

from crc32c import crc32c

from bench.wire import unsigned_varint

BATCH_HEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
BATCH_BODY = struct.Struct(">hiqqqhii")  # from the attributes to the record count: what the CRC covers first
WORDS = ("temperature", "pressure", "vehicle", "sensor", "region", "status", "ok", "warn", "speed", "humidity")
RECORD_OVERHEAD_BYTES_MAX = 14
VALUES_IN_POOL = 64


class Batch(NamedTuple):
    """A record batch of format 2 and its record count."""

    data: bytes
    records: int


class ReadBatch(NamedTuple):
    """Start and end offset of a stored batch, and whether its checksum is valid."""

    base_offset: int
    next_offset: int
    checksum_is_right: bool


@cache
def payloads(size: int, count: int = VALUES_IN_POOL) -> list[bytes]:
    """Distinct JSON-like values of exactly `size` bytes; in a batch lz4 compresses them by a factor of two to three."""
    source = random.Random(7)
    return [_payload(size, source) for _ in range(count)]


def batch_of(values: list[bytes]) -> Batch:
    now_ms = int(time.time() * 1000)
    records = b"".join(record_of(delta, value) for delta, value in enumerate(values))
    count = len(values)
    body = BATCH_BODY.pack(0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return Batch(BATCH_HEAD.pack(0, 9 + len(body), 0, 2, crc32c(body)) + body, count)


def batch_of_bytes(bytes_max: int, record_bytes: int) -> Batch:
    """The largest batch of values of `record_bytes` that takes at most `bytes_max` bytes."""
    pool = payloads(record_bytes)
    count = max(1, (bytes_max - 61) // (record_bytes + RECORD_OVERHEAD_BYTES_MAX))
    batch = batch_of([pool[number % len(pool)] for number in range(count)])
    while True:
        step = max(1, (bytes_max - len(batch.data)) // (record_bytes + RECORD_OVERHEAD_BYTES_MAX))
        larger = batch_of([pool[number % len(pool)] for number in range(batch.records + step)])
        if len(larger.data) > bytes_max:
            return batch
        batch = larger


def read_batches(records: bytes | bytearray | memoryview) -> list[ReadBatch]:
    """Iterate over complete stored batches; a truncated last one is skipped."""
    found: list[ReadBatch] = []
    position = 0
    while position + 61 <= len(records):
        base_offset, length, _, _, checksum = BATCH_HEAD.unpack_from(records, position)
        end = position + 12 + length
        if end > len(records):
            break
        body = memoryview(records)[position + BATCH_HEAD.size : end]
        last_delta = BATCH_BODY.unpack_from(body)[1]
        found.append(ReadBatch(base_offset, base_offset + last_delta + 1, crc32c(body) == checksum))
        position = end
    return found


def record_of(offset_delta: int, value: bytes) -> bytes:
    # attributes, timestamp delta, offset delta, no key, value, no headers
    body = b"\0" + varint(0) + varint(offset_delta) + varint(-1) + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    return unsigned_varint((value << 1) ^ (value >> 63))


def _payload(size: int, source: random.Random) -> bytes:
    text = ""
    while len(text) < size:
        number, share, salt = source.randrange(10**9), source.random() * 100, source.getrandbits(32)
        first, second = source.choice(WORDS), source.choice(WORDS)
        text += f'{{"id":{number},"{first}":{share:.4f},"k":"{second}","u":"{salt:08x}"}}'
    return text[:size].encode()

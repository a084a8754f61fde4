"""Mutated record batches: each is refused with a KafkaError or accepted and then sound; none costs much memory.

OTTLA_FUZZ_ROUNDS sets how many mutations are tried (the default takes a few seconds); a failure prints its seed.
"""

import contextlib
import os
import random
import resource
import struct

import pytest
from crc32c import crc32c

from ottla.base.errors import KafkaError
from ottla.protocol.batches import (
    BatchHeader,
    build_batch,
    check_produced_batch,
    is_crc_valid,
    read_batch_header,
    read_records,
    recompress,
)
from ottla.protocol.compression import CODEC_NAMES, compress, decompress
from ottla.protocol.records import Record

ROUNDS = int(os.environ.get("OTTLA_FUZZ_ROUNDS", "1500"))
NOW = 1_790_000_000_000
MESSAGE_BYTES_MAX = 100_000
MEMORY_GROWTH_BYTES_MAX = 160 << 20
HEADER_BYTES = 61
EDGES = [0, 1, 2, 5, 0x7F, 0x80, 0xFE, 0xFF]
EDGE_WORDS = [-1, 0, 1, -2, 2**31 - 1, -(2**31), 60, 61, 2**30]


def some_records(chance: random.Random) -> list[Record]:
    return [
        Record(
            -1,
            NOW + chance.randrange(-1000, 1000),
            chance.choice([None, b"", b"key", chance.randbytes(200)]),
            chance.choice([None, b"", b"value", chance.randbytes(300)]),
            chance.choice([(), (("name", b"value"),), (("", None), ("other", b""))]),
        )
        for _ in range(chance.randrange(1, 12))
    ]


def mutate(data: bytearray, chance: random.Random, start: int = 0) -> None:
    """Change a few bytes: flip, overwrite with an edge value, cut, repeat or insert."""
    for _ in range(chance.randrange(1, 4)):
        position = chance.randrange(start, max(len(data), start + 1))
        kind = chance.randrange(6)
        if kind == 0 and position < len(data):
            data[position] ^= 1 << chance.randrange(8)
        elif kind == 1 and position < len(data):
            data[position] = chance.choice(EDGES)
        elif kind == 2:
            data[position : position + 4] = struct.pack(">i", chance.choice(EDGE_WORDS))
        elif kind == 3:
            del data[position : position + chance.randrange(1, 20)]
        elif kind == 4:
            data[position:position] = data[position : position + chance.randrange(1, 20)]
        else:
            data[position:position] = chance.randbytes(chance.randrange(1, 10))


def mend(batch: bytearray) -> None:
    """Make length and checksum right again, so that the mutation reaches the deeper checks."""
    if len(batch) >= HEADER_BYTES:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))


def mutated_batch(codec: int, chance: random.Random) -> bytearray:
    batch = build_batch(some_records(chance), codec=codec)
    place = chance.randrange(3)
    if place == 0:  # anywhere, checksum included
        mutate(batch, chance)
    elif place == 1:  # the header or the compressed bytes, under a right checksum
        mutate(batch, chance, 21)
        mend(batch)
    else:  # the records, before they are compressed
        payload = bytearray(decompress(codec, batch[HEADER_BYTES:], 1 << 20))
        mutate(payload, chance)
        batch[HEADER_BYTES:] = compress(codec, payload)
        mend(batch)
    return batch


def check(batch: bytearray) -> BatchHeader | None:
    try:
        return check_produced_batch(
            memoryview(batch),
            is_compacted=len(batch) % 2 == 0,
            message_bytes_max=MESSAGE_BYTES_MAX,
            is_log_append_time=len(batch) % 3 == 0,
            timestamp_min=NOW - 10_000,
            timestamp_max=NOW + 10_000,
        )
    except KafkaError:
        return None


def assert_sound(batch: bytearray, header: BatchHeader) -> None:
    """An accepted batch says the same in its header, its bytes and its records."""
    stored = read_batch_header(batch, 0)
    assert is_crc_valid(batch, 0, stored)
    assert stored.batch_bytes == len(batch) == header.batch_bytes
    assert (stored.crc, stored.attributes) == (header.crc, header.attributes)
    assert (stored.max_timestamp, stored.base_offset) == (header.max_timestamp, 0)
    records = list(read_records(batch))
    assert [record.offset for record in records] == list(range(header.record_count))
    assert header.last_offset == header.record_count - 1
    again = recompress(batch, 0)
    assert [record[2:] for record in read_records(again)] == [record[2:] for record in records]


def read_anyway(batch: bytearray) -> None:
    """Followers and tools meet batches that no check has seen: reading them may fail, but only in one way."""
    with contextlib.suppress(KafkaError):
        list(read_records(batch))
        recompress(batch, 1)


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_a_mutated_batch_is_refused_or_sound(codec: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accepted = 0
    for seed in range(ROUNDS):
        batch = mutated_batch(codec, random.Random(seed * 5 + codec))
        original = bytes(batch)
        try:
            header = check(batch)
            if header is None:
                read_anyway(batch)
            else:
                accepted += 1
                assert_sound(batch, header)
        except BaseException:
            print(f"seed {seed}, codec {codec}, batch {original.hex()}")
            raise
    assert 0 < accepted < ROUNDS
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown_bytes < MEMORY_GROWTH_BYTES_MAX


@pytest.mark.parametrize("codec", range(1, 5), ids=CODEC_NAMES[1:])
def test_random_bytes_are_never_more_than_an_error(codec: int) -> None:
    chance = random.Random(codec)
    for _ in range(ROUNDS):
        data = chance.randbytes(chance.randrange(200))
        with contextlib.suppress(KafkaError):
            assert len(decompress(codec, data, 1 << 20)) <= 1 << 20

"""Bytes from strangers: whatever comes, decoding gives a message or a ProtocolError, soon and in little memory.

Valid frames of every message and version are mutated at random (seeded: the same run every time), random bytes are
thrown in, and a list of hand-made nasty frames is tried one by one.
"""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.apis import ALL_APIS, APIS, Api
from ottla.protocol.codec import ProtocolError, decode, decode_whole, encode
from ottla.protocol.headers import decode_request_header
from ottla.protocol.primitives import ITEMS_MAX, uvarint
from ottla.protocol.schema import Type, fields_in, layout_of

MUTATIONS_PER_VERSION = 40
# Hostile lengths, counts, tags and varints.
SPITEFUL = [
    *(struct.pack(">i", value) for value in (2**31 - 1, -(2**31), -1, -2, 2**30, 100_000_000, 65_536)),
    *(struct.pack(">h", value) for value in (2**15 - 1, -(2**15), -1, -2, 255)),
    *(uvarint(value) for value in (0, 127, 128, 16_384, 2**31 - 1, 2**31, 2**32 - 1)),
    b"\xff" * 5,
    b"\xff" * 6,
    b"\x80" * 9 + b"\x01",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\x00" * 16,
]
EACH = pytest.mark.parametrize("api", ALL_APIS.values(), ids=lambda api: api.name)


@EACH
def test_mutated_frames_give_a_message_or_a_protocol_error(api: Api) -> None:
    for cls, version in classes_and_versions(api):
        chance = random.Random(f"{cls.__name__} {version}")
        for _ in range(MUTATIONS_PER_VERSION):
            frame = bytearray(encode(sample(cls, version, chance), version))
            for _ in range(chance.choice((1, 1, 1, 2, 5))):
                mutate(frame, chance)
            check_decoding(cls, version, bytes(frame))


@EACH
def test_frames_cut_short_anywhere_are_refused(api: Api) -> None:
    for cls, version in classes_and_versions(api):
        frame = bytes(encode(sample(cls, version, random.Random(1)), version))
        for length in range(0, len(frame), 1 + len(frame) // 60):
            with pytest.raises(ProtocolError):
                decode(cls, version, memoryview(frame[:length]))


@settings(max_examples=300, derandomize=True, database=None)
@given(st.data(), st.binary(max_size=200))
def test_random_bytes_give_a_message_or_a_protocol_error(data: st.DataObject, frame: bytes) -> None:
    api = data.draw(st.sampled_from(list(ALL_APIS.values())))
    cls, version = data.draw(st.sampled_from(list(classes_and_versions(api))))
    check_decoding(cls, version, frame)


@settings(max_examples=300, derandomize=True, database=None)
@given(st.binary(max_size=60))
def test_random_request_headers_are_read_or_refused(frame: bytes) -> None:
    try:
        header = decode_request_header(memoryview(frame))
    except ProtocolError:
        return
    assert 10 <= header.body_position <= len(frame)


FETCH_HEAD = struct.pack(">iiiib", -1, 500, 1, 2**31 - 1, 0)
NASTY = {
    "metadata: 2^31-1 topics": (3, 1, struct.pack(">i", 2**31 - 1)),
    "metadata: -2 topics": (3, 1, struct.pack(">i", -2)),
    "metadata: null topics in v0": (3, 0, struct.pack(">i", -1)),
    "metadata: topic name of 32767 bytes that are not there": (3, 1, struct.pack(">ih", 1, 32_767) + b"x" * 100),
    "metadata: topic name of length -2": (3, 1, struct.pack(">ih", 1, -2)),
    "metadata: null topic name before v10": (3, 1, struct.pack(">ih", 1, -1)),
    "metadata: bad UTF-8": (3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    "metadata: 2^32-2 compact topics": (3, 9, b"\xff\xff\xff\xff\x0f\x00\x00\x00\x00"),
    "metadata: varint of 6 bytes": (3, 9, b"\xff\xff\xff\xff\xff\x01"),
    "metadata: varint that never ends": (3, 9, b"\x80" * 1_000),
    "metadata: compact string past the end": (3, 9, b"\x02\x7fabc"),
    "metadata: 2^32-1 tagged fields": (3, 9, b"\x01\x00\x00\x00\xff\xff\xff\xff\x0f"),
    "metadata: tagged field of 2^32-1 bytes": (3, 9, b"\x01\x00\x00\x00\x01\x00\xff\xff\xff\xff\x0f"),
    "metadata: the same tag twice": (3, 9, b"\x01\x00\x00\x00\x02\x07\x00\x07\x00"),
    "produce: 2^31-1 partitions in a topic": (0, 7, struct.pack(">hhiihi", -1, -1, 1, 1, 0, 2**31 - 1)),
    "produce: records of 2^31-1 bytes": (0, 7, struct.pack(">hhiihiii", -1, -1, 1, 1, 0, 1, 0, 2**31 - 1)),
    "produce: records of -2 bytes": (0, 7, struct.pack(">hhiihiii", -1, -1, 1, 1, 0, 1, 0, -2)),
    "produce: compact records of 2^32-2 bytes": (0, 9, b"\0\0\1\0\0\0\1\2\2t\2\0\0\0\0\xff\xff\xff\xff\x0f"),
    "fetch: counts inside counts": (1, 4, FETCH_HEAD + struct.pack(">ih", 1, 0) + struct.pack(">i", 2**28) * 20),
    "fetch: 2^28 forgotten topics": (1, 7, struct.pack(">iiiibiiii", -1, 0, 0, 0, 0, 0, -1, 0, 2**28)),
    "create topics: a million topics of nothing": (19, 5, uvarint(1_000_001) + b"\x00" * 1_000),
    "create topics: null topics": (19, 2, struct.pack(">iib", -1, 1_000, 1)),
    "join group: protocol metadata of 2^31-1 bytes": (11, 0, bytes(10) + struct.pack(">ihi", 1, 0, 2**31 - 1)),
    "describe topic partitions: cursor marker -2": (75, 0, b"\x01\x00\x00\x07\xd0\xfe"),
    "nothing at all": (1, 4, b""),
}


@pytest.mark.parametrize(("key", "version", "frame"), NASTY.values(), ids=NASTY.keys())
def test_nasty_frames_are_refused_soon_and_without_memory(key: int, version: int, frame: bytes) -> None:
    cls = APIS[key].request
    with pytest.raises(ProtocolError):
        decode(cls, version, memoryview(frame))  # compiles the decoder, which takes memory of its own
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(ProtocolError) as caught:
            decode_whole(cls, version, memoryview(frame))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{cls.__name__} v{version}")
    assert peak_bytes < 50_000
    assert time.process_time() - began < 0.1


def test_a_frame_of_the_smallest_items_takes_bounded_memory_and_time() -> None:
    """The most objects for the fewest bytes: topics without a name, two bytes each."""
    count = ITEMS_MAX + 1
    frame = memoryview(uvarint(count + 1) + b"\x01\x00" * count + b"\x01\x00\x00\x00")
    began = time.process_time()
    with pytest.raises(ProtocolError, match="more items than one message may have"):
        decode(APIS[3].request, 9, frame)
    assert time.process_time() - began < 0.1
    allowed = memoryview(uvarint(ITEMS_MAX // 10 + 1) + b"\x01\x00" * (ITEMS_MAX // 10) + b"\x01\x00\x00\x00")
    message = decode_whole(APIS[3].request, 9, allowed)
    assert len(message.topics) == ITEMS_MAX // 10


def test_a_thousand_tagged_fields_are_skipped_and_one_more_is_refused() -> None:
    start = b"\x01\x00\x00\x00"
    fields = [uvarint(tag) + b"\x00" for tag in range(10, 1_011)]
    decode_whole(APIS[3].request, 9, memoryview(start + uvarint(1_000) + b"".join(fields[:1_000])))
    with pytest.raises(ProtocolError, match="1001 tagged fields"):
        decode_whole(APIS[3].request, 9, memoryview(start + uvarint(1_001) + b"".join(fields)))


def classes_and_versions(api: Api) -> Iterator[tuple[Any, int]]:
    for cls in (api.request, api.response):
        for version in range(layout_of(cls).min_version, layout_of(cls).max_version + 1):
            yield cls, version


def check_decoding(cls: Any, version: int, frame: bytes) -> None:
    """What could be decoded must survive another round trip; the rest must be a ProtocolError and nothing else."""
    try:
        message, position = decode(cls, version, memoryview(frame))
    except ProtocolError:
        return
    assert 0 <= position <= len(frame)
    again = bytes(encode(message, version))
    assert bytes(encode(decode_whole(cls, version, memoryview(again)), version)) == again


def mutate(frame: bytearray, chance: random.Random) -> None:
    position = chance.randrange(len(frame) + 1)
    match chance.randrange(6):
        case 0:
            frame[position : position + 1] = chance.randbytes(1)
        case 1:
            spite = chance.choice(SPITEFUL)
            frame[position : position + len(spite)] = spite
        case 2:
            frame[position:position] = chance.choice(SPITEFUL)
        case 3:
            del frame[position : position + chance.randrange(1, 9)]
        case 4:
            del frame[position:]
        case _:
            piece = frame[position : position + chance.randrange(1, 30)]
            frame[position:position] = piece


def sample(cls: Any, version: int, chance: random.Random) -> Any:
    values = {field.name: value(field.type, version, chance) for field in fields_in(cls, version)}
    for field in fields_in(cls, version):
        if field.nullable and chance.random() < 0.2:
            values[field.name] = None
    return cls(**values)


def value(type_: Type, version: int, chance: random.Random) -> Any:
    match type_.kind:
        case "struct":
            return sample(type_.struct_class, version, chance)
        case "array":
            return [value(type_.array_item, version, chance) for _ in range(chance.choice((0, 1, 1, 2)))]
        case "string":
            return chance.choice(("", "topic", "Ω", "x" * 130))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 1, 61, 140)))
        case "uuid":
            return UUID(int=chance.getrandbits(128))
        case "bool":
            return chance.random() < 0.5
        case kind:
            return chance.choice((0, 1, 100)) if kind == "int8" or kind.startswith("u") else chance.choice((-1, 0, 77))

"""The codec on small messages of our own: every kind of field, every way in which bytes can be wrong."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from ottla.base.file_range import FileRange
from ottla.protocol import primitives
from ottla.protocol.codec import (
    Encoded,
    ProtocolError,
    decode,
    decode_response,
    decode_whole,
    decoder_for,
    encode,
    encode_into,
    encoder_for,
    generated_source,
)
from ottla.protocol.primitives import ANSWER_ITEMS_MAX, ITEMS_MAX, STRING_BYTES_MAX, read_uvarint, uvarint
from ottla.protocol.schema import (
    ZERO_UUID,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    UInt16,
    UInt32,
    message,
    part,
    wire,
)

TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


@part
class Inner:
    number: Int32 = -1
    text: str = ""


@message(versions="0-2", flexible=1)
class Numbers:
    int8: Int8 = 0
    int16: Int16 = 0
    uint16: UInt16 = 0
    int32: Int32 = 0
    uint32: UInt32 = 0
    int64: Int64 = 0
    float64: Float64 = 0.0
    flag: bool = False
    id: UUID = ZERO_UUID


@message(versions="0-2", flexible=1)
class Texts:
    text: str
    nullable_text: str | None = wire(nullable=0, default=None)
    data: bytes = b""
    nullable_data: bytes | None = wire(nullable=0, default=None)


@message(versions="0-2", flexible=1)
class Arrays:
    before: Int16 = 0
    numbers: list[Int32] = wire(default_factory=list)
    alone: list[Int64] = wire(default_factory=list)
    texts: list[str] = wire(default_factory=list)
    ids: list[UUID] = wire(default_factory=list)
    flags: list[bool] = wire(default_factory=list)
    inners: list[Inner] = wire(default_factory=list)
    nullable: list[Inner] | None = wire(nullable=2, default_factory=list)
    nested: list[list[Int8]] = wire(default_factory=list)


@message(versions="0-2", flexible=1)
class Structs:
    plain: Inner
    nullable: Inner | None = wire(nullable=0, default=None)
    after: Int8 = 0


@message(versions="1-2", flexible=1)
class Tagged:
    first: Int32 = 0
    number: Int32 = wire(tag=0, default=-1)
    text: str | None = wire(tag=1, nullable=1, default=None)
    inner: Inner | None = wire(tag=3, default=None)
    nullable_inner: Inner | None = wire(tag=4, nullable=1, default=None)
    numbers: list[Int32] = wire(tag=200, default_factory=list)
    later: bool = wire(since=2, tag=5, default=False)


@message(versions="0-3", flexible=2)
class Versions:
    always: Int16
    middle: Int16 = wire(since=1, until=2, default=-7)
    late: list[Int16] = wire(since=3, default_factory=list)
    name: str | None = wire(nullable=2, default="")


@message(versions="0-1", flexible=1)
class Batches:
    index: Int32
    records: Records | None = wire(nullable=0, default=None)
    after: Int16 = 9


class Owner:
    def release_range(self) -> None:
        raise AssertionError("the codec must not release ranges")


def sent(text: str) -> memoryview:
    return memoryview(bytes.fromhex(text))


# Round trips

NUMBERS = Numbers(
    int8=-128, int16=-2, uint16=65_535, int32=-3, uint32=2**32 - 1, int64=-(2**63), float64=1.5, flag=True, id=TOPIC_ID
)
ROUND_TRIPS = [
    NUMBERS,
    Texts(text="ottla Ω", nullable_text="", data=b"\x00\xff", nullable_data=b""),
    Texts(text="x" * 127, data=b"y" * 16_384),
    Texts(text="x" * STRING_BYTES_MAX, nullable_text="ü" * 300, nullable_data=b"z" * 2_097_152),
    Arrays(),
    Arrays(before=5, numbers=[1], texts=["a", ""], ids=[TOPIC_ID, ZERO_UUID], flags=[True, False], nested=[[], [1, 2]]),
    Arrays(inners=[Inner(number=number, text="t" * number) for number in range(130)], nullable=[Inner()]),
    Structs(plain=Inner(number=1, text="a")),
    Structs(plain=Inner(), nullable=Inner(number=2, text="b"), after=3),
    Tagged(),
    Tagged(first=1, number=2, text="", inner=Inner(number=1), nullable_inner=Inner(), numbers=[1, 2]),
    Tagged(numbers=list(range(200))),
]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("given", ROUND_TRIPS, ids=lambda given: type(given).__name__)
def test_what_is_encoded_is_decoded(given: Any, version: int) -> None:
    if isinstance(given, Tagged) and version == 0:
        return
    encoded = memoryview(bytes(encode(given, version)))
    assert decode(type(given), version, encoded) == (given, len(encoded))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 125, 126, 127, 128, 300, 20_000])
def test_arrays_of_numbers_of_every_length_class(count: int, version: int) -> None:
    given = Arrays(before=-3, numbers=list(range(count)), alone=list(range(count)))
    assert decode_whole(Arrays, version, memoryview(encode(given, version))) == given


def test_bytes_are_as_the_protocol_guide_says() -> None:
    numbers = f"80 fffe ffff fffffffd ffffffff 8000000000000000 3ff8000000000000 01 {TOPIC_ID.hex}"
    assert encode(NUMBERS, 0) == sent(numbers)
    assert encode(NUMBERS, 1) == sent(numbers + "00")
    texts = Texts(text="ab", data=b"\x01")
    assert encode(texts, 0) == sent("0002 6162 ffff 00000001 01 ffffffff")
    assert encode(texts, 1) == sent("03 6162 00 02 01 00 00")
    structs = Structs(plain=Inner(number=1), nullable=Inner(number=2))
    assert encode(structs, 1) == sent("00000001 01 00 01 00000002 01 00 00 00")
    assert encode(Structs(plain=Inner(number=1)), 0) == sent("00000001 0000 ff 00")


def test_tagged_fields_are_sent_in_ascending_order_and_only_when_set() -> None:
    null_struct = "04 01 00"  # left out it would be a struct of defaults
    assert encode(Tagged(first=1), 1) == sent(f"00000001 01 {null_struct}")
    given = Tagged(first=1, number=2, nullable_inner=Inner(number=3), numbers=[7])
    assert encode(given, 1) == sent("00000001 03  00 04 00000002  04 07 01 00000003 01 00  c801 05 02 00000007")


def test_a_tagged_struct_of_defaults_is_left_out() -> None:
    assert encode(Tagged(inner=Inner()), 1) == encode(Tagged(), 1)


def test_a_tagged_field_of_a_later_version_is_left_out() -> None:
    assert encode(Tagged(later=True), 1) == encode(Tagged(), 1)
    assert encode(Tagged(later=True), 2) != encode(Tagged(), 2)


def test_fields_of_other_versions_are_left_out_and_read_as_defaults() -> None:
    given = Versions(always=1, middle=2, late=[3], name="n")
    for version, expected in [
        (0, Versions(always=1, name="n")),
        (1, Versions(always=1, middle=2, name="n")),
        (3, Versions(always=1, late=[3], name="n")),
    ]:
        assert decode_whole(Versions, version, memoryview(encode(given, version))) == expected


def test_the_lists_of_two_decoded_messages_are_not_shared() -> None:
    buffer = memoryview(encode(Versions(always=1), 0))
    first, second = decode_whole(Versions, 0, buffer), decode_whole(Versions, 0, buffer)
    first.late.append(1)
    assert second.late == []


def test_unknown_tagged_fields_are_skipped() -> None:
    assert decode_whole(Tagged, 1, sent("00000001 02 09 03 aabbcc 0a 00")) == Tagged(first=1)
    assert decode_whole(Texts, 1, sent("0261 00 01 00 01 07 01 ff")) == Texts(text="a")


def test_any_byte_but_zero_is_true() -> None:
    assert decode_whole(Numbers, 0, memoryview(bytes(encode(Numbers(), 0))[:-17] + b"\x02" + bytes(16))).flag is True


def test_decoding_starts_at_a_position_and_tells_where_it_ended() -> None:
    buffer = memoryview(b"header" + encode(Texts(text="a"), 0) + b"rest")
    assert decode(Texts, 0, buffer, 6) == (Texts(text="a"), len(buffer) - 4)


# Records


def test_records_are_a_slice_of_the_buffer_and_bytes_are_a_copy() -> None:
    buffer = bytearray(encode(Batches(index=1, records=b"abc"), 0))
    decoded = decode_whole(Batches, 0, memoryview(buffer))
    assert isinstance(decoded.records, memoryview)
    buffer[8:11] = b"xyz"
    assert bytes(decoded.records) == b"xyz"
    assert type(decode_whole(Texts, 0, memoryview(encode(Texts(text="", data=b"d"), 0))).data) is bytes


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("records", [None, b"", b"abc", bytearray(b"abc"), memoryview(b"abc"), b"r" * 200])
def test_records_may_be_any_bytes_or_null(records: Any, version: int) -> None:
    decoded = decode_whole(Batches, version, memoryview(encode(Batches(index=1, records=records), version)))
    assert decoded == Batches(index=1, records=records)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("length", [0, 3, 126, 127, 5_000_000])
def test_a_file_range_leaves_a_hole_of_its_length(length: int, version: int) -> None:
    range_ = FileRange(Owner(), 7, 100, length)
    encoded = encode(Batches(index=1, records=range_), version)
    [(position, hole)] = encoded.holes
    assert hole is range_
    assert encoded.total_bytes() == len(encoded) + length
    filled = encoded[:position] + bytes(length) + encoded[position:]
    assert decode_whole(Batches, version, memoryview(filled)) == Batches(index=1, records=bytes(length))


def test_a_message_without_ranges_has_no_holes() -> None:
    encoded = encode(Batches(index=1, records=b"abc"), 0)
    assert (encoded.holes, encoded.total_bytes()) == ([], len(encoded))


def test_a_message_can_be_appended_to_its_header() -> None:
    out = Encoded(b"head")
    out.holes = []
    range_ = FileRange(Owner(), 7, 100, 10)
    assert encode_into(out, Batches(index=1, records=range_), 0) is out
    assert out.holes == [(12, range_)]
    assert out == b"head" + encode(Batches(index=1, records=range_), 0)


# Bytes that are wrong

WRONG = [
    (Texts, 0, "0005 6162", "text", "5 bytes announced, 2 left"),
    (Texts, 0, "fffe", "text", "negative length -2"),
    (Texts, 0, "ffff", "text", "null in a field that cannot be null"),
    (Texts, 0, "0000 fffe", "nullable_text", "negative length -2"),
    (Texts, 0, "0002 c328", "text", "not UTF-8"),
    (Texts, 0, "0002 c0af", "text", "not UTF-8"),
    (Texts, 0, "0003 eda080", "text", "not UTF-8"),
    (Texts, 0, "0000 ffff 7fffffff", "data", "2147483647 bytes announced, 0 left"),
    (Texts, 0, "0000 ffff 80000000", "data", "negative length -2147483648"),
    (Texts, 0, "", "text", "the bytes end too early"),
    (Texts, 0, "00", "text", "the bytes end too early"),
    (Texts, 1, "", "text", "the bytes end too early"),
    (Texts, 1, "00", "text", "null in a field that cannot be null"),
    (Texts, 1, "04 6162", "text", "3 bytes announced, 2 left"),
    (Texts, 1, "80", "text", "the bytes end too early"),
    (Texts, 1, "ffffffff7f", "text", "varint above 32 bits"),
    (Texts, 1, "8080808010", "text", "varint above 32 bits"),
    (Texts, 1, "ffffffffff01", "text", "varint longer than 5 bytes"),
    (Texts, 1, "ffffffff0f", "text", "string of 4294967294 bytes, at most 32767 are allowed"),
    (Texts, 1, "818002", "text", "string of 32768 bytes, at most 32767 are allowed"),
    (Texts, 1, "01 00 ffffffff0f", "data", "4294967294 bytes announced, 0 left"),
    (Texts, 1, "01 00 01 00 e907", "tagged fields", "1001 tagged fields, at most 1000 are read"),
    (Texts, 1, "01 00 01 00 ffffffff0f", "tagged fields", "4294967295 tagged fields, at most 1000 are read"),
    (Texts, 1, "01 00 01 00 01 00 05 ff", "tagged fields", "5 bytes announced, 1 left"),
    (Texts, 1, "01 00 01 00 02 0700 0700", "tagged fields", "tag 7 comes twice"),
    (Texts, 1, "01 00 01 00 02 0700", "tagged fields", "the bytes end too early"),
    (Arrays, 0, "0000 7fffffff", "numbers", "2147483647 items of 4 or more bytes announced, 0 bytes left"),
    (Arrays, 0, "0000 fffffffe", "numbers", "negative length -2"),
    (Arrays, 0, "0000 ffffffff", "numbers", "null in a field that cannot be null"),
    (Arrays, 0, "0000 00000002 00000001", "numbers", "2 items of 4 or more bytes announced, 4 bytes left"),
    (Arrays, 0, "0000 00000000 00000000 00000003 000000", "texts", "3 items of 2 or more bytes"),
    (Arrays, 1, "0000 01 01 ffffffff0f 00", "texts", "4294967294 items of 1 or more bytes announced, 1 bytes"),
    (Arrays, 1, "0000 01 01 01 03" + " 00" * 17, "ids", "2 items of 16 or more bytes announced, 17 bytes left"),
    (Arrays, 1, "0000 01 01 01 01 01 02 00000001 09 00", "inners.text", "8 bytes announced, 1 left"),
    (Arrays, 1, "0000 01 01 01 01 01 01 00", "nullable", "null in a field that cannot be null"),
    (Arrays, 1, "0000 01 01 01 01 01 01 01 03 02 01", "nested", "the bytes end too early"),
    (Structs, 0, "00000001 0000 fe", "nullable", "negative length -2"),
    (Structs, 0, "00000001 0000 01 0000", "nullable.text", "the bytes end too early"),
    (Structs, 1, "00000001 01 01 00", "plain.tagged fields", "the bytes end too early"),
    (Tagged, 1, "00000001 01 00 03 000000", "number", "the bytes end too early"),
    (Tagged, 1, "00000001 01 00 03 00000000", "number", "tagged field is not as long as it says"),
    (Tagged, 1, "00000001 01 00 05 0000000000", "number", "tagged field is not as long as it says"),
    (Tagged, 1, "00000001 02 00 04 00000001 00 04 00000001", "tagged fields", "tag 0 comes twice"),
    (Tagged, 1, "00000001 01 01 03 08 6162636465666768", "text", "7 bytes announced, 2 left"),
    (Tagged, 1, "00000001 01 03 03 00000001", "inner.text", "the bytes end too early"),
    (Tagged, 1, "00000001 01 04 01 80", "nullable_inner", "negative length -128"),
    (Tagged, 1, "00000001 01 c801 05 ffffffff0f", "numbers", "4294967294 items of 4 or more bytes"),
]


@pytest.mark.parametrize(("cls", "version", "text", "field", "reason"), WRONG)
def test_wrong_bytes_are_refused_with_a_reason(cls: type, version: int, text: str, field: str, reason: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(cls, version, sent(text))
    told = str(caught.value)
    assert told.startswith(f"{cls.__name__} v{version}, ")
    assert reason in told
    assert field in told


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("given", ROUND_TRIPS, ids=lambda given: type(given).__name__)
def test_every_message_that_is_cut_short_is_refused(given: Any, version: int) -> None:
    if isinstance(given, Tagged) and version == 0:
        return
    encoded = bytes(encode(given, version))
    lengths = range(len(encoded)) if len(encoded) < 500 else [*range(200), *range(len(encoded) - 200, len(encoded))]
    for length in lengths:
        with pytest.raises(ProtocolError):
            decode(type(given), version, memoryview(encoded[:length]))


def test_a_position_past_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(Texts, 0, memoryview(b"abc"), 10)


def test_bytes_after_the_message_are_refused_when_it_must_fill_the_buffer() -> None:
    buffer = memoryview(encode(Texts(text="a"), 0) + b"xx")
    assert decode(Texts, 0, buffer)[0] == Texts(text="a")
    with pytest.raises(ProtocolError, match="Texts v0: 2 bytes follow the message"):
        decode_whole(Texts, 0, buffer)


def test_more_items_than_a_message_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    count = ITEMS_MAX // 2 + 1
    compact = uvarint(count + 1) + b"\x01" * count
    buffer = memoryview(b"\0\0" + b"\x01" + b"\x01" + compact + b"\x01" + compact)
    with pytest.raises(ProtocolError, match="more items than one message may have"):
        decode(Arrays, 1, buffer)


def test_a_response_may_have_more_partitions_than_a_request() -> None:
    """A broker that joins a cluster of 200,000 partitions is told of all of them at once."""
    count = ITEMS_MAX // 2 + 1
    compact = uvarint(count + 1) + b"\x01" * count
    rest = b"\x01" * 3 + b"\0"  # three empty arrays, no tagged fields
    buffer = memoryview(b"\0\0" + b"\x01" + b"\x01" + compact + b"\x01" + compact + rest)
    answer, position = decode_response(Arrays, 1, buffer)
    assert (len(answer.texts), len(answer.flags), position) == (count, count, len(buffer))
    monstrous = memoryview(b"\0\0" + b"\x01" + b"\x01" + uvarint(ANSWER_ITEMS_MAX + 2) + bytes(ANSWER_ITEMS_MAX + 1))
    with pytest.raises(ProtocolError, match="more items than one message may have"):
        decode_response(Arrays, 1, monstrous)


def test_tagged_fields_count_as_items_too() -> None:
    with pytest.raises(ProtocolError, match="items"):
        primitives.skip_tags(memoryview(b"\x00\x00"), 0, 2, 1, 0)


@pytest.mark.parametrize("version", [-1, 3, 99])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="Texts has versions 0-2, not"):
        decode(Texts, version, memoryview(b""))
    with pytest.raises(ProtocolError, match="Texts has versions 0-2, not"):
        encode(Texts(text=""), version)


# Messages that cannot be written

UNWRITABLE = [
    (Numbers(int8=128), 0, "Numbers v0"),
    (Numbers(int64=2**63), 0, "Numbers v0"),
    (Numbers(uint16=-1), 1, "Numbers v1"),
    (Numbers(int32="1"), 0, "Numbers v0"),  # type: ignore[arg-type]
    (Numbers(id=None), 0, "Numbers v0"),  # type: ignore[arg-type]
    (Texts(text=None), 0, "Texts v0, text"),  # type: ignore[arg-type]
    (Texts(text=b"a"), 0, "Texts v0, text"),  # type: ignore[arg-type]
    (Texts(text="x" * (STRING_BYTES_MAX + 1)), 0, "Texts v0"),
    (Texts(text="x" * (STRING_BYTES_MAX + 1)), 1, "Texts v1, text"),
    (Texts(text="\ud800"), 0, "Texts v0, text"),
    (Texts(text="", data=None), 0, "Texts v0, data"),  # type: ignore[arg-type]
    (Texts(text="", data="a"), 0, "Texts v0, data"),  # type: ignore[arg-type]
    (Arrays(texts=None), 0, "Arrays v0, texts"),  # type: ignore[arg-type]
    (Arrays(nullable=None), 1, "Arrays v1, nullable"),
    (Arrays(inners=[Inner(number=None)]), 1, "Arrays v1, inners."),  # type: ignore[arg-type]
    (Structs(plain=None), 0, "Structs v0, "),  # type: ignore[arg-type]
    (Versions(always=1, name=None), 1, "Versions v1, name"),
]


@pytest.mark.parametrize(("given", "version", "where"), UNWRITABLE)
def test_a_value_that_has_no_bytes_is_refused(given: Any, version: int, where: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        encode(given, version)
    assert str(caught.value).startswith(where)


# The machinery


def test_generated_functions_are_made_once() -> None:
    assert decoder_for(Texts, 0) is decoder_for(Texts, 0)
    assert encoder_for(Texts, 0) is encoder_for(Texts, 0)


def test_the_generated_source_can_be_read() -> None:
    text = generated_source(Numbers, 0)
    assert "def decode(buf, pos, room=1000000):" in text
    assert "def encode(m, out):" in text
    assert text.count("unpack") == 1, "all numbers are read by one call"


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**32 - 1])
def test_varints_of_every_length(value: int) -> None:
    written = uvarint(value)
    assert read_uvarint(memoryview(written + b"\xff"), 0) == (value, len(written))


def test_a_varint_may_be_longer_than_needed() -> None:
    assert read_uvarint(memoryview(b"\x81\x80\x80\x80\x00"), 0) == (1, 5)


def test_a_uuid_is_the_same_whether_kept_or_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitives, "CACHED_UUIDS_MAX", 2)
    for number in range(5):
        raw = struct.pack(">QQ", number, number)
        made = primitives.cache_uuid(raw)
        assert (made, hash(made), str(made)) == (UUID(bytes=raw), hash(UUID(bytes=raw)), str(UUID(bytes=raw)))
        assert made.bytes == raw
        assert repr(made) == repr(UUID(bytes=raw))
        assert len(primitives._uuids) <= 2

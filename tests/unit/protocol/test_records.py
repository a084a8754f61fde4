"""Records inside a batch: varints as Java reads them, the walk that checks them, reading and writing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import Error, KafkaError
from ottla.protocol.records import (
    INT64_MAX,
    RECORD_ERRORS_MAX,
    InvalidRecords,
    Limits,
    Record,
    RecordReader,
    check_records,
    read_varint,
    walk_records,
    write_record,
    write_varint,
)

ANY = 1 << 62
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL_BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=10), SMALL_BYTES), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(-1), st.integers(0, 2**45), SMALL_BYTES, SMALL_BYTES, HEADERS), min_size=1, max_size=20
)
RECORD = bytes.fromhex("16 00 00 00 01 0a 76616c7565 00")  # null key, value "value", no headers


def number(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def payload(records: list[Record], base_timestamp: int = 0) -> bytes:
    out = bytearray()
    for index, record in enumerate(records):
        write_record(out, record, index, record.timestamp - base_timestamp)
    return bytes(out)


def with_length(body: bytes) -> bytes:
    return number(len(body)) + body


def walk(data: bytes, count: int = 1, needs_keys: bool = False) -> tuple[int, bool]:
    return walk_records(data, count, -ANY, ANY, needs_keys)


# ---------------------------------------------------------------- varints


@given(INT64)
def test_any_long_comes_back_from_its_varint(value: int) -> None:
    data = number(value)
    assert len(data) <= 10
    assert read_varint(data, 0, 64) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1))
def test_any_int_comes_back_from_its_varint(value: int) -> None:
    data = b"xy" + number(value)
    assert len(data) <= 2 + 5
    assert read_varint(data, 2, 32) == (value, len(data))


@pytest.mark.parametrize(
    ("data", "bits", "value"),
    [
        ("00", 32, 0),
        ("01", 32, -1),
        ("02", 32, 1),
        ("8080808000", 32, 0),  # longer than needed
        ("8080808070", 32, 0),  # Java drops the bits past the 32nd
        ("ffffffff0f", 32, -(2**31)),
        ("feffffff0f", 32, 2**31 - 1),
        ("80808080808080808000", 64, 0),
        ("8080808080808080807e", 64, 0),  # and past the 64th
        ("80808080808080808001", 64, 2**62),
        ("ffffffffffffffffff01", 64, -(2**63)),
        ("feffffffffffffffff01", 64, 2**63 - 1),
    ],
)
def test_odd_varints_are_read_as_java_reads_them(data: str, bits: int, value: int) -> None:
    assert read_varint(bytes.fromhex(data), 0, bits) == (value, len(data) // 2)


@pytest.mark.parametrize(("data", "bits"), [("808080808000", 32), ("8080808080808080808000", 64)])
def test_a_varint_that_goes_on_too_long_is_refused(data: str, bits: int) -> None:
    with pytest.raises(KafkaError) as caught:
        read_varint(bytes.fromhex(data), 0, bits)
    assert caught.value.error is Error.INVALID_RECORD


# ---------------------------------------------------------------- reading, writing, walking


@given(RECORDS)
def test_what_was_written_passes_the_walk_and_is_read_back(records: list[Record]) -> None:
    data = payload(records)
    assert walk(data, len(records)) == (max(record.timestamp for record in records), False)
    reader = RecordReader(data, 500, 0)
    assert [reader.read_record() for _ in records] == [
        record._replace(offset=500 + index) for index, record in enumerate(records)
    ]
    assert reader.position == len(data)


def test_a_header_name_that_is_not_utf8_comes_back_unchanged() -> None:
    data = with_length(b"\x00\x00\x00\x01\x01\x02" + number(2) + b"\xff\xfe" + number(1) + b"v")
    record = RecordReader(data, 0, 0).read_record()
    out = bytearray()
    write_record(out, record, 0, 0)
    assert bytes(out) == data


def test_long_fields_and_many_records_pass() -> None:
    records = [Record(-1, 10**12 + index * 1000, b"k" * 20_000, b"v" * 70_000) for index in range(20)]
    assert walk(payload(records, 10**12), 20) == (19_000, False)
    small = [Record(-1, 0, None, b"")] * 20_000
    assert walk(payload(small), 20_000) == (0, False)


@pytest.mark.parametrize("field", ["key", "value", "header value"])
def test_any_negative_length_means_null_as_in_kafka(field: str) -> None:
    null = number(-2)
    key = null if field == "key" else number(-1)
    value = null if field == "value" else number(-1)
    headers = number(1) + number(1) + b"h" + null if field == "header value" else number(0)
    data = with_length(b"\x00\x00\x00" + key + value + headers)
    assert walk(data) == (0, False)
    record = RecordReader(data, 0, 0).read_record()
    assert (record.key, record.value) == (None, None)


MALFORMED = {
    "nothing": b"",
    "a length and no more": b"\x16",
    "a length varint that is cut off": b"\xff",
    "a length past the end": number(1000) + RECORD[1:],
    "a length one too long": number(12) + RECORD[1:],
    "a length one too short": number(10) + RECORD[1:],
    "a length of zero": number(0) + RECORD[1:],
    "a negative length": number(-1) + RECORD[1:],
    "the largest length": number(2**31 - 1) + RECORD[1:],
    "a spare byte inside the record": with_length(RECORD[1:] + b"\x00"),
    "a spare byte after the record": RECORD + b"\x00",
    "a second record": RECORD + RECORD,
    "an offset delta of one": with_length(b"\x00\x00\x02\x01\x01\x00"),
    "an offset delta of minus one": with_length(b"\x00\x00\x01\x01\x01\x00"),
    "an offset delta of six bytes": with_length(b"\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01\x00"),
    "a timestamp delta of eleven bytes": with_length(b"\x00" + b"\x80" * 10 + b"\x00\x00\x01\x01\x00"),
    "a key past the end": with_length(b"\x00\x00\x00" + number(100) + b"k" + b"\x01\x00"),
    "a key of 2^31-1 bytes": with_length(b"\x00\x00\x00" + number(2**31 - 1) + b"k" + b"\x01\x00"),
    "a value past the end": with_length(b"\x00\x00\x00\x01" + number(100) + b"v\x00"),
    "a value that swallows the header count": with_length(b"\x00\x00\x00\x01" + number(2) + b"v\x00"),
    "no value": with_length(b"\x00\x00\x00\x01"),
    "no header count": with_length(b"\x00\x00\x00\x01\x01"),
    "a negative header count": with_length(b"\x00\x00\x00\x01\x01" + number(-1)),
    "2^30 headers": with_length(b"\x00\x00\x00\x01\x01" + number(2**30)),
    "one header that is not there": with_length(b"\x00\x00\x00\x01\x01" + number(1)),
    "a header without key": with_length(b"\x00\x00\x00\x01\x01" + number(1) + number(-1) + number(-1)),
    "a header key past the end": with_length(b"\x00\x00\x00\x01\x01" + number(1) + number(99) + b"h" + number(-1)),
    "a header value past the end": with_length(b"\x00\x00\x00\x01\x01" + number(1) + number(1) + b"h" + number(99)),
}
# What is wrong with these shows only beside other records.
SOUND_TAKEN_ALONE = {
    "a spare byte after the record",
    "a second record",
    "an offset delta of one",
    "an offset delta of minus one",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_records_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        walk(data)
    assert caught.value.error is Error.INVALID_RECORD
    assert caught.value.message


@pytest.mark.parametrize("name", sorted(MALFORMED.keys() - SOUND_TAKEN_ALONE))
def test_the_reader_refuses_malformed_records_too(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        RecordReader(MALFORMED[name], 0, 0).read_record()
    assert caught.value.error is Error.INVALID_RECORD


def test_fewer_or_more_records_than_announced_are_refused() -> None:
    data = payload([Record(-1, 0, None, b"x")] * 3)
    walk(data, 3)
    for count in (1, 2, 4, 2**31 - 1):
        with pytest.raises(KafkaError):
            walk(data, count)


# ---------------------------------------------------------------- rules of a topic


def test_the_walk_reports_missing_keys_only_where_they_are_needed() -> None:
    keyed = payload([Record(-1, 0, b"k", b"v"), Record(-1, 0, b"", b"v")])
    unkeyed = payload([Record(-1, 0, b"k", b"v"), Record(-1, 0, None, b"v")])
    assert walk(keyed, 2, needs_keys=True) == (0, False)
    assert walk(unkeyed, 2, needs_keys=False) == (0, False)
    assert walk(unkeyed, 2, needs_keys=True) == (0, True)


def test_the_walk_reports_timestamps_out_of_range() -> None:
    data = payload([Record(-1, time, None, b"v") for time in (50, -50, 20)])
    assert walk_records(data, 3, -50, 50, False) == (50, False)
    assert walk_records(data, 3, -49, 50, False) == (50, True)
    assert walk_records(data, 3, -50, 49, False) == (50, True)
    assert walk_records(data, 3, -INT64_MAX, INT64_MAX, False) == (50, False)


def test_records_without_key_are_listed_with_kafkas_words() -> None:
    data = payload([Record(-1, 0, b"k", b"v"), Record(-1, 0, None, b"v"), Record(-1, 0, None, b"v")])
    with pytest.raises(InvalidRecords) as caught:
        check_records(data, 3, 0, Limits("orders-0", True, -ANY, ANY))
    problem = "Compacted topic cannot accept message without key in topic partition orders-0"
    assert caught.value.error is Error.INVALID_RECORD
    assert caught.value.record_errors == [(1, problem), (2, problem)]
    assert caught.value.message == (
        "One or more records have been rejected due to 2 record errors in total, "
        "and only showing the first three errors at most: "
        f"[RecordError(batchIndex=1, message='{problem}'), RecordError(batchIndex=2, message='{problem}')]"
    )


def test_timestamps_out_of_range_are_listed_and_decide_the_error_code() -> None:
    data = payload([Record(-1, 0, None, b"v"), Record(-1, 900, b"k", b"v"), Record(-1, -1, b"k", b"v")])
    with pytest.raises(InvalidRecords) as caught:
        check_records(data, 3, 0, Limits("orders-0", True, 0, 500))
    assert caught.value.error is Error.INVALID_TIMESTAMP
    assert caught.value.message == "One or more records have been rejected due to invalid timestamp"
    assert [index for index, _ in caught.value.record_errors] == [0, 1]
    assert caught.value.record_errors[1][1] == (
        "Timestamp 900 of message with offset 1 is out of range. The timestamp should be within [0, 500]"
    )


def test_a_record_without_timestamp_is_never_out_of_range() -> None:
    check_records(payload([Record(-1, -1, None, b"v")]), 1, 0, Limits("orders-0", False, 1000, 2000))


def test_the_list_of_bad_records_is_bounded_but_their_number_is_reported() -> None:
    count = RECORD_ERRORS_MAX + 5
    with pytest.raises(InvalidRecords, match=f"{count} record errors in total") as caught:
        check_records(payload([Record(-1, 0, None, b"")] * count), count, 0, Limits("orders-0", True, -ANY, ANY))
    assert len(caught.value.record_errors) == RECORD_ERRORS_MAX


def test_a_reader_reports_its_position() -> None:
    reader = RecordReader(RECORD, 7, 0)
    reader.read_record()
    assert repr(reader) == "<RecordReader at 12 of 12 bytes, base offset 7>"

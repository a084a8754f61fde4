"""Record batches: header, checksum, the checks on produce as Kafka makes them, building, reading, recompressing."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.base.errors import Error, KafkaError
from ottla.protocol.batches import (
    DECOMPRESSED_BYTES_CEILING,
    DECOMPRESSED_BYTES_FLOOR,
    HEADER_BYTES,
    BatchHeader,
    build_batch,
    check_produced_batch,
    control_record_type,
    decompressed_bytes_max,
    is_crc_valid,
    read_batch_header,
    read_records,
    recompress,
    write_log_append_time,
    write_offsets,
)
from ottla.protocol.compression import compress
from ottla.protocol.records import InvalidRecords, Record

NOW = 1_790_000_000_000
DAY = 86_400_000
CODECS = range(5)
HEADERS = (("trace", b"1234"), ("empty", b""), ("null", None))
RECORDS = [
    Record(0, NOW, b"key", b"value", HEADERS),
    Record(1, NOW + 5, None, b"no key"),
    Record(2, NOW + 3, b"no value", None),
    Record(3, NOW - 7, b"", b"x" * 1000),
]
# length 11, attributes, timestamp delta 0, offset delta 0, null key, "value", no headers
FIRST = bytes.fromhex("16 00 00 00 01 0a 76616c7565 00")
SECOND = bytes.fromhex("16 00 00 02 01 0a 76616c7565 00")


def raw_batch(payload: bytes = FIRST + SECOND, /, **changes: int) -> bytearray:
    """A batch whose header says whatever the test wants; the checksum is right unless it is given."""
    count = changes.get("count", 2)
    covered = struct.pack(
        ">hiqqqhii",
        changes.get("attributes", 0),
        changes.get("last_offset_delta", count - 1),
        changes.get("base_timestamp", NOW),
        changes.get("max_timestamp", NOW),
        changes.get("producer_id", -1),
        changes.get("producer_epoch", -1),
        changes.get("base_sequence", -1),
        count,
    )
    covered += payload
    start = struct.pack(
        ">qiibI",
        changes.get("base_offset", 0),
        changes.get("length", len(covered) + 9),
        changes.get("leader_epoch", -1),
        changes.get("magic", 2),
        changes.get("crc", crc32c(covered)),
    )
    return bytearray(start + covered)


def check(batch: bytes | bytearray, **changes: Any) -> BatchHeader:
    rules = {"is_compacted": False, "message_bytes_max": 1 << 20, "partition": "orders-0", **changes}
    return check_produced_batch(memoryview(batch), **rules)


# ---------------------------------------------------------------- header


def test_a_header_is_read_from_its_61_bytes_alone() -> None:
    batch = build_batch(
        RECORDS,
        codec=4,
        base_offset=0,
        leader_epoch=9,
        producer_id=77,
        producer_epoch=3,
        base_sequence=50,
        is_transactional=True,
    )
    header = read_batch_header(b"12345" + bytes(batch[:HEADER_BYTES]), 5)
    assert header.base_offset == 0
    assert header.batch_bytes == len(batch)
    assert (header.leader_epoch, header.magic, header.codec) == (9, 2, 4)
    assert (header.last_offset_delta, header.last_offset, header.next_offset) == (3, 3, 4)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 5)
    assert (header.producer_id, header.producer_epoch) == (77, 3)
    assert (header.base_sequence, header.last_sequence, header.record_count) == (50, 53, 4)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert repr(header) == (
        f"<BatchHeader offsets 0-3, 4 records, {len(batch)} bytes, attributes 0x14, producer 77/3 sequence 50>"
    )


def test_the_last_sequence_wraps_around_to_zero() -> None:
    batch = build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_batch_header(batch).last_sequence == 1
    assert read_batch_header(build_batch(RECORDS)).last_sequence == -1


@pytest.mark.parametrize("size", [0, 11, 60])
def test_a_header_that_is_cut_off_is_corrupt(size: int) -> None:
    with pytest.raises(KafkaError) as caught:
        read_batch_header(bytes(build_batch(RECORDS))[:size], 0)
    assert caught.value.error is Error.CORRUPT_MESSAGE


@pytest.mark.parametrize("changes", [{"length": 48}, {"length": -1}, {"magic": 1}, {"magic": 3}, {"magic": -1}])
def test_a_header_with_an_impossible_length_or_magic_is_corrupt(changes: dict[str, int]) -> None:
    with pytest.raises(KafkaError) as caught:
        read_batch_header(raw_batch(**changes), 0)
    assert caught.value.error is Error.CORRUPT_MESSAGE


def test_the_checksum_detects_every_changed_bit_that_it_covers() -> None:
    batch = build_batch(RECORDS)
    header = read_batch_header(batch, 0)
    assert is_crc_valid(batch, 0, header)
    for position in range(21, len(batch)):
        batch[position] ^= 1
        assert not is_crc_valid(batch, 0, header)
        batch[position] ^= 1


def test_the_checksum_of_a_batch_that_is_not_all_there_is_not_right() -> None:
    batch = build_batch(RECORDS)
    header = read_batch_header(batch, 0)
    assert not is_crc_valid(batch[:-1], 0, header)
    assert is_crc_valid(b"xyz" + batch + b"more", 3, header)


def test_offsets_and_leader_epoch_are_written_in_place_without_touching_the_checksum() -> None:
    buffer = bytearray(10) + build_batch(RECORDS)
    write_offsets(memoryview(buffer), 10, 2**40, 12)
    header = read_batch_header(buffer, 10)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (2**40, 2**40 + 3, 12)
    assert is_crc_valid(buffer, 10, header)
    assert [record.offset for record in read_records(buffer[10:])] == [2**40 + index for index in range(4)]


def test_log_append_time_changes_attribute_max_timestamp_and_checksum_only() -> None:
    buffer = bytearray(10) + build_batch(RECORDS, codec=1)
    header = read_batch_header(buffer, 10)
    write_log_append_time(memoryview(buffer), 10, header, NOW + DAY)
    stored = read_batch_header(buffer, 10)
    assert stored.is_log_append_time
    assert (stored.max_timestamp, stored.base_timestamp, stored.codec) == (NOW + DAY, NOW, 1)
    assert (header.crc, header.attributes, header.max_timestamp) == (stored.crc, stored.attributes, NOW + DAY)
    assert is_crc_valid(buffer, 10, stored)
    assert {record.timestamp for record in read_records(buffer[10:])} == {NOW + DAY}


# ---------------------------------------------------------------- building and reading


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_from_the_batch_that_was_built(codec: int) -> None:
    batch = build_batch(RECORDS, codec=codec, level=None)
    assert list(read_records(memoryview(batch))) == RECORDS
    assert check(batch).record_count == 4


# kafka-python needs further packages for the other codecs.
READERS = [(KafkaPythonBatch, codec) for codec in (0, 1)] + [(AiokafkaBatch, codec) for codec in CODECS]
BUILDERS = [(KafkaPythonBuilder, codec) for codec in (0, 1)] + [(AiokafkaBuilder, codec) for codec in CODECS]


@pytest.mark.parametrize(("reader", "codec"), READERS)
def test_other_clients_read_our_batches(reader: Callable[[bytes], Any], codec: int) -> None:
    batch = reader(bytes(build_batch(RECORDS, codec=codec)))
    assert batch.validate_crc()
    seen = [Record(it.offset, it.timestamp, it.key, it.value, tuple(it.headers)) for it in batch]
    assert seen == RECORDS


@pytest.mark.parametrize(("builder", "codec"), BUILDERS)
def test_batches_of_other_clients_pass_the_check_and_are_read(builder: Callable[..., Any], codec: int) -> None:
    foreign = builder(2, codec, 1, 500, 2, 30, 1 << 20)
    records = [record._replace(offset=offset) for offset, record in enumerate(RECORDS * 50)]
    for record in records:
        assert foreign.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytearray(foreign.build())
    header = check(batch)
    assert (header.codec, header.record_count, header.is_transactional) == (codec, 200, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (500, 2, 30)
    assert list(read_records(batch)) == records


FIELD = st.none() | st.binary(max_size=200)
ANY_RECORDS = st.lists(
    st.builds(
        Record,
        st.just(-1),
        st.integers(0, 2**50),
        FIELD,
        FIELD,
        st.lists(st.tuples(st.text(max_size=5), FIELD), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=10,
)


@given(records=ANY_RECORDS, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**60))
@settings(max_examples=60)
def test_any_records_come_back_and_are_the_same_to_aiokafka(
    records: list[Record], codec: int, base_offset: int
) -> None:
    batch = build_batch(records, codec=codec, base_offset=base_offset)
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(records)]
    assert list(read_records(batch)) == expected
    foreign = AiokafkaBatch(bytes(batch))
    assert [(it.offset, it.key, it.value, tuple(it.headers)) for it in foreign] == [
        (it.offset, it.key, it.value, it.headers) for it in expected
    ]
    write_offsets(batch, 0, 0, 0)
    header = check(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_a_cleaner_may_leave_gaps_and_drop_the_last_records() -> None:
    kept = [RECORDS[1]._replace(offset=105), RECORDS[2]._replace(offset=110)]
    batch = build_batch(kept, base_offset=100, last_offset=120)
    header = read_batch_header(batch, 0)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 120, 2)
    assert list(read_records(batch)) == kept


def test_a_batch_may_have_no_records_at_all() -> None:
    batch = build_batch([], base_offset=5, last_offset=9)
    assert list(read_records(batch)) == []
    assert read_batch_header(batch, 0).next_offset == 10


def test_control_records_say_commit_or_abort() -> None:
    commit = struct.pack(">hh", 0, 1)
    batch = build_batch([Record(-1, NOW, commit, bytes(6))], is_control=True, is_transactional=True, producer_id=9)
    header = read_batch_header(batch, 0)
    assert header.is_control
    assert header.is_transactional
    assert [control_record_type(record.key) for record in read_records(batch)] == [1]
    assert control_record_type(struct.pack(">hh", 0, 0)) == 0
    assert control_record_type(struct.pack(">hh", 0, -1)) == -1
    assert control_record_type(None) == -1
    assert control_record_type(b"abc") == -1


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_recompressing_changes_the_codec_and_nothing_else(source: int, target: int) -> None:
    batch = build_batch(
        RECORDS,
        codec=source,
        leader_epoch=4,
        producer_id=8,
        producer_epoch=1,
        base_sequence=6,
        is_transactional=True,
    )
    again = recompress(memoryview(batch), target)
    before, after = read_batch_header(batch), read_batch_header(again)
    assert after.codec == target
    assert is_crc_valid(again, 0, after)
    assert after.batch_bytes == len(again)
    assert after.attributes & ~7 == before.attributes & ~7
    for name in ("base_offset", "leader_epoch", "last_offset_delta", "base_timestamp", "max_timestamp"):
        assert getattr(after, name) == getattr(before, name)
    for name in ("producer_id", "producer_epoch", "base_sequence", "record_count"):
        assert getattr(after, name) == getattr(before, name)
    assert list(read_records(again)) == RECORDS


# ---------------------------------------------------------------- the checks on produce

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
GOOD = bytes(raw_batch())

# What Apache Kafka 4.3.1 answers to the same bytes stands in docs/decisions/produce-checks.md.
REFUSED: dict[str, tuple[bytes | bytearray, Error]] = {
    "no bytes": (b"", Error.INVALID_RECORD),
    "10 bytes": (GOOD[:10], Error.INVALID_RECORD),
    "a cut header": (GOOD[:40], Error.INVALID_RECORD),
    "a cut batch": (GOOD[:-3], Error.INVALID_RECORD),
    "wrong checksum": (raw_batch(crc=1), Error.CORRUPT_MESSAGE),
    "length one more": (raw_batch(length=len(GOOD) - 11), Error.INVALID_RECORD),
    "length one less": (raw_batch(length=len(GOOD) - 13), Error.CORRUPT_MESSAGE),
    "length 0": (raw_batch(length=0), Error.CORRUPT_MESSAGE),
    "length -5": (raw_batch(length=-5), Error.CORRUPT_MESSAGE),
    "length 14": (raw_batch(length=14), Error.CORRUPT_MESSAGE),
    "length 48": (raw_batch(length=48), Error.CORRUPT_MESSAGE),
    "a batch of 60 bytes": (raw_batch(length=48)[:60], Error.CORRUPT_MESSAGE),
    "length 2^31-1": (raw_batch(length=2**31 - 1), Error.INVALID_RECORD),
    "bytes after the batch": (GOOD + b"abc", Error.INVALID_RECORD),
    "two batches": (GOOD + GOOD, Error.INVALID_RECORD),
    "magic 0": (raw_batch(magic=0), Error.INVALID_RECORD),
    "magic 1": (raw_batch(magic=1), Error.INVALID_RECORD),
    "magic 3": (raw_batch(magic=3), Error.CORRUPT_MESSAGE),
    "magic -1": (raw_batch(magic=-1), Error.CORRUPT_MESSAGE),
    "base offset 5": (raw_batch(base_offset=5), Error.INVALID_RECORD),
    "base offset -1": (raw_batch(base_offset=-1), Error.INVALID_RECORD),
    "count one more": (raw_batch(count=3), Error.INVALID_RECORD),
    "count one less": (raw_batch(count=1), Error.INVALID_RECORD),
    "count one more, delta as before": (raw_batch(count=3, last_offset_delta=1), Error.INVALID_RECORD),
    "last offset delta one more": (raw_batch(last_offset_delta=2), Error.INVALID_RECORD),
    "last offset delta one less": (raw_batch(last_offset_delta=0), Error.INVALID_RECORD),
    "no records": (raw_batch(b"", count=0), Error.INVALID_RECORD),
    "-1 records": (raw_batch(count=-1), Error.INVALID_RECORD),
    "2^31-1 records": (raw_batch(count=2**31 - 1), Error.INVALID_RECORD),
    "bytes after the records": (raw_batch(FIRST + SECOND + bytes(3)), Error.INVALID_RECORD),
    "offset deltas 0, 0": (raw_batch(FIRST + FIRST), Error.INVALID_RECORD),
    "a control batch": (raw_batch(attributes=CONTROL), Error.INVALID_RECORD),
    "a transaction without producer": (raw_batch(attributes=TRANSACTIONAL), Error.INVALID_RECORD),
    "a producer without sequence": (raw_batch(producer_id=5, producer_epoch=0), Error.INVALID_RECORD),
    "codec 5": (raw_batch(attributes=5), Error.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (raw_batch(attributes=7), Error.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 5 and wrong checksum": (raw_batch(attributes=5, crc=1), Error.CORRUPT_MESSAGE),
    "records that are no gzip": (raw_batch(attributes=1), Error.INVALID_RECORD),
    "records that are no snappy": (raw_batch(attributes=2), Error.INVALID_RECORD),
    "records that are no lz4": (raw_batch(attributes=3), Error.INVALID_RECORD),
    "records that are no zstd": (raw_batch(attributes=4), Error.INVALID_RECORD),
    "too large": (raw_batch(bytes(1 << 20)), Error.MESSAGE_TOO_LARGE),
    "too large and wrong checksum": (raw_batch(bytes(1 << 20), crc=1), Error.MESSAGE_TOO_LARGE),
    "a timestamp past the 64th bit": (
        raw_batch(bytes.fromhex("28 00 feffffffffffffffff01 00 01 0a 76616c7565 00"), count=1),
        Error.INVALID_TIMESTAMP,
    ),
}


@pytest.mark.parametrize(("batch", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_batch_is_refused_with_its_error_code(batch: bytes, error: Error) -> None:
    with pytest.raises(KafkaError) as caught:
        check(bytearray(batch))
    assert caught.value.error is error
    assert caught.value.message


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", [FIRST + FIRST, FIRST, FIRST + SECOND + bytes(3), b"", bytes(1000)])
def test_bad_records_are_found_under_every_codec(codec: int, payload: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        check(raw_batch(compress(codec, payload), attributes=codec))
    assert caught.value.error is Error.INVALID_RECORD


ACCEPTED: dict[str, bytes | bytearray] = {
    "plain": GOOD,
    "delete horizon bit": raw_batch(attributes=0x40),
    "unknown attribute bit": raw_batch(attributes=0x80),
    "record attributes": raw_batch(FIRST[:1] + b"\xff" + FIRST[2:] + SECOND),
    "leader epoch": raw_batch(leader_epoch=77),
    "a sequence without producer": raw_batch(producer_epoch=0, base_sequence=0),
    "no timestamps": raw_batch(base_timestamp=-1, max_timestamp=-1),
    "idempotent": raw_batch(producer_id=5, producer_epoch=0, base_sequence=0),
    "transactional": raw_batch(attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0),
}


@pytest.mark.parametrize("batch", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_kafka_accepts_is_accepted_unchanged(batch: bytes) -> None:
    buffer = bytearray(batch)
    header = check(buffer, timestamp_min=NOW - DAY, timestamp_max=NOW + DAY)
    assert header.record_count == 2
    assert buffer == batch


def test_exactly_the_largest_size_is_allowed() -> None:
    check(bytearray(GOOD), message_bytes_max=len(GOOD))
    with pytest.raises(KafkaError) as caught:
        check(bytearray(GOOD), message_bytes_max=len(GOOD) - 1)
    assert caught.value.error is Error.MESSAGE_TOO_LARGE


def test_only_the_compressed_size_counts_as_in_kafka() -> None:
    batch = build_batch([Record(-1, NOW, None, bytes(50_000))], codec=1)
    assert check(batch, message_bytes_max=1000).record_count == 1


def test_a_batch_must_not_decompress_to_more_than_the_cap() -> None:
    assert decompressed_bytes_max(1000) == DECOMPRESSED_BYTES_FLOOR
    assert decompressed_bytes_max(2 << 20) == 32 << 20
    assert decompressed_bytes_max(1 << 30) == DECOMPRESSED_BYTES_CEILING
    fits = build_batch([Record(-1, NOW, None, bytes(DECOMPRESSED_BYTES_FLOOR - 100))], codec=4)
    assert check(fits, message_bytes_max=100_000).record_count == 1
    bomb = build_batch([Record(-1, NOW, None, bytes(DECOMPRESSED_BYTES_FLOOR))], codec=4)
    with pytest.raises(KafkaError) as caught:
        check(bomb, message_bytes_max=100_000)
    assert caught.value.error is Error.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_wants_keys(codec: int) -> None:
    with pytest.raises(InvalidRecords) as caught:
        check(build_batch(RECORDS, codec=codec), is_compacted=True)
    assert caught.value.error is Error.INVALID_RECORD
    assert caught.value.record_errors == [
        (1, "Compacted topic cannot accept message without key in topic partition orders-0")
    ]
    keyed = [record._replace(key=b"") for record in RECORDS]
    assert check(build_batch(keyed, codec=codec), is_compacted=True)


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_out_of_range_are_refused_record_by_record(codec: int) -> None:
    records = [Record(-1, NOW + shift, b"key", b"value") for shift in (0, DAY, -DAY, -1)]
    batch = build_batch(records, codec=codec)
    check(bytearray(batch), timestamp_min=NOW - DAY, timestamp_max=NOW + DAY)
    with pytest.raises(InvalidRecords) as caught:
        check(batch, timestamp_min=NOW - 1, timestamp_max=NOW + 1)
    assert caught.value.error is Error.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1, 2]
    assert caught.value.record_errors[0][1] == (
        f"Timestamp {NOW + DAY} of message with offset 1 is out of range. "
        f"The timestamp should be within [{NOW - 1}, {NOW + 1}]"
    )


def test_a_lying_max_timestamp_hides_no_record() -> None:
    with pytest.raises(InvalidRecords):
        check(raw_batch(base_timestamp=NOW + DAY, max_timestamp=NOW), timestamp_max=NOW + 1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [NOW - 1, NOW + 10**9, -1, -(2**63), 2**63 - 1])
def test_a_wrong_max_timestamp_is_put_right_as_in_kafka(codec: int, claimed: int) -> None:
    buffer = raw_batch(compress(codec, FIRST + SECOND), attributes=codec, max_timestamp=claimed)
    header = check(buffer, timestamp_min=NOW - DAY, timestamp_max=NOW + DAY)
    stored = read_batch_header(buffer, 0)
    assert header.max_timestamp == stored.max_timestamp == NOW
    assert header.crc == stored.crc
    assert is_crc_valid(buffer, 0, stored)


def test_a_max_timestamp_is_never_below_minus_one() -> None:
    buffer = raw_batch(base_timestamp=-5, max_timestamp=-5)
    assert check(buffer).max_timestamp == -1
    assert read_batch_header(buffer, 0).max_timestamp == -1


def test_limits_past_64_bits_are_no_limits() -> None:
    check(raw_batch(), timestamp_min=NOW - 2**63, timestamp_max=NOW + 2**63)
    check(raw_batch(base_timestamp=-(2**63), max_timestamp=-1), timestamp_min=-(2**64), timestamp_max=2**64)


def test_the_log_append_time_bit_of_a_producer_is_cleared() -> None:
    buffer = raw_batch(attributes=LOG_APPEND_TIME)
    assert not check(buffer).is_log_append_time
    stored = read_batch_header(buffer, 0)
    assert not stored.is_log_append_time
    assert is_crc_valid(buffer, 0, stored)


def test_a_topic_with_log_append_time_takes_any_timestamp_but_not_the_bit() -> None:
    rules = {"is_log_append_time": True, "timestamp_min": NOW, "timestamp_max": NOW}
    buffer = raw_batch(base_timestamp=5, max_timestamp=123)
    assert check(buffer, **rules).record_count == 2
    with pytest.raises(InvalidRecords) as caught:
        check(raw_batch(attributes=LOG_APPEND_TIME), **rules)
    assert caught.value.error is Error.INVALID_TIMESTAMP
    assert str(caught.value) == "One or more records have been rejected due to invalid timestamp"
    assert caught.value.record_errors

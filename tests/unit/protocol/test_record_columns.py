"""The walk that turns records into columns, against the reader that makes an object of each."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import KafkaError
from ottla.protocol.batches import HEADER_BYTES, build_batch, read_batch_header, read_records
from ottla.protocol.record_columns import TIMESTAMP_MS_MAX, RecordColumns
from ottla.protocol.records import Record

BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
TIMES = st.integers(-(2**40), 2**45)
RECORDS = st.lists(st.builds(Record, st.just(-1), TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=30)


def numbers(writer: object) -> list[int]:
    data: bytes = writer.getvalue()  # type: ignore[attr-defined]
    return list(struct.unpack(f"<{len(data) // 8}q", data))


def walk(batch: bytes, first: int = 0, stop: int = 2**62, **columns: bool) -> tuple[RecordColumns, bytes]:
    header = read_batch_header(batch)
    found = RecordColumns(**columns)
    payload = bytes(batch[HEADER_BYTES:])
    count, base = header.record_count, header.base_offset
    found.add(payload, 0, len(payload), count, base, header.base_timestamp, False, first, stop)
    return found, payload


def fields(payload: bytes, bounds: list[int], nulls: list[int]) -> list[bytes | None]:
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    return [None if row in nulls else payload[start:end] for row, (start, end) in enumerate(pairs)]


@given(RECORDS, st.integers(0, 2**40))
def test_columns_hold_what_the_records_hold(records: list[Record], base_offset: int) -> None:
    batch = bytes(build_batch(records, base_offset=base_offset))
    expected = list(read_records(batch))
    found, payload = walk(batch, has_headers=True)
    assert found.rows == len(expected)
    assert numbers(found.offsets) == [record.offset for record in expected]
    assert numbers(found.timestamps) == [record.timestamp * 1000 for record in expected]
    assert fields(payload, numbers(found.key_bounds), numbers(found.key_nulls)) == [each.key for each in expected]
    assert fields(payload, numbers(found.value_bounds), numbers(found.value_nulls)) == [each.value for each in expected]
    names = [name.encode() for each in expected for name, _ in each.headers]
    values = [value for each in expected for _, value in each.headers]
    assert fields(payload, numbers(found.header_key_bounds), []) == names
    assert fields(payload, numbers(found.header_value_bounds), numbers(found.header_value_nulls)) == values
    ends = numbers(found.header_counts)
    assert [after - before for before, after in zip([0, *ends], ends, strict=False)] == [
        len(each.headers) for each in expected
    ]


@given(RECORDS, st.integers(0, 40), st.integers(0, 40))
def test_only_the_wanted_offsets_are_taken(records: list[Record], first: int, stop: int) -> None:
    batch = bytes(build_batch(records))
    found, _ = walk(batch, first, stop)
    assert numbers(found.offsets) == [number for number in range(len(records)) if first <= number < stop]


def test_unrequested_columns_stay_empty() -> None:
    batch = bytes(build_batch([Record(-1, 5, b"k", b"v", (("h", b"x"),))]))
    found, _ = walk(batch, has_keys=False, has_values=False, has_times=False)
    assert (found.rows, found.headers) == (1, 0)
    for writer in (found.key_bounds, found.value_bounds, found.timestamps, found.header_counts):
        assert writer.getvalue() == b""


def test_gaps_that_compaction_left_stay_gaps() -> None:
    batch = bytes(build_batch([Record(7, 1, b"a", b"1"), Record(12, 2, b"b", b"2")], base_offset=5, last_offset=20))
    found, _ = walk(batch)
    assert numbers(found.offsets) == [7, 12]


def test_a_time_that_microseconds_cannot_tell_is_the_nearest_that_they_can() -> None:
    batch = bytes(build_batch([Record(-1, 2**62, b"", b""), Record(-1, -(2**62), b"", b"")]))
    found, _ = walk(batch)
    assert numbers(found.timestamps)[0] == TIMESTAMP_MS_MAX * 1000


def test_a_stamped_batch_has_one_time() -> None:
    payload = bytes(build_batch([Record(-1, 5, None, b"v"), Record(-1, 9, None, b"v")]))[HEADER_BYTES:]
    found = RecordColumns()
    found.add(payload, 0, len(payload), 2, 0, 77, True, 0, 10)
    assert numbers(found.timestamps) == [77_000, 77_000]


@given(RECORDS, st.data())
def test_damage_is_an_error_or_still_in_bounds(records: list[Record], data: st.DataObject) -> None:
    batch = bytearray(build_batch(records))
    place = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[place] = data.draw(st.integers(0, 255))
    try:
        found, payload = walk(bytes(batch), has_headers=True)
    except KafkaError:
        return
    for writer in (found.key_bounds, found.value_bounds, found.header_key_bounds, found.header_value_bounds):
        bounds = numbers(writer)
        assert bounds == sorted(bounds)
        assert all(0 <= bound <= len(payload) for bound in bounds)


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_records_that_are_cut_off_are_refused(cut: int) -> None:
    payload = bytes(build_batch([Record(-1, 5, b"k" * 10, b"v" * 20)]))[HEADER_BYTES:-cut]
    with pytest.raises(KafkaError, match="Malformed records"):
        RecordColumns().add(payload, 0, len(payload), 1, 0, 0, False, 0, 10)


def test_bytes_that_are_not_there_are_refused() -> None:
    with pytest.raises(KafkaError, match="records end at 9 of 3 bytes"):
        RecordColumns().add(b"abc", 0, 9, 1, 0, 0, False, 0, 10)

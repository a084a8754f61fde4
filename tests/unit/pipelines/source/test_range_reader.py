"""Fetched bytes as Arrow columns, compared with the record-by-record reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.names import TopicPartition
from ottla.operations.fetched_batches import record_chunks
from ottla.pipelines.source.options import COLUMNS
from ottla.pipelines.source.range_reader import ColumnBuilder, sample_ranges
from ottla.protocol.batches import build_batch, read_batch_header, read_records, write_log_append_time
from ottla.protocol.records import Record

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
TIMES = st.integers(-(2**40), 2**45)
BATCHES = st.lists(
    st.tuples(
        st.lists(st.builds(Record, st.just(-1), TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=10),
        st.integers(0, 4),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=5,
)


def log_of(batches: list[tuple[list[Record], int, int]]) -> tuple[bytes, list[Record]]:
    """Consecutive batches with offset gaps, and their records according to the record-by-record reader."""
    log = bytearray()
    expected: list[Record] = []
    offset = 0
    for records, codec, gap in batches:
        batch = build_batch(records, codec=codec, base_offset=offset + gap)
        log += batch
        expected += read_records(batch)
        offset = expected[-1].offset + 1
    return bytes(log), expected


def rows_of(log: bytes, first: int, stop: int, columns: tuple[str, ...] = COLUMNS) -> list[dict[str, object]]:
    builder = ColumnBuilder("t", 3, columns)
    rows = []
    for piece in record_chunks(log, "t-3", first, stop):
        batch = builder.build(piece.data, piece.spans, first, stop)
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


def row_of(record: Record) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": 0,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


@given(BATCHES, st.integers(0, 60), st.integers(0, 200))
def test_rows_are_the_records_between_the_bounds(
    batches: list[tuple[list[Record], int, int]], first: int, size: int
) -> None:
    log, expected = log_of(batches)
    wanted = [row_of(record) for record in expected if first <= record.offset < first + size]
    assert rows_of(log, first, first + size) == wanted


def test_fewer_columns_in_any_order() -> None:
    log, _ = log_of([([Record(-1, 0, b"k", b"v")], 0, 0)])
    assert rows_of(log, 0, 9, ("offset", "value")) == [{"offset": 0, "value": b"v"}]


def test_a_batch_with_log_append_time_has_that_timestamp_type() -> None:
    batch = build_batch([Record(-1, 5, None, b"a"), Record(-1, 6, None, b"b")])
    write_log_append_time(batch, 0, read_batch_header(batch), 1234)
    plain = build_batch([Record(-1, 7, None, b"c")], base_offset=2)
    rows = rows_of(bytes(batch + plain), 0, 9)
    assert [row["timestampType"] for row in rows] == [1, 1, 0]
    assert [row["timestamp"] for row in rows] == [EPOCH + timedelta(milliseconds=each) for each in (1234, 1234, 7)]


def test_columns_without_any_value_are_all_null() -> None:
    log, _ = log_of([([Record(-1, 0, None, None)] * 3, 0, 0)])
    assert [(row["key"], row["value"]) for row in rows_of(log, 0, 9)] == [(None, None)] * 3


def test_a_header_name_that_is_not_utf8_has_replacement_characters() -> None:
    log, _ = log_of([([Record(-1, 0, None, None, (("\udcff", b"x"),))], 0, 0)])
    assert rows_of(log, 0, 9)[0]["headers"] == [{"key": "\ufffd", "value": b"x"}]


def test_large_records() -> None:
    value = bytes(10_000_000)
    log, _ = log_of([([Record(-1, 0, None, value), Record(-1, 0, b"k", value)], 4, 0)])
    assert [len(row["value"]) for row in rows_of(log, 0, 9)] == [10_000_000] * 2  # type: ignore[arg-type]


def test_the_schema_is_the_one_that_spark_expects() -> None:
    log, _ = log_of([([Record(-1, 0, None, b"v")], 0, 0)])
    (piece,) = record_chunks(log, "t-0", 0, 9)
    schema = ColumnBuilder("t", 0, COLUMNS).build(piece.data, piece.spans, 0, 9).schema
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("headers").type == pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def ranges(bounds: dict[int, tuple[int, int]], count: int) -> list[tuple[int, int, int]]:
    first = {TopicPartition("t", number): start for number, (start, _) in bounds.items()}
    after = {TopicPartition("t", number): end for number, (_, end) in bounds.items()}
    return [(each.partition, each.start, each.end) for each in sample_ranges(first, after, count)]


def test_a_small_topic_is_read_whole() -> None:
    assert ranges({0: (5, 9), 1: (0, 0)}, 100) == [(0, 5, 9)]


def test_a_large_one_from_both_ends() -> None:
    assert ranges({0: (10, 1000)}, 7) == [(0, 10, 14), (0, 997, 1000)]


def test_partitions_share_and_none_is_left_out() -> None:
    assert ranges({0: (0, 100), 1: (0, 100), 2: (0, 100)}, 2) == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]

"""What a round of cleaning leaves of a log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import (
    NOW_MS,
    RETENTION_MS,
    SETTINGS,
    batches_in,
    clean,
    contents,
    end_transaction,
    job_for,
    new_log,
    put,
    records_in,
    reopen,
    write_cleaned,
)

from ottla.base.errors import KafkaError
from ottla.protocol.batches import DELETE_HORIZON_FLAG, build_batch, read_batch_header
from ottla.protocol.records import Record
from ottla.storage.log import Log

LATER_MS = NOW_MS + RETENTION_MS


def headers_in(log: Log) -> list[tuple[int, int, int]]:
    """First offset, last offset and number of records of each batch."""
    headers = [read_batch_header(batch) for batch in batches_in(log)]
    return [(header.base_offset, header.last_offset, header.record_count) for header in headers]


def transactional(log: Log, producer_id: int, *pairs: tuple[bytes, bytes], sequence: int = 0) -> None:
    put(log, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=1)


@pytest.mark.parametrize("codec", range(5))
def test_the_newest_record_of_each_key_stays_with_its_offset(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    put(log, (b"b", b"2"), (b"c", b"1"), codec=codec)
    put(log, (b"last", b"1"), codec=codec)
    report = clean(log)

    assert contents(log) == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1"), (5, b"last", b"1")]
    assert headers_in(log) == [(0, 2, 1), (3, 4, 2), (5, 5, 1)]
    assert (report.end_offset, report.keys, report.records_read, report.records_kept) == (6, 4, 6, 4)
    assert all(read_batch_header(batch).codec == codec for batch in batches_in(log))


def test_the_active_segment_is_left_alone_and_does_not_count(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"))
    clean(log, rolls=False)

    assert contents(log) == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_a_batch_of_which_everything_stays_is_copied_byte_by_byte(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"), codec=3)
    put(log, (b"b", b"1"), (b"c", b"1"), codec=4)
    put(log, (b"a", b"2"))
    before = list(batches_in(log))
    clean(log)

    assert list(batches_in(log)) == before[1:]


def test_segments_are_merged_and_one_that_does_not_change_is_not_written(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    for number in range(3):
        put(log, (b"%d" % number, b"v"))
        log.roll(NOW_MS)
    clean(log, rolls=False)
    assert [segment.base_offset for segment in log.segments] == [0, 3]

    path = tmp_path / "log" / f"{0:020d}.log"
    inode = path.stat().st_ino
    report = clean(log, rolls=False, first_dirty_offset=0)
    assert path.stat().st_ino == inode
    assert report.bytes_written == 0
    assert log.segments[0].base_offset == 0


def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (None, b"1"), (b"a", b"1"))
    clean(log)

    assert contents(log) == [(1, b"a", b"1")]


def test_a_tombstone_takes_the_values_before_it_and_stays_for_its_time(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    put(log, (b"end", b""))
    clean(log)
    assert contents(log) == [(1, b"a", None), (2, b"b", b"1"), (3, b"end", b"")]
    header = read_batch_header(next(iter(batches_in(log))))
    assert header.attributes & DELETE_HORIZON_FLAG
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert header.max_timestamp == NOW_MS
    assert [record.timestamp for record in records_in(log)] == [NOW_MS] * 3

    clean(log, rolls=False, first_dirty_offset=0, now_ms=LATER_MS - 1)
    assert contents(log)[0] == (1, b"a", None)
    assert read_batch_header(next(iter(batches_in(log)))).base_timestamp == NOW_MS + RETENTION_MS

    clean(log, rolls=False, first_dirty_offset=0, now_ms=LATER_MS)
    assert contents(log) == [(2, b"b", b"1"), (3, b"end", b"")]


def test_a_compressed_batch_with_a_tombstone_keeps_its_records_and_its_codec(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    batch = build_batch(
        [Record(-1, NOW_MS - 500, b"a", b"1", (("h", b"x"),)), Record(-1, NOW_MS - 900, b"b", None, (("n", None),))],
        codec=4,
        leader_epoch=0,
    )
    log.append_as_follower(memoryview(batch))
    put(log, (b"end", b""))
    clean(log)

    assert records_in(log)[:2] == [
        Record(0, NOW_MS - 500, b"a", b"1", (("h", b"x"),)),
        Record(1, NOW_MS - 900, b"b", None, (("n", None),)),
    ]
    assert read_batch_header(next(iter(batches_in(log)))).codec == 4


def test_a_retention_without_end_does_not_overflow(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", None))
    clean(log, delete_retention_ms=2**63 - 1)

    assert records_in(log) == [Record(0, NOW_MS, b"a", None)]


def test_the_last_batch_of_the_cleaned_range_stays_for_its_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"))
    put(log, (None, b"x"), (None, b"y"))
    clean(log)

    assert headers_in(log) == [(0, 0, 1), (1, 2, 0)]
    assert reopen(tmp_path / "log").end_offset == 3


def test_the_last_batch_of_a_producer_stays_for_its_sequence(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"), producer_id=5, producer_epoch=1, base_sequence=0)
    put(log, (b"a", b"2"), (b"b", b"1"), producer_id=5, producer_epoch=1, base_sequence=1)
    put(log, (b"a", b"3"), (b"b", b"3"))
    clean(log)

    assert headers_in(log) == [(1, 2, 0), (3, 4, 2)]
    header = read_batch_header(next(iter(batches_in(log))))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (5, 1, 1, 2)
    for snapshot in (tmp_path / "log").glob("*.snapshot"):
        snapshot.unlink()
    assert reopen(tmp_path / "log").producers.by_id[5].last_sequence == 2


def test_records_of_aborted_transactions_go_and_do_not_supersede_others(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"before"))
    transactional(log, 1, (b"a", b"aborted"), (b"b", b"aborted"))
    transactional(log, 2, (b"c", b"committed"))
    end_transaction(log, 1, is_abort=True)
    end_transaction(log, 2, is_abort=False)
    put(log, (b"end", b""))
    clean(log, last_records=[])

    assert contents(log) == [(0, b"a", b"before"), (3, b"c", b"committed"), (6, b"end", b"")]
    assert [t.first_offset for t in log.aborted_transactions(0, 100)] == [1]


def test_markers_go_a_while_after_the_last_record_of_their_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    transactional(log, 1, (b"a", b"aborted"))
    marker = end_transaction(log, 1, is_abort=True)
    put(log, (b"end", b""))
    clean(log, last_records=[])
    assert headers_in(log) == [(1, 1, 1), (2, 2, 1)], "its batches were there a moment ago"
    assert len(log.aborted_transactions(0, 100)) == 1

    clean(log, rolls=False, first_dirty_offset=0, last_records=[])
    assert headers_in(log) == [(1, 1, 1), (2, 2, 1)], "now its time counts"
    assert log.aborted_transactions(0, 100) == []
    header = read_batch_header(next(iter(batches_in(log))))
    assert (header.base_offset, header.base_timestamp) == (marker, NOW_MS + RETENTION_MS)

    clean(log, rolls=False, first_dirty_offset=0, last_records=[], now_ms=LATER_MS - 1)
    assert len(headers_in(log)) == 2
    clean(log, rolls=False, first_dirty_offset=0, last_records=[], now_ms=LATER_MS)
    assert headers_in(log) == [(2, 2, 1)]


def test_a_commit_marker_stays_as_long_as_records_of_its_transaction_do(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    transactional(log, 1, (b"a", b"1"), (b"b", b"1"))
    end_transaction(log, 1, is_abort=False)
    put(log, (b"b", b"2"))
    clean(log, last_records=[])
    clean(log, rolls=False, first_dirty_offset=0, last_records=[], now_ms=LATER_MS * 2)
    assert headers_in(log) == [(0, 1, 1), (2, 2, 1), (3, 3, 1)]

    put(log, (b"a", b"2"))
    clean(log, last_records=[])
    clean(log, rolls=False, first_dirty_offset=0, last_records=[])
    clean(log, rolls=False, first_dirty_offset=0, last_records=[], now_ms=LATER_MS * 2)
    assert headers_in(log) == [(3, 3, 1), (4, 4, 1)]


def test_the_marker_of_a_producer_without_data_stays_for_its_epoch(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    end_transaction(log, 9, is_abort=True, producer_epoch=3)
    put(log, (b"end", b""))
    for now_ms in (NOW_MS, LATER_MS):
        clean(log, rolls=now_ms == NOW_MS, first_dirty_offset=0, now_ms=now_ms)

    assert headers_in(log) == [(0, 0, 0), (1, 1, 1)]


def test_a_transaction_that_ends_in_a_later_segment_is_known_from_its_index(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    transactional(log, 1, (b"a", b"aborted"))
    put(log, (b"b", b"1"))
    log.roll(NOW_MS)
    end_transaction(log, 1, is_abort=True)
    clean(log, rolls=False, last_records=[])

    assert contents(log) == [(1, b"b", b"1")]


def test_a_full_map_ends_the_round_and_the_next_one_goes_on(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    for number in range(40):
        put(log, (b"%d" % (number % 20), b"%d" % number))
    log.roll(NOW_MS)
    rounds = 0
    while log.cleaned_offset < log.end_offset:
        before = log.cleaned_offset
        report = clean(log, rolls=False, map_bytes=20 * 13, load_factor=0.9)
        assert report.end_offset > before
        rounds += 1

    assert rounds > 2
    assert contents(log) == [(20 + number, b"%d" % number, b"%d" % (20 + number)) for number in range(20)]


def test_a_map_too_small_for_one_batch_is_reported(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, *[(b"%d" % number, b"") for number in range(30)])
    log.roll(NOW_MS)

    with pytest.raises(KafkaError, match="dedupe"):
        write_cleaned(job_for(log, map_bytes=20 * 13))


def test_a_damaged_batch_ends_the_round_and_nothing_changes(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    path = tmp_path / "log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    with pytest.raises(KafkaError, match=r"00000\.log at position"):
        write_cleaned(job_for(log))
    assert path.read_bytes() == data


def test_a_custom_policy_decides_record_by_record(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"a", b"1"), (None, b"2"), (b"a", b"3"), codec=1)
    put(log, (b"b", b"4"))
    clean(log, is_compacted=False, policy=lambda record: record.offset != 2)
    assert contents(log) == [(0, b"a", b"1"), (1, None, b"2"), (3, b"b", b"4")]

    clean(log, rolls=False, first_dirty_offset=0, policy=lambda record: record.value != b"4")
    assert contents(log) == [(0, b"a", b"1")], "and together with compact"


class Model:
    """Compaction in a few lines: what must be left of a list of records."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes | None]] = []
        self.horizons: dict[int, int] = {}  # first offset of a batch -> when its tombstones may go
        self.batches: dict[int, int] = {}  # offset -> first offset of its batch

    def append(self, offset: int, base_offset: int, key: bytes, value: bytes | None) -> None:
        self.records.append((offset, key, value))
        self.batches[offset] = base_offset

    def clean(self, end_offset: int, now_ms: int) -> None:
        newest = {key: offset for offset, key, _ in self.records if offset < end_offset}
        left = []
        for offset, key, value in self.records:
            horizon = self.horizons.get(self.batches[offset])
            is_over = value is None and horizon is not None and horizon <= now_ms
            if offset >= end_offset or (newest[key] == offset and not is_over):
                left.append((offset, key, value))
        self.records = left
        for offset, _, value in left:
            if value is None and offset < end_offset:
                self.horizons.setdefault(self.batches[offset], now_ms + RETENTION_MS)


@pytest.mark.parametrize("seed", range(30))
def test_any_history_ends_as_in_the_model(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    log = new_log(tmp_path / "log")
    model = Model()
    now_ms = NOW_MS
    for _ in range(chosen.randrange(5, 40)):
        for _ in range(chosen.randrange(1, 6)):
            pairs = [
                (
                    b"%d" % chosen.randrange(12),
                    None if chosen.random() < 0.25 else chosen.randbytes(chosen.randrange(40)),
                )
                for _ in range(chosen.randrange(1, 5))
            ]
            base_offset = put(log, *pairs, codec=chosen.randrange(5))
            for place, (key, value) in enumerate(pairs):
                model.append(base_offset + place, base_offset, key, value)
        if chosen.random() < 0.5:
            log.roll(NOW_MS)
        if chosen.random() < 0.3 and len(log.segments) > 1:
            segment_bytes = chosen.choice([200, 1000, 1 << 20])
            clean(log, rolls=False, now_ms=now_ms, segment_bytes=segment_bytes)
            model.clean(log.active.base_offset, now_ms)
            assert contents(log) == model.records
        now_ms += chosen.randrange(RETENTION_MS)
    end_offset = log.end_offset
    log.close_files()

    reopened = reopen(tmp_path / "log", SETTINGS)
    assert contents(reopened) == model.records
    assert reopened.end_offset == end_offset

"""The index of aborted transactions: Kafka's format, and in step with its log through rolls, cuts and crashes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import end_transaction, new_log, put, reopen

from ottla.storage.log import Log
from ottla.storage.transaction_index import (
    AbortedTxn,
    TransactionIndex,
    TransactionIndexError,
    load_transaction_index,
)

FIRST = AbortedTxn(7, 10, 20, 21)
SECOND = AbortedTxn(8, 15, 30, 31)
ENCODED_FIRST = bytes.fromhex("00000000000000000007000000000000000a00000000000000140000000000000015")


def in_transaction(log: Log, producer_id: int) -> None:
    put(log, (b"k", b"v"), producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=1)


def test_entries_are_written_in_kafkas_format(tmp_path: Path) -> None:
    path = str(tmp_path / "0.txnindex")
    index = TransactionIndex([], 0)
    index.append(FIRST)
    assert index.write_pending(path)
    assert not index.write_pending(path)
    index.append(SECOND)
    index.write_pending(path)

    assert Path(path).read_bytes()[:34] == ENCODED_FIRST
    assert load_transaction_index(path, 20).entries == [FIRST, SECOND]


def test_a_range_finds_overlapping_entries_and_stops() -> None:
    index = TransactionIndex([FIRST, SECOND], 2)

    assert index.find(0, 10) == ([], True)
    assert index.find(0, 11) == ([FIRST], True)
    assert index.find(21, 31) == ([SECOND], True)
    assert index.find(21, 40) == ([SECOND], False)
    assert index.find(31, 40) == ([], False)


def test_a_cut_forgets_the_aborts_from_there_on(tmp_path: Path) -> None:
    path = str(tmp_path / "0.txnindex")
    index = TransactionIndex([FIRST, SECOND], 0)
    index.write_pending(path)

    index.cut(30, path)

    assert load_transaction_index(path, 0).entries == [FIRST]


@pytest.mark.parametrize(
    "data",
    [ENCODED_FIRST[:-1], b"\x00\x01" + ENCODED_FIRST[2:], ENCODED_FIRST * 2, bytes(34)],
    ids=["torn", "later version", "out of order", "before the segment"],
)
def test_a_damaged_file_is_noticed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)

    with pytest.raises(TransactionIndexError):
        load_transaction_index(str(tmp_path / "x"), 5)


def test_only_aborted_transactions_get_an_entry_and_only_then_there_is_a_file(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    in_transaction(log, 2)
    assert log.producer_state.first_unstable_offset() == 0
    end_transaction(log, 1, is_abort=False)
    assert log.producer_state.first_unstable_offset() == 1
    assert not log.active.has_transactions
    marker = end_transaction(log, 2, is_abort=True)

    assert log.producer_state.first_unstable_offset() == -1
    assert log.aborted_transactions(0, 100) == [AbortedTxn(2, 1, marker, marker + 1)]
    assert (tmp_path / "log" / f"{0:020d}.txnindex").stat().st_size == 34


def test_the_last_stable_offset_of_an_entry_is_where_another_transaction_is_still_open(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    in_transaction(log, 2)
    marker = end_transaction(log, 1, is_abort=True)

    assert log.aborted_transactions(0, 100) == [AbortedTxn(1, 0, marker, 1)]


def test_a_transaction_over_several_segments_is_found_from_each_of_them(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    log.roll(0)
    put(log, (b"other", b"v"))
    log.roll(0)
    end_transaction(log, 1, is_abort=True)

    assert [t.first_offset for t in log.aborted_transactions(0, 1)] == [0]
    assert [t.first_offset for t in log.aborted_transactions(1, 2)] == [0]
    assert [segment.has_transactions for segment in log.segments] == [False, False, True]


def test_a_read_committed_reader_gets_the_aborted_transactions_of_its_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    for _ in range(2):
        in_transaction(log, 1)
        end_transaction(log, 1, is_abort=True)
        log.roll(0)
    file_range = log.read(0, 1 << 20, log.end_offset, True)
    assert file_range is not None

    assert [t.first_offset for t in log.aborted_transactions_in_range(0, file_range, log.end_offset)] == [0]
    file_range.release()
    last = log.read(2, 1 << 20, log.end_offset, True)
    assert last is not None
    assert [t.first_offset for t in log.aborted_transactions_in_range(2, last, log.end_offset)] == [2]
    last.release()


def test_recovery_makes_the_index_anew_past_the_recovery_point(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    log.roll(0)
    end_transaction(log, 1, is_abort=True)
    expected = log.aborted_transactions(0, 10)
    log.close_files()
    for path in (tmp_path / "log").glob("*.txnindex"):
        path.unlink()

    assert expected
    assert reopen(tmp_path / "log").aborted_transactions(0, 10) == expected
    assert reopen(tmp_path / "log").aborted_transactions(0, 10) == expected


def test_a_damaged_index_below_the_recovery_point_is_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    log.roll(0)
    end_transaction(log, 1, is_abort=True)
    log.roll(0)
    put(log, (b"k", b"v"))
    expected = log.aborted_transactions(0, 10)
    log.close()
    [path] = (tmp_path / "log").glob("*.txnindex")
    path.write_bytes(path.read_bytes()[:-3])

    with caplog.at_level(logging.WARNING):
        reopened = reopen(tmp_path / "log", recovery_point=log.end_offset)

    assert "corrupted transaction index" in caplog.text
    assert reopened.aborted_transactions(0, 10) == expected
    assert path.stat().st_size == 34


def test_when_all_indexes_are_gone_that_of_transactions_is_made_anew_too(tmp_path: Path) -> None:
    """Else readers of committed records would be given what was aborted."""
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    log.roll(0)
    end_transaction(log, 1, is_abort=True)
    log.roll(0)
    put(log, (b"k", b"v"))
    expected = log.aborted_transactions(0, 10)
    log.close()
    for path in (tmp_path / "log").glob("*index"):
        path.unlink()

    assert expected
    assert reopen(tmp_path / "log", recovery_point=log.end_offset).aborted_transactions(0, 10) == expected


def test_truncation_takes_the_entry_with_the_marker(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    in_transaction(log, 1)
    marker = end_transaction(log, 1, is_abort=True)
    log.truncate_to(marker)

    assert log.aborted_transactions(0, 10) == []
    assert log.producer_state.first_unstable_offset() == 0


def test_a_new_segment_does_not_inherit_the_index_of_a_leftover(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    put(log, (b"k", b"v"))
    (tmp_path / "log" / f"{1:020d}.txnindex").write_bytes(ENCODED_FIRST)
    log.roll(0)

    assert not (tmp_path / "log" / f"{1:020d}.txnindex").exists()

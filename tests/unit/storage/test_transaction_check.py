"""A wrong or missing index of aborted transactions: the log's markers reveal it before it is served."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import NOW_MS, PARTITION, end_transaction, new_log, put

from ottla.base.file_range import FileRange
from ottla.base.topic_settings import TopicSettings
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_loader import open_log
from ottla.storage.range_checks import needs_check
from ottla.storage.replay import read_marker
from ottla.storage.scan import CONTROL_FLAG, BatchScan
from ottla.storage.transaction_check import TransactionIndexWrongError, TransactionRebuild
from ottla.storage.transaction_index import ENTRY, ENTRY_BYTES, AbortedTxn

SETTINGS = TopicSettings(segment_bytes=1500, index_interval_bytes=200)
VALUE = b"v" * 50
Served = list[tuple[int, int]]


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def reopened(directory: Path, end_offset: int, *, is_clean: bool = True) -> Log:
    return open_log(
        PARTITION,
        str(directory),
        SETTINGS,
        pool=DescriptorPool(),
        is_clean=is_clean,
        recovery_point=end_offset,
        log_start_offset=0,
        now_ms=NOW_MS,
        producer_expiration_ms=10**9,
    )


def closed_log(directory: Path, seed: int) -> tuple[Served, int]:
    """Transactions of three producers through each other; offset and producer of what was committed, and the end."""
    chosen = random.Random(seed)
    log = new_log(directory, SETTINGS)
    under_way: dict[int, list[int]] = {}
    sequences = {1: 0, 2: 0, 3: 0}
    committed: Served = []
    for _ in range(60):
        producer = chosen.choice((1, 2, 3))
        if producer in under_way and chosen.random() < 0.4:
            is_abort = chosen.random() < 0.5
            end_transaction(log, producer, is_abort=is_abort)
            offsets = under_way.pop(producer)
            committed += [] if is_abort else [(offset, producer) for offset in offsets]
        else:
            offset = put(
                log,
                (b"k", VALUE),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                is_transactional=1,
            )
            sequences[producer] += 1
            under_way.setdefault(producer, []).append(offset)
    for producer, offsets in under_way.items():
        end_transaction(log, producer, is_abort=False)
        committed += [(offset, producer) for offset in offsets]
    log.close()
    return sorted(committed), log.end_offset


def check(log: Log, file_range: FileRange) -> bool:
    """Whether the range may be served; if not, the indexes are rebuilt as in a broker."""
    if not needs_check(file_range):
        return True
    try:
        log.check_range(file_range)
    except TransactionIndexWrongError as wrong:
        rebuild = TransactionRebuild(wrong.log)
        rebuild.run()
        rebuild.install()
        return False
    return True


def read_committed(log: Log, max_bytes: int = 400) -> Served:
    """What a consumer makes of batches and of the list of aborted transactions that comes with them."""
    found: Served = []
    offset = 0
    while (file_range := log.read(offset, max_bytes, log.end_offset, True)) is not None:
        is_checked = check(log, file_range)
        try:
            if not is_checked:
                continue
            taken, offset = consume(log, file_range, offset)
            found += taken
        finally:
            file_range.release()
    return found


def consume(log: Log, file_range: FileRange, offset: int) -> tuple[Served, int]:
    end = file_range.position + file_range.length
    listed = log.aborted_transactions_in_range(offset, file_range, log.end_offset)
    scan = BatchScan(file_range.descriptor, file_range.position, log.segment_of(offset).size, True)
    hidden: set[int] = set()
    found: Served = []
    while scan.next_position < end and scan.advance() and scan.next_position <= end:
        offset = scan.last_offset + 1
        hidden |= {entry.producer_id for entry in listed if entry.first_offset <= scan.last_offset}
        listed = [entry for entry in listed if entry.first_offset > scan.last_offset]
        if scan.attributes & CONTROL_FLAG:
            marker = read_marker(scan.batch())
            if marker is not None and marker.is_abort:  # a commit does not end the list's word, with Java's consumer
                hidden.discard(scan.producer_id)
        elif scan.producer_id not in hidden:
            found.append((scan.base_offset, scan.producer_id))
    return found, offset


def change_entry(path: Path, chosen: random.Random) -> None:
    data = bytearray(path.read_bytes())
    place = chosen.randrange(len(data) // ENTRY_BYTES) * ENTRY_BYTES
    version, *fields = ENTRY.unpack_from(data, place)
    field = chosen.randrange(4)
    fields[field] = max(0, fields[field] + chosen.choice((-9, -3, -2, -1, 1, 2, 3, 9)))
    ENTRY.pack_into(data, place, version, *fields)
    path.write_bytes(data)


def remove(path: Path, chosen: random.Random) -> None:
    path.unlink()


def drop_entry(path: Path, chosen: random.Random) -> None:
    data = path.read_bytes()
    place = chosen.randrange(len(data) // ENTRY_BYTES) * ENTRY_BYTES
    path.write_bytes(data[:place] + data[place + ENTRY_BYTES :])


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("damage", [change_entry, remove, drop_entry])
@pytest.mark.parametrize("seed", range(12))
def test_readers_of_committed_records_get_these_and_no_others(
    tmp_path: Path, seed: int, damage: Callable[[Path, random.Random], None], is_clean: bool
) -> None:
    expected, end_offset = closed_log(tmp_path / "log", seed)
    chosen = random.Random(seed)
    indexes = sorted((tmp_path / "log").glob("*.txnindex"))
    damage(chosen.choice(indexes), chosen)

    log = reopened(tmp_path / "log", end_offset, is_clean=is_clean)

    assert read_committed(log) == expected
    assert read_committed(log) == expected, "and the second time"


def test_a_missing_transaction_index_is_detected_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The marker stands in a later segment than the records that must not be served."""
    log = new_log(tmp_path / "log", SETTINGS)
    put(log, (b"k", VALUE), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=1)
    log.roll(0)
    marker = end_transaction(log, 1, is_abort=True)
    log.roll(0)
    put(log, (b"k", VALUE))
    log.close()
    [path] = (tmp_path / "log").glob("*.txnindex")
    content = path.read_bytes()
    path.unlink()

    log = reopened(tmp_path / "log", log.end_offset)
    with caplog.at_level(logging.WARNING):
        assert read_committed(log) == [(2, -1)]

    assert "corrupted transaction index" in caplog.text
    assert path.name in caplog.text
    assert path.read_bytes() == content
    assert log.aborted_transactions(0, 1) == [AbortedTxn(1, 0, marker, marker + 1)]


def test_what_fits_the_log_is_not_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected, end_offset = closed_log(tmp_path / "log", 3)
    log = reopened(tmp_path / "log", end_offset)

    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert read_committed(log) == expected

    assert not caplog.text
    assert not log.has_verified_txn_index, "nothing had to read all of it"


def test_a_long_transaction_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path / "log", SETTINGS)
    for number in range(100):
        put(log, (b"k", VALUE), producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=1)
    end_transaction(log, 1, is_abort=True)
    log.close()
    log = reopened(tmp_path / "log", log.end_offset)
    opened: list[str] = []
    real = files.open_file
    monkeypatch.setattr(files, "open_file", lambda path, *rest: (opened.append(path), real(path, *rest))[1])

    assert read_committed(log) == []

    of_logs = [path for path in opened if path.endswith(".log")]
    assert len(of_logs) <= 3 * len(log.segments)

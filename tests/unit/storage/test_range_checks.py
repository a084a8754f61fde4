"""Bytes of an earlier run are checked before they are first served, and never served when they are corrupt."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.unit.storage.test_log_loader import batch_of, new_log

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.log_loader import open_log
from ottla.storage.page_cache import is_range_cached, read_ahead
from ottla.storage.range_checks import merge_ranges, needs_check

PARTITION = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000
SETTINGS = TopicSettings(segment_bytes=6000, index_interval_bytes=500)
LEADER_EPOCH = slice(12, 16)  # neither the checksum nor the neighbours tell what it was


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def closed_log(directory: Path, sizes: list[int], settings: TopicSettings = SETTINGS) -> list[bytes]:
    """A log that was closed in good order; its batches, one record each."""
    log = create_log(PARTITION, str(directory), settings, DescriptorPool(), None, NOW_MS, 10**9)
    for number, size in enumerate(sizes):
        log.append(memoryview(build_batch([Record(-1, NOW_MS + number, b"key", b"v" * size)])), 0, NOW_MS)
    log.close()
    return [batch for path in sorted(directory.glob("*.log")) for batch in split(path.read_bytes())]


def split(data: bytes) -> list[bytes]:
    """Whole batches; a piece at the end is left out, as clients do."""
    batches = []
    position = 0
    while len(data) - position >= 61:
        end = position + read_batch_header(data, position).batch_bytes
        if end > len(data):
            break
        batches.append(data[position:end])
        position = end
    return batches


def reopen(directory: Path, recovery_point: int, settings: TopicSettings = SETTINGS) -> Log:
    return open_log(
        PARTITION,
        str(directory),
        settings,
        pool=DescriptorPool(),
        is_clean=True,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW_MS,
        producer_expiration_ms=10**9,
    )


def serve(log: Log, offset: int, max_bytes: int) -> list[bytes] | None:
    """The batches that a consumer gets; None if they are reported as corrupt."""
    try:
        file_range = log.read(offset, max_bytes, log.end_offset, True)
        if file_range is None:
            return []
        if needs_check(file_range):
            log.check_range(file_range)
    except KafkaError as error:
        if error.error is Error.CORRUPT_MESSAGE:
            return None
        raise
    data = os.pread(file_range.descriptor, file_range.length, file_range.position)
    file_range.release()
    return split(data)


def without_epoch(batch: bytes) -> bytes:
    return batch[: LEADER_EPOCH.start] + batch[LEADER_EPOCH.stop :]


def read_in_order(log: Log, written: list[bytes], max_bytes: int) -> int:
    """How far a consumer comes that starts at the beginning; all it gets must be what was written, none left out."""
    offset = 0
    while batches := serve(log, offset, max_bytes):
        for batch in batches:
            assert without_epoch(batch) == without_epoch(written[offset]), offset
            offset += 1
    return offset


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_is_never_served(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    written = closed_log(tmp_path / "log", [chosen.choice((10, 300, 1500)) for _ in range(30)])
    path = chosen.choice(sorted((tmp_path / "log").glob("*.log")))
    data = path.read_bytes()
    batches = split(data)
    number = chosen.randrange(len(batches))
    place = chosen.randrange(21) if chosen.random() < 0.6 else chosen.randrange(len(batches[number]))
    changed = bytearray(data)
    changed[sum(map(len, batches[:number])) + place] ^= 1 << chosen.randrange(8)
    path.write_bytes(bytes(changed))
    damaged_offset = int(path.stem) + number

    log = reopen(tmp_path / "log", len(written))

    assert read_in_order(log, written, chosen.choice((1, 500, 3000, 100_000))) >= damaged_offset
    for offset in range(log.end_offset):
        served = serve(log, offset, chosen.choice((1, 2000)))
        if served:
            assert without_epoch(served[0]) == without_epoch(written[offset])
        else:
            assert offset >= damaged_offset - 1, "the one before may be suspected when it is asked for alone"
    log.append(memoryview(build_batch([Record(-1, NOW_MS, None, b"new")])), 0, NOW_MS)
    assert serve(log, log.end_offset - 1, 1000)


@pytest.mark.parametrize("seed", range(30))
def test_swapped_batches_are_detected_by_sequential_reads(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    written = closed_log(tmp_path / "log", [400] * 30, TopicSettings(index_interval_bytes=500))
    one, other = sorted(chosen.sample(range(30), 2))
    batches = list(written)
    batches[one], batches[other] = batches[other], batches[one]
    (tmp_path / "log" / f"{0:020d}.log").write_bytes(b"".join(batches))

    log = reopen(tmp_path / "log", len(written))

    assert read_in_order(log, written, chosen.choice((1, 900, 3000, 100_000))) >= one


def test_gaps_of_a_compacted_log_are_served(tmp_path: Path) -> None:
    """Also when the topic is not compacted any more."""
    log = create_log(PARTITION, str(tmp_path / "log"), TopicSettings(), DescriptorPool(), None, NOW_MS, 10**9)
    offsets = [0, 1, 5, 6, 20, 40, 41]
    for base_offset in offsets:
        log.append_as_follower(memoryview(build_batch([Record(-1, NOW_MS, b"k", b"v")], base_offset=base_offset)))
    log.close()

    reopened = reopen(tmp_path / "log", 42, TopicSettings())

    for asked in range(42):
        served = serve(reopened, asked, 100_000)
        assert served is not None
        expected = [offset for offset in offsets if offset >= asked]
        assert [read_batch_header(batch, 0).base_offset for batch in served] == expected


def test_each_byte_is_checked_once(tmp_path: Path) -> None:
    written = closed_log(tmp_path / "log", [300] * 20, TopicSettings())
    log = reopen(tmp_path / "log", 20, TopicSettings())
    segment = log.active

    for offset in (15, 3, 9, 0, 12):
        serve(log, offset, 3 * len(written[0]))
    file_range = log.read(9, 3 * len(written[0]), 20, True)

    assert file_range is not None
    assert not needs_check(file_range)
    assert segment.verified_ranges is not None
    assert len(segment.verified_ranges) < 5, "neighbours are merged"
    serve(log, 0, 1 << 20)
    assert (segment.verified_from, segment.verified_ranges) == (0, None)


def test_what_this_process_wrote_needs_no_check(tmp_path: Path) -> None:
    closed_log(tmp_path / "log", [300] * 3, TopicSettings())
    log = reopen(tmp_path / "log", 3, TopicSettings())
    log.append(memoryview(build_batch([Record(-1, NOW_MS, None, b"new")])), 0, NOW_MS)

    old = log.read(0, 10, 4, True)
    new = log.read(3, 1000, 4, True)

    assert old is not None
    assert new is not None
    assert needs_check(old)
    assert not needs_check(new)


def test_a_corrupt_batch_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    closed_log(tmp_path / "log", [300] * 3, TopicSettings())
    path = tmp_path / "log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    log = reopen(tmp_path / "log", 3, TopicSettings())

    for _ in range(5):
        assert serve(log, 0, 1000) is None

    assert caplog.text.count("Found a corrupt batch") == 1
    assert str(path) in caplog.text


def test_ranges_are_merged() -> None:
    assert merge_ranges([], 5, 9) == [(5, 9)]
    assert merge_ranges([(0, 3), (5, 9)], 3, 5) == [(0, 9)]
    assert merge_ranges([(0, 3)], 10, 12) == [(0, 3), (10, 12)]
    assert merge_ranges([(0, 30)], 10, 12) == [(0, 30)]


def test_a_file_that_was_just_read_is_in_memory(tmp_path: Path) -> None:
    closed_log(tmp_path / "log", [300] * 3, TopicSettings())
    log = reopen(tmp_path / "log", 3, TopicSettings())
    file_range = log.read(0, 10_000, 3, True)
    assert file_range is not None

    read_ahead(file_range)

    assert is_range_cached(file_range)


DEFAULT_SETTINGS = TopicSettings()
COUNT = 10  # batches of one record each; the epoch rises from 3 to 4 with the sixth
EPOCH_AT = 12


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, list[int]]:
    """A log and where its batches begin."""
    log = new_log(tmp_path / "log", DEFAULT_SETTINGS)
    positions = []
    for number in range(COUNT):
        positions.append(log.active.size)
        log.append(memoryview(batch_of(1, 20, 1_700_000_000_000)), 3 if number < 5 else 4, 1_700_000_000_000)
    log.close()
    return tmp_path / "log", positions


def read(directory: Path) -> Log:
    """All of it, as it is read after a restart."""
    log = reopen(directory, COUNT, DEFAULT_SETTINGS)
    found = log.read(0, 1 << 20, COUNT, True)
    assert found is not None
    assert needs_check(found)
    log.check_range(found)
    found.release()
    return log


def data_of(log: Log) -> bytes:
    return os.pread(log.active.open_descriptor(), log.active.size, 0)


@pytest.mark.parametrize("number", [0, 2, 7, 9])
@pytest.mark.parametrize("wrong", [0, 2, 3, 4, 5, 1 << 24])
def test_a_wrong_epoch_between_right_ones_is_repaired(stored: tuple[Path, list[int]], number: int, wrong: int) -> None:
    directory, positions = stored
    path = next(directory.glob("*.log"))
    before = path.read_bytes()
    data = bytearray(before)
    data[positions[number] + EPOCH_AT : positions[number] + EPOCH_AT + 4] = wrong.to_bytes(4, "big")
    path.write_bytes(data)
    log = read(directory)
    assert data_of(log) == before
    log.close()


def test_a_truncation_during_a_check_leaves_nothing_to_repair(
    stored: tuple[Path, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker checks while the event loop truncates and appends: at these positions there are other bytes now."""
    directory, positions = stored
    path = next(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[positions[7] + EPOCH_AT : positions[7] + EPOCH_AT + 4] = (2).to_bytes(4, "big")
    path.write_bytes(data)
    log = reopen(directory, COUNT, DEFAULT_SETTINGS)
    found = log.read(0, 1 << 20, COUNT, True)
    assert found is not None
    after = b""

    class Lock:
        """The worker takes it before it reads, and again before it writes: by then the log was truncated."""

        taken = 0

        def __enter__(self) -> None:
            nonlocal after
            self.taken += 1
            if self.taken == 2:
                log.truncate_to(6)
                log.append(memoryview(batch_of(1, 500, NOW_MS)), 4, NOW_MS)
                after = data_of(log)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(log._truncations, "lock", Lock())
    log.check_range(found)
    found.release()
    assert after
    assert data_of(log) == after
    log.close()


def test_batches_that_agree_take_precedence_over_the_epoch_file(stored: tuple[Path, list[int]]) -> None:
    directory, _ = stored
    before = next(directory.glob("*.log")).read_bytes()
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n2 0\n6 4\n")
    log = read(directory)
    assert data_of(log) == before
    log.close()

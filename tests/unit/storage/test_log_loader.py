"""Opening logs after clean stops, crashes and damage of every kind."""

from __future__ import annotations

import logging
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, is_crc_valid, read_batch_header
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.log_loader import open_log
from ottla.storage.range_checks import needs_check

PARTITION = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SETTINGS = TopicSettings(segment_bytes=16_000, index_interval_bytes=600)


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def batch_of(record_count: int, size: int, timestamp: int, sequence: int = -1) -> bytearray:
    records = [Record(-1, timestamp + i, b"key", bytes([65 + i % 26]) * size) for i in range(record_count)]
    if sequence < 0:
        return build_batch(records)
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


def fill(log: Log, count: int, seed: int, idempotent: bool = True) -> None:
    chosen = random.Random(seed)
    sequence = 0
    for i in range(count):
        record_count = chosen.randrange(1, 4)
        batch = batch_of(record_count, chosen.randrange(10, 200), NOW_MS + i * 10, sequence if idempotent else -1)
        log.append(memoryview(batch), i // 40, NOW_MS)
        sequence += record_count


def new_log(directory: Path, settings: TopicSettings = SETTINGS) -> Log:
    return create_log(PARTITION, str(directory), settings, DescriptorPool(), None, NOW_MS, DAY_MS)


def reopen(
    directory: Path, *, is_clean: bool, recovery_point: int = 0, start: int = 0, settings: TopicSettings = SETTINGS
) -> Log:
    return open_log(
        PARTITION,
        str(directory),
        settings,
        pool=DescriptorPool(),
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=start,
        now_ms=NOW_MS,
        producer_expiration_ms=DAY_MS,
    )


def stored_batches(log: Log) -> list[tuple[int, bytes]]:
    """Everything a consumer can read, checked as the broker checks it: (base offset, bytes) of each batch."""
    found = []
    offset = log.log_start_offset
    while (file_range := log.read(offset, 4000, log.end_offset, True)) is not None:
        if needs_check(file_range):
            log.check_range(file_range)
        data = os.pread(file_range.descriptor, file_range.length, file_range.position)
        file_range.release()
        position = 0
        while len(data) - position >= 61:
            header = read_batch_header(data, position)
            if position + header.batch_bytes > len(data):
                break
            assert is_crc_valid(data, position, header)
            found.append((header.base_offset, data[position : position + header.batch_bytes]))
            position += header.batch_bytes
            offset = header.next_offset
    return found


def state_of(log: Log) -> tuple[object, ...]:
    producers = {p.producer_id: (p.epoch, p.last_sequence, p.last_offset) for p in log.producers.by_id.values()}
    segments = [(s.base_offset, s.size) for s in log.segments]
    return log.end_offset, log.log_start_offset, segments, producers, log.epochs.entries, stored_batches(log)


def index_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name.endswith("index")}


@pytest.mark.parametrize("seed", range(8))
def test_a_crash_and_a_clean_close_lead_to_the_same_state(tmp_path: Path, seed: int) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 150, seed)
    expected = state_of(log)
    assert len(log.segments) > 2
    shutil.copytree(tmp_path / "a", tmp_path / "crashed")
    log.close()
    shutil.copytree(tmp_path / "a", tmp_path / "closed")

    crashed = reopen(tmp_path / "crashed", is_clean=False)
    closed = reopen(tmp_path / "closed", is_clean=True)

    assert state_of(crashed) == expected
    assert state_of(closed) == expected
    crashed.close()
    closed.close()
    assert index_files(tmp_path / "crashed") == index_files(tmp_path / "closed")


def test_a_log_goes_on_after_each_kind_of_reopening(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 30, 1)
    for round_number in range(6):
        if round_number % 2:
            log.close()
        else:
            log.close_files()
        before = log.end_offset
        log = reopen(tmp_path / "a", is_clean=bool(round_number % 2), recovery_point=log.recovery_point)
        assert log.end_offset == before
        batch = batch_of(1, 50, NOW_MS + 10_000 + round_number)
        assert log.append(memoryview(batch), 5, NOW_MS).base_offset == before
    assert [base for base, _ in stored_batches(log)] == sorted({base for base, _ in stored_batches(log)})


def test_a_repeated_batch_is_known_after_a_crash(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    first = log.append(memoryview(batch_of(2, 10, NOW_MS, sequence=0)), 0, NOW_MS)
    log.append(memoryview(batch_of(2, 10, NOW_MS, sequence=2)), 0, NOW_MS)
    log.close_files()

    again = reopen(tmp_path / "a", is_clean=False).append(memoryview(batch_of(2, 10, NOW_MS, sequence=0)), 0, NOW_MS)

    assert again.is_duplicate
    assert again.base_offset == first.base_offset


@pytest.mark.parametrize("seed", range(120))
def test_a_cut_off_tail_ends_the_log_at_the_last_whole_batch(tmp_path: Path, seed: int) -> None:
    """W5: the active segment is shortened by 1..5000 bytes, after a crash or after a clean stop."""
    chosen = random.Random(seed)
    log = new_log(tmp_path / "a")
    fill(log, 60, seed)
    if seed % 3 == 0:
        log.flush()
    expected = stored_batches(log)
    recovery_point = log.recovery_point
    is_clean = seed % 2 == 0
    log.close() if is_clean else log.close_files()
    path = Path(log.active.path(".log"))
    size = path.stat().st_size
    os.truncate(path, max(0, size - chosen.randrange(1, 5000)))
    left = path.read_bytes()

    reopened = reopen(tmp_path / "a", is_clean=is_clean, recovery_point=recovery_point)

    assert_sound_prefix(reopened, expected)
    assert left.startswith(path.read_bytes())
    assert reopened.active.size == whole_batches_bytes(left)
    assert_appends_go_on(reopened)


@pytest.mark.parametrize("kind", ["zeros", "garbage", "repeated", "swapped", "flipped"])
@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_tail_is_cut_and_never_served(tmp_path: Path, kind: str, seed: int) -> None:
    """W6 and W8: the first wrong byte in what was not synced ends the log."""
    chosen = random.Random(f"{kind}{seed}")
    settings = TopicSettings(index_interval_bytes=600)
    log = new_log(tmp_path / "a", settings)
    fill(log, 200, seed)
    expected = stored_batches(log)
    log.close_files()
    path = Path(log.active.path(".log"))
    data = path.read_bytes()
    changed = damaged(data, kind, chosen)
    path.write_bytes(changed)

    reopened = reopen(tmp_path / "a", is_clean=False, settings=settings)

    assert_sound_prefix(reopened, expected)
    assert reopened.active.size >= whole_batches_bytes(data[: common_bytes(data, changed)])
    if kind in ("zeros", "garbage", "repeated"):
        assert stored_batches(reopened) == expected
    assert_appends_go_on(reopened)


def damaged(data: bytes, kind: str, chosen: random.Random) -> bytes:
    if kind == "zeros":
        return data + bytes(chosen.randrange(1, 9000))
    if kind == "garbage":
        return data + chosen.randbytes(chosen.randrange(1, 9000))
    if kind == "repeated":
        boundary = chosen.choice(batch_positions(data)[-20:])
        return data + data[boundary:]
    if kind == "swapped":
        first = chosen.randrange(len(data) // 4096) * 4096
        second = chosen.randrange(len(data) // 4096) * 4096
        changed = bytearray(data)
        changed[first : first + 4096], changed[second : second + 4096] = (
            data[second : second + 4096],
            data[first : first + 4096],
        )
        return bytes(changed)
    changed = bytearray(data)
    changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
    return bytes(changed)


def batch_positions(data: bytes) -> list[int]:
    positions = [0]
    while positions[-1] < len(data):
        positions.append(positions[-1] + read_batch_header(data, positions[-1]).batch_bytes)
    return positions[:-1]


def common_bytes(first: bytes, second: bytes) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def whole_batches_bytes(data: bytes) -> int:
    """Where the last batch ends that is whole."""
    position = 0
    while len(data) - position >= 61:
        batch_bytes = read_batch_header(data, position).batch_bytes
        if position + batch_bytes > len(data):
            break
        position += batch_bytes
    return position


def assert_sound_prefix(log: Log, expected: list[tuple[int, bytes]]) -> None:
    """What is served is a prefix of what was written; leader epochs stand outside of the checksum."""
    served = [(base, data[:12] + data[16:]) for base, data in stored_batches(log)]
    assert served == [(base, data[:12] + data[16:]) for base, data in expected[: len(served)]]


def assert_appends_go_on(log: Log) -> None:
    before = log.end_offset
    assert log.append(memoryview(batch_of(1, 10, NOW_MS)), 9, NOW_MS).base_offset == before
    assert stored_batches(log)[-1][0] == before


@pytest.mark.parametrize("seed", range(80))
def test_damaged_and_missing_side_files_are_rebuilt(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """W7: indexes, snapshots and epochs may be deleted, cut, flipped or emptied; reads stay right."""
    chosen = random.Random(seed)
    log = new_log(tmp_path / "a")
    fill(log, 120, seed)
    expected = state_of(log)
    recovery_point = 0
    if seed % 3 == 1:
        log.flush()
        recovery_point = log.recovery_point
    is_clean = seed % 2 == 0
    log.close() if is_clean else log.close_files()
    names = [name for name in os.listdir(tmp_path / "a") if not name.endswith(".log")]
    for name in chosen.sample(sorted(names), 3):
        damage_file(tmp_path / "a" / name, chosen)

    reopened = reopen(tmp_path / "a", is_clean=is_clean, recovery_point=recovery_point)

    assert state_of(reopened)[0] == expected[0]
    assert stored_batches(reopened) == expected[-1]
    for offset in chosen.sample(range(log.end_offset), 20):
        assert_reads(reopened, offset)
    found = reopened.offset_for_timestamp(NOW_MS + 600)
    assert found is not None
    assert found[1] == NOW_MS + 600
    last = reopened.offset_of_max_timestamp()
    assert last is not None
    assert last[1] >= NOW_MS + 1190


def damage_file(path: Path, chosen: random.Random) -> None:
    data = path.read_bytes()
    kind = chosen.choice(["delete", "empty", "cut", "flip", "zeros"])
    if kind == "delete" and path.name != "partition.metadata":
        path.unlink()
    elif kind == "empty" or not data:
        path.write_bytes(b"")
    elif kind == "cut":
        path.write_bytes(data[: chosen.randrange(len(data))])
    elif kind == "flip":
        changed = bytearray(data)
        changed[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(bytes(changed))
    else:
        path.write_bytes(data + bytes(120))


def assert_reads(log: Log, offset: int) -> None:
    file_range = log.read(offset, 1, log.end_offset, True)
    assert file_range is not None
    header = read_batch_header(os.pread(file_range.descriptor, 61, file_range.position), 0)
    file_range.release()
    assert header.base_offset <= offset <= header.last_offset


def test_a_corrupt_index_is_logged_with_kafkas_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 40, 1)
    log.close()
    path = Path(log.active.path(".index"))
    path.write_bytes(path.read_bytes() + b"abc")

    with caplog.at_level(logging.WARNING):
        reopen(tmp_path / "a", is_clean=True)

    assert "Found a corrupted index file" in caplog.text
    assert path.stat().st_size % 8 == 0


def test_padding_that_a_killed_kafka_leaves_is_cut_off(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 40, 1)
    log.close()
    expected = index_files(tmp_path / "a")
    for suffix, size in ((".index", 10_485_760), (".timeindex", 10_485_756)):
        os.truncate(log.active.path(suffix), size)

    reopen(tmp_path / "a", is_clean=False).close()

    assert index_files(tmp_path / "a") == expected


def test_a_flip_below_the_recovery_point_is_never_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(tmp_path / "a", TopicSettings())
    fill(log, 50, 3)
    log.flush()
    expected = stored_batches(log)
    log.close()
    path = Path(log.active.path(".log"))
    data = bytearray(path.read_bytes())
    position = batch_positions(bytes(data))[20]
    data[position + 70] ^= 4
    path.write_bytes(bytes(data))

    reopened = reopen(tmp_path / "a", is_clean=True)
    file_range = reopened.read(0, 1 << 20, reopened.end_offset, True)

    assert file_range is not None
    assert needs_check(file_range)
    reopened.check_range(file_range)
    assert file_range.length == position, "the range ends before the bad batch"
    bad_range = reopened.read(expected[20][0], 1 << 20, reopened.end_offset, True)
    assert bad_range is not None
    with pytest.raises(KafkaError, match="corrupt"):
        reopened.check_range(bad_range)
    assert f"position {position}" in caplog.text


def test_a_loss_is_logged_with_file_and_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(tmp_path / "a", TopicSettings())
    fill(log, 10, 1)
    log.close_files()
    path = log.active.path(".log")
    os.truncate(path, os.path.getsize(path) - 1)

    reopened = reopen(tmp_path / "a", is_clean=False)

    assert path in caplog.text
    assert f"offsets {reopened.end_offset} to {log.end_offset - 1}" in caplog.text


def test_a_short_middle_segment_ends_the_log_there(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 150, 2)
    expected = stored_batches(log)
    log.close_files()
    assert len(log.segments) > 2
    path = log.segments[1].path(".log")
    os.truncate(path, os.path.getsize(path) - 7)

    reopened = reopen(tmp_path / "a", is_clean=False)

    assert len(reopened.segments) == 2
    assert_sound_prefix(reopened, expected)
    assert_appends_go_on(reopened)
    assert not [name for name in os.listdir(tmp_path / "a") if name.endswith(".deleted")]


def test_recovery_reads_only_from_the_recovery_point_on(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a", TopicSettings(index_interval_bytes=600))
    fill(log, 100, 4)
    log.flush()
    flushed_bytes = log.active.size
    recovery_point = log.recovery_point
    log.append(memoryview(batch_of(1, 10, NOW_MS + 5000)), 2, NOW_MS)
    log.close_files()

    reopened = reopen(tmp_path / "a", is_clean=False, recovery_point=recovery_point)

    assert flushed_bytes - 1300 < reopened.active.verified_from <= flushed_bytes
    assert reopened.end_offset == recovery_point + 1
    assert reopened.recovery_point == recovery_point


def test_a_recovery_point_past_the_end_is_ignored(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 100, 4)
    expected = state_of(log)
    log.close_files()

    reopened = reopen(tmp_path / "a", is_clean=False, recovery_point=10**9)

    assert state_of(reopened) == expected
    assert reopened.recovery_point <= reopened.end_offset


def test_a_start_offset_past_the_end_does_not_hide_the_log(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 20, 4)
    log.close()

    assert reopen(tmp_path / "a", is_clean=True, start=10**9).log_start_offset == 0


def test_gaps_that_compaction_left_are_kept(tmp_path: Path) -> None:
    settings = TopicSettings(cleanup_policy=frozenset({"compact"}))
    log = new_log(tmp_path / "a", settings)
    for base_offset in (0, 5, 6, 20):
        log.append_as_follower(memoryview(build_batch([Record(-1, NOW_MS, b"k", b"v")], base_offset=base_offset)))
    log.close_files()

    reopened = reopen(tmp_path / "a", is_clean=False, settings=settings)

    assert [base for base, _ in stored_batches(reopened)] == [0, 5, 6, 20]
    assert reopened.end_offset == 21


def test_an_empty_folder_becomes_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()

    log = reopen(tmp_path / "a", is_clean=False, start=42)

    assert (log.log_start_offset, log.end_offset) == (42, 42)
    assert_appends_go_on(log)


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_empty_log_reopens_empty(tmp_path: Path, is_clean: bool) -> None:
    new_log(tmp_path / "a").close()

    log = reopen(tmp_path / "a", is_clean=is_clean)

    assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert log.read(0, 100, 0, True) is None


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base_offset", [5, 30, 47])
def test_an_empty_segment_of_a_failed_roll_is_not_in_the_way(tmp_path: Path, is_clean: bool, base_offset: int) -> None:
    """The log went on in the segment before; the empty one says nothing about where that ends."""
    log = new_log(tmp_path / "a", TopicSettings(segment_bytes=4000, index_interval_bytes=600))
    for number in range(50):
        log.append(memoryview(batch_of(1, 100, NOW_MS + number)), 0, NOW_MS)
    assert len(log.segments) == 3
    expected = state_of(log)
    log.close() if is_clean else log.close_files()
    (tmp_path / "a" / f"{base_offset:020d}.log").write_bytes(b"")

    reopened = reopen(tmp_path / "a", is_clean=is_clean, recovery_point=50 if is_clean else 0)

    assert state_of(reopened) == expected
    assert not (tmp_path / "a" / f"{base_offset:020d}.log").exists()
    assert_appends_go_on(reopened)


def test_an_empty_active_segment_is_kept(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a")
    fill(log, 10, 1)
    log.roll(NOW_MS)
    expected = state_of(log)
    log.close()

    assert state_of(reopen(tmp_path / "a", is_clean=True, recovery_point=log.end_offset)) == expected


def test_a_second_attempt_leaves_no_files_open(tmp_path: Path) -> None:
    log = new_log(tmp_path / "a", TopicSettings(index_interval_bytes=600))
    fill(log, 100, 4)
    log.close_files()
    before = len(os.listdir("/proc/self/fd"))

    reopen(tmp_path / "a", is_clean=False, recovery_point=10**9)

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize(
    "lie", ["0\n3\n0 0\n2 10\n9 20\n", "0\n2\n0 0\n2 10\n", "0\n3\n0 0\n2 13\n3 20\n", "0\n3\n0 0\n2 10\n3 15\n"]
)
def test_leader_epochs_that_the_log_does_not_bear_out_are_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lie: str, is_clean: bool
) -> None:
    """With wrong epochs a follower would truncate acknowledged records, or keep records that no other replica has."""
    log = new_log(tmp_path / "log")
    for number in range(30):
        log.append(memoryview(batch_of(1, 100, NOW_MS)), {0: 0, 1: 2, 2: 3}[number // 10], NOW_MS)
    log.close()
    path = tmp_path / "log" / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n3\n0 0\n2 10\n3 20\n"
    path.write_text(lie)

    with caplog.at_level(logging.WARNING):
        log = reopen(tmp_path / "log", is_clean=is_clean, recovery_point=30)

    is_told = "does not fit the log" in caplog.text
    is_tail_right = "3 " in lie.splitlines()[-1]
    assert is_told == (not (is_clean and is_tail_right)), "after a clean stop only the last epoch is looked at"
    assert (log.epochs.entries == [(0, 0), (2, 10), (3, 20)]) == is_told


def test_one_batch_with_a_wrong_epoch_does_not_change_the_epochs(tmp_path: Path) -> None:
    log = new_log(tmp_path / "log")
    for number in range(30):
        log.append(memoryview(batch_of(1, 100, NOW_MS)), number // 10, NOW_MS)
    log.close()
    path = tmp_path / "log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    position = batch_positions(bytes(data))[10]
    data[position + 12 : position + 16] = (77).to_bytes(4, "big")
    path.write_bytes(data)

    log = reopen(tmp_path / "log", is_clean=False, recovery_point=30)

    assert log.epochs.entries == [(0, 0), (1, 10), (2, 20)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["checksum", "length", "header", "zeros", "garbage"])
def test_everything_that_a_truncation_removes_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, seed: int
) -> None:
    """The batches behind the damage are sound, and gone with it: who counts on the line must know of them."""
    chosen = random.Random(seed)
    log = new_log(tmp_path / "a", TopicSettings(segment_bytes=9000, index_interval_bytes=500))
    fill(log, 120, seed)
    log.close_files()
    segment = chosen.choice(log.segments)
    path = Path(segment.path(".log"))
    data = bytearray(path.read_bytes())
    position = chosen.choice(batch_positions(bytes(data))[:-1])
    end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    spoil(data, position, end, kind, chosen)
    path.write_bytes(data)

    reopened = reopen(tmp_path / "a", is_clean=False, settings=TopicSettings(segment_bytes=9000))

    assert f"Lost: offsets {reopened.end_offset} to {log.end_offset - 1}\n" in caplog.text


def spoil(data: bytearray, start: int, end: int, kind: str, chosen: random.Random) -> None:
    """Damage one batch of a segment."""
    if kind == "checksum":
        data[end - 1] ^= 1
    elif kind == "length":
        data[start + 8 : start + 12] = chosen.choice((5, 1 << 30, end - start)).to_bytes(4, "big")
    elif kind == "header":
        data[start : start + 61] = chosen.randbytes(61)
    else:
        data[start:end] = bytes(end - start) if kind == "zeros" else b"\x02" * (end - start)


def test_an_inexact_loss_is_logged_as_such(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = new_log(tmp_path / "a", TopicSettings())
    fill(log, 50, 1)
    log.close_files()
    path = Path(log.active.path(".log"))
    data = path.read_bytes()
    place = batch_positions(data)[20]
    path.write_bytes(data[:place] + bytes(len(data) - place))

    reopened = open_log(
        PARTITION,
        str(tmp_path / "a"),
        SETTINGS,
        pool=DescriptorPool(),
        is_clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW_MS,
        producer_expiration_ms=DAY_MS,
        high_watermark=log.end_offset - 3,
    )

    assert f"Lost: offsets {reopened.end_offset} to at least {log.end_offset - 4}\n" in caplog.text


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
def test_an_end_that_is_missing_without_a_trace_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    log = new_log(tmp_path / "a", TopicSettings(index_interval_bytes=500))
    fill(log, 50, 1)
    log.close()
    path = Path(log.active.path(".log"))
    data = path.read_bytes()
    path.write_bytes(data[: batch_positions(data)[20]])

    reopened = reopen(tmp_path / "a", is_clean=is_clean, recovery_point=log.end_offset)

    assert reopened.has_data_loss
    assert caplog.text.count("Lost:") == 1
    assert f"Lost: offsets {reopened.end_offset} to at least {log.end_offset - 1}\n" in caplog.text


def filled(directory: Path) -> tuple[Log, int]:
    """A log of several segments, and where the second one begins."""
    log = new_log(directory)
    fill(log, 120, 1)
    assert len(log.segments) > 2
    return log, log.segments[1].base_offset


def remove_first(directory: Path) -> None:
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_start_is_detected_until_it_is_repaired(tmp_path: Path, is_clean: bool) -> None:
    log, second = filled(tmp_path / "log")
    end_offset = log.end_offset
    log.close()
    remove_first(tmp_path / "log")
    for _ in range(2):  # also after a crash on the way
        opened = reopen(tmp_path / "log", is_clean=is_clean, recovery_point=end_offset)
        assert (opened.has_data_loss, opened.lost_start_offset) == (True, 0)
        assert (opened.log_start_offset, opened.end_offset) == (second, end_offset)
        opened.close()


def test_a_sole_replica_accepts_the_loss(tmp_path: Path) -> None:
    log, second = filled(tmp_path / "log")
    end_offset = log.end_offset
    log.close()
    remove_first(tmp_path / "log")
    opened = reopen(tmp_path / "log", is_clean=True, recovery_point=end_offset)
    opened.accept_data_loss()
    opened.close()
    again = reopen(tmp_path / "log", is_clean=True, recovery_point=end_offset)
    assert (again.has_data_loss, again.lost_start_offset, again.log_start_offset) == (False, -1, second)


@pytest.mark.parametrize("deletes_by_hand", [True, False])
def test_what_retention_or_a_person_deletes_is_not_missed(tmp_path: Path, deletes_by_hand: bool) -> None:
    log, second = filled(tmp_path / "log")
    if deletes_by_hand:
        log.raise_log_start_offset(second)
    else:
        log.settings = replace(SETTINGS, retention_bytes=log.size_bytes - log.segments[0].size)
    assert log.delete_old_segments(0, log.end_offset) == 1
    end_offset = log.end_offset
    log.close_files()  # a crash: nothing else is written down
    opened = reopen(tmp_path / "log", is_clean=False, recovery_point=end_offset)
    assert (opened.has_data_loss, opened.lost_start_offset, opened.log_start_offset) == (False, -1, second)

"""Appending to and reading from one partition's log."""

from __future__ import annotations

import errno
import os
import random
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header, read_records
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def new_log(directory: Path, pool: DescriptorPool | None = None, **settings: object) -> Log:
    return create_log(
        TopicPartition("topic", 0),
        str(directory / "topic-0"),
        TopicSettings(**settings),  # type: ignore[arg-type]
        pool or DescriptorPool(),
        uuid.UUID(int=1),
        NOW_MS,
        DAY_MS,
    )


def batch_of(count: int = 1, size: int = 10, timestamp: int = NOW_MS, **fields: int) -> memoryview:
    return memoryview(build_batch([Record(-1, timestamp, b"k", b"v" * size) for _ in range(count)], **fields))


def read_bytes(log: Log, offset: int, max_bytes: int = 1 << 20, end: int = -1, minimum_one: bool = True) -> bytes:
    file_range = log.read(offset, max_bytes, log.end_offset if end < 0 else end, minimum_one)
    if file_range is None:
        return b""
    data = os.pread(file_range.descriptor, file_range.length, file_range.position)
    file_range.release()
    return data


def first_base_offset(data: bytes) -> int:
    return read_batch_header(data, 0).base_offset


def test_offsets_and_leader_epoch_are_written_into_the_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(3), 4, NOW_MS)

    appended = log.append(batch_of(2), 4, NOW_MS)

    assert (appended.base_offset, appended.last_offset, appended.log_append_time_ms) == (3, 4, -1)
    header = read_batch_header(read_bytes(log, 3), 0)
    assert (header.base_offset, header.leader_epoch) == (3, 4)
    assert [record.offset for record in read_records(read_bytes(log, 4))] == [3, 4]
    assert log.epochs.entries == [(4, 0)]


def test_log_append_time_replaces_the_producers_time(tmp_path: Path) -> None:
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")

    appended = log.append(batch_of(timestamp=5), 0, NOW_MS)

    assert appended.log_append_time_ms == NOW_MS
    assert [record.timestamp for record in read_records(read_bytes(log, 0))] == [NOW_MS]


@pytest.mark.parametrize(("codec", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd"), (0, "uncompressed")])
def test_a_topics_own_codec_is_applied(tmp_path: Path, codec: int, name: str) -> None:
    log = new_log(tmp_path, compression_type=name)

    log.append(batch_of(3, 100, codec=3 if codec != 3 else 1), 0, NOW_MS)

    data = read_bytes(log, 0)
    assert read_batch_header(data, 0).codec == codec
    assert [record.value for record in read_records(data)] == [b"v" * 100] * 3


def test_a_changed_setting_takes_effect_at_once(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.settings = TopicSettings(max_message_bytes=80)

    with pytest.raises(KafkaError) as caught:
        log.append(batch_of(size=200), 0, NOW_MS)

    assert caught.value.error is Error.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=100)

    with pytest.raises(KafkaError) as caught:
        log.append(batch_of(size=200), 0, NOW_MS)

    assert caught.value.error is Error.RECORD_LIST_TOO_LARGE


# --- reading ----------------------------------------------------------------------------------------------------


def test_reading_outside_of_the_log_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(5), 0, NOW_MS)
    log.raise_log_start_offset(2)

    for offset in (-1, 0, 1, 6):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 5, True)
        assert caught.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.read(5, 100, 5, True) is None


def test_max_bytes_cut_no_batch_and_leave_the_first(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(3):
        log.append(batch_of(), 0, NOW_MS)
    size = len(batch_of())

    assert len(read_bytes(log, 0, 10)) == size
    assert log.read(0, 10, 3, False) is None
    assert len(read_bytes(log, 0, size + 5)) == size
    assert len(read_bytes(log, 0, 2 * size)) == 2 * size
    assert len(read_bytes(log, 1, 10_000)) == 2 * size
    assert log.read(0, 0, 3, False) is None
    assert len(read_bytes(log, 0, 0)) == size


def test_nothing_at_or_past_the_end_offset_is_handed_out(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=300)
    for _ in range(10):
        log.append(batch_of(2), 0, NOW_MS)

    for end in range(21):
        for offset in range(20):
            data = read_bytes(log, offset, 10_000, end)
            position = 0
            while position < len(data):
                header = read_batch_header(data, position)
                assert header.last_offset < end or header.base_offset < end <= header.last_offset
                assert header.base_offset < end
                position += header.batch_bytes


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=60),
    segment_bytes=st.integers(2500, 6000),
    interval=st.integers(0, 900),
    probe=st.randoms(use_true_random=False),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_offset_is_found_like_in_a_plain_list(
    tmp_path: Path, sizes: list[tuple[int, int]], segment_bytes: int, interval: int, probe: random.Random
) -> None:
    directory = tmp_path / uuid.uuid4().hex
    directory.mkdir()
    log = new_log(directory, segment_bytes=segment_bytes, index_interval_bytes=interval)
    bases: list[tuple[int, int]] = []
    for count, size in sizes:
        appended = log.append(batch_of(count, size), 0, NOW_MS)
        bases.append((appended.base_offset, appended.last_offset))

    for offset in probe.sample(range(log.end_offset), min(log.end_offset, 25)):
        expected = next(base for base, last in bases if base <= offset <= last)
        assert first_base_offset(read_bytes(log, offset, 1)) == expected


def test_a_file_stays_open_while_a_range_is_out(tmp_path: Path) -> None:
    pool = DescriptorPool(1)
    log = new_log(tmp_path, pool, segment_bytes=100)
    for _ in range(4):
        log.append(batch_of(), 0, NOW_MS)
    assert len(log.segments) == 4

    ranges = [log.read(offset, 1000, 4, True) for offset in range(4)]

    for offset, file_range in enumerate(ranges):
        assert file_range is not None
        data = os.pread(file_range.descriptor, file_range.length, file_range.position)
        assert first_base_offset(data) == offset
        file_range.release()
    log.read(0, 1000, 4, True)
    assert sum(segment.descriptor >= 0 for segment in log.segments) <= 4
    assert pool.open_count <= 4


def test_descriptors_of_unused_segments_are_given_back(tmp_path: Path) -> None:
    pool = DescriptorPool(2)
    log = new_log(tmp_path, pool, segment_bytes=100)
    for _ in range(20):
        log.append(batch_of(), 0, NOW_MS)
    for offset in range(20):
        assert first_base_offset(read_bytes(log, offset)) == offset

    assert sum(segment.descriptor >= 0 for segment in log.segments) == 2
    assert pool.open_count == 2


# --- rolling ----------------------------------------------------------------------------------------------------


def test_a_segment_rolls_when_the_next_batch_would_not_fit(tmp_path: Path) -> None:
    size = len(batch_of())
    log = new_log(tmp_path, segment_bytes=3 * size)

    for _ in range(7):
        log.append(batch_of(), 0, NOW_MS)

    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert sorted(name for name in os.listdir(log.directory) if name.endswith(".log")) == [
        "00000000000000000000.log",
        "00000000000000000003.log",
        "00000000000000000006.log",
    ]


def test_a_segment_rolls_by_the_time_of_its_records(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_ms=1000, message_timestamp_after_max_ms=2**63 - 1)
    log.append(batch_of(timestamp=NOW_MS), 0, NOW_MS)
    log.append(batch_of(timestamp=NOW_MS + 1000), 0, NOW_MS)
    assert len(log.segments) == 1

    log.append(batch_of(timestamp=NOW_MS + 1001), 0, NOW_MS)

    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_of_records_without_time_rolls_by_its_own_age(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_ms=1000)
    log.append(batch_of(timestamp=-1), 0, NOW_MS)

    log.append(batch_of(timestamp=-1), 0, NOW_MS + 1001)

    assert len(log.segments) == 2


def test_segments_roll_earlier_by_a_random_part_of_the_jitter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "randrange", lambda most: most - 1)
    log = new_log(tmp_path, segment_ms=DAY_MS, segment_jitter_ms=DAY_MS // 2, message_timestamp_after_max_ms=DAY_MS)
    log.append(batch_of(), 0, NOW_MS)
    log.roll(NOW_MS)
    log.append(batch_of(), 0, NOW_MS)
    log.append(batch_of(timestamp=NOW_MS + DAY_MS // 2), 0, NOW_MS)
    assert len(log.segments) == 2
    log.append(batch_of(timestamp=NOW_MS + DAY_MS // 2 + 2), 0, NOW_MS)
    assert len(log.segments) == 3


def test_a_segment_rolls_when_its_index_is_full(tmp_path: Path) -> None:
    log = new_log(tmp_path, index_interval_bytes=0, segment_index_bytes=40)

    for i in range(20):
        log.append(batch_of(timestamp=NOW_MS + i), 0, NOW_MS)

    assert all(os.path.getsize(segment.path(".timeindex")) <= 40 for segment in log.segments[:-1])
    assert len(log.segments) > 5


def test_offsets_in_a_segment_stay_within_31_bits(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_follower(batch_of(base_offset=0))
    log.append_as_follower(batch_of(base_offset=2**31 - 1))
    log.append_as_follower(batch_of(base_offset=2**31))

    assert len(log.segments) == 2
    assert first_base_offset(read_bytes(log, 2**31)) == 2**31


# --- faults -----------------------------------------------------------------------------------------------------


class FailingDisk:
    """Takes `good` more bytes, then fails with this error."""

    def __init__(self, good: int, error: int) -> None:
        self.good = good
        self.error = error

    def write_at(self, descriptor: int, data: memoryview, position: int) -> int:
        if self.good <= 0:
            raise OSError(self.error, os.strerror(self.error))
        written = os.pwrite(descriptor, memoryview(data)[: self.good], position)
        self.good -= written
        return written


def test_a_full_disk_refuses_writes_until_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(), 0, NOW_MS)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", FailingDisk(30, errno.ENOSPC).write_at)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                log.append(batch_of(), 0, NOW_MS)
            assert caught.value.error is Error.KAFKA_STORAGE_ERROR
        assert os.path.getsize(log.active.path(".log")) == log.active.size, "torn bytes are cut away at once"
        assert first_base_offset(read_bytes(log, 0)) == 0, "reads go on"

    assert log.offline_reason is None
    assert log.append(batch_of(), 0, NOW_MS).base_offset == 1
    assert first_base_offset(read_bytes(log, 1)) == 1


def test_a_dead_disk_puts_the_log_out_of_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(), 0, NOW_MS)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", FailingDisk(0, errno.EIO).write_at)
        with pytest.raises(KafkaError):
            log.append(batch_of(), 0, NOW_MS)

    with pytest.raises(KafkaError) as caught:
        log.append(batch_of(), 0, NOW_MS)

    assert caught.value.error is Error.KAFKA_STORAGE_ERROR
    assert log.offline_reason is not None
    assert log.end_offset == 1


def test_torn_bytes_that_cannot_be_cut_away_stop_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, length: int) -> None:
        raise OSError(errno.EIO, "truncate")

    log = new_log(tmp_path)
    monkeypatch.setattr(files, "write_at", FailingDisk(30, errno.ENOSPC).write_at)
    monkeypatch.setattr(files, "truncate", fail)

    with pytest.raises(KafkaError):
        log.append(batch_of(), 0, NOW_MS)

    assert log.offline_reason is not None


@pytest.mark.parametrize("good", [0, 1, 13, 61, 100, 200, 400])
def test_a_full_disk_while_rolling_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: int) -> None:
    log = new_log(tmp_path, segment_bytes=200, index_interval_bytes=0)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_at", FailingDisk(good, errno.ENOSPC).write_at)
        for i in range(10):
            try:
                log.append(batch_of(timestamp=NOW_MS + i), 0, NOW_MS)
            except KafkaError:
                break

    end = log.end_offset
    assert log.append(batch_of(timestamp=NOW_MS + 50), 0, NOW_MS).base_offset == end
    assert [first_base_offset(read_bytes(log, offset)) for offset in range(end + 1)] == list(range(end + 1))


def test_being_short_of_descriptors_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, flags: int, mode: int = 0) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    log = new_log(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", fail)
        with pytest.raises(KafkaError):
            log.append(batch_of(), 0, NOW_MS)

    assert log.offline_reason is None
    assert log.append(batch_of(), 0, NOW_MS).base_offset == 0


def test_half_a_folder_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str, flags: int, mode: int = 0) -> int:
        if path.endswith(".timeindex"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.open(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_file", fail)
        with pytest.raises(OSError, match="No space"):
            new_log(tmp_path)
    assert os.listdir(tmp_path) == []

    log = new_log(tmp_path)
    log.append(batch_of(), 0, NOW_MS)
    with pytest.raises(FileExistsError):
        new_log(tmp_path)
    assert os.path.getsize(log.active.path(".log")) > 0, "what is there is never touched"


def test_an_unreadable_file_is_a_storage_error(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(), 0, NOW_MS)
    log.append(batch_of(), 0, NOW_MS)
    log.active.close_if_unused()
    os.unlink(log.active.path(".log"))

    with pytest.raises(KafkaError) as caught:
        log.read(0, 100, 2, True)

    assert caught.value.error is Error.KAFKA_STORAGE_ERROR


# --- followers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fetch_bytes", [700, 2500, 1_000_000])
def test_a_follower_writes_the_same_bytes_as_its_leader(tmp_path: Path, fetch_bytes: int) -> None:
    (tmp_path / "leader").mkdir()
    (tmp_path / "follower").mkdir()
    leader = new_log(tmp_path / "leader", segment_bytes=3000, index_interval_bytes=100)
    follower = new_log(tmp_path / "follower", segment_bytes=3000, index_interval_bytes=100)
    sequence = 0
    for i in range(60):
        batch = batch_of(2, i, NOW_MS + i, producer_id=3, producer_epoch=0, base_sequence=sequence)
        leader.append(batch, i // 20, NOW_MS)
        sequence += 2

    while follower.end_offset < leader.end_offset:
        follower.append_as_follower(memoryview(bytearray(read_bytes(leader, follower.end_offset, fetch_bytes))))

    leader.close()
    follower.close()
    for name in os.listdir(leader.directory):
        assert Path(leader.directory, name).read_bytes() == Path(follower.directory, name).read_bytes(), name


def test_many_fetched_batches_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(tmp_path)
    writes: list[int] = []
    write_at = files.write_at

    def counted(descriptor: int, data: memoryview, position: int) -> int:
        writes.append(len(data))
        return write_at(descriptor, data, position)

    monkeypatch.setattr(files, "write_at", counted)
    fetched = b"".join(bytes(batch_of(base_offset=offset)) for offset in range(50))
    log.append_as_follower(memoryview(fetched))
    assert writes == [len(fetched)]
    assert log.end_offset == 50


def test_a_follower_refuses_corrupt_and_old_batches(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_as_follower(batch_of(base_offset=5))
    bad = batch_of(base_offset=6)
    bad[70] ^= 1

    with pytest.raises(KafkaError) as corrupt:
        log.append_as_follower(bad)
    with pytest.raises(KafkaError) as old:
        log.append_as_follower(batch_of(base_offset=5))

    assert corrupt.value.error is Error.CORRUPT_MESSAGE
    assert old.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.end_offset == 6


def test_the_state_of_a_log_can_be_read_from_its_repr(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(3), 0, NOW_MS)

    assert repr(log) == "<Log topic-0, offsets 0-3, 1 segments>"


SEGMENT_BYTES = 1 << 20


def new_preallocated_log(directory: Path, *, preallocate: bool) -> Log:
    settings = TopicSettings(preallocate=preallocate, segment_bytes=SEGMENT_BYTES)
    place = str(directory / "topic-0")
    return create_log(TopicPartition("topic", 0), place, settings, DescriptorPool(), uuid.UUID(int=1), NOW_MS, NOW_MS)


def on_disk(log: Log) -> list[tuple[int, int]]:
    """Length and reserved bytes of each log file."""
    found = [os.stat(path) for path in sorted(Path(log.directory).glob("*.log"))]
    return [(status.st_size, status.st_blocks * 512) for status in found]


def test_room_is_reserved_and_given_back(tmp_path: Path) -> None:
    log = new_preallocated_log(tmp_path, preallocate=True)
    batch = build_batch([Record(-1, NOW_MS, b"k", b"v" * 5000)])
    log.append(memoryview(batch), 0, NOW_MS)
    ((length, reserved),) = on_disk(log)
    assert length == len(batch), "a reader sees only what was written"
    assert reserved >= SEGMENT_BYTES
    log.roll(NOW_MS)
    (_, old_reserved), (new_length, new_reserved) = on_disk(log)
    assert old_reserved < 64 * 1024
    assert (new_length, new_reserved >= SEGMENT_BYTES) == (0, True)


def test_without_it_files_grow_with_what_is_written(tmp_path: Path) -> None:
    log = new_preallocated_log(tmp_path, preallocate=False)
    log.append(memoryview(build_batch([Record(-1, NOW_MS, b"k", b"v")])), 0, NOW_MS)
    ((_, reserved),) = on_disk(log)
    assert reserved < 64 * 1024

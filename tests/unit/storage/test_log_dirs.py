"""The folders of a broker: locks, owners, checkpoints, clean and other ends."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.errors import LogDirError
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs

NOW_MS = 1_700_000_000_000
SETTINGS = TopicSettings(segment_bytes=2000)
A0 = TopicPartition("a", 0)


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


@pytest.fixture(autouse=True)
def _disk_that_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "sync", lambda descriptor: None)


def open_dirs(*paths: Path, node_id: int = 1, cluster_id: str | None = "cluster") -> LogDirs:
    return LogDirs.open(tuple(map(str, paths)), node_id=node_id, cluster_id=cluster_id, clock=StillClock())


def load(log_dirs: LogDirs) -> dict[TopicPartition, Log]:
    return log_dirs.load(lambda topic: SETTINGS)


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append(memoryview(build_batch([Record(-1, NOW_MS, None, b"v" * 50)])), 0, NOW_MS)


def test_what_was_closed_cleanly_comes_back(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    topic_id = uuid.uuid4()
    append(dirs.create(A0, topic_id, SETTINGS), 50)
    dirs.close(clean=True, broker_epoch=12)
    assert (tmp_path / "d" / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":12}'
    assert (tmp_path / "d" / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 50\n"

    dirs = open_dirs(tmp_path / "d")

    assert dirs.needs_recovery == []
    log = load(dirs)[A0]
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists(), "a crash from here on is a crash"
    assert (log.end_offset, log.recovery_point, log.topic_id) == (50, 50, topic_id)
    assert dirs.unopened == []


@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_aborted_start_leaves_the_directory_as_it_was(tmp_path: Path, is_loaded: bool) -> None:
    dirs = open_dirs(tmp_path / "d")
    append(dirs.create(A0, None, SETTINGS), 50)
    dirs.close(clean=True, broker_epoch=12)
    before = {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()}

    dirs = open_dirs(tmp_path / "d")
    if is_loaded:
        load(dirs)
    dirs.close(clean=False)

    assert {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()} == before


def test_what_was_changed_before_a_start_failed_is_recovered(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    append(dirs.create(A0, None, SETTINGS), 50)
    dirs.close(clean=True)
    dirs = open_dirs(tmp_path / "d")
    append(load(dirs)[A0])
    dirs.close(clean=False)

    dirs = open_dirs(tmp_path / "d")

    assert len(dirs.needs_recovery) == 1
    assert load(dirs)[A0].end_offset == 51


def test_after_a_crash_every_log_needs_recovery(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    log = dirs.create(A0, None, SETTINGS)
    append(log, 10)
    log.flush()
    dirs.write_checkpoints({A0: 9})
    append(log, 10)
    dirs.close(clean=False)

    dirs = open_dirs(tmp_path / "d")

    assert [found.partition for found in dirs.needs_recovery] == [A0]
    assert dirs.read_high_watermarks() == {A0: 9}
    log = load(dirs)[A0]
    assert (log.end_offset, log.recovery_point) == (20, 10)


def test_logs_can_be_opened_one_by_one(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    for number in range(3):
        append(dirs.create(TopicPartition("a", number), None, SETTINGS), number)
    dirs.close(clean=False)
    dirs = open_dirs(tmp_path / "d")

    for found in dirs.unopened:
        dirs.add_opened(found, dirs.open_log(found, SETTINGS))

    assert {p.partition: log.end_offset for p, log in dirs.logs.items()} == {0: 0, 1: 1, 2: 2}
    assert dirs.unopened == []


def test_checkpoints_keep_what_is_known_of_logs_that_are_not_open_yet(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    log = dirs.create(A0, None, SETTINGS)
    append(log, 30)
    log.flush()
    log.raise_log_start_offset(3)
    dirs.write_checkpoints({A0: 25})
    dirs.close(clean=False)

    dirs = open_dirs(tmp_path / "d")
    dirs.write_checkpoints({})
    dirs.close(clean=True)

    dirs = open_dirs(tmp_path / "d")
    (found,) = dirs.needs_recovery
    assert (found.recovery_point, found.log_start_offset) == (30, 3)
    assert dirs.read_high_watermarks() == {A0: 25}
    assert load(dirs)[A0].log_start_offset == 3


def test_two_brokers_never_share_a_folder(tmp_path: Path) -> None:
    first = open_dirs(tmp_path / "d")

    with pytest.raises(LogDirError, match="in use by another broker"):
        open_dirs(tmp_path / "other", tmp_path / "d")

    first.close(clean=True)
    open_dirs(tmp_path / "other", tmp_path / "d")


def test_a_folder_of_another_broker_or_cluster_is_refused(tmp_path: Path) -> None:
    open_dirs(tmp_path / "d").close(clean=True)

    with pytest.raises(LogDirError, match="belongs to broker 1"):
        open_dirs(tmp_path / "d", node_id=2)
    with pytest.raises(LogDirError, match="belongs to cluster cluster"):
        open_dirs(tmp_path / "d", cluster_id="foreign")


def test_the_cluster_id_is_taken_over_from_the_folders(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d", cluster_id=None)
    assert dirs.cluster_id is None
    dirs.write_meta_properties("new")
    dirs.close(clean=True)

    assert open_dirs(tmp_path / "d", tmp_path / "e", cluster_id=None).cluster_id == "new"
    assert "cluster.id=new" in (tmp_path / "e" / "meta.properties").read_text()


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(LogDirError, match=r"Cannot use the log directory .*file"):
        open_dirs(tmp_path / "file")


def test_a_new_partition_goes_where_there_are_the_fewest(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d", tmp_path / "e")

    for number in range(6):
        dirs.create(TopicPartition("a", number), None, SETTINGS)

    assert [log_dir.partition_count for log_dir in dirs.dirs] == [3, 3]


def test_a_deleted_partition_frees_its_name_and_goes_later(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    log = dirs.create(A0, None, SETTINGS)
    append(log, 3)
    file_range = log.read(0, 1000, 3, True)
    assert file_range is not None

    dirs.delete(log)
    again = dirs.create(A0, None, SETTINGS)

    assert again.end_offset == 0
    doomed = [name for name in os.listdir(tmp_path / "d") if name.endswith("-delete")]
    assert len(doomed) == 1
    assert doomed[0].startswith("a-0.")
    assert len(doomed[0]) == len("a-0.") + 32 + len("-delete")
    assert dirs.remove_deleted(NOW_MS) == 0
    assert dirs.remove_deleted(NOW_MS + 60_000) == 1
    assert not (tmp_path / "d" / doomed[0]).exists()
    assert len(os.pread(file_range.descriptor, file_range.length, file_range.position)) == file_range.length
    file_range.release()


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_deleted_files_go_after_the_same_delay_when_the_system_clock_is_set(tmp_path: Path, step_ms: int) -> None:
    dirs = open_dirs(tmp_path / "d")
    dirs.delete(dirs.create(A0, None, SETTINGS))
    log = dirs.create(TopicPartition("b", 0), None, SETTINGS)
    for number in range(3):
        log.append(memoryview(bytearray(build_batch([Record(0, NOW_MS, None, b"v" * number, ())]))), 0, NOW_MS)
        log.roll(NOW_MS)
    log.raise_log_start_offset(2)
    assert log.delete_old_segments(NOW_MS, 3) == 2
    dirs.on_clock_step(step_ms)
    assert dirs.remove_deleted(NOW_MS + step_ms + 59_999) == 0
    assert dirs.remove_deleted(NOW_MS + step_ms + 60_000) > 1


def test_pending_deletes_are_not_opened_and_end_after_a_restart(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")
    dirs.delete(dirs.create(A0, None, SETTINGS))
    dirs.close(clean=True)

    dirs = open_dirs(tmp_path / "d")

    assert dirs.unopened == []
    assert dirs.remove_deleted(NOW_MS) == 1


def test_a_topic_name_of_full_length_can_be_deleted(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "d")

    dirs.delete(dirs.create(TopicPartition("t" * 249, 0), None, SETTINGS))

    (name,) = [name for name in os.listdir(tmp_path / "d") if name.endswith("-delete")]
    assert len(name) == 255


def test_folders_that_hold_no_partition_are_left_alone(tmp_path: Path) -> None:
    for name in ("__cluster_metadata-0", "a-0-future", "lost+found", "a-x", "-1", "a..b/"):
        (tmp_path / "d" / name).mkdir(parents=True)

    assert open_dirs(tmp_path / "d").unopened == []


def test_a_damaged_checkpoint_only_costs_a_longer_recovery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dirs = open_dirs(tmp_path / "d")
    append(dirs.create(A0, None, SETTINGS), 10)
    dirs.close(clean=False)
    (tmp_path / "d" / "recovery-point-offset-checkpoint").write_text("0\n1\na 0 1")
    (tmp_path / "d" / "replication-offset-checkpoint").write_text("0\n9\na 0 1\n")

    dirs = open_dirs(tmp_path / "d")

    assert load(dirs)[A0].end_offset == 10
    assert "replication-offset-checkpoint: the number of entries" in caplog.text


def test_a_log_that_cannot_be_synced_takes_the_clean_mark_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dirs = open_dirs(tmp_path / "d")
    append(dirs.create(A0, None, SETTINGS), 10)

    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            raise OSError(errno.EIO, "sync")

    monkeypatch.setattr(files, "sync", fail)
    dirs.close(clean=True)

    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_memory_of_idle_logs_stays_small(tmp_path: Path) -> None:
    import tracemalloc  # noqa: PLC0415

    dirs = open_dirs(tmp_path / "d")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(200):
        dirs.create(TopicPartition("a", number), uuid.uuid4(), SETTINGS).assign_epoch_start_offset(0, 0)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert used / 200 < 6000
    assert dirs.pool.open_count == 0

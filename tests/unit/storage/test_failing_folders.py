"""Log directories that fail, and the choice of a directory for new partitions."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.errors import FolderUnusableError, LogDirError
from ottla.storage.log import Log
from ottla.storage.log_dir import LogDir
from ottla.storage.log_dirs import PREFERRED_LOG_DIRS_MAX, LogDirs

NOW_MS = 1_700_000_000_000
TOPIC_ID = uuid.UUID(int=1)
SETTINGS = TopicSettings()


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


@pytest.fixture
def dirs(tmp_path: Path) -> LogDirs:
    return open_dirs(tmp_path / "one", tmp_path / "two")


def open_dirs(*paths: Path) -> LogDirs:
    return LogDirs.open(tuple(map(str, paths)), node_id=1, cluster_id="cluster", clock=StillClock())


def name(number: int) -> TopicPartition:
    return TopicPartition("topic", number)


def append(log: Log) -> None:
    log.append(memoryview(build_batch([Record(-1, NOW_MS, None, b"value")])), 0, NOW_MS)


def folder_name(log: Log) -> str:
    return Path(log.directory).parent.name


def refuse_writes(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "write_at", refuse)


def test_a_failed_log_takes_its_folder_and_all_logs_in_it(dirs: LogDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [dirs.create(name(number), TOPIC_ID, SETTINGS) for number in range(4)]
    failed: list[LogDir] = []
    dirs.on_failure = failed.append
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.EIO)
        with pytest.raises(KafkaError):
            append(logs[0])
    assert failed == [dirs.dirs[0]]
    assert [folder_name(log) for log in logs if log.offline_reason is not None] == ["one", "one"]
    with pytest.raises(KafkaError) as refusal:
        append(logs[2])
    assert refusal.value.error is Error.KAFKA_STORAGE_ERROR
    append(logs[1])
    assert dirs.online == [dirs.dirs[1]]
    assert not dirs.are_all_online
    assert sorted(dirs.close_offline(dirs.dirs[0])) == [name(0), name(2)]
    assert sorted(dirs.logs) == [name(1), name(3)]
    assert folder_name(dirs.create(name(9), TOPIC_ID, SETTINGS)) == "two"


def test_a_full_disk_takes_nothing_out(dirs: LogDirs, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirs.create(name(0), TOPIC_ID, SETTINGS)
    with monkeypatch.context() as patch:
        refuse_writes(patch, errno.ENOSPC)
        with pytest.raises(KafkaError):
            append(log)
    assert dirs.are_all_online
    append(log)


def test_a_failed_folder_is_neither_checkpointed_nor_closed_cleanly(dirs: LogDirs, tmp_path: Path) -> None:
    for number in range(2):
        append(dirs.create(name(number), TOPIC_ID, SETTINGS))
    dirs.take_offline(dirs.dirs[0], "the disk is dead")
    assert [checkpoints.path for checkpoints in dirs.checkpoints()] == [dirs.dirs[1].path]
    dirs.close(clean=True)
    assert not (tmp_path / "one" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()


def test_a_folder_that_cannot_be_used_at_the_start_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    dirs = open_dirs(tmp_path / "good", tmp_path / "file" / "below")
    assert [log_dir.offline_reason is None for log_dir in dirs.dirs] == [True, False]
    assert folder_name(dirs.create(name(0), TOPIC_ID, SETTINGS)) == "good"
    dirs.close(clean=True)


def test_without_any_usable_folder_there_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderUnusableError, match=r"file/a.*file/b"):
        open_dirs(tmp_path / "file" / "a", tmp_path / "file" / "b")


def test_a_folder_in_use_still_ends_the_start(dirs: LogDirs, tmp_path: Path) -> None:
    with pytest.raises(LogDirError, match="in use"):
        open_dirs(tmp_path / "other", tmp_path / "one")
    assert dirs.are_all_online


def test_the_next_folder_has_its_turn_when_one_fails_to_make_a_partition(
    dirs: LogDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.make_directory

    def refuse(path: str) -> None:
        if "/one/" in path:
            raise OSError(errno.EIO, "dead")
        real(path)

    monkeypatch.setattr(files, "make_directory", refuse)
    assert folder_name(dirs.create(name(0), TOPIC_ID, SETTINGS)) == "two"
    assert dirs.dirs[0].offline_reason is not None
    dirs.take_offline(dirs.dirs[1], "dead as well")
    with pytest.raises(KafkaError):
        dirs.create(name(1), TOPIC_ID, SETTINGS)


def test_a_preferred_log_directory_counts_once(dirs: LogDirs) -> None:
    dirs.maybe_update_preferred_log_dir(name(0), dirs.dirs[1].path)
    assert folder_name(dirs.create(name(0), TOPIC_ID, SETTINGS)) == "two"
    assert dirs.preferred_log_dirs == {}


def test_choices_are_bounded(dirs: LogDirs) -> None:
    for number in range(PREFERRED_LOG_DIRS_MAX + 5):
        dirs.maybe_update_preferred_log_dir(name(number), dirs.dirs[0].path)
    assert len(dirs.preferred_log_dirs) == PREFERRED_LOG_DIRS_MAX
    assert name(4) not in dirs.preferred_log_dirs


def test_cordoned_folders_get_nothing_as_long_as_there_are_others(dirs: LogDirs) -> None:
    dirs.cordoned_paths = {dirs.dirs[0].path}
    assert {folder_name(dirs.create(name(number), TOPIC_ID, SETTINGS)) for number in range(3)} == {"two"}
    dirs.cordoned_paths = {log_dir.path for log_dir in dirs.dirs}
    assert folder_name(dirs.create(name(3), TOPIC_ID, SETTINGS)) == "one"


def test_a_late_flush_of_a_deleted_log_affects_no_other_log(dirs: LogDirs) -> None:
    """A flush was under way during the deletion: its missing files are no disk failure."""
    log = dirs.create(name(0), TOPIC_ID, TopicSettings(file_delete_delay_ms=0))
    other = dirs.create(name(1), TOPIC_ID, SETTINGS)
    dirs.maybe_update_preferred_log_dir(name(2), str(Path(log.directory).parent))
    beside = dirs.create(name(2), TOPIC_ID, SETTINGS)
    append(log)
    dirs.delete(log)
    dirs.remove_deleted(NOW_MS + 1)

    with pytest.raises(KafkaError):
        log.flush()

    assert dirs.are_all_online
    append(beside)
    append(other)
    dirs.close(clean=False)

"""A crash before every single disk operation, and power cuts that take everything back that was not synced."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch, read_batch_header
from ottla.protocol.records import Record
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.log_loader import open_log

PARTITION = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000
SETTINGS = TopicSettings(segment_bytes=700, index_interval_bytes=150, retention_bytes=4000)
CHANGING = ("write_at", "truncate", "rename", "unlink", "open_file", "sync")


class CrashError(BaseException):
    """The process is gone."""


class CrashingDisk:
    """Lets a number of operations pass, then ends the process; a write may have happened by half."""

    def __init__(self, operations: int, tears_writes: bool) -> None:
        self.operations = operations
        self.tears_writes = tears_writes

    def wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def operation(*arguments: object) -> object:
            self.operations -= 1
            if self.operations < 0:
                if name == "write_at" and self.tears_writes:
                    descriptor, data, position = arguments
                    os.pwrite(descriptor, memoryview(data)[: len(data) // 2], position)  # type: ignore[arg-type]
                raise CrashError
            return None if name == "sync" else real(*arguments)

        return operation


def append(log: Log, number: int) -> None:
    record = Record(-1, NOW_MS + number, b"key", b"%d" % number)
    batch = build_batch([record], producer_id=4, producer_epoch=0, base_sequence=number)
    log.append(memoryview(batch), number // 9, NOW_MS)


def reopen(directory: Path, recovery_point: int) -> Log:
    return open_log(
        PARTITION,
        str(directory),
        SETTINGS,
        pool=DescriptorPool(),
        is_clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        now_ms=NOW_MS,
        producer_expiration_ms=10**9,
    )


def offsets_in(log: Log) -> list[int]:
    found = []
    offset = log.log_start_offset
    while (file_range := log.read(offset, 1, log.end_offset, True)) is not None:
        log.check_range(file_range)
        header = read_batch_header(os.pread(file_range.descriptor, 61, file_range.position), 0)
        file_range.release()
        assert header.base_offset == header.base_sequence
        found.append(header.base_offset)
        offset = header.next_offset
    return found


class LastPoll:
    """Appends, rolls, flushes, deletes and closes until it crashes; knows what it was told to be safe."""

    def __init__(self, directory: Path) -> None:
        self.log = create_log(PARTITION, str(directory), SETTINGS, DescriptorPool(), None, NOW_MS, 10**9)
        self.acknowledged = 0
        self.recovery_point = 0

    def run(self) -> None:
        for number in range(40):
            append(self.log, number)
            self.acknowledged = number + 1
            if number % 13 == 12:
                self.log.flush()
                self.recovery_point = self.log.recovery_point
            if number % 17 == 16:
                self.log.delete_old_segments(NOW_MS, self.log.end_offset)
        self.log.close()


@pytest.mark.parametrize("tears_writes", [False, True])
def test_a_crash_before_any_operation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tears_writes: bool
) -> None:
    operations = 0
    is_done = False
    while not is_done:
        operations += 1
        life = LastPoll(tmp_path / f"{operations}")
        with monkeypatch.context() as patch:
            disk = CrashingDisk(operations, tears_writes)
            for name in CHANGING:
                patch.setattr(files, name, disk.wrap(name, getattr(files, name)))
            try:
                life.run()
                is_done = True
            except CrashError:
                life.log.close_files()
            patch.undo()

        log = reopen(tmp_path / f"{operations}", life.recovery_point)

        found = offsets_in(log)
        assert found == list(range(log.log_start_offset, log.end_offset)), operations
        assert log.end_offset in (life.acknowledged, life.acknowledged + 1), operations
        append(log, log.end_offset)
        log.close_files()
        shutil.rmtree(tmp_path / f"{operations}")
    assert operations > 150


class Memory:
    """A disk that keeps only what was synced: contents of files, and names of folders, each on their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, int] = {}

    def open_file(self, path: str, flags: int, mode: int = 0o644) -> int:
        descriptor = os.open(path, flags, mode)
        if os.fstat(descriptor).st_size == 0:  # new: what another file of this inode number held is gone
            self.contents.pop(os.fstat(descriptor).st_ino, None)
        return descriptor

    def sync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path == self.directory:
            self.names = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        elif path.is_file():
            self.contents[os.fstat(descriptor).st_ino] = path.read_bytes()

    def survive(self, directory: Path) -> None:
        """What is there after the power came back."""
        directory.mkdir()
        for name, inode in self.names.items():
            (directory / name).write_bytes(self.contents.get(inode, b""))


@pytest.mark.parametrize("seed", range(40))
def test_after_a_power_cut_everything_below_the_recovery_point_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chosen = random.Random(seed)
    memory = Memory(tmp_path / "log")
    monkeypatch.setattr(files, "sync", memory.sync)
    monkeypatch.setattr(files, "open_file", memory.open_file)
    log = create_log(
        PARTITION, str(tmp_path / "log"), TopicSettings(segment_bytes=700), DescriptorPool(), None, NOW_MS, 10**9
    )
    for number in range(chosen.randrange(1, 60)):
        append(log, number)
        if chosen.random() < 0.1:
            log.flush()
    log.close_files()

    memory.survive(tmp_path / "survived")
    reopened = reopen(tmp_path / "survived", log.recovery_point)

    assert reopened.end_offset >= log.recovery_point
    assert offsets_in(reopened) == list(range(reopened.end_offset))
    append(reopened, reopened.end_offset)


@pytest.mark.parametrize("seed", range(10))
def test_after_a_clean_close_a_power_cut_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    memory = Memory(tmp_path / "log")
    monkeypatch.setattr(files, "sync", memory.sync)
    monkeypatch.setattr(files, "open_file", memory.open_file)
    log = create_log(PARTITION, str(tmp_path / "log"), SETTINGS, DescriptorPool(), None, NOW_MS, 10**9)
    for number in range(seed * 5):
        append(log, number)
        if number % 7 == 6:
            log.flush()
    log.close()

    memory.survive(tmp_path / "survived")

    paths = sorted((tmp_path / "log").iterdir())
    snapshots = [path for path in paths if path.name.endswith(".snapshot")]
    for path in set(paths) - set(snapshots[:-1]):  # older ones are not needed any more
        assert (tmp_path / "survived" / path.name).read_bytes() == path.read_bytes(), path.name

"""W2 and W3 without a process: a real log on a disk that fails, is full or writes by half, now and then and anywhere.

Several lives of one log in one folder. What append() accepted is there at the end, in order and with its own bytes;
what it refused may be there or not, but never in the way; after an error other than a full disk nothing is accepted.
"""

import errno
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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

PARTITION = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000
SETTINGS = TopicSettings(segment_bytes=900, index_interval_bytes=120, segment_index_bytes=400)
OPERATIONS = ("write_at", "truncate", "rename", "open_file", "sync", "unlink")
LIVES = 4
APPENDS = 60


class FailingDisk:
    """Fails a part of all operations with one kind of error while `rate` is above 0."""

    def __init__(self, chance: random.Random, error: int) -> None:
        self.chance = chance
        self.error = error
        self.rate = 0.0
        self.failures = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in OPERATIONS:
            real = getattr(files, name) if name != "sync" else lambda _: None
            monkeypatch.setattr(files, name, self._wrap(name, real))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any) -> Any:
            if self.chance.random() >= self.rate:
                return real(*arguments)
            self.failures += 1
            if name == "write_at" and self.chance.random() < 0.5:
                descriptor, data, position = arguments
                os.pwrite(descriptor, memoryview(data)[: self.chance.randrange(len(data) + 1)], position)
            raise OSError(self.error, os.strerror(self.error))

        return operation


class Lives:
    """One folder, one log after the other, and everything that they promised."""

    def __init__(self, directory: Path, chance: random.Random, disk: FailingDisk) -> None:
        self.directory = str(directory / "topic-0")
        self.chance = chance
        self.disk = disk
        self.accepted: list[bytes] = []  # by offset
        self.recovery_point = 0
        self.log = create_log(PARTITION, self.directory, SETTINGS, DescriptorPool(), uuid.UUID(int=1), NOW_MS, 10**12)

    def append(self) -> None:
        value = b"%d " % len(self.accepted) + self.chance.randbytes(self.chance.choice((5, 100, 400)))
        batch = build_batch(
            [Record(-1, NOW_MS + len(self.accepted), b"k", value)],
            producer_id=1,
            producer_epoch=0,
            base_sequence=len(self.accepted),
        )
        was_failed = self.log.offline_reason is not None
        try:
            appended = self.log.append(memoryview(batch), 0, NOW_MS)
        except KafkaError as error:
            expect_storage_error(error)
            return
        assert not was_failed, "a log that is out of service accepted a batch"
        assert appended.base_offset == len(self.accepted)
        self.accepted.append(value)

    def flush(self) -> None:
        try:
            self.log.flush()
        except KafkaError as error:
            expect_storage_error(error)
        self.recovery_point = max(self.recovery_point, self.log.recovery_point)
        assert self.log.recovery_point <= len(self.accepted)

    def check(self) -> None:
        """Everything accepted can be read, byte for byte."""
        for offset, value in enumerate(self.accepted):
            file_range = self.log.read(offset, 1, self.log.end_offset, True)
            assert file_range is not None, offset
            data = os.pread(file_range.descriptor, file_range.length, file_range.position)
            file_range.release()
            assert read_batch_header(data, 0).base_offset == offset
            assert value in data, offset

    def start_again(self) -> None:
        """The process died; what it had written is in the page cache."""
        self.log.close_files()
        self.log = self._open()
        end_offset = self.log.end_offset
        assert end_offset >= len(self.accepted), "an accepted batch is lost"
        # A batch that was refused may be there: it had been written whole when its acknowledgement failed.
        for offset in range(len(self.accepted), end_offset):
            self.accepted.append(self._value_at(offset))

    def _open(self) -> Log:
        return open_log(
            PARTITION,
            self.directory,
            SETTINGS,
            pool=DescriptorPool(),
            is_clean=False,
            recovery_point=self.recovery_point,
            log_start_offset=0,
            now_ms=NOW_MS,
            producer_expiration_ms=10**12,
        )

    def _value_at(self, offset: int) -> bytes:
        file_range = self.log.read(offset, 1, self.log.end_offset, True)
        assert file_range is not None
        data = os.pread(file_range.descriptor, file_range.length, file_range.position)
        file_range.release()
        return data[-3:]


def expect_storage_error(error: KafkaError) -> None:
    assert error.error == Error.KAFKA_STORAGE_ERROR, error


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("seed", range(40))
def test_a_log_on_a_failing_disk_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, error: int
) -> None:
    chance = random.Random(seed)
    disk = FailingDisk(chance, error)
    disk.install(monkeypatch)
    lives = Lives(tmp_path, chance, disk)
    for _ in range(LIVES):
        disk.rate = chance.choice((0.02, 0.1, 0.5))
        for _ in range(APPENDS):
            lives.append()
            if chance.random() < 0.1:
                lives.flush()
        disk.rate = 0.0
        lives.check()
        if error == errno.ENOSPC and lives.log.offline_reason is None:
            before = len(lives.accepted)
            lives.append()
            assert len(lives.accepted) == before + 1, "there is space again, but the log is not written"
        lives.start_again()
        lives.check()
    assert disk.failures > 0

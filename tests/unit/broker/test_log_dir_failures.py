"""Detection of free disk space, and backoff for disks that are soon full again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.broker.log_manager.log_dir_failures import DISK_SPACE_CHECK_MS, WAIT_MS_MAX, DiskSpaceMonitor
from ottla.storage import files

NAME = TopicPartition("t", 0)


class Full:
    """A partition that gave up its leadership, and its broker."""

    def __init__(self, folder: Path, *, is_full_again: bool) -> None:
        self.log = SimpleNamespace(directory=f"{folder}/t-0")
        self.is_full_again = is_full_again
        self.told: list[int] = []
        log_dirs = SimpleNamespace(online=[SimpleNamespace(path=str(folder))])
        self.replicas = SimpleNamespace(disk_full_partitions={NAME}, get=lambda *_: self, log_dirs=log_dirs)
        self.publisher = SimpleNamespace(without_space=set(), retry=self._nothing)
        self.loading = SimpleNamespace(without_space=[], retry=self._nothing)
        self.clock = LoopClock()

    async def _nothing(self, *_: object) -> None: ...

    def mark_disk_available(self) -> None:
        self.told.append(self.clock.monotonic_ms())
        if not self.is_full_again:
            self.replicas.disk_full_partitions.clear()

    async def watch(self, seconds: int) -> None:
        node = SimpleNamespace(clock=self.clock, workers=None)
        parts: list[Any] = [node, self.replicas, self.publisher, self.loading]
        watch = DiskSpaceMonitor(*parts)
        for _ in range(seconds):
            await watch.check_disks()
            await asyncio.sleep(DISK_SPACE_CHECK_MS / 1000)


def test_a_partition_resumes_as_soon_as_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Full(tmp_path, is_full_again=False)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        with monkeypatch.context() as disk:
            disk.setattr(files, "write_at", refuse)
            await full.watch(5)
            assert not full.told
        await full.watch(2)
        assert len(full.told) == 1
        assert not list(tmp_path.iterdir()), "the test file is removed"

    run(main())


def test_a_disk_that_is_soon_full_again_is_retried_less_often(tmp_path: Path) -> None:
    full = Full(tmp_path, is_full_again=True)

    async def main() -> None:
        await full.watch(600)

    run(main())
    waits = [later - earlier for earlier, later in zip(full.told, full.told[1:], strict=False)]
    assert waits[0] < 3 * DISK_SPACE_CHECK_MS
    assert waits == sorted(waits)
    assert WAIT_MS_MAX <= waits[-1] < WAIT_MS_MAX + 2 * DISK_SPACE_CHECK_MS

"""Room on a full disk is noticed, and a disk that only seems to have some is not believed every second."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.names import TopicPartition
from ottla.broker.logs.room_watch import LOOK_MS, WAIT_MS_MAX, RoomWatch
from ottla.storage import files
from virtual_time import LoopClock, run

NAME = TopicPartition("t", 0)


class Full:
    """A partition that gave its leadership away, and its broker."""

    def __init__(self, folder: Path, *, is_full_again: bool) -> None:
        self.log = SimpleNamespace(directory=f"{folder}/t-0")
        self.is_full_again = is_full_again
        self.told: list[int] = []
        log_dirs = SimpleNamespace(online=[SimpleNamespace(path=str(folder))])
        self.replicas = SimpleNamespace(full={NAME}, get=lambda *_: self, log_dirs=log_dirs)
        self.publisher = SimpleNamespace(without_room=set(), retry=self._nothing)
        self.loading = SimpleNamespace(unopened=[], retry=self._nothing)
        self.clock = LoopClock()

    async def _nothing(self, *_: object) -> None: ...

    def note_room(self) -> None:
        self.told.append(self.clock.monotonic_ms())
        if not self.is_full_again:
            self.replicas.full.clear()

    async def watch(self, seconds: int) -> None:
        node = SimpleNamespace(clock=self.clock, workers=None)
        parts: list[Any] = [node, self.replicas, self.publisher, self.loading]
        watch = RoomWatch(*parts)
        for _ in range(seconds):
            await watch.look()
            await asyncio.sleep(LOOK_MS / 1000)


def test_a_partition_is_told_as_soon_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert not list(tmp_path.iterdir()), "what was tried leaves no trace"

    run(main())


def test_a_disk_that_only_seems_to_have_room_is_believed_less_and_less(tmp_path: Path) -> None:
    full = Full(tmp_path, is_full_again=True)

    async def main() -> None:
        await full.watch(600)

    run(main())
    waits = [later - earlier for earlier, later in zip(full.told, full.told[1:], strict=False)]
    assert waits[0] < 3 * LOOK_MS
    assert waits == sorted(waits)
    assert WAIT_MS_MAX <= waits[-1] < WAIT_MS_MAX + 2 * LOOK_MS

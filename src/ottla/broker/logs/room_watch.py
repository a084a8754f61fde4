"""Waits for room on full disks, and lets everything go on that has waited for it.

Appends need no help: the next one that fits succeeds. But a partition that gave its leadership away, a log that could
not be opened and a folder that could not be made would stay as they are; for them each folder of `log.dirs` is tried
once a second, by a worker. While nobody waits nothing is done.

A disk that is nearly full may take what we try it with and not what comes next. A partition that is soon full again
waits twice as long as before: nobody shall count on it, and wait for it, every other second.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from ottla.base.names import TopicPartition
from ottla.broker.logs.log_loading import LogLoading
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.room import has_room

LOOK_MS: Final = 1_000
WAIT_MS_MAX: Final = 60_000


class RoomWatch:
    """A chore of Housekeeping."""

    def __init__(self, node: Node, replicas: ReplicaSet, publisher: Publisher, loading: LogLoading) -> None:
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._loading = loading
        self._waits: dict[TopicPartition, tuple[int, int]] = {}  # not before when, and how long that was

    async def look(self) -> None:
        replicas, publisher = self._replicas, self._publisher
        now_ms = self._node.clock.monotonic_ms()
        for name in [name for name, (due_ms, wait_ms) in self._waits.items() if now_ms > due_ms + wait_ms]:
            if name not in replicas.full:
                del self._waits[name]
        if not replicas.full and not publisher.without_room and not self._loading.unopened:
            return
        loop = asyncio.get_running_loop()
        has_any = False
        for log_dir in replicas.log_dirs.online:
            if await loop.run_in_executor(self._node.workers, has_room, log_dir.path):
                has_any = True
                self._tell_partitions(log_dir.path, now_ms)
                await self._loading.retry(log_dir.path)
        if has_any:
            await publisher.retry()

    def _tell_partitions(self, path: str, now_ms: int) -> None:
        for name in sorted(self._replicas.full):
            partition = self._replicas.get(*name)
            due_ms, wait_ms = self._waits.get(name, (0, LOOK_MS))
            if partition is not None and os.path.dirname(partition.log.directory) == path and now_ms >= due_ms:
                wait_ms = min(2 * wait_ms, WAIT_MS_MAX)
                self._waits[name] = (now_ms + wait_ms, wait_ms)
                partition.note_room()

    def __repr__(self) -> str:
        waiting = len(self._replicas.full) + len(self._publisher.without_room)
        return f"<RoomWatch for {waiting} partitions>"

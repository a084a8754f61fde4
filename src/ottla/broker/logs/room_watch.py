"""Waits for room on full disks, and lets everything go on that has waited for it.

Appends need no help: the next one that fits succeeds. But a partition that gave its leadership away, a log that could
not be opened and a folder that could not be made would stay as they are; for them each folder of `log.dirs` is tried
once a second, by a worker. While nobody waits nothing is done.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from ottla.broker.logs.log_loading import LogLoading
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.room import has_room

LOOK_MS: Final = 1_000


class RoomWatch:
    """A chore of Housekeeping."""

    def __init__(self, node: Node, replicas: ReplicaSet, publisher: Publisher, loading: LogLoading) -> None:
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._loading = loading

    async def look(self) -> None:
        replicas, publisher = self._replicas, self._publisher
        if not replicas.full and not publisher.failed and not self._loading.unopened:
            return
        loop = asyncio.get_running_loop()
        has_any = False
        for log_dir in replicas.log_dirs.online:
            if await loop.run_in_executor(self._node.workers, has_room, log_dir.path):
                has_any = True
                self._tell_partitions(log_dir.path)
                await self._loading.retry(log_dir.path)
        if has_any:
            await publisher.retry()

    def _tell_partitions(self, path: str) -> None:
        for name in list(self._replicas.full):
            partition = self._replicas.get(*name)
            if partition is not None and os.path.dirname(partition.log.directory) == path:
                partition.note_room()

    def __repr__(self) -> str:
        waiting = len(self._replicas.full) + len(self._publisher.failed)
        return f"<RoomWatch for {waiting} partitions>"

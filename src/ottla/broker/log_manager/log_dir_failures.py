"""Failed log directories (Kafka's LogDirFailureChannel), and full disks with partitions that wait for space.

As in Kafka, partitions in a failed directory have no leader on this broker and respond KAFKA_STORAGE_ERROR; new
partitions go to the other directories. If no directory is left, or the one with the metadata store fails, the broker
ends. In a cluster the controller elects other leaders if there are any.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.log_manager.log_dir_loader import LogDirLoader
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.node import Node
from ottla.controller.decisions.standalone import decide_offline
from ottla.controller.service import ControllerService
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.files import has_space
from ottla.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

DISK_SPACE_CHECK_MS: Final = 1_000
WAIT_MS_MAX: Final = 60_000


class LogDirFailureHandler:
    """Handles failed log directories in the next iteration of the loop: the failing operation is still running."""

    def __init__(
        self,
        replicas: ReplicaSet,
        controller: ControllerService,
        metadata_folder: Path | None,
        give_up: Callable[[str], None],
        tell_controller: Callable[[], None] | None = None,
    ) -> None:
        """`tell_controller` reports a changed `replicas.offline` to a remote controller."""
        self._report_to_controller = tell_controller
        self._replicas = replicas
        self._controller = controller
        self._metadata_dir = metadata_folder
        self._stop_broker = give_up
        replicas.log_dirs.on_failure = self._on_failure

    def _on_failure(self, log_dir: LogDir) -> None:
        asyncio.get_running_loop().call_soon(self._take_offline, log_dir)

    def _take_offline(self, log_dir: LogDir) -> None:
        log_dirs = self._replicas.log_dirs
        if not log_dirs.online:
            self._stop_broker(
                f"all directories of log.dirs have failed, {log_dir.path} as the last one: {log_dir.offline_reason}"
            )
        elif self._metadata_dir is not None and log_dir.path == str(self._metadata_dir.absolute()):
            self._stop_broker(f"{log_dir.path}, which holds the metadata store, has failed: {log_dir.offline_reason}")
        else:
            self.report(log_dirs.close_offline(log_dir))

    def report(self, names: Iterable[TopicPartition]) -> None:
        """Stop serving these partitions, and publish that they have no leader."""
        offline = sorted(names)
        if not offline:
            return
        self._replicas.take_offline(offline)
        if self._report_to_controller is not None:
            self._report_to_controller()
            return
        tasks.spawn(self._publish_offline(offline), "publishing partitions without a leader")

    async def _publish_offline(self, names: list[TopicPartition]) -> None:
        try:
            await self._controller.change(lambda image: decide_offline(image, self._replicas.node_id, names))
        except KafkaError as refusal:  # clients get the error from the responses of the partitions
            logger.error("cannot store that %d partitions have no leader: %s", len(names), refusal)

    def __repr__(self) -> str:
        failed = [log_dir.path for log_dir in self._replicas.log_dirs.dirs if log_dir.offline_reason is not None]
        return f"<LogDirFailureHandler {failed}>"


class DiskSpaceMonitor:
    """Scheduled task: waits for space on full disks, then resumes the partitions that need it.

    Appends resume by themselves. Lost leadership, logs that could not be opened, and directories that could not be
    created do not resume by themselves: for them a worker thread tests each directory of `log.dirs` once per second,
    while partitions wait.

    A nearly full disk may accept the test but not the next append. A partition that is soon full again waits twice as
    long as before: it must not start and stop leading every other second.
    """

    def __init__(
        self, node: Node, replicas: ReplicaSet, publisher: BrokerMetadataPublisher, loading: LogDirLoader
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._loading = loading
        self._waits: dict[TopicPartition, tuple[int, int]] = {}  # earliest next attempt, and length of the wait

    async def check_disks(self) -> None:
        replicas, publisher = self._replicas, self._publisher
        now_ms = self._node.clock.monotonic_ms()
        for name in [name for name, (due_ms, wait_ms) in self._waits.items() if now_ms > due_ms + wait_ms]:
            if name not in replicas.disk_full_partitions:
                del self._waits[name]
        if not replicas.disk_full_partitions and not publisher.without_space and not self._loading.without_space:
            return
        loop = asyncio.get_running_loop()
        has_any = False
        for log_dir in replicas.log_dirs.online:
            if await loop.run_in_executor(self._node.workers, has_space, log_dir.path):
                has_any = True
                self._resume_partitions(log_dir.path, now_ms)
                await self._loading.retry(log_dir.path)
        if has_any:
            await publisher.retry()

    def _resume_partitions(self, path: str, now_ms: int) -> None:
        for name in sorted(self._replicas.disk_full_partitions):
            partition = self._replicas.get(*name)
            due_ms, wait_ms = self._waits.get(name, (0, DISK_SPACE_CHECK_MS))
            if partition is not None and os.path.dirname(partition.log.directory) == path and now_ms >= due_ms:
                wait_ms = min(2 * wait_ms, WAIT_MS_MAX)
                self._waits[name] = (now_ms + wait_ms, wait_ms)
                partition.mark_disk_available()

    def __repr__(self) -> str:
        waiting = len(self._replicas.disk_full_partitions) + len(self._publisher.without_space)
        return f"<DiskSpaceMonitor for {waiting} partitions>"

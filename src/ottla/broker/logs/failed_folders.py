"""What follows when a folder of `log.dirs` fails: its partitions are taken out of service, the others go on.

Kafka's rules: the partitions have no leader here any more and answer KAFKA_STORAGE_ERROR, new ones go to the folders
that are left. When no folder is left, or the one with the metadata store fails, the broker ends. In a cluster the
metadata are elsewhere, and the controller gives the partitions other leaders if there are any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.controller.decisions.offline import decide_offline
from ottla.controller.service import ControllerService
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log_dir import LogDir

logger = logging.getLogger(__name__)


class FailedFolders:
    """Hears of folders that fail, and acts on the loop's next round: the one who hit the error is still at work."""

    def __init__(
        self,
        replicas: ReplicaSet,
        controller: ControllerService,
        metadata_folder: Path | None,
        give_up: Callable[[str], None],
        tell_controller: Callable[[], None] | None = None,
    ) -> None:
        """`tell_controller`: how a broker that is not the controller says that its `replicas.offline` have changed."""
        self._tell_controller = tell_controller
        self._replicas = replicas
        self._controller = controller
        self._metadata_folder = metadata_folder
        self._give_up = give_up
        replicas.log_dirs.on_failure = self._on_failure

    def _on_failure(self, log_dir: LogDir) -> None:
        asyncio.get_running_loop().call_soon(self._take_out, log_dir)

    def _take_out(self, log_dir: LogDir) -> None:
        log_dirs = self._replicas.log_dirs
        if not log_dirs.online:
            self._give_up(f"all folders of log.dirs have failed, {log_dir.path} as the last one: {log_dir.failure}")
        elif self._metadata_folder is not None and log_dir.path == str(self._metadata_folder.absolute()):
            self._give_up(f"{log_dir.path}, which holds the metadata store, has failed: {log_dir.failure}")
        else:
            self.report(log_dirs.forget_failed(log_dir))

    def report(self, names: Iterable[TopicPartition]) -> None:
        """Stop serving these partitions, and tell everybody that they have no leader."""
        offline = sorted(names)
        if not offline:
            return
        self._replicas.take_offline(offline)
        if self._tell_controller is not None:
            self._tell_controller()
            return
        tasks.start(self._tell(offline), "telling which partitions have no leader")

    async def _tell(self, names: list[TopicPartition]) -> None:
        try:
            await self._controller.change(lambda image: decide_offline(image, self._replicas.node_id, names))
        except KafkaError as refusal:  # clients learn it from the partitions' own answers
            logger.error("cannot write down that %d partitions have no leader: %s", len(names), refusal)

    def __repr__(self) -> str:
        failed = [log_dir.path for log_dir in self._replicas.log_dirs.dirs if log_dir.failure is not None]
        return f"<FailedFolders {failed}>"

"""Folders of partitions that are made or taken away: prepared and finished by the owner of the logs, run in any thread.

A busy disk may take seconds for a new folder or a rename; nobody who is served may wait for that.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.storage import files
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log, create_log

if TYPE_CHECKING:
    from ottla.storage.log_dir import LogDir

logger = logging.getLogger("ottla.storage.folder_jobs")


class NewLog:
    """An empty log on its way. Until it is finished it counts as one of its folder."""

    def __init__(
        self,
        log_dir: LogDir,
        partition: TopicPartition,
        topic_id: uuid.UUID | None,
        settings: TopicSettings,
        pool: DescriptorPool,
        now_ms: int,
        producer_expiration_ms: int,
    ) -> None:
        self.log_dir = log_dir
        self.partition = partition
        self.topic_id = topic_id
        self.settings = settings
        self.log: Log | None = None
        self.error: OSError | None = None
        self._pool = pool
        self._now_ms = now_ms
        self._producer_expiration_ms = producer_expiration_ms
        log_dir.coming.add(partition)

    def run(self) -> None:
        """In any thread, and done whatever happens: the outcome is in `log` or in `error`."""
        try:
            self.log_dir.begin_use()
            self.log = create_log(
                self.partition,
                f"{self.log_dir.path}/{self.partition}",
                self.settings,
                self._pool,
                self.topic_id,
                self._now_ms,
                self._producer_expiration_ms,
            )
        except OSError as error:
            self.error = error

    def __repr__(self) -> str:
        return f"<NewLog {self.partition} in {self.log_dir.path}, error {self.error}>"


class DoomedFolder:
    """The folder of a partition that is not needed any more gets another name, and goes later."""

    def __init__(self, log_dir: LogDir, directory: str, folder: str, due_ms: int, log: Log | None = None) -> None:
        self.log_dir = log_dir
        self.directory = directory
        self.folder = folder
        self._due_ms = due_ms
        self._log = log  # that stood in it
        self._is_renamed = False

    def run(self) -> None:
        """In any thread. If the disk does not let us, the next start finds a folder that no topic asks for."""
        try:
            self.log_dir.begin_use()
            files.rename(self.directory, self.folder)
        except OSError as error:
            logger.error("Cannot take the folder %s away, which is not needed any more: %s", self.directory, error)
        else:
            self._is_renamed = True

    def finish(self) -> None:
        if self._is_renamed:
            self.log_dir.doomed.append((self._due_ms, self.folder))
            if self._log is not None:
                self._log.move_to_folder(self.folder)

    def __repr__(self) -> str:
        return f"<DoomedFolder {self.directory}>"

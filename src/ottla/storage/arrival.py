"""The folder in which foreign partitions arrive: filled file by file, made a log folder of this broker at the end.

With a target the partitions are copied there; without one they stay where they are and only what a broker of ours needs
is added beside them. Until finish() nothing at the source has changed, and undo() takes back what was made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.storage import files
from ottla.storage.adoption import ForeignFolder, ForeignLog
from ottla.storage.checkpoints import (
    CLEANED_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    write_offsets,
)
from ottla.storage.copying import Progress, copy_log, read_log
from ottla.storage.log_dir import write_clean_shutdown_marker
from ottla.storage.meta_properties import check_meta_properties, write_meta_properties
from ottla.storage.partition_metadata import write_topic_id
from ottla.storage.segment import FILE_SUFFIXES

UNKNOWN_EPOCH = -1


class Arrival:
    """Collects partitions under one node id and cluster id."""

    def __init__(
        self, folders: Sequence[ForeignFolder], target: str | None, node_id: int, cluster_id: str, *, links: bool
    ) -> None:
        self.folders = folders
        self.target = None if target is None else os.path.abspath(target)
        self._is_target_new = target is not None and not os.path.exists(target)
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.links = links
        self.producer_id_max = -1
        self.warnings: list[str] = []
        self._ids: list[tuple[str, UUID]] = []  # folders that need a partition.metadata
        self._made: list[str] = []  # what undo() removes
        self._taken: list[tuple[ForeignFolder, TopicPartition]] = []

    @property
    def store_directory(self) -> str:
        """Where the metadata store belongs: the first log folder."""
        return self.target or self.folders[0].path

    def prepare(self) -> None:
        if self.target is not None:
            files.make_directories(self.target, exist_ok=True)

    def take(self, log: ForeignLog, topic_id: UUID, progress: Progress) -> int:
        """Bring one partition over and read it as a whole; its last leader epoch."""
        folder = next(f for f in self.folders if f.path == os.path.dirname(log.directory))
        directory = log.directory
        if self.target is not None:
            directory = f"{self.target}/{log.partition}"
            self._made.append(directory)
            point = folder.recovery_points.get(log.partition, 0)
            copy_log(log, directory, point, links=self.links, progress=progress)
        found = read_log(log, directory, folder.is_clean, progress)
        if self.target is not None or log.topic_id is None:
            self._ids.append((directory, topic_id))
        self.producer_id_max = max(self.producer_id_max, found.producer_id_max)
        self.warnings += found.warnings
        self._taken.append((folder, log.partition))
        return found.leader_epoch

    def make_empty(self, topic: str, index: int, topic_id: UUID) -> None:
        """A partition that is nowhere to be found begins anew."""
        directory = f"{self.store_directory}/{TopicPartition(topic, index)}"
        files.make_directory(directory)
        self._made.append(directory)
        for suffix in FILE_SUFFIXES[:3]:  # the log and its two indexes
            files.create_empty(files.segment_path(directory, 0, suffix))
        self._ids.append((directory, topic_id))
        self.warnings.append(f"{directory} was made empty")

    def finish(self) -> None:
        """Write what makes these folders ours: topic ids, checkpoints, the owner, the sign of a clean stop."""
        for directory, topic_id in self._ids:
            write_topic_id(directory, topic_id)
        if self.target is None:
            for folder in self.folders:
                if check_meta_properties(folder.path, self.node_id, self.cluster_id) is None:
                    write_meta_properties(folder.path, self.node_id, self.cluster_id)
            return
        write_offsets(self.target, RECOVERY_POINT_FILE, self._offsets("recovery_points"))
        write_offsets(self.target, LOG_START_OFFSET_FILE, self._offsets("start_offsets"))
        write_offsets(self.target, HIGH_WATERMARK_FILE, self._offsets("high_watermarks"))
        write_offsets(self.target, CLEANED_OFFSET_FILE, self._offsets("cleaned_offsets"))
        write_meta_properties(self.target, self.node_id, self.cluster_id)
        if all(folder.is_clean for folder in self.folders):
            write_clean_shutdown_marker(self.target, UNKNOWN_EPOCH)

    def undo(self) -> None:
        """Remove the copies; a folder that was used in place keeps all that it had."""
        if self._is_target_new and self.target is not None:
            self._made.append(self.target)
        for directory in self._made:
            files.remove_tree(directory, ignore_errors=True)

    def _offsets(self, kind: str) -> dict[TopicPartition, int]:
        known = [(partition, getattr(folder, kind).get(partition)) for folder, partition in self._taken]
        return {partition: offset for partition, offset in known if offset is not None}

    def __repr__(self) -> str:
        return f"<Arrival in {self.target or 'place'}, {len(self._taken)} partitions>"

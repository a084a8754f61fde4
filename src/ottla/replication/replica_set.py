"""All partitions on this broker, by name and by topic id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.metrics.traffic import TrafficSet
from ottla.replication.partition import LAG_MS_MAX, Partition
from ottla.replication.refused_sequences import RefusedSequences
from ottla.storage.folder_jobs import DoomedFolder
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirs

logger = logging.getLogger(__name__)


class ReplicaSet:
    """Adopts, finds and retires partitions; who leads them is told from above."""

    def __init__(
        self,
        node_id: int,
        log_dirs: LogDirs,
        flush: Callable[[Partition], None],
        flush_rolled: Callable[[Partition], None],
    ) -> None:
        self.node_id = node_id
        self.log_dirs = log_dirs
        self._flush = flush
        self._flush_rolled = flush_rolled
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.traffic = TrafficSet()
        self.refused_sequences = RefusedSequences()
        self.recovering: set[TopicPartition] = set()  # on disk, but not open yet
        self.offline: set[TopicPartition] = set()  # in a folder that has failed
        self.damaged: set[TopicPartition] = set()  # others must lead them and mend them
        self.full: set[TopicPartition] = set()  # others must lead them until there is room on the disk
        self.on_damage: Callable[[], None] | None = None  # told when one of these sets changes
        self.lag_ms_max = LAG_MS_MAX  # replica.lag.time.max.ms
        self.tells_watermark = False  # consumers may read from followers (replica.selector.class)
        self.on_role: Callable[[Partition], None] | None = None  # told of each partition's new role, and of its end
        self.on_isr: Callable[[Partition], None] | None = None  # told when a leader has something to propose

    def get(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get((topic, index))

    def adopt(self, log: Log, topic_id: UUID, high_watermark: int | None = None) -> Partition:
        """Serve a log that is on disk; it is a new one if there is no high watermark."""
        traffic = self.traffic.join(log.partition.topic)
        partition = Partition(log.partition, topic_id, log, self.node_id, traffic)
        partition.flush = self._flush
        partition.flush_rolled = self._flush_rolled
        partition.lag_ms_max = self.lag_ms_max
        partition.tells_watermark = self.tells_watermark
        partition.on_role = self.on_role
        partition.on_isr = self.on_isr
        partition.on_damage = self._note_damage
        partition.on_full = self._note_full
        if high_watermark is not None:
            partition.high_watermark = min(max(high_watermark, log.log_start_offset), log.end_offset)
            if log.has_lost or high_watermark > log.end_offset:
                partition.damage_offset = log.lost_offset if log.lost_offset >= 0 else log.end_offset
                self.damaged.add(log.partition)
        self.partitions[log.partition] = partition
        return partition

    def _note_damage(self, partition: Partition) -> None:
        if partition.damage_offset >= 0:
            logger.error("%s is damaged at offset %d: others shall lead it", partition.name, partition.damage_offset)
            self.damaged.add(partition.name)
        else:
            self.damaged.discard(partition.name)
        if self.on_damage is not None:
            self.on_damage()

    def _note_full(self, partition: Partition) -> None:
        if partition.is_full:
            logger.warning("there is no room for %s: others shall lead it until there is", partition.name)
            self.full.add(partition.name)
        else:
            logger.info("there is room for %s again", partition.name)
            self.full.discard(partition.name)
        if self.on_damage is not None:
            self.on_damage()

    def take_offline(self, names: Iterable[TopicPartition]) -> None:
        """Stop serving partitions whose folder has failed."""
        for name in names:
            self.offline.add(name)
            self.damaged.discard(name)
            self.full.discard(name)
            partition = self.partitions.pop(name, None)
            if partition is not None:
                partition.retire()
                self.traffic.leave(name.topic)

    def retire(self, topic: str, index: int) -> DoomedFolder | None:
        """Stop serving a deleted partition. The caller puts its files aside for removal: run() and finish()."""
        self.offline.discard(TopicPartition(topic, index))
        self.damaged.discard(TopicPartition(topic, index))
        self.full.discard(TopicPartition(topic, index))
        partition = self.partitions.pop((topic, index), None)
        if partition is None:
            return None
        partition.retire()
        self.traffic.leave(topic)
        return self.log_dirs.begin_delete(partition.log)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """For the checkpoint: how far each partition was known to be replicated."""
        return {partition.name: partition.high_watermark for partition in self.partitions.values()}

    def __len__(self) -> int:
        return len(self.partitions)

    def __repr__(self) -> str:
        return f"<ReplicaSet of broker {self.node_id}: {len(self.partitions)} partitions>"

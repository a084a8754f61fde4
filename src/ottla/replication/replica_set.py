"""All partitions on this broker, by name and by topic id."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.metrics.traffic import TrafficSet
from ottla.replication.partition import LAG_MS_MAX, Partition
from ottla.replication.rejected_batches import RejectedBatches
from ottla.storage.log import Log
from ottla.storage.log_dir import PendingDirDelete
from ottla.storage.log_dirs import LogDirs

logger = logging.getLogger(__name__)


class ReplicaSet:
    """Adopts, finds and retires partitions; their leaders are set by the controller."""

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
        self.rejected_batches = RejectedBatches()
        self.recovering_partitions: set[TopicPartition] = set()  # on disk, but not opened yet
        self.offline_partitions: set[TopicPartition] = set()  # in a log directory that has failed
        self.damaged_partitions: set[TopicPartition] = set()  # to be led by other replicas and rebuilt from them
        self.disk_full_partitions: set[TopicPartition] = set()  # to be led by other replicas until the disk has space
        self.on_damage: Callable[[], None] | None = None  # called when one of these sets changes
        self.lag_ms_max = LAG_MS_MAX  # replica.lag.time.max.ms
        self.notifies_followers_of_watermark = False  # consumers may read from followers (replica.selector.class)
        self.on_role: Callable[[Partition], None] | None = None  # called for each partition's new role, and at its end
        self.on_isr: Callable[[Partition], None] | None = None  # called when a leader has a change to propose

    def get(self, topic: str, index: int) -> Partition | None:
        return self.partitions.get((topic, index))

    def add_partition(self, log: Log, topic_id: UUID, high_watermark: int | None = None) -> Partition:
        """Serve a log from disk; without a high watermark it is a new one."""
        traffic = self.traffic.join(log.partition.topic)
        partition = Partition(log.partition, topic_id, log, self.node_id, traffic)
        partition.flush = self._flush
        partition.flush_rolled = self._flush_rolled
        partition.lag_ms_max = self.lag_ms_max
        partition.notifies_followers_of_watermark = self.notifies_followers_of_watermark
        partition.on_state_change = self.on_role
        partition.on_isr_proposal_due = self.on_isr
        partition.on_damage = self._on_damage_change
        partition.on_disk_full_change = self._on_disk_full_change
        if high_watermark is not None:
            partition.load_high_watermark(high_watermark)
            if log.has_data_loss or high_watermark > log.end_offset:
                partition.damage_offset = log.lost_start_offset if log.lost_start_offset >= 0 else log.end_offset
                self.damaged_partitions.add(log.partition)
        self.partitions[log.partition] = partition
        return partition

    def _on_damage_change(self, partition: Partition) -> None:
        if partition.damage_offset >= 0:
            logger.error("%s is damaged at offset %d: others shall lead it", partition.name, partition.damage_offset)
            self.damaged_partitions.add(partition.name)
        else:
            self.damaged_partitions.discard(partition.name)
        if self.on_damage is not None:
            self.on_damage()

    def _on_disk_full_change(self, partition: Partition) -> None:
        if partition.is_disk_full:
            logger.warning("there is no room for %s: others shall lead it until there is", partition.name)
            self.disk_full_partitions.add(partition.name)
        else:
            logger.info("there is room for %s again", partition.name)
            self.disk_full_partitions.discard(partition.name)
        if self.on_damage is not None:
            self.on_damage()

    def take_offline(self, names: Iterable[TopicPartition]) -> None:
        """Stop serving partitions whose log directory has failed."""
        for name in names:
            self.offline_partitions.add(name)
            self.damaged_partitions.discard(name)
            self.disk_full_partitions.discard(name)
            partition = self.partitions.pop(name, None)
            if partition is not None:
                partition.close()
                self.traffic.leave(name.topic)

    def remove_partition(self, topic: str, index: int) -> PendingDirDelete | None:
        """Stop serving a deleted partition. The caller renames its files for removal: run() and finish()."""
        self.offline_partitions.discard(TopicPartition(topic, index))
        self.damaged_partitions.discard(TopicPartition(topic, index))
        self.disk_full_partitions.discard(TopicPartition(topic, index))
        partition = self.partitions.get((topic, index))
        if partition is None:
            return None
        pending = self.log_dirs.begin_delete(partition.log)
        del self.partitions[topic, index]  # last: a removal that failed can be tried again
        partition.close()
        self.traffic.leave(topic)
        return pending

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the known high watermark of each partition, for the checkpoint."""
        return {partition.name: partition.high_watermark for partition in self.partitions.values()}

    def __len__(self) -> int:
        return len(self.partitions)

    def __repr__(self) -> str:
        return f"<ReplicaSet of broker {self.node_id}: {len(self.partitions)} partitions>"

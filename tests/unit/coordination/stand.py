"""Partitions of an internal topic with real logs and high watermarks, and followers that the test simulates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.virtual_time import LoopClock

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinator_service.coordinators import with_write_error
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.replication.leader_state import PartitionState
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log_dir import create_log

ME, OTHER = 1, 2
NOW_MS = 1_700_000_000_000


class Replicas:
    """Creates partitions and a replica set of them."""

    def __init__(self, folder: Path) -> None:
        self.set = ReplicaSet(ME, None, lambda _: None, lambda _: None)  # type: ignore[arg-type]
        self._folder = folder
        self.clock = LoopClock()

    def make(self, topic: str, index: int = 0, replicas: tuple[int, ...] = (ME, OTHER)) -> Partition:
        name = TopicPartition(topic, index)
        folder = str(self._folder / str(name))
        log = create_log(name, folder, TopicSettings(), DescriptorPool(64), None, NOW_MS, 86_400_000)
        partition = self.set.add_partition(log, UUID(int=7))
        lead(partition, 0, replicas)
        return partition

    def runtime(self, topic: str, make_machine: Any, wait_ms_max: int = 60_000) -> CoordinatorRuntime[Any]:
        return CoordinatorRuntime(
            topic, self.set, ThreadPoolExecutor(1), self.clock, make_machine, with_write_error, 0, wait_ms_max
        )

    def close(self) -> None:
        for partition in self.set.partitions.values():
            partition.log.close_files()


def lead(partition: Partition, epoch: int, replicas: tuple[int, ...] = (ME, OTHER)) -> None:
    partition.apply_state(PartitionState(ME, epoch, replicas, replicas), 0)


def lose(partition: Partition, epoch: int) -> None:
    """Make the other broker the leader."""
    partition.apply_state(PartitionState(OTHER, epoch, (ME, OTHER), (ME, OTHER)), 0)


def replicate(partition: Partition) -> None:
    """Fetch to the log end as the follower; its next fetch acknowledges that."""
    end = partition.log.end_offset
    epoch = partition.log.latest_epoch
    read = partition.read_for_replica(OTHER, -1, end, epoch, partition.leader_epoch, 1 << 20, True, 0)
    if read.file_range is not None:
        read.file_range.release()
    assert partition.high_watermark == end

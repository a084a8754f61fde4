"""Partitions of an internal topic with followers that a test plays: real logs, real high watermarks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinators.coordinators import refuse
from ottla.coordination.runtime import Runtime
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.role import Role
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import create_log
from virtual_time import LoopClock

ME, OTHER = 1, 2
NOW_MS = 1_700_000_000_000


class Replicas:
    """Makes partitions, and a set of them."""

    def __init__(self, folder: Path) -> None:
        self.set = ReplicaSet(ME, None, lambda _: None, lambda _: None)  # type: ignore[arg-type]
        self._folder = folder

    def make(self, topic: str, index: int = 0, replicas: tuple[int, ...] = (ME, OTHER)) -> Partition:
        name = TopicPartition(topic, index)
        folder = str(self._folder / str(name))
        log = create_log(name, folder, TopicSettings(), DescriptorPool(64), None, NOW_MS, 86_400_000)
        partition = self.set.adopt(log, UUID(int=7))
        lead(partition, 0, replicas)
        return partition

    def runtime(self, topic: str, make_machine: Any, wait_ms_max: int = 60_000) -> Runtime[Any]:
        return Runtime(topic, self.set, ThreadPoolExecutor(1), LoopClock(), make_machine, refuse, 0, wait_ms_max)

    def close(self) -> None:
        for partition in self.set.partitions.values():
            partition.log.abandon()


def lead(partition: Partition, epoch: int, replicas: tuple[int, ...] = (ME, OTHER)) -> None:
    partition.take_role(Role(ME, epoch, replicas, replicas), 0)


def lose(partition: Partition, epoch: int) -> None:
    """The other broker leads from now on."""
    partition.take_role(Role(OTHER, epoch, (ME, OTHER), (ME, OTHER)), 0)


def replicate(partition: Partition) -> None:
    """The follower fetches to the end, and says so with its next fetch."""
    end = partition.log.end_offset
    epoch = partition.log.latest_epoch
    read = partition.read_for_replica(OTHER, -1, end, epoch, partition.leader_epoch, 1 << 20, True, 0)
    if read.file_range is not None:
        read.file_range.release()
    assert partition.high_watermark == end

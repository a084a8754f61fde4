"""A few replicas of one partition on real logs, and a hand that carries records from the leader to the followers."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import Record, build_batch
from ottla.replication.follower_rules import FetchPosition
from ottla.replication.leader_state import PartitionState
from ottla.replication.partition import Partition, ReplicaRead
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log_dir import create_log

NOW_MS = 1_700_000_000_000
LAG_MS = 10_000
NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)
MAX_BYTES = 1 << 20


def batch(*values: bytes, **options: object) -> memoryview:
    records = [Record(offset, NOW_MS, None, value, ()) for offset, value in enumerate(values)]
    return memoryview(bytearray(build_batch(records, **options)))  # type: ignore[arg-type]


class Stand:
    """Brokers 1, 2, 3 … with a replica each. Time stands still unless it is moved."""

    def __init__(self, folder: Path, count: int = 3, **settings: object) -> None:
        self.now_ms = 1_000
        self.isr: tuple[int, ...] = tuple(range(1, count + 1))
        self.replicas = self.isr
        self.epoch = -1
        self.partition_epoch = 0
        self.at: dict[int, Partition] = {}
        self.broker_epochs = {broker_id: 100 + broker_id for broker_id in self.isr}
        for broker_id in self.isr:
            directory = folder / str(broker_id) / str(NAME)
            directory.parent.mkdir()
            log = create_log(
                NAME,
                str(directory),
                TopicSettings(**settings),  # type: ignore[arg-type]
                DescriptorPool(64),
                None,
                NOW_MS,
                86_400_000,
            )
            partition = Partition(NAME, TOPIC_ID, log, broker_id)
            partition.lag_ms_max = LAG_MS
            self.at[broker_id] = partition

    def close(self) -> None:
        for partition in self.at.values():
            partition.log.close_files()

    # ---- the controller

    def elect(self, leader: int, isr: tuple[int, ...] | None = None, tell: tuple[int, ...] | None = None) -> Partition:
        """A new leader epoch; brokers that are not told go on as before."""
        self.epoch += 1
        self.isr = isr if isr is not None else self.isr
        self._tell(leader, tell)
        return self.at[leader]

    def change_isr(self, leader: int, isr: tuple[int, ...]) -> None:
        """The controller's own doing, in the same leader epoch."""
        self.isr = isr
        self._tell(leader, None)

    def _tell(self, leader: int, tell: tuple[int, ...] | None) -> None:
        self.partition_epoch += 1
        role = PartitionState(leader, self.epoch, self.isr, self.replicas, self.partition_epoch)
        for broker_id in tell if tell is not None else self.at:
            self.at[broker_id].apply_state(role, self.now_ms)

    # ---- the wire

    def ask(
        self, follower: int, leader: int, max_bytes: int = MAX_BYTES, broker_epoch: int | None = None
    ) -> tuple[FetchPosition, ReplicaRead, memoryview]:
        """A follower's fetch and its answer, which it has not taken in yet."""
        replica = self.at[follower]
        position = replica.fetch_position()
        read = self.at[leader].read_for_replica(
            follower,
            self.broker_epochs[follower] if broker_epoch is None else broker_epoch,
            position.offset,
            position.last_epoch,
            position.leader_epoch,
            max_bytes,
            True,
            self.now_ms,
            replica.log.log_start_offset,
        )
        return position, read, take_bytes(read)

    def fetch(self, follower: int, leader: int, max_bytes: int = MAX_BYTES) -> ReplicaRead:
        """One whole round: ask, take the answer in."""
        position, read, records = self.ask(follower, leader, max_bytes)
        replica = self.at[follower]
        if read.diverging is not None:
            replica.truncate_on_divergence(position, *read.diverging)
        else:
            replica.append_fetched(position, records, read.high_watermark, read.log_start_offset)
        return read

    def catch_up(self, follower: int, leader: int) -> None:
        """Until there is nothing new, and the leader knows it."""
        while self.fetch(follower, leader).file_range is not None:
            pass

    def append(self, leader: int, *values: bytes) -> int:
        return self.at[leader].append(batch(*values), False, NOW_MS).last_offset

    def contents(self, broker_id: int) -> bytes:
        log = self.at[broker_id].log
        found = b""
        for segment in log.segments:
            if segment.size:
                found += os.pread(segment.open_descriptor(), segment.size, 0)
        return found


def take_bytes(read: ReplicaRead) -> memoryview:
    file_range = read.file_range
    if file_range is None:
        return memoryview(b"")
    data = os.pread(file_range.descriptor, file_range.length, file_range.position)
    file_range.release()
    return memoryview(data)

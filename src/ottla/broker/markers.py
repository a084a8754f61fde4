"""Carries out what the transaction coordinator decided: a marker in every partition that took part.

A marker of a partition that this broker leads is appended here. One that cannot be written now (the partition has no
leader, or its disk is full) is tried again; one of a topic that was deleted is done. When the last one is replicated,
the coordinator closes the transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.coordination.machine import Stamp
from ottla.coordination.runtime import Runtime
from ottla.coordination.shard import Shard
from ottla.groups.machine import GroupMachine
from ottla.protocol.batches import ABORT_MARKER, COMMIT_MARKER, build_batch
from ottla.protocol.records import Record
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting import WaitingProduce
from ottla.storage.replay import COORDINATOR_EPOCH
from ottla.transactions.machine import SendMarkers, TransactionMachine

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1
_KEY: Final = Struct(">hh")  # version, type


class MarkerWriter:
    """Writes markers and reports back when all of a transaction are in place."""

    def __init__(
        self,
        replicas: ReplicaSet,
        clock: Clock,
        groups: Runtime[GroupMachine],
        transactions: Runtime[TransactionMachine],
        is_known: Callable[[str, int], bool],
    ) -> None:
        self._replicas = replicas
        self._is_known = is_known  # whether there is such a partition, wherever it is now
        self._clock = clock
        self._groups = groups
        self._transactions = transactions

    def send_from(self, shard: Shard[TransactionMachine]) -> None:
        """Take the orders of a machine."""
        orders, shard.machine.to_send = shard.machine.to_send, []
        for order in orders:
            _Sending(self, shard, order).start()

    def write(self, order: SendMarkers, topic: str, index: int, epoch: int, waiting: WaitingProduce) -> bool:
        """Append one marker and let `waiting` know when it is replicated; False when it has to be tried again."""
        partition = self._replicas.get(topic, index)
        if partition is None:
            if self._is_known(topic, index):
                return False  # it is being recovered
            waiting.note()
            return True
        if is_over(partition, order):  # somebody has ended it by hand
            waiting.note()
            return True
        try:
            last_offset = append_marker(partition, order, epoch, self._clock.now_ms())
        except KafkaError as error:
            logger.warning("cannot end a transaction in %s-%d yet: %s", topic, index, error)
            return False

        def on_replicated() -> None:
            self.tell_group(topic, index, order)
            waiting.note()

        if partition.is_replicated(last_offset):
            on_replicated()
        else:
            partition.wait_for_replication(last_offset, WaitingProduce(1, on_replicated))
        return True

    def tell_group(self, topic: str, index: int, order: SendMarkers) -> None:
        """Offsets that were committed in the transaction count from now on."""
        if topic == self._groups.topic:
            shard = self._groups.loaded_at(index)
            if shard is not None:
                shard.machine.apply_marker(Stamp(order.producer_id, order.epoch), order.is_commit)

    def done(self, shard: Shard[TransactionMachine], order: SendMarkers) -> None:
        if shard.is_ours:
            now_ms = self._transactions.now_ms()
            decision = shard.machine.markers_written(order.transactional_id, order.producer_id, order.epoch, now_ms)
            self._transactions.run(shard, decision)


class _Sending:
    """The markers of one transaction."""

    def __init__(self, writer: MarkerWriter, shard: Shard[TransactionMachine], order: SendMarkers) -> None:
        self._writer = writer
        self._shard = shard
        self._order = order
        self._left = sorted(order.partitions)
        self._waiting = WaitingProduce(len(self._left), self._on_done)

    def start(self) -> None:
        if not self._left:
            self._on_done()
        else:
            self._go_on()

    def _go_on(self) -> None:
        if not self._shard.is_ours:
            return  # whoever coordinates this transaction now sends them again
        epoch = self._shard.partition.leader_epoch
        self._left = [
            (topic, index)
            for topic, index in self._left
            if not self._writer.write(self._order, topic, index, epoch, self._waiting)
        ]
        if self._left:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._go_on)

    def _on_done(self) -> None:
        self._writer.done(self._shard, self._order)


def is_over(partition: Partition, order: SendMarkers) -> bool:
    """Whether the producer has a newer epoch here already: a marker of the old one must not end its transaction."""
    known = partition.log.producers.by_id.get(order.producer_id)
    return known is not None and order.epoch < known.epoch


def append_marker(partition: Partition, order: SendMarkers, coordinator_epoch: int, now_ms: int) -> int:
    """Its offset; raises KafkaError when it cannot be written."""
    key = _KEY.pack(0, COMMIT_MARKER if order.is_commit else ABORT_MARKER)
    record = Record(-1, now_ms, key, COORDINATOR_EPOCH.pack(0, coordinator_epoch))
    batch = build_batch(
        [record],
        producer_id=order.producer_id,
        producer_epoch=order.epoch,
        is_transactional=True,
        is_control=True,
    )
    return partition.append_own(batch, now_ms)

"""Writing of transaction markers: one in every partition of a completed transaction.

Markers for partitions led by this broker are appended here, others are sent to their leaders (WriteTxnMarkers). A
marker that cannot be written (no leader, leader moved, disk full) is retried with the current leader; markers of
deleted topics are skipped. When the last one is replicated, the coordinator completes the transaction. A deposed
coordinator stops: its successor sends all markers again with a newer coordinator epoch, and partitions reject those of
the old one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from ottla.base.clock import Clock
from ottla.base.errors import Error, KafkaError
from ottla.broker.coordinator_service.transaction_verification import VerificationGuards
from ottla.coordination.machine import TransactionalProducer
from ottla.coordination.runtime import CoordinatorRuntime, is_leading
from ottla.coordination.shard import CoordinatorContext
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.protocol.batches import ABORT_MARKER, COMMIT_MARKER, build_batch
from ottla.protocol.records import Record
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting_requests import WaitingProduce
from ottla.storage.producer_state import ProducerStateEntry
from ottla.storage.replay import COORDINATOR_EPOCH
from ottla.transactions.transaction import PREPARED_STATES
from ottla.transactions.transaction_coordinator import EPOCH_BUMP_VERSION, TransactionCoordinator, TransactionMarkers

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 1.0
MARKERS_PER_ITERATION: Final = 20
_KEY: Final = Struct(">hh")  # version, type

PartitionName = tuple[str, int]
OnResult = Callable[[Error], None]


class MarkerChannel(Protocol):
    """Sends markers to other brokers."""

    def send(
        self,
        broker: int,
        order: TransactionMarkers,
        epoch: int,
        places: list[PartitionName],
        answered: Callable[[PartitionName, Error], None],
    ) -> None:
        """Send markers; eventually calls `answered` for every partition."""


class TxnMarkerWriter:
    """Writes markers, and completes transactions when all of their markers are written."""

    def __init__(
        self,
        replicas: ReplicaSet,
        clock: Clock,
        groups: CoordinatorRuntime[GroupCoordinator],
        transactions: CoordinatorRuntime[TransactionCoordinator],
        leader_of: Callable[[str, int], int | None],
        messengers: MarkerChannel,
        guards: VerificationGuards,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._groups = groups
        self._transactions = transactions
        self.leader_of = leader_of  # a broker id, -1 without a leader, None for an unknown partition
        self.channels = messengers
        self._guards = guards
        self.retry_seconds = RETRY_SECONDS  # the first pause, and …
        self.retry_seconds_max = RETRY_SECONDS_MAX  # … the longest

    @property
    def node_id(self) -> int:
        return self._replicas.node_id

    def start_orders(self, shard: CoordinatorContext[TransactionCoordinator]) -> None:
        """Start the marker orders of a shard."""
        orders, shard.machine.pending_markers = shard.machine.pending_markers, []
        for order in orders:
            _MarkerOrder(self, shard, order).start()

    def write(self, order: TransactionMarkers, topic: str, index: int, epoch: int, answered: OnResult) -> None:
        """Append one marker to a partition of this broker; calls `answered` when it is replicated or rejected.

        INVALID_PRODUCER_EPOCH: an administrator has already ended the transaction. TRANSACTION_COORDINATOR_FENCED: a
        newer coordinator has written markers here.
        """
        partition = self._replicas.get(topic, index)
        if partition is None or not partition.is_leader:
            answered(Error.NOT_LEADER_OR_FOLLOWER)
            return
        known = partition.log.producers.by_id.get(order.producer_id)
        refusal = marker_error(known, order, epoch)
        if refusal is not Error.NONE:
            answered(refusal)
            return
        self._guards.cancel(partition, order.producer_id)
        self._replicas.rejected_batches.remove(topic, index, order.producer_id)
        last_offset = partition.log.end_offset - 1
        if not is_marker_written(known, order):
            try:
                last_offset = append_marker(partition, order, epoch, self._clock.now_ms())
            except KafkaError as error:
                logger.warning("cannot end a transaction in %s-%d yet: %s", topic, index, error)
                answered(error.error)
                return
        self._answer_when_replicated(partition, last_offset, order, answered)

    def _answer_when_replicated(
        self, partition: Partition, last_offset: int, order: TransactionMarkers, answered: OnResult
    ) -> None:
        since = partition.leader_since_epoch

        def on_ready() -> None:
            if not is_leading(partition, since):
                answered(Error.NOT_LEADER_OR_FOLLOWER)  # the marker may be truncated
                return
            self.complete_group_offsets(partition.name.topic, partition.name.partition, order)
            answered(Error.NONE)

        if partition.is_replicated(last_offset):
            on_ready()
        else:
            partition.wait_for_replication(last_offset, WaitingProduce(1, on_ready))

    def complete_group_offsets(self, topic: str, index: int, order: TransactionMarkers) -> None:
        """Make the offsets that the transaction committed effective."""
        if topic == self._groups.topic:
            shard = self._groups.loaded_at(index)
            if shard is not None:
                shard.machine.replay_end_transaction_marker(
                    TransactionalProducer(order.producer_id, order.producer_epoch), order.is_commit
                )

    def complete_transaction(
        self, shard: CoordinatorContext[TransactionCoordinator], order: TransactionMarkers
    ) -> None:
        """Complete the transaction after all markers are written. Retries until the completion is written."""
        if not shard.is_current_leader:
            return
        now_ms = self._transactions.now_ms()
        decision = shard.machine.complete_transaction(
            order.transactional_id, order.producer_id, order.producer_epoch, now_ms
        )
        self._transactions.execute(shard, decision)
        left = shard.machine.transactions.get(order.transactional_id)
        if decision.records and left is not None and left.state in PREPARED_STATES and not left.has_pending_transition:
            asyncio.get_running_loop().call_later(self.retry_seconds_max, self.complete_transaction, shard, order)


class _MarkerOrder:
    """The markers of one transaction."""

    def __init__(
        self, writer: TxnMarkerWriter, shard: CoordinatorContext[TransactionCoordinator], order: TransactionMarkers
    ) -> None:
        self._writer = writer
        self._shard = shard
        self._order = order
        self._unsent = sorted(order.partitions)  # neither written nor in flight …
        self._to_send: deque[PartitionName] = deque()  # … and about to be sent
        self._remaining = len(self._unsent)
        self._pause_seconds = writer.retry_seconds
        self._is_pausing = False

    def start(self) -> None:
        if not self._remaining:
            self._writer.complete_transaction(self._shard, self._order)
        else:
            self._continue()

    def _continue(self) -> None:
        self._is_pausing = False
        is_sending = bool(self._to_send)
        self._to_send += self._unsent
        self._unsent = []
        if not is_sending:
            self._send_some()

    def _send_some(self) -> None:
        """Send some markers: a transaction may have ended in thousands of partitions, and other tasks must run in
        between.
        """
        if not self._shard.is_current_leader:
            return  # the current coordinator sends them again
        epoch = self._shard.partition.leader_epoch
        some = [self._to_send.popleft() for _ in range(min(MARKERS_PER_ITERATION, len(self._to_send)))]
        if self._to_send:
            asyncio.get_running_loop().call_soon(self._send_some)
        elsewhere: dict[int, list[PartitionName]] = {}
        for place in some:
            leader = self._writer.leader_of(*place)
            if leader is None:
                self._on_answer(place, Error.NONE)  # deleted
            elif leader == self._writer.node_id:
                self._write_here(place, epoch)
            elif leader < 0:
                self._on_answer(place, Error.LEADER_NOT_AVAILABLE)
            else:
                elsewhere.setdefault(leader, []).append(place)
        for broker, places in elsewhere.items():
            self._writer.channels.send(broker, self._order, epoch, places, self._on_answer)

    def _write_here(self, place: PartitionName, epoch: int) -> None:
        self._writer.write(self._order, *place, epoch, lambda error: self._on_answer(place, error))

    def _on_answer(self, place: PartitionName, error: Error) -> None:
        if error is Error.NONE or error is Error.INVALID_PRODUCER_EPOCH:
            self._remaining -= 1
            if self._remaining == 0:
                self._writer.complete_transaction(self._shard, self._order)
        elif error is Error.TRANSACTION_COORDINATOR_FENCED:
            logger.info("the markers of %s now belong to another coordinator", self._order.transactional_id)
        else:
            self._unsent.append(place)
            self._pause()

    def _pause(self) -> None:
        if not self._is_pausing:
            self._is_pausing = True
            asyncio.get_running_loop().call_later(self._pause_seconds, self._continue)
            self._pause_seconds = min(self._pause_seconds * 2, self._writer.retry_seconds_max)


def marker_error(known: ProducerStateEntry | None, order: TransactionMarkers, coordinator_epoch: int) -> Error:
    """Return the error of a stale marker: the partition knows a newer coordinator, or a newer producer whose
    transaction the marker must not end.
    """
    if known is None:
        return Error.NONE
    if order.producer_epoch < known.epoch:
        return Error.INVALID_PRODUCER_EPOCH
    return Error.TRANSACTION_COORDINATOR_FENCED if coordinator_epoch < known.coordinator_epoch else Error.NONE


def is_marker_written(known: ProducerStateEntry | None, order: TransactionMarkers) -> bool:
    """Return whether this marker is already in the log.

    With transaction version 2 a marker raises the epoch: a late duplicate cannot end the next transaction (KIP-890).
    """
    return known is not None and order.transaction_version >= EPOCH_BUMP_VERSION and order.producer_epoch == known.epoch


def append_marker(partition: Partition, order: TransactionMarkers, coordinator_epoch: int, now_ms: int) -> int:
    """Append a marker and return its offset. Raises KafkaError."""
    key = _KEY.pack(0, COMMIT_MARKER if order.is_commit else ABORT_MARKER)
    record = Record(-1, now_ms, key, COORDINATOR_EPOCH.pack(0, coordinator_epoch))
    batch = build_batch(
        [record],
        producer_id=order.producer_id,
        producer_epoch=order.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return partition.append_as_coordinator(batch, now_ms)

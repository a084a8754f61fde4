"""Carries out what the transaction coordinator decided: a marker in every partition that took part.

A marker of a partition that this broker leads is appended here, one of another broker's partition is sent there
(WriteTxnMarkers). One that cannot be written now (the partition has no leader, its leader has just moved, its disk is
full) is tried again with whoever leads it then; one of a topic that was deleted is done. When the last one is
replicated, the coordinator closes the transaction. A coordinator that is none any more stops: its successor sends all
markers again, under a newer coordinator epoch, and partitions refuse those of the old one.
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
from ottla.broker.coordinators.verification_guards import VerificationGuards
from ottla.coordination.machine import Stamp
from ottla.coordination.runtime import Runtime, is_leading
from ottla.coordination.shard import Shard
from ottla.groups.machine import GroupMachine
from ottla.protocol.batches import ABORT_MARKER, COMMIT_MARKER, build_batch
from ottla.protocol.records import Record
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.replication.waiting import WaitingProduce
from ottla.storage.producers import Producer
from ottla.storage.replay import COORDINATOR_EPOCH
from ottla.transactions.machine import RAISES_EPOCHS, SendMarkers, TransactionMachine
from ottla.transactions.transaction import PREPARED

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 1.0
MARKERS_AT_ONCE: Final = 20
_KEY: Final = Struct(">hh")  # version, type

Place = tuple[str, int]
Answered = Callable[[Error], None]


class Messengers(Protocol):
    """Whoever takes markers to other brokers."""

    def send(
        self, broker: int, order: SendMarkers, epoch: int, places: list[Place], answered: Callable[[Place, Error], None]
    ) -> None:
        """`answered` is told about every place, sooner or later."""


class MarkerWriter:
    """Writes markers and reports back when all of a transaction are in place."""

    def __init__(
        self,
        replicas: ReplicaSet,
        clock: Clock,
        groups: Runtime[GroupMachine],
        transactions: Runtime[TransactionMachine],
        leader_of: Callable[[str, int], int | None],
        messengers: Messengers,
        guards: VerificationGuards,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._groups = groups
        self._transactions = transactions
        self.leader_of = leader_of  # a broker, -1 while there is none, None if there is no such partition
        self.messengers = messengers
        self._guards = guards
        self.retry_seconds = RETRY_SECONDS  # the first pause, and …
        self.retry_seconds_max = RETRY_SECONDS_MAX  # … the longest

    @property
    def node_id(self) -> int:
        return self._replicas.node_id

    def send_from(self, shard: Shard[TransactionMachine]) -> None:
        """Take the orders of a machine."""
        orders, shard.machine.to_send = shard.machine.to_send, []
        for order in orders:
            _Sending(self, shard, order).start()

    def write(self, order: SendMarkers, topic: str, index: int, epoch: int, answered: Answered) -> None:
        """Append one marker to a partition of ours; `answered` is told when it is replicated, or why it is not.

        INVALID_PRODUCER_EPOCH: the transaction is over, somebody has ended it by hand. TRANSACTION_COORDINATOR_FENCED:
        a newer coordinator has been here.
        """
        partition = self._replicas.get(topic, index)
        if partition is None or not partition.is_leader:
            answered(Error.NOT_LEADER_OR_FOLLOWER)
            return
        known = partition.log.producers.by_id.get(order.producer_id)
        refusal = refusal_of(known, order, epoch)
        if refusal is not Error.NONE:
            answered(refusal)
            return
        self._guards.cancel(partition, order.producer_id)
        self._replicas.refused_sequences.forget(topic, index, order.producer_id)
        last_offset = partition.log.end_offset - 1
        if not is_written(known, order):
            try:
                last_offset = append_marker(partition, order, epoch, self._clock.now_ms())
            except KafkaError as error:
                logger.warning("cannot end a transaction in %s-%d yet: %s", topic, index, error)
                answered(error.error)
                return
        self._answer_when_replicated(partition, last_offset, order, answered)

    def _answer_when_replicated(
        self, partition: Partition, last_offset: int, order: SendMarkers, answered: Answered
    ) -> None:
        since = partition.leading_since

        def on_ready() -> None:
            if not is_leading(partition, since):
                answered(Error.NOT_LEADER_OR_FOLLOWER)  # nobody knows what becomes of the marker
                return
            self.tell_group(partition.name.topic, partition.name.partition, order)
            answered(Error.NONE)

        if partition.is_replicated(last_offset):
            on_ready()
        else:
            partition.wait_for_replication(last_offset, WaitingProduce(1, on_ready))

    def tell_group(self, topic: str, index: int, order: SendMarkers) -> None:
        """Offsets that were committed in the transaction count from now on."""
        if topic == self._groups.topic:
            shard = self._groups.loaded_at(index)
            if shard is not None:
                shard.machine.apply_marker(Stamp(order.producer_id, order.epoch), order.is_commit)

    def done(self, shard: Shard[TransactionMachine], order: SendMarkers) -> None:
        """All markers are in place. That is noted again and again until it can be written: nobody else would."""
        if not shard.is_ours:
            return
        now_ms = self._transactions.now_ms()
        decision = shard.machine.markers_written(order.transactional_id, order.producer_id, order.epoch, now_ms)
        self._transactions.run(shard, decision)
        left = shard.machine.transactions.get(order.transactional_id)
        if decision.records and left is not None and left.state in PREPARED and not left.is_pending:
            asyncio.get_running_loop().call_later(self.retry_seconds_max, self.done, shard, order)


class _Sending:
    """The markers of one transaction."""

    def __init__(self, writer: MarkerWriter, shard: Shard[TransactionMachine], order: SendMarkers) -> None:
        self._writer = writer
        self._shard = shard
        self._order = order
        self._to_do = sorted(order.partitions)  # neither written nor on its way …
        self._to_send: deque[Place] = deque()  # … and about to be
        self._missing = len(self._to_do)
        self._pause_seconds = writer.retry_seconds
        self._is_pausing = False

    def start(self) -> None:
        if not self._missing:
            self._writer.done(self._shard, self._order)
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._is_pausing = False
        is_sending = bool(self._to_send)
        self._to_send += self._to_do
        self._to_do = []
        if not is_sending:
            self._send_some()

    def _send_some(self) -> None:
        """A transaction may have ended in thousands of partitions: others have their turn in between."""
        if not self._shard.is_ours:
            return  # whoever coordinates this transaction now sends them again
        epoch = self._shard.partition.leader_epoch
        some = [self._to_send.popleft() for _ in range(min(MARKERS_AT_ONCE, len(self._to_send)))]
        if self._to_send:
            asyncio.get_running_loop().call_soon(self._send_some)
        elsewhere: dict[int, list[Place]] = {}
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
            self._writer.messengers.send(broker, self._order, epoch, places, self._on_answer)

    def _write_here(self, place: Place, epoch: int) -> None:
        self._writer.write(self._order, *place, epoch, lambda error: self._on_answer(place, error))

    def _on_answer(self, place: Place, error: Error) -> None:
        if error is Error.NONE or error is Error.INVALID_PRODUCER_EPOCH:
            self._missing -= 1
            if self._missing == 0:
                self._writer.done(self._shard, self._order)
        elif error is Error.TRANSACTION_COORDINATOR_FENCED:
            logger.info("the markers of %s are another coordinator's by now", self._order.transactional_id)
        else:
            self._to_do.append(place)
            self._pause()

    def _pause(self) -> None:
        if not self._is_pausing:
            self._is_pausing = True
            asyncio.get_running_loop().call_later(self._pause_seconds, self._go_on)
            self._pause_seconds = min(self._pause_seconds * 2, self._writer.retry_seconds_max)


def refusal_of(known: Producer | None, order: SendMarkers, coordinator_epoch: int) -> Error:
    """Why a marker must not be written: the partition has heard of a newer coordinator, or of a newer producer, whose
    transaction a marker of the old one must not end."""
    if known is None:
        return Error.NONE
    if coordinator_epoch < known.coordinator_epoch:
        return Error.TRANSACTION_COORDINATOR_FENCED
    return Error.INVALID_PRODUCER_EPOCH if order.epoch < known.epoch else Error.NONE


def is_written(known: Producer | None, order: SendMarkers) -> bool:
    """Whether this very marker is in the log. With transaction version 2 a marker raises the epoch, so that one which
    comes twice, and late, cannot end the transaction after the one it was meant for (KIP-890)."""
    return known is not None and order.version >= RAISES_EPOCHS and order.epoch == known.epoch


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

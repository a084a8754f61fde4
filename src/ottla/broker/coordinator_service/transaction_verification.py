"""Adding and verifying partitions of transactions at their coordinator, local or remote (KIP-890).

If a coordinator is busy with the transaction (its end is being written, another partition is being added), its broker
retries the request when the coordinator is done, and after each `add.partitions.to.txn.retry.backoff.ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.partitioning import partition_for
from ottla.broker.coordinator_service.transaction_channels import (
    AddPartitionsToTxnManager,
    Errors,
    PartitionCall,
    PartitionName,
)
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.coordination.shard import CoordinatorContext
from ottla.replication.partition import Partition
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import EPOCH_BUMP_VERSION, TransactionCoordinator

if TYPE_CHECKING:
    from ottla.broker.node import Node

OnResults = Callable[[Errors], None]


class VerificationGuard:
    """Protects a verified transaction between the verification and the append (KIP-890).

    The guard is created before the request to the coordinator. Every marker and every change of leadership cancels it.
    Without it, a record could be appended after the marker that ended its transaction, and the open transaction would
    block the partition forever.
    """

    __slots__ = ("holders", "is_cancelled", "leader_since_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_since_epoch = partition.leader_since_epoch
        self.is_cancelled = False
        self.holders = 0

    @property
    def has_moved(self) -> bool:
        """Return whether the leadership has changed: another broker may have written a marker meanwhile."""
        return not self.partition.is_leader or self.partition.leader_since_epoch != self.leader_since_epoch

    def __repr__(self) -> str:
        return f"<VerificationGuard of {self.partition.name} {'cancelled' if self.is_cancelled else 'up'}>"


class VerificationGuards:
    """All active guards of this broker."""

    def __init__(self) -> None:
        self._active: dict[tuple[str, int, int], VerificationGuard] = {}  # topic, partition, producer id

    def begin(self, partition: Partition, producer_id: int) -> VerificationGuard:
        """Return the guard of a producer. Its requests share the guard; each of them calls end()."""
        key = (*partition.name, producer_id)
        guard = self._active.get(key)
        if guard is None or guard.partition is not partition or guard.has_moved:
            guard = self._active[key] = VerificationGuard(partition)
        guard.holders += 1
        return guard

    def end(self, guard: VerificationGuard, producer_id: int) -> None:
        """Release the guard: the record is written or rejected."""
        guard.holders -= 1
        key = (*guard.partition.name, producer_id)
        if guard.holders == 0 and self._active.get(key) is guard:
            del self._active[key]

    def cancel(self, partition: Partition, producer_id: int) -> None:
        """Cancel the guards of a producer whose marker is about to be written."""
        guard = self._active.pop((*partition.name, producer_id), None)
        if guard is not None:
            guard.is_cancelled = True

    def __repr__(self) -> str:
        return f"<VerificationGuards: {len(self._active)} up>"


class TransactionVerification:
    """Adds partitions to transactions, or verifies that they were added."""

    def __init__(
        self,
        node: Node,
        transactions: CoordinatorRuntime[TransactionCoordinator],
        messengers: AddPartitionsToTxnManager,
    ) -> None:
        self._node = node
        self._transactions = transactions
        self._messengers = messengers
        self._waiting: dict[
            str, list[_PartitionAddition]
        ] = {}  # by transactional id: requests that wait until the coordinator is done with it

    def request(
        self,
        transactional_id: str,
        who: ProducerIdAndEpoch,
        places: list[PartitionName],
        is_verifying: bool,
        answered: OnResults,
    ) -> None:
        """Call `answered` with an error (or NONE) per partition: at once if the coordinator is local and not busy."""
        broker = self._coordinator_of(transactional_id)
        if broker == self._node.id:
            if is_verifying:
                self.verify(transactional_id, who, places, answered)
            else:
                self.add(transactional_id, who, places, answered)
        elif broker < 0:
            answered(dict.fromkeys(places, Error.COORDINATOR_NOT_AVAILABLE))
        else:
            call = PartitionCall(transactional_id, who, places, is_verifying, answered)
            self._messengers.send(broker, call)

    async def request_one(
        self, transactional_id: str, who: ProducerIdAndEpoch, place: PartitionName, is_verifying: bool
    ) -> Error:
        """Return the error for one partition, or NONE."""
        errors = await await_result(
            lambda answered: self.request(transactional_id, who, [place], is_verifying, answered)
        )
        return errors[place]

    def _coordinator_of(self, transactional_id: str) -> int:
        """Return the coordinator in the image; -1 without one."""
        image = self._node.image
        topic = image.topics.get(self._transactions.topic)
        if topic is None:
            return -1
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    # ---- on the coordinator's broker

    def verify(
        self, transactional_id: str, who: ProducerIdAndEpoch, places: list[PartitionName], answered: OnResults
    ) -> None:
        try:
            machine = self._transactions.shard(transactional_id).machine
        except KafkaError as refusal:
            answered(dict.fromkeys(places, refusal.error))
            return
        error_of_all, errors = machine.verify_partitions(transactional_id, who, places)
        answered({place: errors.get(place, error_of_all) for place in places})

    def add(
        self, transactional_id: str, who: ProducerIdAndEpoch, places: list[PartitionName], answered: OnResults
    ) -> None:
        _PartitionAddition(self, self._node.settings, transactional_id, who, places, answered).ask()

    def start(self, adding: _PartitionAddition) -> None:
        transactions = self._transactions
        try:
            shard = transactions.shard(adding.transactional_id)
        except KafkaError as refusal:
            adding.complete(refusal.error)
            return
        decision = shard.machine.add_partitions(
            adding.transactional_id,
            adding.producer,
            adding.partitions,
            EPOCH_BUMP_VERSION,
            adding.on_answer,
            transactions.now_ms(),
        )
        transactions.execute(shard, decision)

    def wait(self, adding: _PartitionAddition) -> None:
        self._waiting.setdefault(adding.transactional_id, []).append(adding)

    def remove(self, adding: _PartitionAddition) -> None:
        left = [each for each in self._waiting.pop(adding.transactional_id, ()) if each is not adding]
        if left:
            self._waiting[adding.transactional_id] = left

    def on_transactions_completed(self, shard: CoordinatorContext[TransactionCoordinator]) -> None:
        """Retry the waiting requests of these transactions."""
        settled, shard.machine.changed_ids = shard.machine.changed_ids, []
        if self._waiting:
            for transactional_id in settled:
                for adding in self._waiting.get(transactional_id, [])[:]:
                    adding.retry()


async def await_result(ask: Callable[[OnResults], None]) -> Errors:
    """Return the result of a request with a callback, awaitable."""
    answer: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    def answered(errors: Errors) -> None:
        if not answer.done():
            answer.set_result(errors)

    ask(answered)
    return answer.result() if answer.done() else await answer


class _PartitionAddition:
    """Partitions being added to a transaction of version 2."""

    def __init__(
        self,
        verification: TransactionVerification,
        settings: BrokerSettings,
        transactional_id: str,
        who: ProducerIdAndEpoch,
        places: list[PartitionName],
        answered: OnResults,
    ) -> None:
        self._verification = verification
        self.transactional_id = transactional_id
        self.producer = who
        self.partitions = places
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._pause_seconds = settings.add_partitions_to_txn_retry_backoff_ms / 1000
        self._deadline = self._loop.time() + settings.add_partitions_to_txn_retry_backoff_max_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        self._verification.start(self)

    def on_answer(self, error: Error) -> None:
        if error is Error.CONCURRENT_TRANSACTIONS and self._loop.time() + self._pause_seconds <= self._deadline:
            self._verification.wait(self)
            self._timer = self._loop.call_later(self._pause_seconds, self.retry)
        else:
            self.complete(error)

    def retry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._verification.remove(self)
        self.ask()

    def complete(self, error: Error) -> None:
        self._answered(dict.fromkeys(self.partitions, error))

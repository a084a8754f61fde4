"""Whether partitions take part in a transaction: asked of its coordinator, wherever that is (KIP-890).

A coordinator that is busy with the transaction (its last end is still being told, another partition is just being
added) is asked again for a moment, on the broker that coordinates: as soon as it is done, and after each
`add.partitions.to.txn.retry.backoff.ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.partitioning import partition_for
from ottla.broker.coordinators.transaction_messages import Errors, PartitionCall, PartitionMessengers, Place
from ottla.coordination.runtime import Runtime
from ottla.coordination.shard import Shard
from ottla.transactions.machine import RAISES_EPOCHS, TransactionMachine
from ottla.transactions.transaction import Identity

if TYPE_CHECKING:
    from ottla.broker.node import Node

Answered = Callable[[Errors], None]


class TransactionVerification:
    """Adds partitions to transactions, or verifies that they were added."""

    def __init__(self, node: Node, transactions: Runtime[TransactionMachine], messengers: PartitionMessengers) -> None:
        self._node = node
        self._transactions = transactions
        self._messengers = messengers
        self._waiting: dict[str, list[_Adding]] = {}  # by transactional id: until its coordinator is done with it

    def ask(
        self, transactional_id: str, who: Identity, places: list[Place], is_verifying: bool, answered: Answered
    ) -> None:
        """`answered` is told an error (or NONE) for each place: at once if the coordinator is here and sure of it."""
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

    async def wait_for(self, transactional_id: str, who: Identity, place: Place, is_verifying: bool) -> Error:
        """The same for one partition, and to be awaited."""
        errors = await answer_to(lambda answered: self.ask(transactional_id, who, [place], is_verifying, answered))
        return errors[place]

    def _coordinator_of(self, transactional_id: str) -> int:
        """By the image; -1 while there is none."""
        image = self._node.image
        topic = image.topics.get(self._transactions.topic)
        if topic is None:
            return -1
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader

    # ---- on the broker that coordinates

    def verify(self, transactional_id: str, who: Identity, places: list[Place], answered: Answered) -> None:
        try:
            machine = self._transactions.shard(transactional_id).machine
        except KafkaError as refusal:
            answered(dict.fromkeys(places, refusal.error))
            return
        error_of_all, errors = machine.verify_partitions(transactional_id, who, places)
        answered({place: errors.get(place, error_of_all) for place in places})

    def add(self, transactional_id: str, who: Identity, places: list[Place], answered: Answered) -> None:
        _Adding(self, self._node.settings, transactional_id, who, places, answered).ask()

    def start(self, adding: _Adding) -> None:
        transactions = self._transactions
        try:
            shard = transactions.shard(adding.transactional_id)
        except KafkaError as refusal:
            adding.tell(refusal.error)
            return
        decision = shard.machine.add_partitions(
            adding.transactional_id, adding.who, adding.places, RAISES_EPOCHS, adding.on_answer, transactions.now_ms()
        )
        transactions.run(shard, decision)

    def wait(self, adding: _Adding) -> None:
        self._waiting.setdefault(adding.transactional_id, []).append(adding)

    def forget(self, adding: _Adding) -> None:
        left = [each for each in self._waiting.pop(adding.transactional_id, ()) if each is not adding]
        if left:
            self._waiting[adding.transactional_id] = left

    def on_settled(self, shard: Shard[TransactionMachine]) -> None:
        """The coordinator has done something about some transactions."""
        settled, shard.machine.settled = shard.machine.settled, []
        if self._waiting:
            for transactional_id in settled:
                for adding in self._waiting.get(transactional_id, [])[:]:
                    adding.again()


async def answer_to(ask: Callable[[Answered], None]) -> Errors:
    """What a question is answered, as something to await."""
    answer: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()

    def answered(errors: Errors) -> None:
        if not answer.done():
            answer.set_result(errors)

    ask(answered)
    return answer.result() if answer.done() else await answer


class _Adding:
    """Partitions on their way into a transaction of version 2."""

    def __init__(
        self,
        verification: TransactionVerification,
        settings: BrokerSettings,
        transactional_id: str,
        who: Identity,
        places: list[Place],
        answered: Answered,
    ) -> None:
        self._verification = verification
        self.transactional_id = transactional_id
        self.who = who
        self.places = places
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._pause_seconds = settings.add_partitions_to_txn_retry_backoff_ms / 1000
        self._until = self._loop.time() + settings.add_partitions_to_txn_retry_backoff_max_ms / 1000
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        self._verification.start(self)

    def on_answer(self, error: Error) -> None:
        if error is Error.CONCURRENT_TRANSACTIONS and self._loop.time() + self._pause_seconds <= self._until:
            self._verification.wait(self)
            self._timer = self._loop.call_later(self._pause_seconds, self.again)
        else:
            self.tell(error)

    def again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._verification.forget(self)
        self.ask()

    def tell(self, error: Error) -> None:
        self._answered(dict.fromkeys(self.places, error))

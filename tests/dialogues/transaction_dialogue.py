"""Commands of dialogues about transactions. There is one transactional id, t; producers are named by letters.

A starts [timeout N] [again]     A adds p-0 p-1 [v2]      A commits|aborts [v2]       A verifies p-0
markers written                  N ms pass                committed                   restart
writes fail with ERROR           writes work              what
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dialogues.dialogue import Dialogue

from ottla.base.errors import Error
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import (
    EndTransactionResult,
    InitProducerIdResult,
    TransactionCoordinator,
    TransactionMarkers,
    TransactionSettings,
)
from ottla.transactions.transaction_log import decode_key, decode_value

ID = "t"


class TransactionDialogue(Dialogue):
    """One transactional id."""

    def __init__(self, settings: TransactionSettings, is_held: bool) -> None:
        super().__init__(is_held, "__transaction_state")
        self.settings = settings
        self.identities: dict[str, ProducerIdAndEpoch] = {}
        self.orders: list[TransactionMarkers] = []
        self._fresh = 100
        self.restart()

    def restart(self) -> None:
        self.load(TransactionCoordinator(self.settings), self._take_orders)
        self._take_orders(self.shard)

    def describe_record(self, key: bytes, value: bytes | None) -> str:
        return describe_record(key, value)

    def _take_orders(self, shard: Any) -> None:
        orders, shard.machine.pending_markers = shard.machine.pending_markers, []
        for order in orders:
            end = "commit" if order.is_commit else "abort"
            places = " ".join(f"{topic}-{index}" for topic, index in sorted(order.partitions))
            self.print(f"markers: {end} {order.producer_id}/{order.producer_epoch} to {places or 'no partitions'}")
        self.orders += orders

    # ---- commands

    def init(self, name: str, timeout: str = "60000", again: str = "") -> None:
        self._fresh += 1
        known = self.identities.get(name) if again else None
        decision = self.machine.init_producer_id(ID, int(timeout), known, self._fresh, self._to(name), self.now_ms)
        self.shard.execute(decision)

    def add(self, name: str, places: str, version: str = "0") -> None:
        partitions = [parse(place) for place in places.split()]
        who = self.identities[name]
        self.shard.execute(self.machine.add_partitions(ID, who, partitions, int(version), self._to(name), self.now_ms))

    def verify(self, name: str, places: str) -> None:
        error, errors = self.machine.verify_partitions(
            ID, self.identities[name], [parse(place) for place in places.split()]
        )
        self.print(f"{name}: {error.name} {' '.join(each.name for each in errors.values())}".rstrip())

    def end(self, name: str, how: str, version: str = "0") -> None:
        who = self.identities[name]
        self._fresh += 1
        is_commit = how == "commits"
        self.shard.execute(
            self.machine.end_transaction(ID, who, is_commit, int(version), self._fresh, self._to(name), self.now_ms)
        )

    def write_markers(self) -> None:
        orders, self.orders = self.orders, []
        for order in orders:
            self.shard.execute(
                self.machine.complete_transaction(ID, order.producer_id, order.producer_epoch, self.now_ms)
            )

    def jump(self, epoch: str) -> None:
        """Skip many transactions."""
        self.machine.transactions[ID].producer_epoch = int(epoch)
        self.identities = {
            name: ProducerIdAndEpoch(who.producer_id, int(epoch)) for name, who in self.identities.items()
        }

    def describe(self) -> None:
        row = self.machine.describe(ID)
        places = " ".join(f"{topic.topic}-{index}" for topic in row.topics for index in topic.partitions)
        if row.error_code:
            self.print(Error(row.error_code).name)
        else:
            self.print(f"{row.transaction_state} {row.producer_id}/{row.producer_epoch} {places}".rstrip())

    def _to(self, name: str) -> Callable[[Any], None]:
        def answered(response: Any) -> None:
            if (
                isinstance(response, InitProducerIdResult | EndTransactionResult)
                and response.error is Error.NONE
                and response.producer_id >= 0
            ):
                self.identities[name] = ProducerIdAndEpoch(response.producer_id, response.epoch)
            if isinstance(response, Error):
                self.print(f"{name}: {response.name}")
            elif response.error is Error.NONE:
                self.print(f"{name}: fine, you are {response.producer_id}/{response.epoch}")
            else:
                self.print(f"{name}: {response.error.name}")

        return answered


TransactionDialogue.commands = [
    (r"(?P<name>\w) starts(?: timeout (?P<timeout>-?\d+))?(?: (?P<again>again))?", TransactionDialogue.init),
    (r"(?P<name>\w) adds (?P<places>[\w -]+?)(?: v(?P<version>\d))?", TransactionDialogue.add),
    (r"(?P<name>\w) verifies (?P<places>.+)", TransactionDialogue.verify),
    (r"(?P<name>\w) (?P<how>commits|aborts)(?: v(?P<version>\d))?", TransactionDialogue.end),
    (r"markers written", TransactionDialogue.write_markers),
    (r"(?P<milliseconds>\d+) ms pass", TransactionDialogue.wait),
    (r"the epoch is (?P<epoch>\d+)", TransactionDialogue.jump),
    (r"committed", TransactionDialogue.release),
    (r"writes fail with (?P<error>\w+)", TransactionDialogue.fail_writes),
    (r"writes work", TransactionDialogue.let_write),
    (r"restart", TransactionDialogue.restart),
    (r"what", TransactionDialogue.describe),
]


def parse(place: str) -> tuple[str, int]:
    topic, _, index = place.rpartition("-")
    return topic, int(index)


def describe_record(key: bytes, value: bytes | None) -> str:
    transactional_id = decode_key(key)
    assert transactional_id is not None
    if value is None:
        return f"{transactional_id} forgotten"
    transaction = decode_value(transactional_id, value)
    places = " ".join(f"{topic}-{index}" for topic, index in sorted(transaction.topic_partitions))
    return f"{transaction.state.display_name} {transaction.producer_id}/{transaction.producer_epoch} {places}".rstrip()

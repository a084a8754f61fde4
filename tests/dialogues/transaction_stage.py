"""Commands of dialogues about transactions. There is one transactional id, t; producers are called by letters.

A starts [timeout N] [again]     A adds p-0 p-1 [v2]      A commits|aborts [v2]       A verifies p-0
markers written                  N ms pass                committed                   restart
writes fail with ERROR           writes work              what
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dialogues.stage import Stage

from ottla.base.errors import Error
from ottla.transactions.machine import (
    Ended,
    Initialized,
    SendMarkers,
    TransactionMachine,
    TransactionSettings,
)
from ottla.transactions.records import read_key, read_value
from ottla.transactions.transaction import Identity

ID = "t"


class TransactionStage(Stage):
    """One transactional id."""

    def __init__(self, settings: TransactionSettings, is_held: bool) -> None:
        super().__init__(is_held, "__transaction_state")
        self.settings = settings
        self.identities: dict[str, Identity] = {}
        self.orders: list[SendMarkers] = []
        self._fresh = 100
        self.restart()

    def restart(self) -> None:
        self.load(TransactionMachine(self.settings), self._take_orders)
        self._take_orders(self.shard)

    def tell_record(self, key: bytes, value: bytes | None) -> str:
        return describe_record(key, value)

    def _take_orders(self, shard: Any) -> None:
        orders, shard.machine.to_send = shard.machine.to_send, []
        for order in orders:
            end = "commit" if order.is_commit else "abort"
            places = " ".join(f"{topic}-{index}" for topic, index in sorted(order.partitions))
            self.hear(f"markers: {end} {order.producer_id}/{order.epoch} to {places or 'nobody'}")
        self.orders += orders

    # ---- commands

    def init(self, name: str, timeout: str = "60000", again: str = "") -> None:
        self._fresh += 1
        known = self.identities.get(name) if again else None
        decision = self.machine.init_producer(ID, int(timeout), known, self._fresh, self._to(name), self.now_ms)
        self.shard.run(decision)

    def add(self, name: str, places: str, version: str = "0") -> None:
        partitions = [parse(place) for place in places.split()]
        who = self.identities[name]
        self.shard.run(self.machine.add_partitions(ID, who, partitions, int(version), self._to(name), self.now_ms))

    def verify(self, name: str, places: str) -> None:
        error, errors = self.machine.verify_partitions(
            ID, self.identities[name], [parse(place) for place in places.split()]
        )
        self.hear(f"{name}: {error.name} {' '.join(each.name for each in errors.values())}".rstrip())

    def end(self, name: str, how: str, version: str = "0") -> None:
        who = self.identities[name]
        self._fresh += 1
        is_commit = how == "commits"
        self.shard.run(self.machine.end(ID, who, is_commit, int(version), self._fresh, self._to(name), self.now_ms))

    def write_markers(self) -> None:
        orders, self.orders = self.orders, []
        for order in orders:
            self.shard.run(self.machine.markers_written(ID, order.producer_id, order.epoch, self.now_ms))

    def jump(self, epoch: str) -> None:
        """As if many transactions had gone by."""
        self.machine.transactions[ID].producer_epoch = int(epoch)
        self.identities = {name: Identity(who.producer_id, int(epoch)) for name, who in self.identities.items()}

    def describe(self) -> None:
        row = self.machine.describe(ID)
        places = " ".join(f"{topic.topic}-{index}" for topic in row.topics for index in topic.partitions)
        if row.error_code:
            self.hear(Error(row.error_code).name)
        else:
            self.hear(f"{row.transaction_state} {row.producer_id}/{row.producer_epoch} {places}".rstrip())

    def _to(self, name: str) -> Callable[[Any], None]:
        def answered(response: Any) -> None:
            if isinstance(response, Initialized | Ended) and response.error is Error.NONE and response.producer_id >= 0:
                self.identities[name] = Identity(response.producer_id, response.epoch)
            if isinstance(response, Error):
                self.hear(f"{name}: {response.name}")
            elif response.error is Error.NONE:
                self.hear(f"{name}: fine, you are {response.producer_id}/{response.epoch}")
            else:
                self.hear(f"{name}: {response.error.name}")

        return answered


TransactionStage.commands = [
    (r"(?P<name>\w) starts(?: timeout (?P<timeout>-?\d+))?(?: (?P<again>again))?", TransactionStage.init),
    (r"(?P<name>\w) adds (?P<places>[\w -]+?)(?: v(?P<version>\d))?", TransactionStage.add),
    (r"(?P<name>\w) verifies (?P<places>.+)", TransactionStage.verify),
    (r"(?P<name>\w) (?P<how>commits|aborts)(?: v(?P<version>\d))?", TransactionStage.end),
    (r"markers written", TransactionStage.write_markers),
    (r"(?P<milliseconds>\d+) ms pass", TransactionStage.wait),
    (r"the epoch is (?P<epoch>\d+)", TransactionStage.jump),
    (r"committed", TransactionStage.release),
    (r"writes fail with (?P<error>\w+)", TransactionStage.fail_writes),
    (r"writes work", TransactionStage.let_write),
    (r"restart", TransactionStage.restart),
    (r"what", TransactionStage.describe),
]


def parse(place: str) -> tuple[str, int]:
    topic, _, index = place.rpartition("-")
    return topic, int(index)


def describe_record(key: bytes, value: bytes | None) -> str:
    transactional_id = read_key(key)
    assert transactional_id is not None
    if value is None:
        return f"{transactional_id} forgotten"
    transaction = read_value(transactional_id, value)
    places = " ".join(f"{topic}-{index}" for topic, index in sorted(transaction.partitions))
    return f"{transaction.state.shown} {transaction.producer_id}/{transaction.producer_epoch} {places}".rstrip()

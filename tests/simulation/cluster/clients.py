"""Producers and readers, as stubborn as the real ones: they find the leader, send, wait, and send again.

A producer sends one batch at a time under its id and sequence until it is answered. What it sends next depends on
nothing else, so that a sequence error means that the cluster forgot something or took something twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from tests.simulation.cluster.ledger import Ledger, Place, encode_value
from tests.simulation.cluster.network import Failure, Network, Process
from tests.simulation.world import World

from ottla.base.errors import Error
from ottla.protocol.batches import build_batch, read_batch_header
from ottla.protocol.records import Record

PATIENCE_MS = 400
BACKOFF_MS = 30


class Produced(NamedTuple):
    """The answer to a produce."""

    error: Error
    offset: int = -1
    topic_id: UUID | None = None


class Fetched(NamedTuple):
    """The answer to a reader's fetch."""

    error: Error
    records: bytes = b""
    topic_id: UUID | None = None


class Leader(NamedTuple):
    """What a broker's image says about a partition."""

    broker: int
    epoch: int
    topic_id: UUID


class Client(Process):
    """Asks any broker for the leader, and remembers it until a request to it fails."""

    def __init__(
        self,
        world: World,
        network: Network,
        ledger: Ledger,
        host: int,
        brokers: tuple[int, ...],
        topic: str,
        index: int,
    ) -> None:
        super().__init__(world, host)
        self.network = network
        self.ledger = ledger
        self.topic = topic
        self.index = index
        self._brokers = brokers
        self._leader: Leader | None = None
        self._known_epoch = -1
        self.topic_id: UUID | None = None
        self.is_done = False

    def find_leader(self, then: Callable[[], None]) -> None:
        if self._leader is not None:
            then()
            return
        broker = self.world.random.choice(self._brokers)

        def found(leader: Leader | None) -> None:
            if leader is None or leader.broker < 0 or not self.may_follow(leader):
                again()
            else:
                self._leader = leader
                then()

        def again(_: Failure | None = None) -> None:
            self.after(BACKOFF_MS, lambda: self.find_leader(then))

        self.network.call(
            self, broker, lambda process, answer: process.on_metadata(self.topic, self.index, answer), found, again, 150
        )

    def may_follow(self, leader: Leader) -> bool:
        """A broker with an old image may name a leader that is none any more: clients remember the epoch (KIP-320)."""
        if leader.topic_id != self.topic_id:
            self.topic_id, self._known_epoch = leader.topic_id, -1
            self.on_new_topic()
        if leader.epoch < self._known_epoch:
            return False
        self._known_epoch = leader.epoch
        return True

    def on_new_topic(self) -> None:
        """The topic was deleted and recreated."""

    def forget_leader(self) -> None:
        self._leader = None

    @property
    def leader(self) -> Leader:
        assert self._leader is not None
        return self._leader


class Producer(Client):
    """Sends numbers one after the other; with acks=all each is sent until it is acknowledged."""

    def __init__(self, *where: Any, name: str, producer_id: int, acks: int, pause_ms: int) -> None:
        super().__init__(*where)
        self.name = name
        self.producer_id = producer_id
        self.acks = acks
        self.pause_ms = pause_ms
        self.number = 0  # of the next value
        self._sequence = 0
        self._count = 1
        self.acked_ms = self.world.now_ms

    def live(self) -> None:
        if self.is_done:
            return
        self._count = 1 + int(self.world.random.random() * 2.2)
        self._send()

    def _send(self) -> None:
        self.find_leader(self._send_to_leader)

    def _batch(self) -> bytearray:
        records = [
            Record(-1, 1_000, None, encode_value(self.name, self.number + place), ()) for place in range(self._count)
        ]
        return build_batch(records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self._sequence)

    def _send_to_leader(self) -> None:
        batch, acks, index, topic, topic_id = self._batch(), self.acks, self.index, self.topic, self.leader.topic_id
        self.network.call(
            self,
            self.leader.broker,
            lambda process, answer: process.on_produce(topic, topic_id, index, batch, acks, answer),
            self._answered,
            lambda why: self._retry(),
            PATIENCE_MS,
        )

    def _answered(self, produced: Produced) -> None:
        match produced.error:
            case Error.NONE:
                self._acknowledged(produced)
            case Error.OUT_OF_ORDER_SEQUENCE_NUMBER | Error.INVALID_PRODUCER_EPOCH | Error.UNKNOWN_PRODUCER_ID:
                is_of_today = self.ledger.is_current(
                    self.leader.topic_id
                )  # else a deleted topic that lives on somewhere
                if self.acks == -1 and self.ledger.is_clean and is_of_today:
                    self.ledger.break_(f"U: {self.name} sent {self.number} at {self._sequence} and got {produced}")
                self._start_over()
            case _:
                self.world.tell(f"{self.name} {self.number}: {produced.error.name}")
                self._retry()

    def _acknowledged(self, produced: Produced) -> None:
        assert produced.topic_id is not None
        self.acked_ms = self.world.now_ms
        if self.acks == -1:
            place = Place(produced.topic_id, self.index)
            for each in range(self._count):
                self.ledger.on_acknowledged(place, produced.offset + each, encode_value(self.name, self.number + each))
        self.world.tell(f"{self.name} {self.number}+{self._count} at {produced.offset}")
        self._next()

    def _next(self) -> None:
        self.number += self._count
        self._sequence += self._count
        self.after(int(self.world.random.random() * self.pause_ms), self.live)

    def _retry(self) -> None:
        self.forget_leader()
        self.after(BACKOFF_MS, self._send)

    def _start_over(self) -> None:
        """Records were lost (which acks=1 and unclean elections allow): what comes next comes from a new producer."""
        self.world.tell(f"{self.name} takes a new producer id")
        self.producer_id += 1_000
        self._next()
        self.name = f"{self.name.partition('.')[0]}.{self.producer_id // 1_000}"  # order is promised to each id alone
        self._sequence = 0


class Reader(Client):
    """Reads the partition from its beginning, from its leader or from any other replica."""

    def __init__(self, *where: Any, name: str) -> None:
        super().__init__(*where)
        self.name = name
        self.position = 0

    def live(self) -> None:
        if not self.is_done:
            self.find_leader(self._fetch)

    def on_new_topic(self) -> None:
        self.position = 0

    def _fetch(self) -> None:
        topic_id, index, position, epoch = self.leader.topic_id, self.index, self.position, self.leader.epoch
        is_close = self.world.chance(0.3)  # any replica will do (KIP-392)
        broker = self.world.random.choice(self._brokers) if is_close else self.leader.broker
        self.network.call(
            self,
            broker,
            lambda process, answer: process.on_read(self.topic, index, topic_id, position, epoch, is_close, answer),
            lambda fetched: self._answered(fetched, is_close),
            lambda why: self._again(),
            PATIENCE_MS,
        )

    def _answered(self, fetched: Fetched, is_close: bool) -> None:
        if fetched.error is not Error.NONE:
            if fetched.error is Error.OFFSET_OUT_OF_RANGE and not is_close:  # a follower may be behind
                self._out_of_range()
            self._again()
            return
        self._take(fetched)
        self.after(20 + int(self.world.random.random() * 150), self.live)

    def _take(self, fetched: Fetched) -> None:
        if fetched.topic_id != self.topic_id:
            return
        assert self.topic_id is not None
        place, left = Place(self.topic_id, self.index), memoryview(fetched.records)
        while left:
            length = read_batch_header(left).batch_bytes
            self.position = self.ledger.on_read(self.name, place, self.position, left[:length])
            left = left[length:]

    def _out_of_range(self) -> None:
        if self.ledger.is_clean:
            self.ledger.break_(f"M: {self.name} is out of range at {self.position}")
        self.position = 0

    def _again(self) -> None:
        self.forget_leader()
        self.after(BACKOFF_MS, self.live)

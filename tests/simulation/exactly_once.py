"""Consume, transform, produce in transactions, by processes that die, stall and come back, all under one id.

Input is the numbers 0, 1, 2 ...; the group's offset says how many were taken. Each transaction takes a few, writes each
to one of two partitions, and commits the offset with them. In the end a read_committed reader must find exactly the
numbers below the committed offset, once each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.broker import GROUP_PLACE, SimulatedBroker
from tests.simulation.world import Network, World

from ottla.base.errors import Error
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import TransactionSettings

ID = "t"
GROUP = "g"
TIMEOUT_MS = 300
RETRIES_MAX = 6


class Process:
    """One incarnation of the application. It never knows whether it is a zombie."""

    def __init__(self, name: str, world: World, network: Network, broker: SimulatedBroker) -> None:
        self.name = name
        self.world = world
        self._network = network
        self._broker = broker
        self.who: ProducerIdAndEpoch | None = None
        self.is_dead = False
        self._sequences: dict[tuple[str, int], int] = {}
        self._call = 0

    def live(self) -> None:
        self._ask(self._init, self._on_init)

    # ---- one request at a time, repeated until it is answered

    def _ask(
        self, request: Callable[[Callable[[Any], None]], None], then: Callable[[Any], None], tries: int = 0
    ) -> None:
        if self.is_dead:
            return
        self._call += 1
        call = self._call

        def answered(response: Any) -> None:
            self._network.send(lambda: self._arrived(call, response, then))

        self._network.send(lambda: request(answered))
        self.world.after(TIMEOUT_MS, lambda: self._timed_out(call, request, then, tries))

    def _arrived(self, call: int, response: Any, then: Callable[[Any], None]) -> None:
        if call == self._call and not self.is_dead:
            self._call += 1
            if self.world.chance(self._network.stalls):
                self.world.after(self.world.random.randint(100, 3_000), lambda: then(response))  # it stalls
            else:
                then(response)

    def _timed_out(self, call: int, request: Any, then: Any, tries: int) -> None:
        if call == self._call and not self.is_dead:
            if tries < RETRIES_MAX:
                self._ask(request, then, tries + 1)
            else:
                self._start_over()

    def _start_over(self) -> None:
        self.world.tell(f"{self.name} starts over")
        self.who = None
        self.world.after(self.world.random.randint(1, 200), self.live)

    # ---- steps

    def _init(self, answer: Callable[[Any], None]) -> None:
        fresh_id = self._broker.new_id()
        self._broker.ask_transactions(
            lambda machine, reply_to, now_ms: machine.init_producer_id(ID, 2_000, None, fresh_id, reply_to, now_ms),
            answer,
        )

    def _on_init(self, response: Any) -> None:
        if response.error is not Error.NONE:
            self.world.after(30, self.live)
            return
        self.who = ProducerIdAndEpoch(response.producer_id, response.epoch)
        self._sequences = {}
        self.world.tell(f"{self.name} is {self.who.producer_id}/{self.who.epoch}")
        self._ask(self._fetch_offset, self._on_offset)

    def _fetch_offset(self, answer: Callable[[Any], None]) -> None:
        self._broker.committed_offset(GROUP, answer)

    def _on_offset(self, offset: int | None) -> None:
        if offset is None:
            self.world.after(20, lambda: self._ask(self._fetch_offset, self._on_offset))
            return
        count = self.world.random.randint(1, 3)
        self.world.tell(f"{self.name} takes {offset}..{offset + count - 1}")
        self._write(offset, offset, offset + count)

    def _write(self, first: int, value: int, end: int) -> None:
        who = self.who
        assert who is not None
        if value == end:
            self._ask_for_offset(who, end)
            return
        place = ("out", self.world.random.randint(0, 1))
        sequence = self._sequences.get(place, 0)

        def on_answer(error: Error) -> None:
            if error is Error.NONE:
                self._sequences[place] = sequence + 1
                self._write(first, value + 1, end)
            elif error is Error.CONCURRENT_TRANSACTIONS:
                self.world.after(20, lambda: self._ask(request, on_answer))
            else:
                self._start_over()

        def request(answer: Callable[[Any], None]) -> None:
            self._broker.produce(ID, who, place, sequence, value, answer)

        self._ask(request, on_answer)

    def _commit_offset(self, who: ProducerIdAndEpoch, offset: int, answer: Callable[[Any], None]) -> None:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=GROUP,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="in", partitions=[row])],
        )

        def commit(error: Error) -> None:
            if error is not Error.NONE:
                answer(error)
                return
            self._broker.ask_groups(
                lambda machine, reply_to, now_ms: machine.offset_manager.commit_transactional(
                    request, {}, reply_to, now_ms
                ),
                lambda response: answer(Error(response.topics[0].partitions[0].error_code)),
            )

        self._broker.take_part(ID, who, GROUP_PLACE, commit)

    def _ask_for_offset(self, who: ProducerIdAndEpoch, end: int) -> None:
        self._ask(lambda answer: self._commit_offset(who, end, answer), lambda error: self._on_written(error, who, end))

    def _on_written(self, error: Error, who: ProducerIdAndEpoch, end: int) -> None:
        if error is Error.CONCURRENT_TRANSACTIONS:
            self.world.after(20, lambda: self._ask_for_offset(who, end))
        elif error is not Error.NONE:
            self._start_over()
        else:
            self._ask_for_end(who, self.world.chance(0.8))

    def _ask_for_end(self, who: ProducerIdAndEpoch, is_commit: bool) -> None:
        self._ask(lambda answer: self._end(who, is_commit, answer), lambda ended: self._on_end(ended, who, is_commit))

    def _end(self, who: ProducerIdAndEpoch, is_commit: bool, answer: Callable[[Any], None]) -> None:
        self._broker.ask_transactions(
            lambda machine, reply_to, now_ms: machine.end_transaction(ID, who, is_commit, 2, 0, reply_to, now_ms),
            answer,
        )

    def _on_end(self, ended: Any, who: ProducerIdAndEpoch, is_commit: bool) -> None:
        if ended.error is Error.CONCURRENT_TRANSACTIONS:
            self.world.after(20, lambda: self._ask_for_end(who, is_commit))
        elif ended.error is not Error.NONE:
            self._start_over()
        else:
            self.world.tell(f"{self.name} {'committed' if is_commit else 'aborted'}")
            self.who = ProducerIdAndEpoch(ended.producer_id, ended.epoch)
            self._sequences = {}
            self._ask(self._fetch_offset, self._on_offset)


def simulate(seed: int, duration_ms: int = 12_000) -> World:
    """Play one seed; raises AssertionError with the report when a promise is broken."""
    world = World(seed)
    network = Network(world)
    broker = SimulatedBroker(world, GroupSettings(), TransactionSettings(abort_interval_ms=500))
    processes = [Process("A", world, network, broker)]
    processes[0].live()
    end_ms = world.now_ms + duration_ms

    def meddle() -> None:
        """Crashes of the broker; a new process while the old one still lives; a process that dies."""
        if world.now_ms >= end_ms:
            return
        choice = world.random.random()
        if choice < 0.35:
            broker.crash()
        elif choice < 0.7:
            processes.append(Process(chr(ord("A") + len(processes) % 26), world, network, broker))
            processes[-1].live()
            if world.chance(0.5):
                processes[-2].is_dead = True
        world.after(world.random.randint(200, 2_000), meddle)

    world.after(500, meddle)
    world.run(duration_ms)
    heal(world, network, broker, processes)
    check(world, broker)
    return world


def heal(world: World, network: Network, broker: SimulatedBroker, processes: list[Process]) -> None:
    """No more faults and no more work: everything open must come to its end by itself."""
    network.heal()
    for process in processes:
        process.is_dead = True
    world.run(10_000)


def check(world: World, broker: SimulatedBroker) -> None:
    report = world.report()
    for place, partition in broker.outputs.items():
        stuck = partition.producers.ongoing_txns
        assert not stuck, f"{place} has a transaction that never ends: {stuck}\n{report}"
    assert not broker.groups.offsets.is_pending(GROUP, "in", 0), f"an offset is pending for ever\n{report}"
    commit = broker.groups.offsets.get(GROUP, "in", 0)
    taken = commit.offset if commit is not None else 0
    seen = sorted(value for partition in broker.outputs.values() for value in partition.committed())
    assert seen == list(range(taken)), f"committed {taken}, but readers see {seen}\n{report}"

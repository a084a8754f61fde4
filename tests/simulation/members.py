"""What both kinds of group members have in common: requests over a bad network, and what the world knows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.broker import SimulatedBroker
from tests.simulation.world import Network, World

from ottla.base.errors import Error
from ottla.coordination.machine import Decision, Reply
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUP = "g"
PARTITIONS = 4
TIMEOUT_MS = 150


class Ledger:
    """What really happened: which records the group has seen, which commits were acknowledged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seen: dict[int, set[int]] = {index: set() for index in range(PARTITIONS)}
        self.acknowledged = dict.fromkeys(range(PARTITIONS), 0)  # by commits, and by answers to offset fetches
        self.given: dict[tuple[int, int], str] = {}  # (generation, partition) -> member

    def acknowledge(self, partition: int, offset: int) -> None:
        self.acknowledged[partition] = max(self.acknowledged[partition], offset)

    def check_fetched(self, partition: int, offset: int, floor: int) -> None:
        problem = f"partition {partition} is committed up to {offset}, but {floor} was acknowledged before"
        assert offset >= floor, f"{problem}\n{self._world.report()}"

    def give(self, generation: int, partition: int, member_id: str) -> None:
        owner = self.given.setdefault((generation, partition), member_id)
        problem = f"generation {generation} gave partition {partition} to {owner} and to {member_id}"
        assert owner == member_id, f"{problem}\n{self._world.report()}"

    def check_end(self, broker: SimulatedBroker) -> None:
        for partition, acknowledged in self.acknowledged.items():
            commit = broker.groups.offsets.get(GROUP, "in", partition)
            offset = commit.offset if commit is not None else 0
            self.check_fetched(partition, offset, acknowledged)
            unseen = [each for each in range(offset) if each not in self.seen[partition]]
            assert not unseen, f"partition {partition}: {unseen} were passed over\n{self._world.report()}"


def meddle_with_group(
    world: World,
    broker: SimulatedBroker,
    members: list[Any],
    make_member: Callable[[str], Any],
    end_ms: int,
    also: Callable[[float], None] = lambda _: None,
) -> None:
    """Crashes of the broker, members that join and die, again and again; `also` gets the other random choices."""
    if world.now_ms >= end_ms:
        return
    choice = world.random.random()
    if world.chance(0.2):
        broker.refuse_writes(world.random.randint(20, 600))
    if choice < 0.25:
        broker.crash()
    elif choice < 0.6 or not members:
        members.append(make_member(chr(ord("a") + len(members) % 26)))
        members[-1].live()
    elif choice < 0.8:
        world.random.choice(members).is_dead = True
    else:
        also(choice)
    delay_ms = world.random.randint(100, 1_500)
    world.after(delay_ms, lambda: meddle_with_group(world, broker, members, make_member, end_ms, also))


class Member:
    """A process that asks, waits, and asks again."""

    def __init__(self, name: str, world: World, network: Network, broker: SimulatedBroker, ledger: Ledger) -> None:
        self.name = name
        self.world = world
        self.broker = broker
        self.ledger = ledger
        self.is_dead = False
        self.member_id = ""
        self._network = network
        self._call = 0

    def ask(
        self,
        request: Callable[[Callable[[Any], None]], None],
        then: Callable[[Any], None],
        timeout_ms: int = TIMEOUT_MS,
        may_repeat: bool = True,
    ) -> None:
        if self.is_dead:
            return
        self._call += 1
        call = self._call
        self._network.send(lambda: request(lambda response: self._answer(call, response, then)), may_repeat)
        self.world.after(timeout_ms, lambda: self._ask_again(call, request, then, timeout_ms, may_repeat))

    def _answer(self, call: int, response: Any, then: Callable[[Any], None]) -> None:
        self._network.send(lambda: self._arrived(call, response, then))

    def _arrived(self, call: int, response: Any, then: Callable[[Any], None]) -> None:
        if call == self._call and not self.is_dead:
            self._call += 1
            delay_ms = self.world.random.randint(200, 2_500) if self.world.chance(self._network.stalls) else 0
            if delay_ms:
                self.world.tell(f"{self.name} stalls for {delay_ms} ms")
                self.world.after(delay_ms, lambda: then(response))
            else:
                then(response)

    def _ask_again(self, call: int, request: Any, then: Any, timeout_ms: int, may_repeat: bool) -> None:
        if call == self._call:
            self.ask(request, then, timeout_ms, may_repeat)

    # ---- offsets

    def fetch_offset(self, partition: int, then: Callable[[int], None]) -> None:
        floor = self.ledger.acknowledged[partition]

        def request(answer: Callable[[Any], None]) -> None:
            commit = self.broker.groups.offsets.get(GROUP, "in", partition)
            value = commit.offset if commit is not None else 0
            self.broker.group_shard.execute(Decision(replies=[Reply(answer, value)], is_read=True))

        def checked(offset: int) -> None:
            self.ledger.check_fetched(partition, offset, floor)
            self.ledger.acknowledge(partition, offset)
            then(offset)

        self.ask(request, checked)

    def commit_offset(self, partition: int, offset: int, generation: int, then: Callable[[Error], None]) -> None:
        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name="in", partitions=[row])],
        )

        def answered(response: Any) -> None:
            error = Error(response.topics[0].partitions[0].error_code)
            if error is Error.NONE:
                self.ledger.acknowledge(partition, offset)
            then(error)

        self.ask(
            lambda answer: self.broker.ask_groups(
                lambda machine, reply_to, now_ms: machine.offset_manager.commit(request, reply_to, now_ms), answer
            ),
            answered,
            # A connection keeps its order: an old commit of a member does not come after its next one.
            may_repeat=False,
        )

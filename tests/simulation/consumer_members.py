"""Members of a group of the new protocol that come, go, stall and die, while the broker crashes and the topic grows.

Promises: no two members that the coordinator takes for current hold the same partition; an acknowledged commit never
goes back; no record below the committed offset was passed over; and in the end every partition is assigned.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.simulation.broker import SimulatedBroker
from tests.simulation.members import GROUP, PARTITIONS, Ledger, Member, meddle_with_group
from tests.simulation.world import Network, World

from ottla.base.errors import Error
from ottla.groups.classic_group import RequestClient
from ottla.groups.settings import ConsumerGroupTimes, GroupSettings
from ottla.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from ottla.transactions.transaction_coordinator import TransactionSettings

TOPIC_ID = UUID(int=1)
LEAVING = -1


class ConsumerMember(Member):
    """Heartbeats for ever; gives up what it is asked to before it says so."""

    def live(self) -> None:
        if not self.member_id:
            self.member_id = f"{self.name}{self.broker.new_id()}"
        self.epoch = 0
        self.owned: set[int] = set()
        self.beat()

    def beat(self) -> None:
        """The second time a heartbeat tells everything: an answer may have been lost, and with it an assignment."""
        epoch, owned = self.epoch, owned_partitions(self.owned)
        attempts = 0

        def ask(answer: Any) -> None:
            nonlocal attempts
            attempts += 1
            is_whole = epoch == 0 or attempts > 1
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=1_000 if is_whole else -1,
                subscribed_topic_names=["in"] if is_whole else None,
                topic_partitions=[] if epoch == 0 else owned,
            )
            self.broker.ask_groups(
                lambda machine, reply_to, now_ms: machine.consumer_heartbeat(
                    request, RequestClient(self.name, "/"), self.broker.catalog, reply_to, now_ms
                ),
                answer,
            )

        self.ask(ask, self.on_beat, may_repeat=False)  # a connection brings a request once

    def on_beat(self, response: Any) -> None:
        if response.error_code != Error.NONE:
            self.world.tell(f"{self.member_id} hears {Error(response.error_code).name}")
            self.owned = set()
            self.world.after(self.world.random.randint(1, 100), self.live)
            return
        self.epoch = response.member_epoch
        if response.assignment is None:
            self.world.after(20, self.work)
            return
        wanted = {index for row in response.assignment.topic_partitions for index in row.partitions}
        self.world.tell(f"{self.member_id} epoch {self.epoch} is given {sorted(wanted)}, has {sorted(self.owned)}")
        if self.owned - wanted:
            # Giving up takes time; until it is done, these are still ours.
            self.world.after(self.world.random.randint(0, 200), lambda: self.revoke(wanted))
        else:
            self.own(wanted)

    def revoke(self, wanted: set[int]) -> None:
        if not self.is_dead:
            self.own(wanted)

    def own(self, wanted: set[int]) -> None:
        self.owned = wanted
        self.world.after(1, self.work)

    def work(self) -> None:
        if self.is_dead:
            return
        if not self.owned:
            self.beat()
            return
        partition = self.world.random.choice(sorted(self.owned))
        self.fetch_offset(partition, lambda offset: self.take(partition, offset))

    def take(self, partition: int, offset: int) -> None:
        if partition not in self.owned:
            self.beat()
            return
        self.ledger.seen[partition].add(offset)
        self.commit_offset(partition, offset + 1, self.epoch, lambda _: self.world.after(10, self.beat))


def owned_partitions(owned: set[int]) -> list[HeartbeatTopicPartitions]:
    return [HeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=sorted(owned))] if owned else []


def check_owners(world: World, broker: SimulatedBroker, members: list[ConsumerMember]) -> None:
    group = broker.groups.consumer.groups.get(GROUP)
    owner_of: dict[int, str] = {}
    for member in members:
        known = group.members.get(member.member_id) if group is not None else None
        if member.is_dead or known is None or known.member_epoch != member.epoch:
            continue
        for partition in member.owned:
            other = owner_of.setdefault(partition, member.member_id)
            problem = f"{other} and {member.member_id} both hold partition {partition}"
            assert other == member.member_id, f"{problem}\n{world.report()}"


def simulate(seed: int, duration_ms: int = 10_000) -> World:
    world = World(seed)
    network = Network(world, loss=0.04)
    times = ConsumerGroupTimes(session_timeout_ms=1_000, assignment_interval_ms=world.random.choice((0, 300)))
    settings = GroupSettings(consumer_times=times)
    broker = SimulatedBroker(world, settings, TransactionSettings())
    broker.catalog.facts = broker.catalog.facts._replace(partition_count=PARTITIONS - 1)
    ledger = Ledger(world)
    members: list[ConsumerMember] = []
    end_ms = world.now_ms + duration_ms

    def make_member(name: str) -> ConsumerMember:
        return ConsumerMember(name, world, network, broker, ledger)

    def grow_topic(choice: float) -> None:
        if choice < 0.85:
            broker.catalog.facts = broker.catalog.facts._replace(partition_count=PARTITIONS)
            broker.catalog.generation += 1

    def watch() -> None:
        check_owners(world, broker, members)
        if world.now_ms < end_ms:
            world.after(25, watch)

    meddle_with_group(world, broker, members, make_member, end_ms, grow_topic)
    watch()
    world.run(duration_ms)
    network.heal()
    survivors = [member for member in members if not member.is_dead]
    world.run(5_000)
    check_owners(world, broker, members)
    if survivors:
        held = sorted(index for member in survivors for index in member.owned)
        count = broker.catalog.facts.partition_count
        assert held == list(range(count)), f"in the end {held} of {count} are held\n{world.report()}"
    ledger.check_end(broker)
    return world

"""Members of a classic group that come, go, stall and die, while the broker crashes.

Promises: in one generation a partition belongs to one member; an acknowledged commit never goes back; no record below
the committed offset was passed over.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.broker import SimulatedBroker
from tests.simulation.members import GROUP, PARTITIONS, Ledger, Member, meddle_with_group
from tests.simulation.world import Network, World

from ottla.base.errors import Error
from ottla.groups.classic_group import RequestClient
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.transactions.transaction_coordinator import TransactionSettings

SESSION_MS = 1_000
JOIN_TIMEOUT_MS = 4_000
START_OVER = (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_INSTANCE_ID)


class ClassicMember(Member):
    """Joins, syncs, and works through its partitions, committing as it goes."""

    _fresh = 0

    def live(self) -> None:
        self.generation = -1
        self.partitions: list[int] = []
        self.join()

    def join(self) -> None:
        self.generation = -1
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=2_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="own", metadata=b"")],
        )

        def ask(answer: Any) -> None:
            ClassicMember._fresh = self.broker.new_id()
            fresh_id = f"{self.name}{ClassicMember._fresh}"
            self.broker.ask_groups(
                lambda machine, reply_to, now_ms: machine.join(
                    request, RequestClient(self.name, "/"), fresh_id, reply_to, now_ms
                ),
                answer,
            )

        self.ask(ask, self.on_joined, JOIN_TIMEOUT_MS)

    def on_joined(self, response: Any) -> None:
        if response.error_code == Error.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif response.error_code != Error.NONE:
            self.start_over()
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            plan: dict[str, list[int]] = {row.member_id: [] for row in response.members}
            if response.leader == self.member_id and plan:
                names = sorted(plan)
                for index in range(PARTITIONS):
                    plan[names[index % len(names)]].append(index)
            self.world.tell(f"{self.member_id} joined generation {self.generation}, plan {plan}")
            self.sync(plan)

    def sync(self, plan: dict[str, list[int]]) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=bytes(indexes)) for name, indexes in plan.items()
            ],
        )
        self.ask(
            lambda answer: self.broker.ask_groups(
                lambda machine, reply_to, now_ms: machine.sync(request, reply_to, now_ms), answer
            ),
            self.on_synced,
            JOIN_TIMEOUT_MS,
        )

    def on_synced(self, response: Any) -> None:
        if response.error_code != Error.NONE:
            self.start_over_or_join(Error(response.error_code))
            return
        self.partitions = list(response.assignment)
        for partition in self.partitions:
            self.ledger.give(self.generation, partition, self.member_id)
        self.world.tell(f"{self.member_id} has {self.partitions} in generation {self.generation}")
        self.work()

    # ---- work: one record at a time, a heartbeat in between

    def work(self) -> None:
        if not self.partitions:
            self.world.after(100, self.beat)
            return
        partition = self.world.random.choice(self.partitions)
        self.fetch_offset(partition, lambda offset: self.take(partition, offset))

    def take(self, partition: int, offset: int) -> None:
        self.ledger.seen[partition].add(offset)
        self.commit_offset(partition, offset + 1, self.generation, self.on_committed)

    def on_committed(self, error: Error) -> None:
        if error is Error.NONE:
            self.beat()
        else:
            self.start_over_or_join(error)

    def beat(self) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        self.ask(lambda answer: answer(self.broker.groups.heartbeat(request, self.world.now_ms)), self.on_beat)

    def on_beat(self, response: Any) -> None:
        error = Error(response.error_code)
        if error is Error.NONE:
            if self.world.chance(0.01):
                self.leave()
            else:
                self.work()
        else:
            self.start_over_or_join(error)

    def leave(self) -> None:
        self.world.tell(f"{self.member_id} leaves")
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
        self.ask(
            lambda answer: self.broker.ask_groups(
                lambda machine, reply_to, now_ms: machine.leave(request, reply_to, now_ms), answer
            ),
            lambda _: self.start_over(),
        )

    def start_over_or_join(self, error: Error) -> None:
        if error in START_OVER:
            self.start_over()
        else:
            self.join()

    def start_over(self) -> None:
        self.member_id = ""
        self.world.after(self.world.random.randint(1, 300), self.live)


def simulate(seed: int, duration_ms: int = 12_000) -> World:
    world = World(seed)
    network = Network(world, loss=0.04)
    settings = GroupSettings(session_timeout_ms_min=1, initial_rebalance_delay_ms=100, new_member_join_timeout_ms=3_000)
    broker = SimulatedBroker(world, settings, TransactionSettings())
    ledger = Ledger(world)
    members: list[ClassicMember] = []

    def make_member(name: str) -> ClassicMember:
        return ClassicMember(name, world, network, broker, ledger)

    meddle_with_group(world, broker, members, make_member, world.now_ms + duration_ms)
    world.run(duration_ms)
    for member in members:
        member.is_dead = True
    network.heal()
    world.run(3_000)
    ledger.check_end(broker)
    return world

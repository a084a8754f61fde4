"""Balancing by the controller: settings, the hourly limit, waiting for other work, and the end."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.controller_harness import broker
from tests.unit.controller.test_healer import GIGABYTE, copy, moving
from tests.unit.controller.test_membership import Member, Scene, until
from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster import controller as cluster_controller
from ottla.controller.decisions.leader_eligibility import BrokerAvailability
from ottla.controller.decisions.ottla_version import NEW_CLUSTER_FEATURES
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage
from ottla.controller.self_balancing.balance_steps import HOUR_MS, JOURNAL_FORMAT, BalanceJournal, balancing_blocker
from ottla.controller.self_balancing.balancer import PLAN_INTERVAL_SECONDS, Balancer
from ottla.controller.self_balancing.heal_state import BrokerDisks, LogDir
from ottla.controller.self_balancing.journals import ReplicaMove, Throttle, WrittenThrottle
from ottla.controller.stores.store import CreateNode

ROWS = tuple((number, (1, 2) if number % 2 else (2, 1)) for number in range(8))
SECONDS_MAX = 20_000.0
PATH = JOURNAL_FORMAT.path
SOON = 4 * PLAN_INTERVAL_SECONDS


@pytest.fixture(autouse=True)
def _no_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_controller, "ACKNOWLEDGE_SECONDS_MAX", 0.0)


class Floor:
    """Brokers 1 to 4 with disks of 100 GB; 1 and 2 have eight partitions of a gigabyte, 3 and 4 have none."""

    def __init__(self, scene: Scene, **settings: object) -> None:
        self.scene = scene
        self.settings = SimpleNamespace(
            ottla_balance_enable=True,
            ottla_balance_bytes_per_hour=100 * GIGABYTE,
            ottla_balance_disk_max_percentage=85,
            ottla_balance_throttle_rate=5_000,
        )
        vars(self.settings).update(settings)
        self.members: dict[int, Member] = {}
        self.balancing: dict[int, Balancer] = {}
        self.asked = 0
        self.free = 90

    async def start(self) -> Member:
        for number in (1, 2, 3, 4):
            member = self.members[number] = Member(self.scene, number)
            self.balancing[number] = Balancer(
                member.store, member.controller, member.images, LoopClock(), lambda: self.settings, self.disks, None
            )
            await member.membership.start(broker(number), None)
            self.scene.members.append(member)
            self.scene.answering.add(9000 + number)
            await until(lambda member=member: member.membership.controller_id >= 0)  # type: ignore[misc]
        first = self.members[1]
        await until(lambda: len(first.image.brokers) == 4)
        await first.controller.create_topics([NewTopic("orders", assignments=ROWS)])
        return first

    async def disks(self, _: int) -> BrokerDisks:
        self.asked += 1
        sizes = {TopicPartition("orders", number): GIGABYTE for number, _ in ROWS}
        return BrokerDisks((LogDir(100 * GIGABYTE, self.free * GIGABYTE),), sizes)

    def lose(self, number: int) -> None:
        self.balancing[number].stop()
        self.scene.kill(self.members[number], number)
        self.scene.ensemble.end_session(self.members[number].store.session_id)

    @property
    def journal(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scene.node(PATH) or b"{}")
        return found


def play_with(scenario: Any, **settings: object) -> None:
    async def play() -> None:
        scene = Scene()
        floor = Floor(scene, **settings)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(floor, await floor.start())
        finally:
            for balancing in floor.balancing.values():
                balancing.stop()
            await scene.close()

    run(play())


def held(image: MetadataImage) -> dict[int, int]:
    rows = [partition.replicas for partition in image.topics["orders"].partitions]
    return {number: sum(number in row for row in rows) for number in (1, 2, 3, 4)}


async def finish(floor: Floor, controller: Member) -> None:
    """Copy and plan until no partition moves for a while."""
    quiet = 0.0
    while quiet < SOON:
        found = moving(controller.image)
        for index in found:
            await copy(controller, index)
        quiet = 0.0 if found else quiet + 5
        await asyncio.sleep(5)


def test_ottla_balance_enable_is_off_and_costs_nothing() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        await asyncio.sleep(SOON)
        assert (moving(controller.image), floor.asked) == ([], 0)
        assert PATH not in floor.scene.ensemble.tree.subtree("/")

    play_with(scenario, ottla_balance_enable=False)


def test_all_brokers_get_a_share_at_ottla_balance_throttle_rate_and_then_moves_end() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        await until(lambda: moving(controller.image))
        for number in ("1", "2"):
            assert controller.image.broker_configs[number]["leader.replication.throttled.rate"] == "5000"
        assert len(floor.journal["moves"]) == len(moving(controller.image))
        await finish(floor, controller)
        assert held(controller.image) == {1: 4, 2: 4, 3: 4, 4: 4}
        leaders = [partition.replicas[0] for partition in controller.image.topics["orders"].partitions]
        assert {number: leaders.count(number) for number in (1, 2, 3, 4)} == {1: 2, 2: 2, 3: 2, 4: 2}
        assert floor.journal["moves"] == []
        assert not any(config for number, config in controller.image.broker_configs.items() if number)
        assert controller.image.topic_configs["orders"] == {}

    play_with(scenario)


def test_ottla_balance_bytes_per_hour_is_kept() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        await finish(floor, controller)
        moved = held(controller.image)[3] + held(controller.image)[4]
        assert moved == 2, "two of a gigabyte in the first hour"
        assert floor.journal["spent_bytes"] == 2 * GIGABYTE
        await asyncio.sleep(HOUR_MS / 1000)
        await finish(floor, controller)
        assert held(controller.image)[3] + held(controller.image)[4] == 4, "two more in the next one"

    play_with(scenario, ottla_balance_bytes_per_hour=int(2.5 * GIGABYTE))


def test_a_replica_that_is_larger_than_an_hours_bytes_has_an_hour_of_its_own() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        await finish(floor, controller)
        assert 1 <= held(controller.image)[3] + held(controller.image)[4] <= 2, "one partition"

    play_with(scenario, ottla_balance_bytes_per_hour=1000)


def test_ottla_balance_disk_max_percentage_is_no_ones_to_pass() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        floor.free = 20
        await asyncio.sleep(SOON)
        assert floor.asked
        assert moving(controller.image) == [], "all disks are fuller than 79 %"
        floor.settings.ottla_balance_disk_max_percentage = 85
        await until(lambda: moving(controller.image))

    play_with(scenario, ottla_balance_disk_max_percentage=79)


def test_a_move_to_a_broker_that_is_lost_is_given_up_and_nothing_else_begins() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        await until(lambda: moving(controller.image))
        floor.lose(4)
        await until(lambda: 4 not in controller.image.brokers)
        await until(lambda: all(4 not in move["to"] for move in floor.journal["moves"]))
        parts = controller.image.topics["orders"].partitions
        assert all(4 not in partition.replicas for partition in parts), "healing, or an operator, can have them"

    play_with(scenario)


def test_balancing_waits_for_reassignments_of_operators() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        member = controller.controller
        await member.change(
            lambda image: decide_reassignments(
                image, [ReassignmentRequest(TopicPartition("orders", 0), (3, 1))], member.liveness, member.rules
            )
        )
        floor.settings.ottla_balance_enable = True
        await asyncio.sleep(SOON)
        assert moving(controller.image) == [0]
        assert floor.journal == {}
        await copy(controller, 0)
        await until(lambda: floor.journal.get("moves"))

    play_with(scenario, ottla_balance_enable=False)


def test_a_journal_that_cannot_be_read_switches_it_off() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        floor.scene.ensemble.multi([CreateNode("/ottla"), CreateNode(PATH, b'{"version":2}')])
        await asyncio.sleep(SOON)
        assert moving(controller.image) == []
        assert floor.scene.node(PATH) == b'{"version":2}'

    play_with(scenario)


def test_next_controller_removes_the_throttle() -> None:
    async def scenario(floor: Floor, controller: Member) -> None:
        await until(lambda: moving(controller.image))
        floor.settings.ottla_balance_enable = False
        floor.lose(1)
        others = [floor.members[number] for number in (2, 3, 4)]
        await until(lambda: any(member.membership.is_controller for member in others))
        (second,) = (member for member in others if member.membership.is_controller)
        await until(lambda: 1 not in second.image.brokers)
        for index in moving(second.image):
            await copy(second, index)
        await until(lambda: floor.journal["moves"] == [])
        assert second.image.topic_configs["orders"] == {}

    play_with(scenario)


def test_why_nothing_is_begun() -> None:
    image = MetadataImage(features=NEW_CLUSTER_FEATURES).with_brokers({1: broker(1), 2: broker(2)})
    both = frozenset({1, 2})
    assert balancing_blocker(image, both, BrokerAvailability(), frozenset(), 0) is None
    assert balancing_blocker(image, both | {3, 4}, BrokerAvailability(), frozenset(), 0) == "broker 3, 4 is away"
    assert "maintenance" in str(balancing_blocker(image, both, BrokerAvailability(), frozenset({2}), 0))
    assert "healed" in str(balancing_blocker(image, both, BrokerAvailability(), frozenset(), 3))
    old = image.with_features({"ottla.version": 1}, 1)
    assert "not all brokers" in str(balancing_blocker(old, both, BrokerAvailability(), frozenset(), 0))


def test_journal_round_trip_with_its_hour() -> None:
    journal = BalanceJournal(
        (ReplicaMove(TopicPartition("a", 0), (1,), (2,)),),
        Throttle({("a", "key"): WrittenThrottle("0:1,0:2", frozenset({"0:1"}))}, {(1, "rate"): "5"}),
        1000,
        7,
    )
    assert JOURNAL_FORMAT.decode(JOURNAL_FORMAT.encode(journal)) == journal
    assert (journal.spent(1000), journal.spent(1000 + HOUR_MS), journal.spent(999)) == (7, 0, 0)
    assert journal.with_spent(2000, 5)[2:] == (1000, 12)
    assert journal.with_spent(2000 + HOUR_MS, 5)[2:] == (2000 + HOUR_MS, 5)
    with pytest.raises(tree.DamagedNodeError):
        JOURNAL_FORMAT.decode(b"{}")

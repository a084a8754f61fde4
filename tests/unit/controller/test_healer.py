"""The driver of healing: settings, a new controller, a damaged journal."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.controller_harness import broker
from tests.unit.controller.test_membership import Member, Scene, until
from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.controller.cluster import controller as cluster_controller
from ottla.controller.decisions.isr_changes import IsrChange
from ottla.controller.decisions.reassignment import ongoing_reassignments
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataImage
from ottla.controller.self_balancing.heal_state import JOURNAL_FORMAT, BrokerDisks, LogDir
from ottla.controller.self_balancing.heal_steps import ReplicaRebuild
from ottla.controller.self_balancing.healer import Healer
from ottla.controller.stores.store import CreateNode, DeleteNode

ROWS = ((0, (1, 2, 4)), (1, (2, 3, 4)), (2, (3, 1, 4)))
PATH = JOURNAL_FORMAT.path
GIGABYTE = 1_000_000_000
SECONDS_MAX = 120.0


@pytest.fixture(autouse=True)
def _no_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers of these tests do not poll for deltas."""
    monkeypatch.setattr(cluster_controller, "ACKNOWLEDGE_SECONDS_MAX", 0.0)


class HealingHarness:
    """Brokers 1 to 4, each with healing; broker 1 is the controller, and 4 will be lost."""

    def __init__(self, scene: Scene, **settings: int) -> None:
        self.scene = scene
        self.settings = SimpleNamespace(
            ottla_heal_after_ms=2_000,
            ottla_heal_brokers_max=1,
            ottla_heal_throttle_rate=5_000,
            ottla_heal_moves_max=10,
            ottla_heal_disk_max_percentage=85,
        )
        vars(self.settings).update(settings)
        self.members: dict[int, Member] = {}
        self.healing: dict[int, Healer] = {}
        self.asked = 0
        self.told: list[ReplicaRebuild] = []
        self.unwilling: set[int] = set()

    async def start(self) -> Member:
        for number in (1, 2, 3, 4):
            await self.add(number)
        first = self.members[1]
        await until(lambda: len(first.image.brokers) == 4)
        await first.controller.create_topics([NewTopic("orders", assignments=ROWS)])
        return first

    async def add(self, number: int) -> None:
        member = self.members[number] = Member(self.scene, number)
        self.healing[number] = Healer(
            member.store,
            member.controller,
            member.images,
            LoopClock(),  # the membership's clock does not advance, because no broker polls here
            lambda: self.settings,
            self.disks,
            self.refill,
        )
        await member.membership.start(broker(number), None)
        self.scene.members.append(member)
        self.scene.answering.add(9000 + number)
        await until(lambda: member.membership.controller_id >= 0)

    async def disks(self, _: int) -> BrokerDisks:
        self.asked += 1
        return BrokerDisks((LogDir(100 * GIGABYTE, 20 * GIGABYTE, "/data"),), {})

    async def refill(self, broker_id: int, refills: list[ReplicaRebuild]) -> frozenset[TopicPartition]:
        self.told += refills
        return frozenset(each.partition for each in refills if broker_id in self.unwilling)

    def lose(self, number: int) -> None:
        member = self.members[number]
        self.healing[number].stop()
        self.scene.kill(member, number)
        self.scene.ensemble.end_session(member.store.session_id)

    @property
    def journal(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scene.node(PATH) or b"{}")
        return found


def moving(image: MetadataImage) -> list[int]:
    return [move.partition.partition for move in ongoing_reassignments(image)]


async def copy(member: Member, index: int) -> None:
    """Add all live replicas to the ISRs, as the leaders do."""
    now = member.image.topics["orders"].partitions[index]
    isr = tuple((id_, -1) for id_ in now.replicas if id_ in member.image.brokers)
    topic_id = member.image.topics["orders"].topic_id
    change = IsrChange(topic_id, index, now.leader_epoch, now.partition_epoch, isr)
    await member.controller.alter_partitions(now.leader, member.image.brokers[now.leader].epoch, [change])


def play_with(scenario: Any, **settings: int) -> None:
    async def play() -> None:
        scene = Scene()
        ward = HealingHarness(scene, **settings)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario(ward, await ward.start())
        finally:
            for healing in ward.healing.values():
                healing.stop()
            await scene.close()

    run(play())


def test_after_ottla_heal_after_ms_and_not_earlier_at_ottla_heal_throttle_rate() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        await asyncio.sleep(5)
        assert ward.asked == 0, "healthy brokers get no requests"
        assert PATH not in ward.scene.ensemble.tree.subtree("/")
        ward.lose(4)
        await until(lambda: 4 not in controller.image.brokers)
        await asyncio.sleep(1.9)
        assert moving(controller.image) == []
        await until(lambda: moving(controller.image) == [0, 1, 2])
        assert controller.image.broker_configs["1"]["leader.replication.throttled.rate"] == "5000"
        status = ward.healing[1].status
        assert status is not None
        assert (list(status.away_ms), status.moves, status.waits) == ([4], 3, ())
        assert ward.healing[2].status is None, "only the controller knows"
        for index in (0, 1, 2):
            await copy(controller, index)
        await until(lambda: ward.journal["moves"] == [])
        assert not any(config for number, config in controller.image.broker_configs.items() if number)
        assert controller.image.topic_configs["orders"] == {}

    play_with(scenario)


def test_minus_one_is_never() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        ward.lose(4)
        await asyncio.sleep(15)
        assert moving(controller.image) == []

    play_with(scenario, ottla_heal_after_ms=-1)


def test_ottla_heal_moves_max_at_a_time_and_the_next_one_at_once() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        ward.lose(4)
        await until(lambda: len(moving(controller.image)) == 1)
        await asyncio.sleep(6)
        for left in (2, 1, 0):
            (index,) = moving(controller.image)
            await copy(controller, index)
            await asyncio.sleep(0.2)
            assert len(moving(controller.image)) == min(left, 1)

    play_with(scenario, ottla_heal_moves_max=1)


def test_ottla_heal_brokers_max_blocks_healing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        caplog.set_level(logging.INFO)
        await ward.add(5)
        await ward.add(6)
        ward.lose(4)
        ward.lose(3)
        await asyncio.sleep(12)
        assert moving(controller.image) == []
        (reason,) = ward.journal["waits"]
        assert reason.startswith("2 brokers are away")
        assert [record.message for record in caplog.records].count(f"[Controller] healing waits: {reason}") == 1
        ward.settings.ottla_heal_brokers_max = 2
        await until(lambda: len(moving(controller.image)) == 3)
        assert ward.journal["waits"] == []

    play_with(scenario)


def test_ottla_heal_disk_max_percentage_lets_it_wait() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        ward.lose(4)
        await until(lambda: ward.journal.get("waits"))
        assert "ottla.heal.disk.max.percentage" in ward.journal["waits"][0]
        ward.settings.ottla_heal_disk_max_percentage = 85
        await until(lambda: moving(controller.image) == [0, 1, 2])

    play_with(scenario, ottla_heal_disk_max_percentage=79)


def test_next_controller_continues_the_moves() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        await ward.add(5)
        ward.lose(4)
        await until(lambda: moving(controller.image) == [0, 1, 2])
        throttled = dict(controller.image.topic_configs["orders"])
        ward.lose(1)
        others = [ward.members[number] for number in (2, 3, 5)]
        await until(lambda: any(member.membership.is_controller for member in others))
        (second,) = (member for member in others if member.membership.is_controller)
        await until(lambda: 1 not in second.image.brokers)
        assert second.image.topic_configs["orders"] == throttled
        for index in moving(second.image):
            if 1 not in second.image.topics["orders"].partitions[index].adding_replicas:
                await copy(second, index)
        await until(lambda: len(ward.journal["moves"]) < 3)

    play_with(scenario)


def test_the_time_is_counted_on_by_the_next_controller() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        ward.settings.ottla_heal_after_ms = 18_000
        ward.lose(4)
        await until(lambda: ward.journal.get("away_ms"))
        assert ward.journal["away_ms"] == {"4": 5_000} or 5_000 <= ward.journal["away_ms"]["4"] < 6_500
        ward.lose(1)
        others = [ward.members[number] for number in (2, 3)]
        await until(lambda: any(member.membership.is_controller for member in others))
        (second,) = (number for number in (2, 3) if ward.members[number].membership.is_controller)
        await until(lambda: ward.healing[second].status is not None)
        status = ward.healing[second].status
        assert status is not None
        assert status.away_ms[4] >= 5_000
        assert status.away_ms[1] < 1_000

    play_with(scenario)


def test_damaged_journal_disables_healing_and_is_not_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        ensemble = ward.scene.ensemble
        ensemble.multi([CreateNode("/ottla"), CreateNode(PATH, b'{"version":2}')])
        ward.healing[1]._node = None  # as after an election
        ward.lose(4)
        await asyncio.sleep(8)
        assert moving(controller.image) == []
        assert ward.scene.node(PATH) == b'{"version":2}'
        status = ward.healing[1].status
        assert status is not None
        assert "version 2 is not known to this broker" in status.waits[0]
        told = [record.message for record in caplog.records if "Healing is disabled" in record.message]
        assert len(told) == 1
        ensemble.multi([DeleteNode(PATH)])
        await until(lambda: moving(controller.image) == [0, 1, 2])

    play_with(scenario)


def test_failed_directory_is_rebuilt_and_moves_if_its_broker_refuses() -> None:
    async def scenario(ward: HealingHarness, controller: Member) -> None:
        topic_id = controller.image.topics["orders"].topic_id
        await controller.controller.set_offline_replicas(2, frozenset({(topic_id, 0)}))
        await until(lambda: ward.told == [ReplicaRebuild(2, TopicPartition("orders", 0), "/data")])
        assert ward.journal["moves"] == [{"topic": "orders", "partition": 0, "from": [2], "to": [2]}]
        await asyncio.sleep(20)
        assert len(ward.told) == 1, "once is enough for a while"
        await controller.controller.set_offline_replicas(2, frozenset())
        await copy(controller, 0)
        await until(lambda: ward.journal["moves"] == [])

        ward.unwilling.add(3)
        await controller.controller.set_offline_replicas(3, frozenset({(topic_id, 2)}))
        await until(lambda: moving(controller.image) == [2])
        assert len(ward.told) == 2
        assert controller.image.topics["orders"].partitions[2].removing_replicas == (3,)

    play_with(scenario)

"""Periodic work of the active controller: admin nodes, completed reassignments, preferred leaders."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.unit.controller.controller_harness import broker
from tests.unit.controller.test_membership import Member, Scene, run, until

from ottla.base.names import TopicPartition
from ottla.controller import tree
from ottla.controller.cluster import controller as cluster_controller
from ottla.controller.cluster.leader_rebalance import LeaderRebalancer
from ottla.controller.decisions.isr_changes import IsrChange
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments, ongoing_reassignments
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import PartitionImage
from ottla.controller.stores.store import CreateNode, SetNode


@pytest.fixture(autouse=True)
def _no_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers of these tests do not poll for deltas."""
    monkeypatch.setattr(cluster_controller, "ACKNOWLEDGE_SECONDS_MAX", 0.0)


class Settings:
    auto_leader_rebalance_enable = True
    leader_imbalance_check_interval_seconds = 0.01
    leader_imbalance_per_broker_percentage = 10
    ottla_heal_slow_after_ms = 300_000
    ottla_heal_slow_sync_ms = 500


async def cluster(scene: Scene, settings: object | None = None) -> Member:
    """Broker 1 is the controller of 3, with one topic on brokers 1 and 2."""
    first = Member(scene, 1)
    never = type("Never", (Settings,), {"auto_leader_rebalance_enable": False})()
    watches, clock = first.membership.watches, scene.clock
    LeaderRebalancer(first.store, first.controller, first.images, watches, lambda: settings or never, clock)  # type: ignore[arg-type,return-value]
    await first.membership.start(broker(1), None)
    scene.members.append(first)
    scene.answering.add(9001)
    await until(lambda: first.membership.is_controller)
    await scene.start(2)
    await scene.start(3)
    await until(lambda: len(first.image.brokers) == 3)
    await first.controller.create_topics([NewTopic("orders", assignments=((0, (1, 2)), (1, (2, 1))))])
    return first


def partition(member: Member, index: int = 0) -> PartitionImage:
    return member.image.topics["orders"].partitions[index]


async def propose(member: Member, isr: tuple[int, ...], index: int = 0) -> None:
    """Propose an ISR, as the leader does."""
    now = partition(member, index)
    topic_id = member.image.topics["orders"].topic_id
    change = IsrChange(topic_id, index, now.leader_epoch, now.partition_epoch, tuple((id_, -1) for id_ in isr))
    await member.controller.alter_partitions(now.leader, member.image.brokers[now.leader].epoch, [change])


def write(scene: Scene, path: str, fields: object) -> None:
    scene.ensemble.multi([CreateNode(path, json.dumps(fields).encode())])


def wanted(*rows: tuple[int, list[int]], topic: str = "orders") -> dict[str, object]:
    return {"version": 1, "partitions": [{"topic": topic, "partition": n, "replicas": row} for n, row in rows]}


def test_a_move_ends_in_the_very_write_that_takes_its_last_replica_into_the_isr() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        await controller.controller.change(
            lambda image: decide_reassignments(
                image,
                [ReassignmentRequest(TopicPartition("orders", 0), (3, 2))],
                controller.controller.liveness,
                controller.controller.rules,
            )
        )
        assert len(list(ongoing_reassignments(controller.image))) == 1
        before = scene.ensemble.transactions
        await propose(controller, (1, 2, 3))
        assert scene.ensemble.transactions == before + 1
        assert (partition(controller).replicas, partition(controller).leader) == ((3, 2), 3)

    run(play)


def test_moves_of_another_tool_are_begun_and_leave_the_node_one_by_one() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        write(scene, tree.REASSIGN_PARTITIONS, wanted((0, [3, 2]), (1, [2, 3]), (9, [1])))
        await until(lambda: len(list(ongoing_reassignments(controller.image))) == 2)

        def left() -> object:
            data = scene.node(tree.REASSIGN_PARTITIONS)
            return data and json.loads(data)

        await until(lambda: left() == wanted((0, [3, 2]), (1, [2, 3])))
        await propose(controller, (1, 2, 3), 0)
        await until(lambda: left() == wanted((1, [2, 3])))
        await propose(controller, (2, 1, 3), 1)
        await until(lambda: left() is None)
        assert [p.replicas for p in controller.image.topics["orders"].partitions] == [(3, 2), (2, 3)]

    run(play)


def test_the_node_can_be_changed_while_its_moves_are_under_way() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        write(scene, tree.REASSIGN_PARTITIONS, wanted((0, [3, 2])))
        await until(lambda: [move.target for move in ongoing_reassignments(controller.image)] == [(3, 2)])
        data = json.dumps(wanted((0, [3, 1]))).encode()
        scene.ensemble.multi([SetNode(tree.REASSIGN_PARTITIONS, data)])
        await until(lambda: [move.target for move in ongoing_reassignments(controller.image)] == [(3, 1)])
        assert scene.node(tree.REASSIGN_PARTITIONS) == data

    run(play)


def test_reassignment_changed_by_another_request_is_removed_from_the_node() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        write(scene, tree.REASSIGN_PARTITIONS, wanted((0, [3, 2])))
        await until(lambda: [move.target for move in ongoing_reassignments(controller.image)] == [(3, 2)])
        await controller.controller.change(
            lambda image: decide_reassignments(
                image,
                [ReassignmentRequest(TopicPartition("orders", 0), (3, 1))],
                controller.controller.liveness,
                controller.controller.rules,
            )
        )
        await until(lambda: scene.node(tree.REASSIGN_PARTITIONS) is None)
        assert [move.target for move in ongoing_reassignments(controller.image)] == [(3, 1)]

    run(play)


def test_nodes_that_cannot_be_read_go_away() -> None:
    async def play(scene: Scene) -> None:
        await cluster(scene)
        write(scene, tree.REASSIGN_PARTITIONS, [1])
        write(scene, tree.PREFERRED_ELECTION, {"version": 1})
        await until(lambda: scene.node(tree.REASSIGN_PARTITIONS) is None)
        await until(lambda: scene.node(tree.PREFERRED_ELECTION) is None)

    run(play)


async def stray(controller: Member) -> None:
    """Partition 0 prefers broker 2 and is led by broker 1."""
    await controller.controller.change(
        lambda image: decide_reassignments(
            image,
            [ReassignmentRequest(TopicPartition("orders", 0), (2, 1))],
            controller.controller.liveness,
            controller.controller.rules,
        )
    )


def test_election_of_another_tool_is_run_and_its_node_deleted() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        await stray(controller)
        assert partition(controller).leader == 1
        rows = [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 7}]
        write(scene, tree.PREFERRED_ELECTION, {"version": 1, "partitions": rows})
        await until(lambda: scene.node(tree.PREFERRED_ELECTION) is None)
        assert partition(controller).leader == 2

    run(play)


def test_leadership_returns_periodically() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene, Settings())
        await stray(controller)
        await until(lambda: partition(controller).leader == 2)

    run(play)


def test_leadership_stays_where_it_is_if_that_is_wanted() -> None:
    async def play(scene: Scene) -> None:
        controller = await cluster(scene)
        await stray(controller)
        await asyncio.sleep(0.05)
        assert partition(controller).leader == 1

    run(play)


def test_a_little_imbalance_is_left_alone() -> None:
    """One of two partitions that prefer broker 2 has another leader: 50 percent."""

    async def play(scene: Scene) -> None:
        lax = type("Lax", (Settings,), {"leader_imbalance_per_broker_percentage": 50})()
        controller = await cluster(scene, lax)
        await stray(controller)
        await asyncio.sleep(0.05)
        assert partition(controller).leader == 1
        lax.leader_imbalance_per_broker_percentage = 49
        await until(lambda: partition(controller).leader == 2)

    run(play)

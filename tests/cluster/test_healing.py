"""A broker is killed for good and no operator acts: the drill of docs/operations.md, "Healing"."""

import json
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.test_moves import Load, assert_all_there, fill

from ottla.base.names import TopicPartition
from ottla.base.placement.throttled_replicas import RATE_KEYS, REPLICA_KEYS
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs
from ottla.client.reassignments import alter_reassignments
from ottla.testing.cluster import Cluster, ClusterBroker

QUICK_MS = 2_500
PATIENT_MS = 600_000
HEAL_SECONDS_MAX = 90.0
SETTINGS = {"ottla.heal.after.ms": PATIENT_MS, "ottla.heal.disk.max.percentage": 99, "min.insync.replicas": 2}


@pytest.fixture
def topic() -> str:
    return f"healed-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def ward(cluster_factory: Callable[..., Cluster]) -> Cluster:
    return cluster_factory(4, SETTINGS)


def heal_after(cluster: Cluster, ms: int, **more: object) -> None:
    """For all brokers, while they run."""
    changed = {"ottla.heal.after.ms": str(ms), **{f"ottla.heal.{name}": str(value) for name, value in more.items()}}
    with Client(cluster.live_brokers[0].bootstrap_servers) as client:
        alter_configs(client, Resource.BROKER, "", changed, ())


def journal(cluster: Cluster) -> dict[str, Any]:
    data = cluster.read_node("/ottla/healing")
    found: dict[str, Any] = json.loads(data) if data else {}
    return found


def rows(cluster: Cluster) -> dict[TopicPartition, tuple[list[int], list[int]]]:
    """The replicas and the ISR of all partitions."""
    with cluster.admin() as admin:
        return {
            TopicPartition(topic.name, each.number): (each.replicas, each.isr)
            for topic in admin.topics()
            for each in topic.partitions
        }


def left_throttles(cluster: Cluster) -> list[str]:
    """Nodes that still slow anything down."""
    paths = [f"/config/topics/{topic}" for topic in {name.topic for name in rows(cluster)}]
    paths += [f"/config/brokers/{broker.id}" for broker in cluster.brokers]
    found = []
    for path in paths:
        data = cluster.read_node(path)
        config = json.loads(data).get("config", {}) if data else {}
        found += [path for key in (*RATE_KEYS, *REPLICA_KEYS) if key in config]
    return found


def wait_until_healed(cluster: Cluster, dead: ClusterBroker, factor: int = 3) -> None:
    def is_so() -> bool | None:
        whole = all(dead.id not in held and len(isr) == len(held) == factor for held, isr in rows(cluster).values())
        return (whole and not journal(cluster).get("moves") and not left_throttles(cluster)) or None

    cluster.wait_for(is_so, f"the replicas of broker {dead.id} elsewhere, and no throttle", HEAL_SECONDS_MAX)


def test_a_rolling_restart_begins_nothing_and_a_broker_that_is_gone_is_healed(ward: Cluster, topic: str) -> None:
    ward.create_topic(topic, partitions=6)
    ward.create_topic(f"{topic}-full", assignment={0: [4, 1, 2]})
    fill(ward.bootstrap, f"{topic}-full", 2000)
    before = rows(ward)
    for broker in ward.brokers:
        broker.stop()
        broker.start()
    ward.wait_until_whole()
    assert {name: sorted(held) for name, (held, _) in rows(ward).items()} == {
        name: sorted(held) for name, (held, _) in before.items()
    }
    assert not journal(ward).get("moves")

    heal_after(ward, QUICK_MS)
    dead = ward.broker(4)
    with Load(ward.bootstrap, topic) as load:
        load.wait_for(50)
        dead.kill()
        dead.wipe()
        wait_until_healed(ward, dead)
        load.wait_for(50)
    assert_all_there(ward, load)
    dead.start()
    ward.wait_until_whole()
    assert all(dead.id not in held for held, _ in rows(ward).values()), "what was given away stays where it is"


@pytest.mark.faults
def test_a_waiting_repair_is_reported_and_continues_without_the_obstacle(ward: Cluster, topic: str) -> None:
    """Two brokers away are more than ottla.heal.brokers.max; when one is back the other is healed."""
    ward.create_topic(topic, assignment={0: [1, 2, 4], 1: [2, 3, 4]})
    heal_after(ward, QUICK_MS)
    controller = ward.controller()
    dead, other = [ward.broker(id_) for id_ in (4, 3, 2) if ward.broker(id_) is not controller][:2]
    dead.kill()
    other.kill()
    waits = ward.wait_for(lambda: journal(ward).get("waits") or None, "a reason to wait")
    assert any("more than ottla.heal.brokers.max (1)" in each for each in waits), waits
    assert not journal(ward)["moves"]
    other.start()
    wait_until_healed(ward, dead)
    assert journal(ward)["waits"] == []


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(20))
def test_a_round_with_something_in_between(cluster_factory: Callable[..., Cluster], seed: int) -> None:
    """The controller, the target, the dead broker and an operator, each in the middle of the moves; slowly copied."""
    chance = random.Random(seed)
    cluster = cluster_factory(5, SETTINGS)
    topics = [f"round-{seed}-{number}" for number in range(3)]
    dead = cluster.broker(chance.randint(1, 5))
    others = [broker.id for broker in cluster.brokers if broker is not dead]
    for topic in (*topics, "load"):
        cluster.create_topic(topic, assignment={0: [dead.id, *chance.sample(others, 2)]})
    for topic in topics:
        fill(cluster.bootstrap, topic, 4000)
    heal_after(cluster, QUICK_MS, **{"throttle.rate": 1_000_000, "moves.max": 2})
    with Load(cluster.bootstrap, "load") as load:
        load.wait_for(20)
        dead.kill()
        moves = cluster.wait_for(lambda: journal(cluster).get("moves") or None, "moves", HEAL_SECONDS_MAX)
        what = ("controller", "target", "back", "operator")[seed % 4]
        if what == "controller":
            victim = cluster.controller()
            victim.kill()
            victim.start()
        elif what == "target":
            victim = cluster.broker(moves[0]["to"][0])
            victim.kill()
            victim.start()
        elif what == "back":
            dead.start()
            cluster.wait_until_whole(topics, HEAL_SECONDS_MAX)
            dead.kill()
        else:
            moved = TopicPartition(moves[0]["topic"], moves[0]["partition"])
            with Client(cluster.live_brokers[0].bootstrap_servers) as client:
                assert alter_reassignments(client, {moved: None}) == {}
        wait_until_healed(cluster, dead)
        load.wait_for(20)
    assert_all_there(cluster, load)

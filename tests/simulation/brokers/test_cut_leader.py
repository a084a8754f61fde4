"""A leader is cut off from the other brokers, but neither from ZooKeeper nor from clients: a minimal scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.simulation.brokers.admin import Creator
from tests.simulation.brokers.cluster import BrokerHost, Cluster, running
from tests.simulation.brokers.faults import both, state_of, the_controller
from tests.simulation.brokers.ledger import Ledger
from tests.simulation.brokers.producers import Producer

TOPIC, PARTITIONS = "t", 3
States = Callable[[], list[dict[str, Any]]]
GIVEN_UP_SECONDS_MAX = 11.0  # no poll for six seconds; a new controller, three more


def leads(host: BrokerHost) -> list[int]:
    """As the broker itself believes."""
    assert host.assembly is not None
    partitions = host.assembly.services.replicas.partitions
    return [name.partition for name, each in partitions.items() if name.topic == TOPIC and each.is_leader]


@contextmanager
def one_cut_off(seed: int, *, is_controller: bool) -> Iterator[tuple[Cluster, BrokerHost, States]]:
    """A cluster, the broker that has lost its leaderships, and the states of its partitions in ZooKeeper."""
    with running(seed) as cluster:
        world = cluster.world
        for host in cluster.hosts:
            host.start()
        Creator(cluster, {TOPIC: PARTITIONS}).start()
        assert world.run(20.0, lambda: not cluster.working and world.seconds > 0.1)
        ledger = Ledger(world)
        for number in range(PARTITIONS):
            Producer(cluster, f"p{number}", ledger, TOPIC, number).start()
        world.run(3.0 + seed / 2)  # at some time between two polls
        controller = the_controller(cluster)
        lonely = controller if is_controller else next(host for host in cluster.hosts if host is not controller)
        led = leads(lonely)
        assert led
        cluster.network.cut(both(lonely.name, [host.name for host in cluster.hosts if host is not lonely]))

        def states() -> list[dict[str, Any]]:
            return [state_of(cluster, f"/brokers/topics/{TOPIC}/partitions/{number}/state") for number in led]

        assert world.run(GIVEN_UP_SECONDS_MAX, lambda: all(each["leader"] != lonely.number for each in states()))
        yield cluster, lonely, states


@pytest.mark.parametrize("is_controller", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_that_the_others_do_not_reach_leads_nothing_when_others_lead(seed: int, is_controller: bool) -> None:
    """Else its clients would wait for it as long as the cut lasts: nothing tells them about the new leader."""
    with one_cut_off(seed, is_controller=is_controller) as (cluster, lonely, states):
        assert cluster.world.run(7.0, lambda: not leads(lonely)), "a poll takes six seconds to fail"
        cluster.network.heal()
        assert cluster.world.run(10.0, lambda: all(lonely.number in each["isr"] for each in states()))


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_stood_still_meanwhile_counts_on_a_broker_that_is_back(seed: int) -> None:
    with one_cut_off(seed, is_controller=False) as (cluster, lonely, states):
        controller = the_controller(cluster)
        controller.pause()
        cluster.world.run(1.5)  # less than a session
        controller.resume()
        cluster.world.run(1.0)
        cluster.network.heal()
        assert cluster.world.run(10.0, lambda: all(lonely.number in each["isr"] for each in states()))

"""A broker that stops while others start: found by a seed, reduced to a minimal scenario."""

from __future__ import annotations

import pytest
from tests.simulation.brokers.cluster import running
from tests.simulation.brokers.faults import state_of
from tests.simulation.brokers.wire import Client, WireConnection

from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse


class StalledClient(Client):
    """Sends half a request: a broker that stops waits for the rest of it, for a while."""

    async def run(self) -> None:
        connection = self.connections[3] = WireConnection(self, 3)
        await connection.open()
        await connection.send(MetadataRequest(topics=None), MetadataResponse, 12, cut_at=10)


@pytest.mark.parametrize("seed", range(6))
def test_a_broker_that_was_alone_when_it_stopped_is_not_elected_again(seed: int) -> None:
    """Its port is closed, but it may take a while to answer what was accepted: it could reach no controller."""
    with running(seed) as cluster:
        first, second, third = cluster.hosts
        for host in cluster.hosts:
            host.start()
        assert cluster.world.run(5.0, lambda: len(cluster.sockets.listening) == 3 and cluster.world.seconds > 1.0)
        StalledClient(cluster, "stalled").start()
        cluster.world.run(1.0)
        first.kill()
        second.kill()
        assert cluster.world.run(5.0, lambda: "/brokers/ids/1" not in cluster.server.nodes)
        assert cluster.world.run(5.0, lambda: "/brokers/ids/2" not in cluster.server.nodes)
        assert cluster.world.run(5.0, lambda: state_of(cluster, "/controller").get("brokerid") == third.number)
        cluster.world.run(0.5)  # until it knows that it is alone
        third.stop()
        first.start()  # this one still finds an open port
        assert cluster.world.run(5.0, lambda: (third.address, 9092) not in cluster.sockets.listening)
        second.start()
        others = (first.number, second.number)
        assert cluster.world.run(3.0, lambda: state_of(cluster, "/controller").get("brokerid") in others)
        assert third.is_up, "the broker was to be slow"

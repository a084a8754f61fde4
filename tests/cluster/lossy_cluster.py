"""A cluster over a network that loses packets: each broker on its own host, ZooKeeper and the clients on the last one.

with LossyNetwork(hosts=4) as network, lossy_cluster(network) as cluster:
    network.set(1, 2, loss=0.01, delay_ms=10)
    with network.inside(4):
        cluster.create_topic("orders")
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ottla.testing.broker import Settings
from ottla.testing.cluster import Cluster
from ottla.testing.lossy_network import LossyNetwork
from ottla.testing.zookeeper import ZooKeeperProcess

PORT = 9092


@contextlib.contextmanager
def lossy_cluster(network: LossyNetwork, settings: Settings | None = None) -> Iterator[Cluster]:
    """One broker for each host but the last; broker N is on host N."""
    *brokers, last = network.hosts
    with network.inside(last):
        zookeeper = ZooKeeperProcess(options=("--host", network.address(last)))
    connect = f"{network.address(last)}:{zookeeper.port}"
    each: dict[int, Settings] = {
        host: {"listeners": f"PLAINTEXT://{network.address(host)}:{PORT}", "zookeeper.connect": connect}
        for host in brokers
    }
    cluster = Cluster(len(brokers), settings, each=each, zookeeper=zookeeper)
    try:
        with network.inside(last):
            zookeeper.start()
        for broker in cluster.brokers:
            with network.inside(broker.id):
                broker.launch()
        for broker in cluster.brokers:
            broker.wait_until_ready()
        yield cluster
    except BaseException:
        cluster.print_logs()
        raise
    finally:
        cluster.close()

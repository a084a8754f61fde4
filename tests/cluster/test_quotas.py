"""Quotas in a cluster: set through any broker, kept in ZooKeeper as Kafka 3.9 keeps them, in force on every broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from kafka.protocol.admin import CreateTopicsRequest
from kazoo.client import KazooClient

from conformance.peer import Peer
from conformance.test_quotas import alter, describe
from conformance.waiting import eventually
from ottla.testing.cluster import Cluster

BYTES = "producer_byte_rate"
SECONDS_MAX = 30.0


@contextmanager
def store_of(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(hosts=cluster.zookeeper.connect)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def config(client: KazooClient, path: str) -> dict[str, str]:
    data, _ = client.get(path)
    return json.loads(data)["config"] if data else {}


def test_rules_are_kept_as_kafka_keeps_them_and_known_everywhere(cluster: Cluster) -> None:
    entity: list[tuple[str, str | None]] = [("user", "jörg"), ("client-id", None)]
    wanted = [("user", 0, "jörg"), ("client-id", 1, None)]
    with store_of(cluster) as store:
        for broker in cluster.brokers:  # whoever is asked passes it on to the controller
            with Peer(broker.bootstrap_servers) as peer:
                assert alter(peer, entity, {BYTES: 1000.0 + broker.id}) == [(0, None)]
                assert describe(peer, wanted) == [{BYTES: 1000.0 + broker.id}]
                assert config(store, "/config/users/j%C3%B6rg/clients/<default>") == {BYTES: str(1000 + broker.id)}
        # A tool of Kafka 3.x writes the node, and tells so.
        store.ensure_path("/config/clients/app")
        store.set("/config/clients/app", json.dumps({"version": 1, "config": {BYTES: "7"}}).encode())
        told = json.dumps({"version": 2, "entity_path": "clients/app"}).encode()
        store.create("/config/changes/config_change_", told, sequence=True)
        for broker in cluster.brokers:
            with Peer(broker.bootstrap_servers) as peer:
                assert eventually(lambda: describe(peer, [("client-id", 0, "app")]) == [{BYTES: 7.0}], SECONDS_MAX)
        with Peer(cluster.brokers[0].bootstrap_servers) as peer:
            assert alter(peer, [("client-id", "app")], {BYTES: None}) == [(0, None)]
            assert alter(peer, entity, {BYTES: None}) == [(0, None)]
        assert store.exists("/config/clients/app") is None


def test_the_controller_s_rule_holds_up_who_asks_another_broker(cluster: Cluster) -> None:
    with Peer(cluster.brokers[0].bootstrap_servers) as peer:
        assert alter(peer, [("client-id", "peer")], {"controller_mutation_rate": 1.0}) == [(0, None)]
    try:
        codes = []
        waits = []
        for number in range(3):
            for broker in cluster.brokers:
                with Peer(broker.bootstrap_servers) as peer:
                    code, wait_ms = create(peer, f"mutation-{number}-{broker.id}", 5)
                    codes.append(code)
                    waits.append(wait_ms)
        assert set(codes) == {0, 89}
        assert max(waits) > 0
        assert all(wait_ms > 0 for code, wait_ms in zip(codes, waits, strict=True) if code == 89)
    finally:
        with Peer(cluster.brokers[0].bootstrap_servers) as peer:
            assert alter(peer, [("client-id", "peer")], {"controller_mutation_rate": None}) == [(0, None)]
            peer.delete_topics(sorted(name for name in peer.topic_names() if name.startswith("mutation-")))


def create(peer: Peer, name: str, partitions: int) -> tuple[int, int]:
    topic = CreateTopicsRequest.CreatableTopic
    row = topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    answer = peer.ask(CreateTopicsRequest(topics=[row], timeout_ms=10_000, validate_only=False), 7)
    return answer.topics[0].error_code, answer.throttle_time_ms

"""Quotas in a cluster: set through any broker, kept in ZooKeeper as Kafka 3.9 keeps them, in force on every broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest
from kazoo.client import KazooClient
from tests.conformance.peer import Peer
from tests.conformance.test_quotas import alter, describe
from tests.conformance.waiting import eventually

from ottla.testing.cluster import Cluster, ClusterBroker

BYTES = "producer_byte_rate"
SECONDS_MAX = 30.0
UNKNOWN_TOPIC_OR_PARTITION = 3
PEER: list[tuple[str, str | None]] = [("client-id", "peer")]
ASKER: list[tuple[str, str | None]] = [("client-id", "asker")]


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
        for broker in cluster.brokers:  # each broker forwards the request to the controller
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


def test_the_controllers_quota_throttles_clients_of_other_brokers(cluster: Cluster) -> None:
    with Peer(cluster.brokers[0].bootstrap_servers) as peer:
        assert alter(peer, PEER, {"controller_mutation_rate": 1.0}) == [(0, None)]
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
            assert alter(peer, PEER, {"controller_mutation_rate": None}) == [(0, None)]
            peer.delete_topics(sorted(name for name in peer.topic_names() if name.startswith("mutation-")))


def create(peer: Peer, name: str, partitions: int) -> tuple[int, int]:
    topic = CreateTopicsRequest.CreatableTopic
    row = topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    answer = peer.ask(CreateTopicsRequest(topics=[row], timeout_ms=10_000, validate_only=False), 7)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_topics_that_come_to_be_by_asking_any_broker_count_on_the_controller(cluster: Cluster) -> None:
    with Peer(cluster.brokers[0].bootstrap_servers) as peer:
        assert alter(peer, ASKER, {"controller_mutation_rate": 1.0}) == [(0, None)]
    names = [f"asked-{number}" for number in range(30)]
    try:
        found: dict[str, int] = {}
        for number, name in enumerate(names):  # eleven seconds' worth in all, over all brokers
            with Peer(cluster.brokers[number % 3].bootstrap_servers, "asker") as peer:
                topic = MetadataRequest.MetadataRequestTopic(name=name)
                answer = peer.ask(MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 9)
                found[name] = answer.topics[0].error_code
                assert answer.throttle_time_ms == 0, "who only asks is not held up"
        with Peer(cluster.brokers[0].bootstrap_servers) as peer:
            made = {name for name in peer.topic_names() if name.startswith("asked-")}
        assert made == {name for name, code in found.items() if code == 0}
        assert {code for name, code in found.items() if name not in made} == {UNKNOWN_TOPIC_OR_PARTITION}
        assert 12 <= len(made) < len(names)
    finally:
        with Peer(cluster.brokers[0].bootstrap_servers) as peer:
            assert alter(peer, ASKER, {"controller_mutation_rate": None}) == [(0, None)]
            peer.delete_topics(sorted(name for name in peer.topic_names() if name.startswith("asked-")))


def test_rules_outlive_any_broker_and_hold_before_it_serves(cluster: Cluster) -> None:
    controller = cluster.controller()
    other = next(broker for broker in cluster.brokers if broker is not controller)
    rules: dict[str, float | None] = {"request_percentage": 1e-7}
    with Peer(other.bootstrap_servers) as peer:
        assert alter(peer, PEER, rules) == [(0, None)]
    try:
        assert [seen_first(broker) for broker in cluster.brokers] == [(True, rules)] * 3
        controller.kill()
        cluster.controller(other_than=controller)
        rules[BYTES] = 1e9
        with Peer(other.bootstrap_servers) as peer:  # while one is away
            assert alter(peer, PEER, {BYTES: 1e9}) == [(0, None)]
        assert [seen_first(broker) for broker in cluster.live_brokers] == [(True, rules)] * 2
        controller.launch()
        assert seen_first(controller) == (True, rules), "with the first request that it answers"
        controller.wait_until_ready()
        other.kill()
        other.launch()
        assert seen_first(other) == (True, rules)
        other.wait_until_ready()
    finally:
        with Peer(cluster.live_brokers[0].bootstrap_servers) as peer:
            assert alter(peer, PEER, dict.fromkeys(rules)) == [(0, None)]


def seen_first(broker: ClusterBroker) -> tuple[bool, dict[str, float]]:
    """Whether the first request that a broker answers is held up, and the rules that it tells of right then."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with Peer(broker.bootstrap_servers) as peer, Peer(broker.bootstrap_servers) as second:
                answer = peer.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9)
                return answer.throttle_time_ms > 0, describe(second, [("client-id", 0, "peer")])[0]
        except OSError:  # it does not listen yet
            assert time.monotonic() < deadline
            time.sleep(0.01)

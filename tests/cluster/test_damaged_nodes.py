"""Nodes in a real ZooKeeper that cannot be read: all else goes on, and nothing is lost when they are restored."""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.base.errors import Error
from ottla.testing.cluster import Cluster

STATE = "/brokers/topics/{}/partitions/0/state"
GARBAGE = b"{garbage"
SECONDS_MAX = 30.0


@pytest.fixture
def topic() -> str:
    return f"damaged-{uuid.uuid4().hex[:8]}"


def produce(cluster: Cluster, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 20_000})
    failures: list[object] = []
    producer.produce(topic, value.encode(), partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(SECONDS_MAX)
    assert failures == [None]


def first_value(cluster: Cluster, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(SECONDS_MAX)
        return message.value() if message is not None else None
    finally:
        consumer.close()


def error_of(cluster: Cluster, topic: str) -> int:
    (answer,) = cluster.metadata(topic).values()
    return answer.topics[0].error_code or answer.topics[0].partitions[0].error_code


def test_one_damaged_state_stops_neither_elections_nor_new_topics(cluster: Cluster, topic: str) -> None:
    other, later = f"{topic}-other", f"{topic}-later"
    controller = cluster.controller()
    second, third = (id_ for id_ in (1, 2, 3) if id_ != controller.id)
    cluster.create_topic(topic, assignment={0: [second, third], 1: [second, third]})
    cluster.create_topic(other, assignment={0: [controller.id, second]})
    stored = cluster.read_node(STATE.format(topic))
    cluster.store.set(STATE.format(topic), GARBAGE)
    controller.kill()
    cluster.wait_for(lambda: cluster.leader_of(other).id == second, "a new leader of the other topic")
    cluster.create_topic(later, assignment={0: [third, second]})
    produce(cluster, later, "x")
    assert cluster.read_node(STATE.format(topic)) == GARBAGE
    cluster.broker(second).kill()
    cluster.broker(controller.id).start()
    cluster.wait_for(lambda: cluster.leader_of(topic, 1).id == third, "a new leader of the readable partition")
    cluster.store.set(STATE.format(topic), stored)
    cluster.wait_for(lambda: cluster.leader_of(topic).id == third, "a leader of the restored partition")


def test_a_cluster_starts_with_damaged_nodes_and_has_all_records_when_they_are_restored(
    cluster_factory: Callable[..., Cluster],
) -> None:
    cluster = cluster_factory(brokers=1, settings={"auto.create.topics.enable": "true"})
    broker = cluster.broker(1)
    paths = {"lost-topic": "/brokers/topics/lost-topic", "lost-state": STATE.format("lost-state")}
    for name in (*paths, "whole"):
        cluster.create_topic(name, 1)
        produce(cluster, name, name)
    stored = {path: cluster.read_node(path) for path in paths.values()}
    broker.stop()
    for path in paths.values():
        cluster.store.set(path, GARBAGE)
    broker.start()
    assert first_value(cluster, "whole") == b"whole"
    assert {error_of(cluster, name) for name in paths} == {Error.LEADER_NOT_AVAILABLE}
    broker.kill()
    broker.start()
    for path, data in stored.items():
        assert cluster.read_node(path) == GARBAGE, "no broker has overwritten it"
        cluster.store.set(path, data)
    for name in paths:
        cluster.wait_for(lambda name=name: error_of(cluster, name) == Error.NONE, f"a leader of {name}")  # type: ignore[misc]
        assert first_value(cluster, name) == name.encode()

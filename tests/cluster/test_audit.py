"""The audit trail of a cluster: each broker notes what it was asked, once, and goes on when the topic's leader dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.base.names import AUDIT_TOPIC
from ottla.client.client import Client
from ottla.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.testing.cluster import Cluster, ClusterBroker

BROKER = 4
SET, DELETE = 0, 1


def switch(broker: ClusterBroker, value: str | None) -> None:
    """For all brokers at once, while they run; None: as their files say."""
    operation = SET if value is not None else DELETE
    setting = IncrementalAlterableConfig(name="ottla.audit.enable", config_operation=operation, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="", configs=[setting])
    ask(broker, IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse)


def create(broker: ClusterBroker, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = ask(broker, CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    assert answer.topics[0].error_code == 0


def ask(broker: ClusterBroker, request: Any, response: type[Any]) -> Any:
    with Client(broker.bootstrap_servers, timeout_ms=20_000, connect_retry_ms=0) as client:
        return client.call(request, response)


class Trail:
    """What is in the topic so far."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
        self._consumer.assign([TopicPartition(AUDIT_TOPIC, 0, 0)])
        self.events: list[dict[str, Any]] = []

    def wait_for(self, name: str) -> None:
        """Wait until the log names a user who created this topic."""

        def look() -> bool | None:
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.events.append(json.loads(message.value()))
            return any(event["resource"] == name for event in self.events) or None

        self._cluster.wait_for(look, f"an event about {name}")

    def close(self) -> None:
        self._consumer.close()


def is_on(broker: ClusterBroker) -> bool:
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker.id), configuration_keys=["ottla.audit.enable"]
    )
    answer = ask(broker, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    return bool(answer.results[0].configs[0].value == "true")


@pytest.fixture
def audited(cluster: Cluster) -> Iterator[Cluster]:
    switch(cluster.brokers[0], "true")
    cluster.wait_for(lambda: all(map(is_on, cluster.brokers)) or None, "the trail to be on everywhere")
    yield cluster
    switch(cluster.live_brokers[0], None)
    with cluster.admin() as admin:
        admin.delete_topics([topic.name for topic in admin.topics() if "audit" in topic.name])


def test_each_broker_notes_what_it_was_asked_and_a_dead_leader_costs_nothing(audited: Cluster) -> None:
    names = [f"audited-{broker.id}" for broker in audited.brokers]
    for broker, name in zip(audited.brokers, names, strict=True):
        create(broker, name)
    leader = audited.leader_of(AUDIT_TOPIC)
    assert len(audited.partition(AUDIT_TOPIC).replica_nodes) == 3  # type: ignore[union-attr]
    trail = Trail(audited)
    for name in names:
        trail.wait_for(name)
    leader.kill()
    survivor = next(broker for broker in audited.live_brokers)
    create(survivor, "audited-later")
    trail.wait_for("audited-later")
    told = {
        event["id"]: (event["resource"], event["broker"])
        for event in trail.events
        if (event["resource"] or "").startswith("audited-")
    }
    asked = [(name, broker.id) for broker, name in zip(audited.brokers, names, strict=True)]
    expected = [*asked, ("audited-later", survivor.id)]
    assert sorted(told.values()) == sorted(expected), "each once, though some were passed on to the controller"
    trail.close()

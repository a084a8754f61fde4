"""A group's coordinator moves when a member has its partitions, and has not yet asked where to begin.

librdkafka gets NOT_COORDINATOR, as from any Kafka, finds the new coordinator, and does not ask it (its issue 5586).
"""

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from tests.cluster.coordinator_clients import coordinator_of
from tests.faults.worker import consume, group_settings

from ottla.base.names import TopicPartition
from ottla.base.partitioning import partition_for
from ottla.cli.records.console_consumer import EARLIEST, ConsoleConsumer, ConsumePlan, consumer_settings
from ottla.client.client import Client
from ottla.client.coordinators import KeyType
from ottla.client.groups import Group, describe_groups
from ottla.client.reassignments import Election, alter_reassignments, elect_leaders
from ottla.testing.cluster import WAIT_SECONDS_MAX, Cluster

RARE_HEARTBEATS = {"heartbeat.interval.ms": 9000, "session.timeout.ms": 10_000}  # they would be notified first
VALUES = {str(number).encode() for number in range(30)}
OFFSETS, OFFSETS_PARTITIONS = "__consumer_offsets", 4

Take = Callable[[], list[bytes]]


def tool(cluster: Cluster, name: str) -> Take:
    plan = ConsumePlan(name, offset=EARLIEST, group=name)
    settings = consumer_settings(cluster.bootstrap, plan, RARE_HEARTBEATS)
    with cluster.admin() as admin:
        batches = ConsoleConsumer(admin, settings, plan).messages()
    return lambda: [message.value or b"" for message in next(batches)]


def worker(cluster: Cluster, name: str) -> Take:
    consumer = Consumer(group_settings(cluster.bootstrap, name) | RARE_HEARTBEATS)
    consumer.subscribe([name])
    return lambda: [message.value() or b"" for message in consume(consumer, 100, name)]


@pytest.mark.parametrize("reader", [tool, worker])
def test_a_reader_asks_the_new_coordinator_for_its_place(
    cluster: Cluster, reader: Callable[[Cluster, str], Take]
) -> None:
    name = f"moved-{uuid.uuid4().hex[:6]}"
    cluster.create_topic(name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in VALUES:
        producer.produce(name, value)
    assert producer.flush(WAIT_SECONDS_MAX) == 0

    take = reader(cluster, name)
    with Client(cluster.bootstrap) as client:
        cluster.wait_for(lambda: has_partitions(client, name), "a member with partitions")
        move_coordinator(cluster, client, name)
    found: set[bytes] = set()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while found < VALUES:
        found.update(take())
        assert time.monotonic() < deadline, f"{len(found)} records of {len(VALUES)}"


def has_partitions(client: Client, group: str) -> bool:
    described = describe_groups(client, [group])[group]
    return isinstance(described, Group) and described.state == "Stable"


def move_coordinator(cluster: Cluster, client: Client, group: str) -> None:
    """Another broker leads; the old one keeps running, so no client loses a connection."""
    old = coordinator_of(cluster, KeyType.GROUP, group)
    place = TopicPartition(OFFSETS, partition_for(group, OFFSETS_PARTITIONS))
    replicas = sorted((broker.id for broker in cluster.brokers), key=lambda broker_id: broker_id == old.id)
    assert not any(alter_reassignments(client, {place: replicas}).values())
    elect_leaders(client, Election.PREFERRED, [place])
    cluster.wait_for(lambda: coordinator_of(cluster, KeyType.GROUP, group) is not old, "another coordinator")

"""Replicas of real brokers: what is acknowledged is everywhere, byte for byte, whatever happens to one of them."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.loads import LIBRDKAFKA

from ottla.base.names import TopicPartition as PartitionName
from ottla.client.client import Client
from ottla.client.reassignments import Election, elect_leaders
from ottla.testing.cluster import Cluster, ClusterBroker

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
VALUE = b"x" * 1000
BATCH = 100


@pytest.fixture
def topic() -> str:
    return f"replicated-{uuid.uuid4().hex[:8]}"


def send(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> None:
    """All values to partition 0, acknowledged by all replicas in sync."""
    problems: list[object] = []
    wanted: dict[str, object] = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, **LIBRDKAFKA}
    producer = Producer(wanted | {"enable.idempotence": True} | settings)
    for number, value in enumerate(values, 1):
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and problems.append(error))
        if number % BATCH == 0:
            producer.flush(60)  # so that there are many batches
    assert producer.flush(60) == 0
    assert problems == []


def read(bootstrap: str, topic: str, count: int, **settings: object) -> list[bytes]:
    """The first records of partition 0; offsets without a gap."""
    wanted: dict[str, object] = {"bootstrap.servers": bootstrap, "group.id": "none", **LIBRDKAFKA}
    consumer = Consumer(wanted | {"auto.offset.reset": "error"} | settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {count} records came"
        if message.error():
            raise KafkaException(message.error())
        assert message.offset() == len(found)
        found.append(message.value())
    consumer.close()
    return found


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def wait_for_equal_logs(cluster: Cluster, topic: str) -> bytes:
    """Until all replicas hold the same bytes; those bytes."""

    def equal() -> bytes | None:
        logs = {stored(folder) for folder in cluster.replica_folders(topic, 0).values()}
        return logs.pop() if len(logs) == 1 else None

    assert len(cluster.replica_folders(topic, 0)) == 3
    return cluster.wait_for(equal, f"equal logs of {topic}")


def follower_of(cluster: Cluster, topic: str) -> ClusterBroker:
    leader = cluster.leader_of(topic)
    return next(broker for broker in cluster.brokers if broker.id != leader.id)


def test_a_killed_follower_leaves_the_isr_comes_back_and_has_the_same_bytes(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [VALUE] * 500)
    away = follower_of(cluster, topic)
    away.kill()
    cluster.wait_for_isr(topic, 0, {1, 2, 3} - {away.id})
    send(cluster.bootstrap, topic, [VALUE] * 500)
    away.start()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert len(wait_for_equal_logs(cluster, topic)) > 1_000_000


def test_a_paused_follower_lags_out_of_the_isr_and_back(cluster: Cluster, topic: str) -> None:
    """Detected by the leader, whose fetch requests stop, or by the controller when the session ends."""
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [b"before"])
    away = follower_of(cluster, topic)
    leader = cluster.leader_of(topic)
    away.pause()
    try:
        cluster.wait_for_isr(topic, 0, {1, 2, 3} - {away.id})
        send(leader.bootstrap_servers, topic, [b"meanwhile"])
    finally:
        away.resume()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert read(cluster.bootstrap, topic, 2) == [b"before", b"meanwhile"]


def test_a_wiped_replica_is_filled_again(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [VALUE] * 3000)
    away = cluster.leader_of(topic)
    away.kill()
    away.wipe()
    cluster.wait_for_leader(topic, other_than=away)
    away.start()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert len(wait_for_equal_logs(cluster, topic)) > 3_000_000


def test_a_message_larger_than_a_fetch_is_replicated(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, settings={"max.message.bytes": "10000000"})
    large = b"y" * 5_000_000  # replica.fetch.max.bytes is one megabyte
    send(cluster.bootstrap, topic, [b"before", large, b"after"], **{"message.max.bytes": 10_000_000})
    wait_for_equal_logs(cluster, topic)
    away = cluster.leader_of(topic)
    away.kill()
    cluster.wait_for_leader(topic, other_than=away)
    limits = {"fetch.message.max.bytes": 10_000_000}
    assert read(cluster.bootstrap, topic, 3, **limits) == [b"before", large, b"after"]


def test_records_that_the_new_leader_never_had_are_truncated(cluster: Cluster, topic: str) -> None:
    """acks=1 is acknowledged by the leader alone: its death loses the tail, and no replica keeps another one."""
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [b"all have it"])
    leader = cluster.leader_of(topic)
    others = [broker for broker in cluster.brokers if broker is not leader]
    for broker in others:
        broker.pause()
    time.sleep(1.0)  # their fetches that wait at the leader would still be answered, and read when they go on
    loose: dict[str, object] = {"acks": 1, "enable.idempotence": False}
    send(leader.bootstrap_servers, topic, [b"only the leader has it"], **loose)
    leader.kill()
    for broker in others:
        broker.resume()
    cluster.wait_for_leader(topic, other_than=leader)
    send(",".join(broker.bootstrap_servers for broker in others), topic, [b"the others went on"])
    leader.start()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    wait_for_equal_logs(cluster, topic)
    assert read(cluster.bootstrap, topic, 2) == [b"all have it", b"the others went on"]


def test_deleted_records_are_deleted_on_all_replicas_when_that_is_answered(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [VALUE] * 10)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done = admin.delete_records([TopicPartition(topic, 0, 7)], request_timeout=20)
    assert [each.result().low_watermark for each in done.values()] == [7]
    leader = cluster.leader_of(topic)
    leader.kill()
    other = cluster.wait_for_leader(topic, other_than=leader)
    consumer = Consumer({"bootstrap.servers": other.bootstrap_servers, "group.id": "none", **LIBRDKAFKA})
    assert cluster.wait_for(lambda: watermarks(consumer, topic), "watermarks") == (7, 10)
    consumer.close()


def watermarks(consumer: Consumer, topic: str) -> tuple[int, int] | None:
    """None if librdkafka has just lost the broker that it wanted to ask."""
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    except KafkaException:
        return None


def test_a_corrupt_batch_is_never_served_and_is_restored_from_replicas(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    values = [b"%06d" % number + VALUE for number in range(2000)]
    send(cluster.bootstrap, topic, values)
    before = wait_for_equal_logs(cluster, topic)
    damaged = cluster.leader_of(topic)
    damaged.stop()
    folder = damaged.partition_folder(topic, 0)
    assert folder is not None
    (path,) = folder.glob("*.log")
    with path.open("r+b") as file:
        file.seek(len(before) // 2)
        byte = file.read(1)[0]
        file.seek(len(before) // 2)
        file.write(bytes([byte ^ 1]))
    damaged.start()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    elect(cluster, topic, damaged)
    assert read(cluster.bootstrap, topic, 2000) == values
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert wait_for_equal_logs(cluster, topic) == before


def elect(cluster: Cluster, topic: str, wanted: ClusterBroker) -> None:
    """Have a partition led by its preferred replica, which is that broker."""
    name = PartitionName(topic, 0)
    with Client(cluster.bootstrap) as client:
        assert elect_leaders(client, Election.PREFERRED, [name]) == {name: None}
    assert cluster.leader_of(topic) is wanted


def test_consumers_read_from_the_replica_in_their_rack(cluster_factory: Callable[..., Cluster], topic: str) -> None:
    racks = {number: {"broker.rack": f"rack-{number}"} for number in (1, 2, 3)}
    cluster = cluster_factory(3, {"replica.selector.class": RACK_AWARE}, each=racks)
    cluster.create_topic(topic)
    send(cluster.bootstrap, topic, [VALUE] * 100)
    near = follower_of(cluster, topic)
    assert read(cluster.bootstrap, topic, 100, **{"client.rack": f"rack-{near.id}"}) == [VALUE] * 100
    cluster.leader_of(topic).pause()  # it is not needed for what comes now
    try:
        found = read(near.bootstrap_servers, topic, 100, **{"client.rack": f"rack-{near.id}"})
    finally:
        for broker in cluster.brokers:
            broker.resume()
    assert found == [VALUE] * 100

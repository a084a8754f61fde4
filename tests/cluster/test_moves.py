"""Replicas that move, leaders by request, and nodes that other tools write: on a real cluster, with a load."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Self

import pytest
from confluent_kafka import Producer
from tests.faults.loads import LIBRDKAFKA, read_everything

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs
from ottla.client.reassignments import Election, alter_reassignments, elect_leaders, list_reassignments
from ottla.operations.reassignment.moves import describe_progress
from ottla.testing.cluster import Cluster

WAIT_SECONDS = 30.0
FILL_BYTES = 1000


@pytest.fixture
def topic() -> str:
    return f"moved-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.bootstrap) as client:
        yield client


class Load:
    """Writes numbers to a partition, with acks=all, until the end of the block; `acked` is what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.acked: list[int] = []
        self.problems: list[str] = []
        settings: dict[str, object] = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
        self._producer = Producer(settings | {"linger.ms": 0, "message.timeout.ms": 60_000} | LIBRDKAFKA)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            text = b"%d" % number
            self._producer.produce(self.topic, text, partition=0, on_delivery=self._note)
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(WAIT_SECONDS)

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self.problems.append(str(error))
        else:
            self.acked.append(int(message.value()))  # type: ignore[attr-defined]

    def wait_for(self, more: int) -> None:
        goal, deadline = len(self.acked) + more, time.monotonic() + WAIT_SECONDS
        while len(self.acked) < goal:
            assert time.monotonic() < deadline, f"{len(self.acked)} of {goal} were acknowledged"
            time.sleep(0.01)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **LIBRDKAFKA})
    for number in range(count):
        producer.produce(topic, b"%07d" % number + bytes(FILL_BYTES), partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return [value for _, value in read_everything(bootstrap, [(topic, 0)])[topic, 0]]


def assert_all_there(cluster: Cluster, load: Load) -> None:
    assert load.problems == []
    found = [int(value) for value in values_of(cluster.bootstrap, load.topic)]
    assert found == sorted(set(found)), "in order, and nothing twice"
    assert set(load.acked) <= set(found), "everything that was acknowledged"


def wait_for_replicas(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    def is_so() -> bool | None:
        partition = cluster.partition(topic)
        return (partition is not None and partition.replica_nodes == replicas) or None

    cluster.wait_for(is_so, f"the replicas {replicas} of {topic}")


def move(client: Client, topic: str, replicas: list[int] | None) -> None:
    assert alter_reassignments(client, {TopicPartition(topic, 0): replicas}) == {}


def throttle(client: Client, topic: str, rate: int | None) -> None:
    keys = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    for broker in (1, 2, 3):
        changed = {} if rate is None else dict.fromkeys(keys, str(rate))
        alter_configs(client, Resource.BROKER, str(broker), changed, () if changed else keys)
    changed = {} if rate is None else dict.fromkeys(lists, "*")
    alter_configs(client, Resource.TOPIC, topic, changed, () if changed else lists)


def test_a_partition_moves_under_load_and_its_old_home_is_cleaned(cluster: Cluster, client: Client, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2]})
    with Load(cluster.bootstrap, topic) as load:
        load.wait_for(200)
        move(client, topic, [3, 2])
        wait_for_replicas(cluster, topic, [3, 2])
        cluster.wait_for_isr(topic, 0, [2, 3])
        load.wait_for(200)
        move(client, topic, [1])
        wait_for_replicas(cluster, topic, [1])
        load.wait_for(200)
    assert_all_there(cluster, load)
    for broker in (2, 3):
        cluster.wait_for(lambda id_=broker: cluster.broker(id_).partition_folder(topic, 0) is None, "an empty home")


def test_a_move_that_is_cancelled_leaves_everything_as_it_was(cluster: Cluster, client: Client, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2]})
    fill(cluster.bootstrap, topic, 3000)
    name = TopicPartition(topic, 0)
    try:
        throttle(client, topic, 100_000)
        with Load(cluster.bootstrap, topic) as load:
            move(client, topic, [3, 1])
            (under_way,) = list_reassignments(client).items()
            assert (under_way[0], under_way[1].target) == (name, [3, 1])
            assert (under_way[1].adding, under_way[1].removing) == ([3], [2])
            cluster.wait_for(lambda: cluster.broker(3).partition_folder(topic, 0), "the beginning of a copy")
            assert 0 <= describe_progress(client, list_reassignments(client))[name].share < 1
            load.wait_for(100)
            move(client, topic, None)
            wait_for_replicas(cluster, topic, [1, 2])
            load.wait_for(100)
        assert list_reassignments(client) == {}
        refused = alter_reassignments(client, {name: None})
        assert refused[name].error is Error.NO_REASSIGNMENT_IN_PROGRESS
    finally:
        throttle(client, topic, None)
    found = values_of(cluster.bootstrap, topic)
    numbers = [int(value) for value in found[3000:]]
    assert len(found[:3000]) == 3000
    assert load.problems == []
    assert numbers == sorted(set(numbers))
    assert set(load.acked) <= set(numbers)
    cluster.wait_for(lambda: cluster.broker(3).partition_folder(topic, 0) is None, "an end of the half copy")


def test_a_move_continues_when_the_controller_dies(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2]})
    fill(cluster.bootstrap, topic, 2000)
    with Client(cluster.bootstrap) as client:
        throttle(client, topic, 200_000)
        move(client, topic, [3, 2])
        controller = cluster.controller()
        controller.kill()
    with Client(",".join(broker.bootstrap_servers for broker in cluster.live_brokers)) as client:
        other = cluster.controller(other_than=controller)
        assert other.id != controller.id
        controller.start()
        throttle(client, topic, None)
        wait_for_replicas(cluster, topic, [3, 2])
    assert len(values_of(cluster.bootstrap, topic)) == 2000


def test_preferred_leaders_lead_again(cluster: Cluster, client: Client, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [2, 1, 3]})
    name = TopicPartition(topic, 0)
    (problem,) = elect_leaders(client, Election.PREFERRED, [name]).values()
    assert problem is not None
    assert problem.error is Error.ELECTION_NOT_NEEDED
    cluster.broker(2).restart()
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    assert cluster.leader_of(topic).id != 2, "others led meanwhile, and go on"
    assert elect_leaders(client, Election.PREFERRED, [name, TopicPartition(topic, 9)])[name] is None
    assert cluster.leader_of(topic).id == 2


def has_no_leader(cluster: Cluster, topic: str) -> bool:
    found = cluster.partition(topic)
    return found is not None and found.leader_id == -1


def test_an_unclean_election_is_done_only_by_request(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2]}, settings={"min.insync.replicas": 1})
    fill(cluster.bootstrap, topic, 10)
    cluster.broker(2).kill()
    cluster.wait_for_isr(topic, 0, [1])
    survivors = cluster.broker(3).bootstrap_servers
    cluster.broker(1).kill()
    cluster.broker(2).start()
    name = TopicPartition(topic, 0)
    with Client(survivors) as client:
        cluster.wait_for(lambda: has_no_leader(cluster, topic), "a partition without a leader")
        assert elect_leaders(client, Election.UNCLEAN, [name]) == {name: None}
        assert cluster.leader_of(topic).id == 2
    assert len(values_of(survivors, topic)) <= 10
    cluster.broker(1).start()
    cluster.wait_for_isr(topic, 0, [1, 2])


# ---- nodes that another tool writes


def write_node(cluster: Cluster, path: str, fields: dict[str, object]) -> None:
    cluster.store.create(path, json.dumps(fields).encode())


def test_moves_that_another_tool_has_written_are_done_and_their_node_goes(
    cluster: Cluster, topic: str, wait_until_gone: Callable[[str], None]
) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2]})
    rows = [
        {"topic": topic, "partition": 0, "replicas": [3, 2]},
        {"topic": "not-there", "partition": 0, "replicas": [1]},
    ]
    write_node(cluster, "/admin/reassign_partitions", {"version": 1, "partitions": rows})
    wait_until_gone("/admin/reassign_partitions")
    wait_for_replicas(cluster, topic, [3, 2])


def test_an_election_that_another_tool_has_written_is_done_and_its_node_goes(
    cluster: Cluster, client: Client, topic: str, wait_until_gone: Callable[[str], None]
) -> None:
    cluster.create_topic(topic, assignment={0: [1, 2, 3]})
    move(client, topic, [2, 1, 3])
    rows = [{"topic": topic, "partition": 0}]
    write_node(cluster, "/admin/preferred_replica_election", {"version": 1, "partitions": rows})
    wait_until_gone("/admin/preferred_replica_election")
    cluster.wait_for(lambda: (cluster.leader_of(topic).id == 2) or None, "the preferred leader")


def test_a_node_that_cannot_be_read_does_not_stop_the_others(
    cluster: Cluster, topic: str, wait_until_gone: Callable[[str], None]
) -> None:
    write_node(cluster, "/admin/reassign_partitions", {"version": 1, "partitions": [{"topic": 5}]})
    wait_until_gone("/admin/reassign_partitions")
    cluster.create_topic(topic)


@pytest.fixture
def wait_until_gone(cluster: Cluster) -> Callable[[str], None]:
    return lambda path: (
        cluster.wait_for(lambda: (cluster.read_node(path) is None) or None, f"an end of {path}") and None
    )


# ---- by the clock


def test_leadership_goes_back_by_itself(cluster_factory: Callable[..., Cluster], topic: str) -> None:
    cluster = cluster_factory(
        brokers=2, settings={"auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": 1}
    )
    cluster.create_topic(topic, assignment={number: [1, 2] for number in range(4)})
    cluster.broker(1).restart()

    def is_back() -> bool | None:
        return all(cluster.leader_of(topic, number).id == 1 for number in range(4)) or None

    cluster.wait_for(is_back, "leadership to go back to broker 1")

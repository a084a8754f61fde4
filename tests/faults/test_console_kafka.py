"""The console steers Apache Kafka: two brokers of 4.3 (KRaft) and of 3.9 (ZooKeeper), changed through the API.

What became of it is looked at with a client outside.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bench.kafka_cluster import KafkaCluster
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.browser.conftest import ConsoleProcess
from tests.conformance.conftest import find_jars
from tests.conftest import free_port
from tests.faults.kafka_39_broker import Kafka39Broker
from tests.faults.zookeeper_kafka import KAFKA_VERSION, ZooKeeperKafka

from ottla.base.names import TopicPartition as Place
from ottla.client.client import Client
from ottla.client.reassignments import alter_reassignments
from ottla.operations.reassignment.throttles import BROKER_KEYS, TOPIC_KEYS

pytestmark = pytest.mark.faults

SECONDS_MAX = 60.0
TOPIC, BIG, GROUP = "orders", "large", "readers"


class Api:
    """The console's API, as a program uses it; answers that are no success raise."""

    def __init__(self, console: ConsoleProcess) -> None:
        self.console = console

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        return self.console.ask(f"/api/clusters/default{path}", body, method)

    def wait(self, path: str, is_there: Callable[[Any], object]) -> Any:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                found = self("GET", path)
                if is_there(found):
                    return found
            except urllib.error.HTTPError as problem:
                found = problem.read()
            assert time.monotonic() < deadline, (path, found)
            time.sleep(0.2)


@pytest.fixture(params=["4.3", "3.9"])
def bootstrap_of_kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "4.3":
        with KafkaCluster(2) as cluster:
            yield cluster.bootstrap
        return
    with ExitStack() as running:
        jars = find_jars(KAFKA_VERSION)
        first = running.enter_context(ZooKeeperKafka(tmp_path / "first", jars))
        first.start()
        address = f"127.0.0.1:{free_port()}"
        connect = f"127.0.0.1:{first.zookeeper_port}"
        second = Kafka39Broker(tmp_path / "second", jars, 2, address, tmp_path / "second" / "data", connect)
        second.settings["offsets.topic.replication.factor"] = 1  # as the first one has it
        running.callback(second.kill)
        second.launch()
        second.wait_until_ready()
        yield f"{first.bootstrap},{address}"


@pytest.fixture
def api(bootstrap_of_kafka: str, tmp_path: Path) -> Iterator[Api]:
    console = ConsoleProcess(tmp_path / "console", "--bootstrap-server", bootstrap_of_kafka)
    try:
        yield Api(console)
        console.stop()
    finally:
        console.process.kill()
        console.process.wait()


def replicas(admin: AdminClient, topic: str = TOPIC) -> dict[int, tuple[list[int], int]]:
    """Of each partition: replicas and leader."""
    found = admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions
    return {number: (item.replicas, item.leader) for number, item in found.items()}


def config(admin: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    [asked] = admin.describe_configs([ConfigResource(kind, name)]).values()
    return dict(asked.result(SECONDS_MAX))


def committed(admin: AdminClient) -> dict[int, int]:
    [asked] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    return {item.partition: item.offset for item in asked.result(SECONDS_MAX).topic_partitions}


def run_plan(api: Api, plan: dict[str, Any]) -> dict[str, Any]:
    """Generate, run, and wait for the end."""
    rows = api("POST", "/reassignments/plans", plan)["rows"]
    moved = [{key: row[key] for key in ("topic", "partition", "before", "after")} for row in rows]
    api("POST", "/reassignments", {"rows": moved, "throttle": 50_000_000})
    run: dict[str, Any] = api.wait("/reassignments", lambda answer: answer["run"]["ended_ms"])["run"]
    assert (run["problem"], run["refused"], run["moved"]) == (None, [], len(rows))
    return run


def test_topics_settings_assignments_elections_and_groups_are_steered(api: Api, bootstrap_of_kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_of_kafka})
    api.wait("/brokers", lambda answer: len(answer["brokers"]) == 2)
    api("POST", "/topics", {"name": TOPIC, "partitions": 2, "replication_factor": 1})
    producer = Producer({"bootstrap.servers": bootstrap_of_kafka})
    for number in range(200):
        producer.produce(TOPIC, b"x" * 1000, partition=number % 2)
    assert producer.flush(SECONDS_MAX) == 0

    # Settings of a topic, and of a broker while it runs.
    api("PATCH", f"/topics/{TOPIC}/settings", {"set": {"retention.ms": "7200000"}})
    assert config(admin, ConfigResource.Type.TOPIC, TOPIC)["retention.ms"].value == "7200000"
    with pytest.raises(urllib.error.HTTPError) as refused:
        api("PATCH", f"/topics/{TOPIC}/settings", {"set": {"retention.ms": "never"}})
    assert refused.value.code == 400
    api("PATCH", "/brokers/2/settings", {"set": {"log.cleaner.threads": "2"}})
    assert config(admin, ConfigResource.Type.BROKER, "2")["log.cleaner.threads"].value == "2"
    api("PATCH", "/brokers/2/settings", {"remove": ["log.cleaner.threads"]})
    assert config(admin, ConfigResource.Type.BROKER, "2")["log.cleaner.threads"].value == "1"

    # Assignments: all to one broker, then two replicas each; no throttle is left behind.
    api.wait(f"/topics/{TOPIC}", lambda answer: sum(each["end"] or 0 for each in answer["partitions"]) == 200)
    run_plan(api, {"kind": "spread", "topics": [TOPIC], "brokers": [2]})
    assert replicas(admin) == {0: ([2], 2), 1: ([2], 2)}
    both = [{"topic": TOPIC, "partition": number, "replicas": [1, 2]} for number in range(2)]
    api.wait(f"/topics/{TOPIC}", lambda answer: all(each["replicas"] == [2] for each in answer["partitions"]))
    run_plan(api, {"kind": "manual", "rows": both})
    assert replicas(admin) == {0: ([1, 2], 1), 1: ([1, 2], 1)}, "the preferred leaders were elected at the end"
    settings = config(admin, ConfigResource.Type.TOPIC, TOPIC)
    assert not any(settings[key].value for key in TOPIC_KEYS)

    # A move that would take minutes is cancelled, and leaves nothing behind.
    api("POST", "/topics", {"name": BIG, "partitions": 1, "replication_factor": 1})
    at = api.wait(f"/topics/{BIG}", lambda answer: answer["partitions"])["partitions"][0]["replicas"][0]
    more = [{"topic": BIG, "partition": 0, "before": [at], "after": [3 - at]}]
    for _ in range(20):
        producer.produce(BIG, b"x" * 900_000, partition=0)
        producer.flush(SECONDS_MAX)
    api("POST", "/reassignments", {"rows": more, "throttle": 1_000})
    api.wait("/reassignments", lambda answer: [row["topic"] for row in answer["moves"]] == [BIG])
    api("POST", "/reassignments/cancellations", {})
    run = api.wait("/reassignments", lambda answer: answer["run"]["ended_ms"] and not answer["moves"])["run"]
    assert run["is_cancelled"]
    assert replicas(admin, BIG) == {0: ([at], at)}
    assert not any(config(admin, ConfigResource.Type.TOPIC, BIG)[key].value for key in TOPIC_KEYS)
    for broker in ("1", "2"):
        left = config(admin, ConfigResource.Type.BROKER, broker)
        assert not any(left[key].value for key in BROKER_KEYS if key in left)

    # An election: another client has changed the preferred leader.
    with Client(bootstrap_of_kafka) as client:
        alter_reassignments(client, {Place(TOPIC, 0): [2, 1]})
    api.wait("/elections", lambda answer: [row["partition"] for row in answer["partitions"]] == [0])
    assert api("POST", "/elections", {"topics": [TOPIC]}) == {"elected": 1, "refused": []}
    api.wait("/elections", lambda answer: answer["partitions"] == [])
    assert replicas(admin)[0] == ([2, 1], 2)

    # A group: reset by a plan, then forgotten.
    consumer = Consumer({"bootstrap.servers": bootstrap_of_kafka, "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, number, 100) for number in range(2)], asynchronous=False)
    consumer.close()
    api.wait(f"/groups/{GROUP}", lambda answer: answer["group"]["lag"] == 0)
    plan = api("POST", f"/groups/{GROUP}/reset-plans", {"scenario": "shift-by", "number": -30})
    assert [(row["before"], row["after"]) for row in plan["rows"]] == [(100, 70)] * 2
    api("POST", f"/groups/{GROUP}/resets", plan)
    assert committed(admin) == {0: 70, 1: 70}
    with pytest.raises(urllib.error.HTTPError) as refused:
        api("POST", f"/groups/{GROUP}/resets", plan)
    assert refused.value.code == 409, "the group has moved since the plan was made"
    api("DELETE", f"/groups/{GROUP}")
    assert committed(admin) in ({}, {0: -1001, 1: -1001})
    api("DELETE", f"/topics/{TOPIC}")
    assert TOPIC not in admin.list_topics(timeout=SECONDS_MAX).topics

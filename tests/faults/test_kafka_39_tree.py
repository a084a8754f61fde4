"""The tree in ZooKeeper, node by node, beside the one that Apache Kafka 3.9 writes for the same requests."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.conformance.conftest import find_jars
from tests.faults.zookeeper_kafka import KAFKA_VERSION, ZooKeeperKafka

from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.testing.broker import Broker
from ottla.testing.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

SECONDS_MAX = 30.0
# Settings of groups and of client metrics are younger than ZooKeeper's days; notices of changes live for 15 minutes.
OURS_ALONE = {"/config/groups", "/config/client-metrics"}
CHANGES = "/config/changes/"
CHANGING = (
    "timestamp",
    "topic_id",
    "id",
    "port",
    "endpoints",
    "controller_epoch",
)  # their form is compared, not their value
SETTINGS = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}


class Shape(NamedTuple):
    data: Any
    is_ephemeral: bool


def ask_for_everything(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic("plain", 3, 1), NewTopic("other", 1, 1, config={"retention.ms": "5000000"}), NewTopic("gone", 1, 1)]
    wait(admin.create_topics(new))
    changes = [("topic", "plain", "max.message.bytes", "2000000"), ("broker", "1", "log.cleaner.threads", "2")]
    wait(
        admin.incremental_alter_configs(
            [
                ConfigResource(
                    kind,
                    name,
                    incremental_configs=[ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)],
                )
                for kind, name, key, value in changes
            ]
        )
    )
    wait(admin.delete_topics(["gone"]))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("plain", b"x")
    producer.commit_transaction(SECONDS_MAX)
    time.sleep(1)  # Kafka deletes topics by and by


def wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(SECONDS_MAX)


def read_tree(connect: str) -> dict[str, Shape]:
    async def body() -> dict[str, Shape]:
        store = ZooKeeperStore(connect)
        await store.open()
        found = await store._find(list(await store.subtree("/")))
        await store.close()
        return {path: Shape(shaped(each.node.data), bool(each.owner)) for path, each in found.items()}

    return asyncio.run(body())


def shaped(data: bytes) -> Any:
    """JSON without what differs from run to run; the keys stay."""
    try:
        fields = json.loads(data)
    except ValueError:
        return data
    if isinstance(fields, dict):
        return {key: type(value).__name__ if key in CHANGING else value for key, value in fields.items()}
    return type(fields).__name__  # the controller's epoch


def test_the_same_requests_make_the_same_nodes(tmp_path: Path) -> None:
    with ZooKeeperKafka(tmp_path / "kafka", find_jars(KAFKA_VERSION)) as kafka:
        kafka.start()
        ask_for_everything(kafka.bootstrap)
        theirs = read_tree(f"127.0.0.1:{kafka.zookeeper_port}")
        kafka.stop()
    with (
        ZooKeeperProcess() as zookeeper,
        Broker({"broker.id": 1, "zookeeper.connect": zookeeper.connect} | SETTINGS) as broker,
    ):
        ask_for_everything(broker.bootstrap_servers)
        ours = read_tree(zookeeper.connect)
    theirs = {path: shape for path, shape in theirs.items() if not path.startswith(CHANGES)}
    assert set(ours) - OURS_ALONE == set(theirs)
    assert {path: ours[path] for path in theirs} == theirs

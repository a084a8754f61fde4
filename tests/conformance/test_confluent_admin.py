"""librdkafka's AdminClient: topics, partitions, configurations, cluster, offsets."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import NewTopic as TopicToCreate
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually

WAIT_SECONDS = 15.0
BASE_MS = int(time.time() * 1000) - 100_000


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(WAIT_SECONDS)


def error_code(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        result(futures)
    return int(caught.value.args[0].code())


def test_create_list_describe_and_delete(admin: AdminClient, topic_name: str) -> None:
    assert result(admin.create_topics([TopicToCreate(topic_name, 3, 1, config={"retention.ms": "1234567"})])) is None
    assert eventually(lambda: topic_name in admin.list_topics(timeout=WAIT_SECONDS).topics)
    described = result(admin.describe_topics(TopicCollection([topic_name])))
    assert (described.name, len(described.partitions), described.is_internal) == (topic_name, 3, False)
    partition = described.partitions[1]
    assert (partition.id, partition.leader.id, [node.id for node in partition.isr]) == (1, 1, [1])
    assert result(admin.delete_topics([topic_name])) is None
    assert eventually(lambda: topic_name not in admin.list_topics(timeout=WAIT_SECONDS).topics)


def test_invalid_topics_are_refused(admin: AdminClient, topic: str, topic_name: str) -> None:
    def create(*row: Any, **options: Any) -> int:
        return error_code(admin.create_topics([TopicToCreate(*row, **options)]))

    assert create(topic, 1, 1) == KafkaError.TOPIC_ALREADY_EXISTS
    assert create("a/b", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert create(topic_name, 0, 1) == KafkaError.INVALID_PARTITIONS
    assert create(topic_name, 1, 5) == KafkaError.INVALID_REPLICATION_FACTOR
    assert create(topic_name, 1, 1, config={"retention.ms": "soon"}) == KafkaError.INVALID_CONFIG
    assert create(topic_name, 1, 1, config={"no.such.key": "1"}) == KafkaError.INVALID_CONFIG
    assert topic_name not in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_validate_only_creates_nothing(admin: AdminClient, topic_name: str) -> None:
    assert result(admin.create_topics([TopicToCreate(topic_name, 1, 1)], validate_only=True)) is None
    assert topic_name not in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_deleting_what_is_not_there(admin: AdminClient, topic_name: str) -> None:
    assert error_code(admin.delete_topics([topic_name])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describing_what_is_not_there(admin: AdminClient, topic_name: str) -> None:
    assert error_code(admin.describe_topics(TopicCollection([topic_name]))) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert topic_name not in admin.list_topics(timeout=WAIT_SECONDS).topics


def test_partitions_can_only_grow(admin: AdminClient, topic: str) -> None:
    assert result(admin.create_partitions([NewPartitions(topic, 4)])) is None
    assert eventually(lambda: len(admin.list_topics(topic, WAIT_SECONDS).topics[topic].partitions) == 4)
    for count in (2, 4):
        assert error_code(admin.create_partitions([NewPartitions(topic, count)])) == KafkaError.INVALID_PARTITIONS


def test_topic_configs_are_described_and_altered(admin: AdminClient, new_topic: NewTopic) -> None:
    name = new_topic(max_message_bytes=5000)

    def described() -> dict[str, ConfigEntry]:
        return dict(result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)])))

    before = described()
    assert (before["max.message.bytes"].value, before["max.message.bytes"].is_default) == ("5000", False)
    assert before["max.message.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("604800000", True)
    changes = [
        ConfigEntry("retention.ms", "7000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("max.message.bytes", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    assert result(admin.incremental_alter_configs([resource])) is None
    assert eventually(lambda: described()["retention.ms"].value == "7000")
    after = described()
    assert (after["max.message.bytes"].value, after["max.message.bytes"].is_default) == ("1048588", True)
    assert after["cleanup.policy"].value == "delete,compact"
    change = ConfigEntry("retention.ms", "never", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
    assert error_code(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG
    assert described()["retention.ms"].value == "7000"


def test_broker_configs_are_described(admin: AdminClient) -> None:
    entries = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert entries["log.segment.bytes"].value == "1073741824"
    assert entries["log.segment.bytes"].is_default
    assert entries["num.partitions"].value == "1"


def test_configs_of_an_unknown_topic(admin: AdminClient, topic_name: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic_name)
    assert error_code(admin.describe_configs([resource])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(WAIT_SECONDS)
    assert cluster.cluster_id
    assert [(node.id, f"{node.host}:{node.port}") for node in cluster.nodes] == [(1, bootstrap)]
    assert cluster.controller.id == 1
    metadata = admin.list_topics(timeout=WAIT_SECONDS)
    assert (metadata.cluster_id, metadata.controller_id) == (cluster.cluster_id, 1)


@pytest.mark.parametrize(
    ("make_spec", "offset"),
    [
        (OffsetSpec.earliest, 0),
        (OffsetSpec.latest, 3),
        (OffsetSpec.max_timestamp, 1),
        (lambda: OffsetSpec.for_timestamp(BASE_MS + 3000), 1),
        (lambda: OffsetSpec.for_timestamp(BASE_MS + 50_000), -1),
    ],
    ids=["earliest", "latest", "max timestamp", "by time", "after all"],
)
def test_offsets_are_listed(
    admin: AdminClient, peer: Peer, topic: str, make_spec: Callable[[], OffsetSpec], offset: int
) -> None:
    for moment in (1000, 9000, 2000):
        peer.produce(topic, batch(timestamp=BASE_MS + moment))
    for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        found = result(admin.list_offsets({TopicPartition(topic, 0): make_spec()}, isolation_level=level))
        assert found.offset == offset

"""ApiVersions, DescribeCluster, FindCoordinator, InitProducerId, DescribeTopicPartitions without a socket."""

from pathlib import Path

import pytest
from tests.unit.broker.handler_stand import Broker, Client, with_broker

from ottla.base.errors import Error, KafkaError
from ottla.base.security import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.handlers import (
    api_versions,
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    init_producer_id,
)
from ottla.controller.decisions import ottla_version
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.producer_ids import ProducerIdManager
from ottla.protocol.codec import encode
from ottla.protocol.messages.cluster import ApiVersionsRequest, DescribeClusterRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import DescribeTopicPartitionsRequest, DescribeTopicPartitionsTopic
from ottla.protocol.messages.transactions import InitProducerIdRequest

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


# ---- ApiVersions


def test_served_apis_and_features_are_listed(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await Client(broker).ask(api_versions.handle, request, 4)
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == broker.served_apis
        supported = [(row.name, row.min_version, row.max_version) for row in answer.supported_features]
        eligible, own = (
            "eligible.leader.replicas.version",
            (ottla_version.OTTLA_VERSION_FEATURE, 1, ottla_version.LEVEL_MAX),
        )
        assert supported == [("group.version", 0, 1), ("transaction.version", 0, 2), (eligible, 0, 1), own]
        finalized = [(row.name, row.max_version_level) for row in answer.finalized_features]
        newest = (ottla_version.OTTLA_VERSION_FEATURE, ottla_version.LEVEL_MAX)
        assert finalized == [("group.version", 1), ("transaction.version", 2), (eligible, 1), newest]
        assert answer.finalized_features_epoch == 0

    with_broker(tmp_path, play)


@pytest.mark.parametrize("name", ["ottla-broker", "ottla", "apache-kafka-java"])
def test_inter_broker_apis_are_listed_for_brokers_only(tmp_path: Path, name: str) -> None:
    async def play(broker: Broker) -> None:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        for version in (3, 4):
            answer = await Client(broker).ask(api_versions.handle, request, version)
            keys = [row.api_key for row in answer.api_keys]
            assert keys == ([3, 18, 58] if name == "ottla-broker" else [3, 18])
        assert len(broker.served_apis) == 2, "the list does not grow with each request"

    with_broker(tmp_path, play)


def test_features_with_minimum_version_0_are_hidden_from_older_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_versions, "SUPPORTED_FEATURES", {"a.version": (0, 1), "b.version": (1, 2)})
    assert [feature.name for feature in api_versions.supported_features(3)] == ["b.version"]
    assert [feature.name for feature in api_versions.supported_features(4)] == ["a.version", "b.version"]


def test_an_unknown_version_gets_the_supported_versions(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        answer = await Client(broker).ask(lambda _, context: api_versions.unsupported_version(context), None, 0)
        assert encode(answer, 0).hex() == "002300000001001200000004"

    with_broker(tmp_path, play)


# ---- DescribeCluster


def test_the_cluster_is_described_for_the_clients_listener(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        client = Client(broker, listener="OUTSIDE")
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await client.ask(describe_cluster.handle, request, 2)
        (row,) = answer.brokers
        assert (row.broker_id, row.host, row.port, row.rack, row.is_fenced) == (
            1,
            "broker.example",
            9093,
            "rack-a",
            False,
        )
        assert (answer.cluster_id, answer.controller_id) == (broker.image.cluster_id, 1)
        assert answer.cluster_authorized_operations == 8096
        client = Client(broker, (Operation.DESCRIBE, CLUSTER, CLUSTER_NAME))
        assert (await client.ask(describe_cluster.handle, request, 2)).cluster_authorized_operations == 0

    with_broker(tmp_path, play)


# ---- FindCoordinator


@pytest.mark.parametrize("key_type", [2, -1])
def test_other_coordinator_types_are_refused(tmp_path: Path, key_type: int) -> None:
    async def play(broker: Broker) -> None:
        client = Client(broker)
        answer = await client.ask(find_coordinator.handle, FindCoordinatorRequest(key="k", key_type=key_type), 3)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (Error.INVALID_REQUEST, -1, "", -1)
        assert answer.error_message
        several = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k", "l"])
        answer = await client.ask(find_coordinator.handle, several, 6)
        rows = [(row.key, row.error_code, row.node_id) for row in answer.coordinators]
        assert rows == [("k", Error.INVALID_REQUEST, -1), ("l", Error.INVALID_REQUEST, -1)]

    with_broker(tmp_path, play)


def test_unauthorized_clients_learn_nothing_about_groups(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        denied = [
            (Operation.DESCRIBE, ResourceType.GROUP, "g"),
            (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "t"),
        ]
        client = Client(broker, *denied)
        group = await client.ask(find_coordinator.handle, FindCoordinatorRequest(key="g", key_type=0), 2)
        transaction = await client.ask(find_coordinator.handle, FindCoordinatorRequest(key="t", key_type=1), 2)
        assert group.error_code == Error.GROUP_AUTHORIZATION_FAILED
        assert transaction.error_code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    with_broker(tmp_path, play)


# ---- InitProducerId


def test_ids_for_idempotent_producers(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        async def init(*denied: tuple[Operation, ResourceType, str], **fields: object) -> tuple[int, int, int]:
            request = InitProducerIdRequest(transaction_timeout_ms=1000, **fields)  # type: ignore[arg-type]
            answer = await Client(broker, *denied).ask(init_producer_id.handle, request, 4)
            return answer.error_code, answer.producer_id, answer.producer_epoch

        assert [await init(), await init(), await init(producer_id=0, producer_epoch=3)] == [
            (0, 0, 0),
            (0, 1, 0),
            (0, 2, 0),
        ]
        assert await init(transactional_id="") == (Error.INVALID_REQUEST, -1, -1)
        assert await init(producer_id=5) == (Error.INVALID_REQUEST, -1, -1)
        no_write = (Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
        assert await init(no_write) == (Error.CLUSTER_AUTHORIZATION_FAILED, -1, -1)
        no_transaction = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
        refused = (Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
        assert await init(no_transaction, transactional_id="t") == refused

    with_broker(tmp_path, play)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (Error.NOT_CONTROLLER, Error.COORDINATOR_LOAD_IN_PROGRESS),
        (Error.REQUEST_TIMED_OUT, Error.COORDINATOR_LOAD_IN_PROGRESS),
        (Error.UNKNOWN_SERVER_ERROR, Error.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_producer_waits_for_its_id_while_there_is_no_controller(tmp_path: Path, problem: Error, told: Error) -> None:
    """As in Kafka: producers do not expect NOT_CONTROLLER."""

    async def refuse() -> range:
        raise KafkaError(problem)

    async def play(broker: Broker) -> None:
        broker.controller_requests.producer_ids = ProducerIdManager(refuse)
        answer = await Client(broker).ask(init_producer_id.handle, InitProducerIdRequest(transaction_timeout_ms=1), 4)
        assert (answer.error_code, answer.producer_id) == (told, -1)

    with_broker(tmp_path, play)


# ---- DescribeTopicPartitions


def test_a_page_is_never_larger_than_the_setting(tmp_path: Path) -> None:
    async def play(broker: Broker) -> None:
        await broker.controller.create_topics([NewTopic("a", 5), NewTopic("hidden", 1)])
        client = Client(broker, (Operation.DESCRIBE, TOPIC, "hidden"))
        request = DescribeTopicPartitionsRequest(response_partition_limit=2000)
        answer = await client.ask(describe_topic_partitions.handle, request, 0)
        assert [(row.name, len(row.partitions)) for row in answer.topics] == [("a", 2)]
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("a", 2)
        by_name = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopic(name="hidden")])
        answer = await client.ask(describe_topic_partitions.handle, by_name, 0)
        assert [(row.name, row.error_code, row.partitions) for row in answer.topics] == [
            ("hidden", Error.TOPIC_AUTHORIZATION_FAILED, [])
        ]

    with_broker(tmp_path, play, max_request_partition_size_limit="2")

"""Any broker answers any client: what only the controller can do, asked of each broker, also while there is none."""

import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from tests.cluster.conftest import promised

from ottla.base.errors import Error
from ottla.broker.handlers.api_versions import CLUSTER_POLL, LEVELS_SINCE
from ottla.client.client import Client
from ottla.protocol.apis import BROKER_APIS
from ottla.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from ottla.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.testing.cluster import Cluster, ClusterBroker

R = TypeVar("R")
TOPIC, BROKER, LOGGER = 2, 4, 8
each_broker = pytest.mark.parametrize("place", [0, 1, 2], ids=["the controller", "another", "the third"])


def ask(broker: ClusterBroker, request: Any, response: type[R], timeout_ms: int = 20_000) -> R:
    """Ask this very broker, once."""
    with Client(broker.bootstrap_servers, timeout_ms=timeout_ms, connect_retry_ms=0) as client:
        return client.call(request, response)


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def by_place(cluster: Cluster, place: int) -> ClusterBroker:
    """The controller first."""
    controller = cluster.controller()
    return sorted(cluster.brokers, key=lambda broker: broker is not controller)[place]


def create(broker: ClusterBroker, name: str, partitions: int = 2, timeout_ms: int = 15_000) -> Error:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
    return Error(
        ask(broker, CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), CreateTopicsResponse)
        .topics[0]
        .error_code
    )


def known_to(cluster: Cluster, name: str) -> list[int]:
    """Which brokers know a topic, and how many partitions of it: asked at once, without any patience."""
    answers = cluster.metadata(name)
    return [len(topic.partitions) for answer in answers.values() for topic in answer.topics if not topic.error_code]


def config(kind: int, name: str, key: str, value: str) -> IncrementalAlterConfigsResource:
    change = IncrementalAlterableConfig(name=key, config_operation=0, value=value)
    return IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])


def described(broker: ClusterBroker, kind: int, name: str, key: str) -> str | None:
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    answer = ask(broker, DescribeConfigsRequest(resources=[wanted]), DescribeConfigsResponse)
    return answer.results[0].configs[0].value


@each_broker
def test_topics_through_any_broker_are_there_on_all_when_the_answer_is(cluster: Cluster, place: int, name: str) -> None:
    broker = by_place(cluster, place)
    assert create(broker, name) is Error.NONE
    assert known_to(cluster, name) == [2, 2, 2]
    assert create(broker, name) is Error.TOPIC_ALREADY_EXISTS
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=4)], timeout_ms=15_000)
    assert ask(broker, more, CreatePartitionsResponse).results[0].error_code == 0
    assert known_to(cluster, name) == [4, 4, 4]
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=15_000)
    assert ask(broker, gone, DeleteTopicsResponse).responses[0].error_code == 0
    assert known_to(cluster, name) == []


@each_broker
def test_settings_through_any_broker(cluster: Cluster, place: int, name: str) -> None:
    broker = by_place(cluster, place)
    create(broker, name)
    me = str(broker.id)
    resources = [
        config(TOPIC, name, "retention.ms", "123456"),
        config(BROKER, me, "log.cleaner.threads", "2"),
        config(BROKER, "", "message.max.bytes", "2000000"),
        config(LOGGER, me, "ottla.network", "DEBUG"),
        config(BROKER, str(broker.id % 3 + 1), "log.cleaner.threads", "2"),
        config(TOPIC, f"{name}-not", "retention.ms", "1"),
    ]
    request = IncrementalAlterConfigsRequest(resources=resources)
    rows = ask(broker, request, IncrementalAlterConfigsResponse).responses
    assert [row.error_code for row in rows] == [0, 0, 0, 0, Error.INVALID_REQUEST, Error.UNKNOWN_TOPIC_OR_PARTITION]
    for each in cluster.brokers:
        assert described(each, TOPIC, name, "retention.ms") == "123456"
        assert described(each, BROKER, "", "message.max.bytes") == "2000000"
    assert described(broker, BROKER, me, "log.cleaner.threads") == "2"
    assert described(broker, LOGGER, me, "ottla.network") == "DEBUG"
    older = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=[AlterableConfig(name="segment.ms", value="99999")]
            ),
            AlterConfigsResource(resource_type=BROKER, resource_name=me, configs=[]),
            AlterConfigsResource(
                resource_type=BROKER,
                resource_name="",
                configs=[AlterableConfig(name="min.insync.replicas", value="2")],  # the one that cannot be removed
            ),
        ]
    )
    assert [row.error_code for row in ask(broker, older, AlterConfigsResponse).responses] == [0, 0, 0]
    for each in cluster.brokers:
        assert described(each, TOPIC, name, "segment.ms") == "99999"
        assert described(each, TOPIC, name, "retention.ms") != "123456"


@each_broker
def test_elections_moves_and_features_through_any_broker(cluster: Cluster, place: int, name: str) -> None:
    broker = by_place(cluster, place)
    create(broker, name, 1)
    elect = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=name, partitions=[0, 9])])
    result = ask(broker, elect, ElectLeadersResponse).replica_election_results[0].partition_result
    assert sorted((row.partition_id, row.error_code) for row in result) == [
        (0, Error.ELECTION_NOT_NEEDED),
        (9, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    partition = cluster.partition(name)
    assert partition is not None
    target = [*partition.replica_nodes[1:], partition.replica_nodes[0]]
    move = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=target)])]
    )
    moved = ask(broker, move, AlterPartitionReassignmentsResponse)
    assert (moved.error_code, moved.responses[0].partitions[0].error_code) == (0, 0)
    cluster.wait_for(lambda: replicas_of(cluster, name) == target, f"replicas {target}")
    assert ask(broker, ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse).error_code == 0
    cancel = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0, replicas=None)])]
    )
    refused = ask(broker, cancel, AlterPartitionReassignmentsResponse).responses[0].partitions[0]
    assert refused.error_code == Error.NO_REASSIGNMENT_IN_PROGRESS
    assert ask(broker, UnregisterBrokerRequest(broker_id=99), UnregisterBrokerResponse).error_code == (
        Error.BROKER_ID_NOT_REGISTERED
    )
    feature = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="no.such.version", max_version_level=1)])
    assert ask(broker, feature, UpdateFeaturesResponse).error_code != 0
    level = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1)], validate_only=True
    )
    assert ask(broker, level, UpdateFeaturesResponse).error_code == 0


def replicas_of(cluster: Cluster, name: str) -> list[int]:
    found = cluster.partition(name)
    return [] if found is None else list(found.replica_nodes)


def test_producer_ids_of_different_brokers_differ(cluster: Cluster) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [ask(broker, request, InitProducerIdResponse) for broker in cluster.brokers for _ in range(5)]
    assert {answer.error_code for answer in answers} == {0}
    assert len({answer.producer_id for answer in answers}) == 15


@each_broker
def test_topics_that_are_asked_for_come_into_being_through_any_broker(cluster: Cluster, place: int, name: str) -> None:
    broker = by_place(cluster, place)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    topic = ask(broker, request, MetadataResponse).topics[0]
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    question = FindCoordinatorRequest(key_type=0, coordinator_keys=[f"group-of-{name}"])
    found = ask(broker, question, FindCoordinatorResponse).coordinators[0]
    assert found.error_code == 0
    assert found.node_id in {each.id for each in cluster.brokers}


def test_apis_between_brokers_are_not_announced_to_clients(cluster: Cluster) -> None:
    def announced(software: str) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        rows = ask(cluster.brokers[0], request, ApiVersionsResponse).api_keys
        return {row.api_key: (row.min_version, row.max_version) for row in rows}

    client, broker = announced("apache-kafka-java"), announced("ottla-broker")
    assert not client.keys() & BROKER_APIS.keys()
    among = {key: (api.min_version, api.max_version) for key, api in BROKER_APIS.items()}
    among[CLUSTER_POLL] = (LEVELS_SINCE, BROKER_APIS[CLUSTER_POLL].max_version)  # as it is in a new cluster
    assert broker == client | among


# ---- without a controller


@promised(19.0)  # a session ends after nine
@pytest.mark.parametrize("how", ["killed", "stopped", "paused"])
def test_a_request_is_answered_when_the_controller_goes(
    cluster: Cluster, how: str, name: str, seconds_max: float
) -> None:
    request_ms = int(seconds_max * 1000) + 1_000
    controller = cluster.controller()
    others = [broker for broker in cluster.brokers if broker is not controller]
    stop = {"killed": controller.kill, "stopped": controller.stop, "paused": controller.pause}[how]
    answers: dict[str, tuple[Error, float]] = {}

    def work(broker: ClusterBroker, number: int) -> None:
        topic = f"{name}-{broker.id}-{number}"
        started = time.monotonic()
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=2)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=request_ms)
        row = ask(broker, request, CreateTopicsResponse, timeout_ms=request_ms + 5_000).topics[0]
        answers[topic] = Error(row.error_code), time.monotonic() - started

    threads = [threading.Thread(target=work, args=(broker, number)) for number in range(4) for broker in others]
    for at, thread in enumerate(threads):
        if at == 2:
            began = time.monotonic()
            stop()
            assert time.monotonic() - began < seconds_max
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(seconds_max + 10)
    assert len(answers) == len(threads)
    # Asked a second time after its answer was lost, a creation finds its own topic; Kafka's brokers answer so, too.
    # Two replicas need two live brokers, and the new controller knows of no more.
    assert {error for error, _ in answers.values()} <= {Error.NONE, Error.TOPIC_ALREADY_EXISTS}
    assert max(seconds for _, seconds in answers.values()) < seconds_max
    for broker in others:
        found = {topic.name for topic in cluster.metadata()[broker.id].topics}
        assert answers.keys() <= found


@promised(5.0)
def test_without_any_controller_the_answer_is_an_error(cluster: Cluster, name: str, seconds_max: float) -> None:
    controller = cluster.controller()
    other = next(broker for broker in cluster.brokers if broker is not controller)
    cluster.zookeeper.kill()
    controller.kill()
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    started = time.monotonic()
    row = ask(other, CreateTopicsRequest(topics=[topic], timeout_ms=1_000), CreateTopicsResponse).topics[0]
    assert row.error_code in (Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT)
    assert time.monotonic() - started < seconds_max


# ---- clients of others


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.mark.usefixtures("quiet")
def test_clients_of_others_reach_the_controller_through_any_broker(cluster: Cluster, name: str) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # noqa: PLC0415
    from kafka.admin import KafkaAdminClient  # noqa: PLC0415
    from kafka.admin import NewTopic as PythonTopic  # noqa: PLC0415

    for broker in cluster.brokers:
        own = f"{name}-{broker.id}"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(own, 1, 3)])[own].result(20)
        resource = ConfigResource(ConfigResource.Type.TOPIC, own, set_config={"retention.ms": "77777"})
        admin.alter_configs([resource])[resource].result(20)
        assert all(described(each, TOPIC, own, "retention.ms") == "77777" for each in cluster.brokers)
        admin.delete_topics([own])[own].result(20)
        python = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        python.create_topics([PythonTopic(f"{own}-py", 1, 3)])
        assert known_to(cluster, f"{own}-py") == [1, 1, 1]
        python.delete_topics([f"{own}-py"])
        python.close()

"""Routing, retries and deadlines of the client, with a fake cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.client import client as module
from ottla.client.addresses import Address
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import ClientError, error_from_code
from ottla.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

ALL_VERSIONS = dict.fromkeys(range(100), (0, 20))


class ManualClock:
    """Time moves only by sleeping."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> None:
        self.time_ms += round(seconds * 1000)


class Cluster:
    """Brokers 1 and 2; `answers` has the response for each request class."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.controller_id = 2
        self.asked: list[tuple[int, object]] = []  # port and request
        self.refused_ports: set[int] = set()
        self.answers: dict[type, Callable[[Any], object]] = {MetadataRequest: self.metadata}

    def metadata(self, _request: object) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=node, host="host", port=9090 + node) for node in (1, 2)]
        return MetadataResponse(brokers=brokers, controller_id=self.controller_id)

    def connect(self, address: Address, *_: object) -> FakeConnection:
        if address.port in self.refused_ports:
            raise ClientError(f"cannot reach {address}", Error.BROKER_NOT_AVAILABLE)
        return FakeConnection(self, address)

    def ports_asked_for(self, kind: type) -> list[int]:
        return [port for port, request in self.asked if type(request) is kind]


class FakeConnection:
    def __init__(self, cluster: Cluster, address: Address) -> None:
        self.cluster = cluster
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        self.good_until_ms: int | None = None

    def call(self, request: object, _response: type, _version: int, _timeout_ms: int) -> object:
        self.cluster.asked.append((self.address.port, request))
        return self.cluster.answers[type(request)](request)

    def close(self) -> None: ...


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(module, "Connection", cluster.connect)
    monkeypatch.setattr(module, "offered_versions", lambda *_: ALL_VERSIONS)
    return cluster


def client_of(cluster: Cluster, bootstrap: str = "host:9091") -> Client:
    return Client(bootstrap, clock=cluster.clock, sleep=cluster.clock.sleep)


def created(code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=code, error_message=message)])


def test_any_of_the_bootstrap_servers_will_do(cluster: Cluster) -> None:
    cluster.refused_ports = {9091}
    with client_of(cluster, "host:9091,host:9092") as client:
        assert client.cluster().controller_id == 2
    assert cluster.ports_asked_for(MetadataRequest) == [9092]


def test_a_cluster_that_refuses_everything_is_retried_for_a_second(cluster: Cluster) -> None:
    cluster.refused_ports = {9091, 9092}
    with pytest.raises(ClientError, match="cannot reach host:9091"):
        client_of(cluster, "host:9091,host:9092").cluster()
    assert 1000 <= cluster.clock.time_ms <= 1200


def test_a_broker_that_starts_a_moment_later_is_waited_for(cluster: Cluster) -> None:
    cluster.refused_ports = {9091}
    client = Client("host:9091", clock=cluster.clock, sleep=lambda seconds: cluster.refused_ports.clear())
    assert client.cluster().controller_id == 2


def test_changes_go_to_the_controller(cluster: Cluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda _: created()
    Admin(client_of(cluster)).create_topic("a")
    assert cluster.ports_asked_for(CreateTopicsRequest) == [9092]


def test_a_controller_that_has_moved_is_looked_up_again(cluster: Cluster) -> None:
    def refuse_once(_request: object) -> CreateTopicsResponse:
        if cluster.controller_id == 2:
            cluster.controller_id = 1
            return created(Error.NOT_CONTROLLER)
        return created()

    cluster.answers[CreateTopicsRequest] = refuse_once
    Admin(client_of(cluster)).create_topic("a")
    assert cluster.ports_asked_for(CreateTopicsRequest) == [9092, 9091]


def test_retries_end_with_the_deadline(cluster: Cluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda _: created(Error.NOT_CONTROLLER)
    with pytest.raises(ClientError) as caught:
        Admin(client_of(cluster)).create_topic("a")
    assert caught.value.error is Error.NOT_CONTROLLER
    assert 28_000 <= cluster.clock.time_ms <= 30_000


def test_a_refusal_for_good_is_not_tried_again(cluster: Cluster) -> None:
    cluster.answers[CreateTopicsRequest] = lambda _: created(Error.TOPIC_ALREADY_EXISTS, "Topic 'a' already exists.")
    with pytest.raises(ClientError, match="Topic 'a' already exists"):
        Admin(client_of(cluster)).create_topic("a")
    assert cluster.clock.time_ms == 0


def test_a_listener_that_always_hangs_up_is_given_up_after_three_times(cluster: Cluster) -> None:
    def hang_up(_request: object) -> object:
        raise error_from_code(Error.NETWORK_EXCEPTION, "lost the connection")

    cluster.answers[MetadataRequest] = hang_up
    with pytest.raises(ClientError, match="lost the connection"):
        client_of(cluster).call(MetadataRequest(topics=[]), MetadataResponse)
    assert len(cluster.asked) == 3


def test_an_api_that_the_broker_lacks_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offered_versions", lambda *_: {3: (0, 12)})
    client = client_of(cluster)
    with pytest.raises(ClientError, match="does not offer CreateTopics"):
        Admin(client).create_topic("a")
    assert client.supports(MetadataRequest)
    assert not client.supports(CreateTopicsRequest)


def topic_row(name: str, code: int = 0, leader: int = 2) -> MetadataResponseTopic:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, replica_nodes=[2], isr_nodes=[2])
    return MetadataResponseTopic(name=name, error_code=code, partitions=[partition] if not code else [])


def test_topics_are_sorted_and_missing_ones_left_out(cluster: Cluster) -> None:
    rows = [topic_row("b"), topic_row("a"), topic_row("c", Error.UNKNOWN_TOPIC_OR_PARTITION)]
    cluster.answers[MetadataRequest] = lambda _: MetadataResponse(topics=rows)
    assert [topic.name for topic in Admin(client_of(cluster)).topics()] == ["a", "b"]


def test_descriptions_are_put_together_from_pages(cluster: Cluster) -> None:
    everything = [("a", 0), ("a", 1), ("a", 2), ("b", 0)]

    def describe(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
        rows = [place for place in everything if place >= start]
        page, rest = rows[: request.response_partition_limit], rows[request.response_partition_limit :]
        topics: dict[str, DescribeTopicPartitionsResponseTopic] = {}
        for name, number in page:
            topic = topics.setdefault(name, DescribeTopicPartitionsResponseTopic(name=name))
            topic.partitions.append(
                DescribeTopicPartitionsResponsePartition(partition_index=number, leader_id=1, replica_nodes=[1])
            )
        cursor = Cursor(topic_name=rest[0][0], partition_index=rest[0][1]) if rest else None
        return DescribeTopicPartitionsResponse(topics=list(topics.values()), next_cursor=cursor)

    cluster.answers[DescribeTopicPartitionsRequest] = describe
    topics = Admin(client_of(cluster)).describe(["b", "a"], 2)
    found = {topic.name: [partition.number for partition in topic.partitions] for topic in topics}
    assert found == {"a": [0, 1, 2], "b": [0]}


def test_a_broker_whose_pages_never_end_does_not_hold_us(cluster: Cluster) -> None:
    forever = DescribeTopicPartitionsResponse(topics=[], next_cursor=Cursor(topic_name="a", partition_index=0))
    cluster.answers[DescribeTopicPartitionsRequest] = lambda _: forever
    assert Admin(client_of(cluster)).describe(["a"]) == []


def test_settings_of_ten_thousands_are_asked_for_in_portions(cluster: Cluster) -> None:
    def described(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        assert {tuple(each.configuration_keys or ()) for each in request.resources} == {("retention.ms",)}
        names = [each.resource_name for each in request.resources]
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=2, resource_name=name) for name in names]
        )

    cluster.answers[DescribeConfigsRequest] = described
    names = [f"topic-{number}" for number in range(30_000)]
    found = Admin(client_of(cluster)).topic_configs(names, ["retention.ms"])
    assert list(found) == names
    assert len(cluster.ports_asked_for(DescribeConfigsRequest)) == 30

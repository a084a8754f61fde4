"""Metadata, DescribeTopicPartitions, DescribeCluster, ApiVersions, InitProducerId as Apache Kafka 4.3 answers them."""

import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest, DescribeTopicPartitionsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer
from tests.conformance.raw import Connection, api_versions_v0, array, compact_string, i8, string

Wanted = MetadataRequest.MetadataRequestTopic
Described = DescribeTopicPartitionsRequest.TopicRequest
Cursor = DescribeTopicPartitionsRequest.Cursor

NEWEST = 13
NO_ID = uuid.UUID(int=0)
ALL_ON_A_TOPIC = 3576  # read, write, create, delete, alter, describe, describe and alter configs
ALL_ON_THE_CLUSTER = 8096  # create, alter, describe, cluster action, describe and alter configs, idempotent write
NOT_ASKED = -(2**31)
CREATION_SECONDS_MAX = 10.0


def metadata(
    peer: Peer, *topics: str | uuid.UUID | None, version: int = NEWEST, auto: bool = False, everything: bool = False
) -> Any:
    rows = [
        Wanted(name=None, topic_id=topic) if isinstance(topic, uuid.UUID) else Wanted(name=topic, topic_id=NO_ID)
        for topic in topics
    ]
    request = MetadataRequest(topics=None if everything else rows, allow_auto_topic_creation=auto)
    return peer.ask(request, version)


def rows_of(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def describe(
    peer: Peer, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    """(name, error, partition numbers) of each topic, and the next cursor."""
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=[Described(name=name) for name in names], response_partition_limit=limit, cursor=at
    )
    answer = peer.ask(request, 0)
    rows = [(row.name, row.error_code, [part.partition_index for part in row.partitions]) for row in answer.topics]
    rest = answer.next_cursor
    return rows, None if rest is None else (rest.topic_name, rest.partition_index)


# ---- Metadata


@pytest.mark.parametrize("version", range(14))
def test_every_version_lists_brokers_and_partitions(
    peer: Peer, new_topic: NewTopic, bootstrap: str, version: int
) -> None:
    name = new_topic(3)
    answer = metadata(peer, name, version=version)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == (name, 0, 3)
    for partition in topic.partitions:
        assert partition.error_code == 0
        assert partition.leader_id == broker.node_id
        assert partition.replica_nodes == partition.isr_nodes == [broker.node_id]
    if version >= 1:
        assert (answer.controller_id, broker.rack) == (broker.node_id, None)
        assert not topic.is_internal
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 5:
        assert topic.partitions[0].offline_replicas == []
    if version >= 7:
        assert topic.partitions[0].leader_epoch >= 0
    if version >= 10:
        assert topic.topic_id not in (None, NO_ID)


def test_no_topics_are_all_topics_in_version_0_and_none_later(peer: Peer, topic: str) -> None:
    assert topic in rows_of(metadata(peer, version=0))
    assert topic in rows_of(metadata(peer, version=1, everything=True))
    assert metadata(peer, version=1).topics == []
    assert topic in rows_of(metadata(peer, everything=True))
    assert metadata(peer).topics == []


def test_unknown_and_bad_names(peer: Peer, topic: str, topic_name: str) -> None:
    answer = metadata(peer, topic, topic_name, "..", "")
    assert rows_of(answer) == {topic: 0, topic_name: 3, "..": 17, "": 17}
    unknown = next(row for row in answer.topics if row.name == topic_name)
    assert (unknown.topic_id, unknown.partitions, unknown.is_internal) == (None, [], False)


def test_a_topic_that_is_requested_twice_is_answered_once(peer: Peer, topic: str) -> None:
    assert [row.name for row in metadata(peer, topic, topic).topics] == [topic]


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(peer: Peer, topic_name: str, version: int) -> None:
    topic_id, unknown = peer.create_topic(topic_name), uuid.uuid4()
    answer = metadata(peer, topic_id, unknown, version=version)
    assert {(row.name, row.topic_id, row.error_code) for row in answer.topics} == {
        (topic_name, topic_id, 0),
        (None, unknown, 100),
    }


def test_names_beside_ids_are_not_answered(peer: Peer, topic: str) -> None:
    unknown = uuid.uuid4()
    assert [row.topic_id for row in metadata(peer, topic, unknown, version=12).topics] == [unknown]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_where_they_cannot_be_used(peer: Peer, version: int) -> None:
    answer = metadata(peer, uuid.uuid4(), version=version)
    assert [row.error_code for row in answer.topics] == [42]
    assert (answer.brokers, answer.controller_id, answer.cluster_id) == ([], -1, None)


@pytest.mark.parametrize("version", [3, 4, 9, 13])
def test_asking_for_a_topic_creates_it(peer: Peer, topic_name: str, version: int) -> None:
    deadline = time.monotonic() + CREATION_SECONDS_MAX
    while (error := rows_of(metadata(peer, topic_name, version=version, auto=True))[topic_name]) != 0:
        assert error in (3, 5)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert topic_name in peer.topic_names()


def test_a_client_may_forbid_creation(peer: Peer, topic_name: str) -> None:
    assert rows_of(metadata(peer, topic_name, version=4, auto=False)) == {topic_name: 3}
    assert topic_name not in peer.topic_names()


def test_a_bad_name_is_never_created(peer: Peer) -> None:
    assert rows_of(metadata(peer, "a/b", "..", auto=True)) == {"a/b": 17, "..": 17}


@pytest.mark.needs_ottla
def test_the_first_answer_already_has_the_created_topic(peer: Peer, topic_name: str) -> None:
    assert rows_of(metadata(peer, topic_name, auto=True)) == {topic_name: 0}


@pytest.mark.needs_ottla
def test_creation_can_be_switched_off(broker_factory: Any) -> None:
    with Peer(broker_factory(auto_create_topics_enable="false").bootstrap) as peer:
        assert rows_of(metadata(peer, "nobody", auto=True)) == {"nobody": 3}
        assert peer.topic_names() == set()


def test_internal_topics_are_marked(peer: Peer) -> None:
    (row,) = metadata(peer, "__share_group_state").topics
    assert row.is_internal


def test_authorized_operations_are_sent_on_demand(bootstrap: str, topic: str) -> None:
    assert operations_v8(bootstrap, topic, is_asked=True) == (ALL_ON_A_TOPIC, ALL_ON_THE_CLUSTER)
    assert operations_v8(bootstrap, topic, is_asked=False) == (NOT_ASKED, NOT_ASKED)


def operations_v8(bootstrap: str, topic: str, is_asked: bool) -> tuple[int, int]:
    """The last eight bytes of an answer about one topic: its operations, then the cluster's."""
    with Connection(bootstrap) as connection:
        body = connection.ask(3, 8, array([string(topic)]) + i8(0) + i8(is_asked) + i8(is_asked))
    topic_operations, cluster_operations = struct.unpack(">ii", body[-8:])
    return topic_operations, cluster_operations


# ---- DescribeTopicPartitions


def test_topics_are_described_in_the_order_of_their_names(peer: Peer, new_topic: NewTopic, topic_name: str) -> None:
    first, second = new_topic(2), new_topic(1)
    rows, rest = describe(peer, second, topic_name, first, first)
    assert rows == sorted([(first, 0, [0, 1]), (second, 0, [0]), (topic_name, 3, [])])
    assert rest is None


def test_pages_continue_at_the_cursor(peer: Peer, new_topic: NewTopic) -> None:
    first, second = sorted((new_topic(3), new_topic(2)))
    sizes = {name: len(metadata(peer, name).topics[0].partitions) for name in (first, second)}
    told, cursor = [], None
    for _ in range(10):
        rows, cursor = describe(peer, first, second, limit=2, cursor=cursor)
        assert sum(len(parts) for _, _, parts in rows) <= 2
        told += [(name, part) for name, _, parts in rows for part in parts]
        if cursor is None:
            break
    assert told == [(name, part) for name in (first, second) for part in range(sizes[name])]


def test_a_page_that_ends_with_a_topic_points_to_the_next(peer: Peer, new_topic: NewTopic, topic_name: str) -> None:
    first, second = sorted((new_topic(1), new_topic(1)))
    assert describe(peer, first, second, limit=1) == ([(first, 0, [0])], (second, 0))
    assert describe(peer, first, limit=1) == ([(first, 0, [0])], None)
    assert describe(peer, topic_name, limit=1) == ([(topic_name, 3, [])], None)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_partition(peer: Peer, new_topic: NewTopic, limit: int) -> None:
    name = new_topic(2)
    assert describe(peer, name, limit=limit) == ([(name, 0, [0])], (name, 1))


def test_cursors_that_fit_nothing(peer: Peer, new_topic: NewTopic) -> None:
    name = new_topic(2)
    assert describe(peer, name, cursor=(name, -1)) == ([(name, 42, [])], None)
    assert describe(peer, name, cursor=("another", 0)) == ([(name, 42, [])], None)
    assert describe(peer, name, cursor=(name, 2)) == ([(name, 0, [])], None)
    assert describe(peer, cursor=("~", 0)) == ([], None)


def test_all_topics_from_a_cursor_on(peer: Peer, new_topic: NewTopic) -> None:
    name = new_topic(2)
    assert describe(peer, cursor=(name, 1), limit=1)[0] == [(name, 0, [1])]
    assert describe(peer, cursor=(f"{name[:-1]}!", 0), limit=1)[0][0][0] > f"{name[:-1]}!"


def test_bad_names_are_described_as_such(peer: Peer) -> None:
    assert describe(peer, "..") == ([("..", 17, [])], None)


# ---- DescribeCluster


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(peer: Peer, bootstrap: str, version: int) -> None:
    answer = peer.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1), version)
    (broker,) = answer.brokers
    assert (answer.error_code, answer.error_message, answer.controller_id) == (0, None, broker.broker_id)
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert answer.cluster_id == metadata(peer).cluster_id


@pytest.mark.parametrize(
    ("endpoint_type", "error", "message"),
    [
        (
            2,
            114,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (0, 115, "Unsupported endpoint type 0"),
        (3, 115, "Unsupported endpoint type 3"),
    ],
)
def test_only_brokers_are_described_here(peer: Peer, endpoint_type: int, error: int, message: str) -> None:
    answer = peer.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert (answer.error_code, answer.error_message) == (error, message)
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], "", -1)


# ---- ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_the_same_apis(peer: Peer, bootstrap: str, version: int) -> None:
    answer = peer.ask(ApiVersionsRequest(client_software_name="conformance", client_software_version="1.0"), version)
    assert answer.error_code == 0
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert told == api_versions_v0(bootstrap)
    assert told[18] == (0, 4)


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_is_answered_in_version_0(bootstrap: str, version: int) -> None:
    with Connection(bootstrap) as connection:
        body = compact_string("a") + compact_string("1") + b"\0"
        answer = connection.ask(18, version, body, flexible_header=True)
    assert answer == struct.pack(">hihhh", 35, 1, 18, 0, 4)


@pytest.mark.parametrize(
    ("name", "software_version", "error"),
    [
        ("a.b-c", "1.0-x", 0),
        ("a", "x" * 300, 0),
        ("", "", 42),
        ("a", "", 42),
        ("", "1", 42),
        ("a b", "1", 42),
        ("-a", "1", 42),
        ("a-", "1", 42),
        ("a_b", "1", 42),
        ("a", "1 0", 42),
    ],
)
def test_the_names_of_client_software_are_checked(bootstrap: str, name: str, software_version: str, error: int) -> None:
    with Connection(bootstrap) as connection:
        body = compact_string(name) + compact_string(software_version) + b"\0"
        answer = connection.ask(18, 3, body, flexible_header=True)
    told, rows_and_one = struct.unpack(">hB", answer[:3])
    assert (told, rows_and_one > 1) == (error, error == 0)


# ---- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_a_producer_id(peer: Peer, version: int) -> None:
    first, second = (init(peer, version=version) for _ in range(2))
    assert (first[0], second[0]) == (0, 0)
    assert second[1] > first[1] >= 0
    assert first[2] == second[2] == 0


def init(
    peer: Peer, transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1, version: int = 4
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    answer = peer.ask(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def test_an_old_id_comes_with_its_epoch_or_not_at_all(peer: Peer) -> None:
    assert init(peer, producer_id=5, epoch=-1) == (42, -1, -1)
    assert init(peer, producer_id=-1, epoch=5) == (42, -1, -1)
    assert init(peer, producer_id=5, epoch=5)[0] == 0


def test_an_empty_transactional_id_is_malformed(peer: Peer) -> None:
    assert init(peer, transactional_id="") == (42, -1, -1)


def test_ids_are_given_once(bootstrap: str, topic_names: Callable[[], str]) -> None:
    with Peer(bootstrap) as one, Peer(bootstrap) as other:
        ids = [init(peer)[1] for _ in range(20) for peer in (one, other)]
    assert len(set(ids)) == 40

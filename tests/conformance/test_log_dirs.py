"""DescribeLogDirs and AlterReplicaLogDirs, as far as one folder goes; tests/faults moves between folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin.cluster import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch

NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_REPLICA_ASSIGNMENT, LOG_DIR_NOT_FOUND = 0, 3, 17, 39, 57
NewTopic = Callable[..., str]
BrokerFactory = Callable[..., Any]


def describe(peer: Peer, topics: dict[str, list[int]] | None, version: int = 4) -> list[Any]:
    shape = DescribeLogDirsRequest.DescribableLogDirTopic
    rows = None if topics is None else [shape(topic=name, partitions=indexes) for name, indexes in topics.items()]
    answer = peer.ask(DescribeLogDirsRequest(topics=rows), version)
    assert version < 3 or answer.error_code == NONE
    return list(answer.results)


def alter(peer: Peer, folders: list[tuple[str, str, int]], version: int = 2) -> dict[tuple[str, int], int]:
    """The errors for (folder, topic, partition)."""
    shape = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    rows = [
        shape(path=folder, topics=[shape.AlterReplicaLogDirTopic(name=topic, partitions=[index])])
        for folder, topic, index in folders
    ]
    answer = peer.ask(AlterReplicaLogDirsRequest(dirs=rows), version)
    return {
        (topic.topic_name, row.partition_index): row.error_code for topic in answer.results for row in topic.partitions
    }


@pytest.fixture
def folder(peer: Peer) -> str:
    """The (first) folder of the broker."""
    return str(describe(peer, {})[0].log_dir)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_sizes_are_those_of_the_log_files(new_topic: NewTopic, peer: Peer, version: int) -> None:
    topic = new_topic(2)
    records = batch([b"x" * 5000])
    assert peer.produce(topic, records).error_code == NONE
    rows = {}
    for result in describe(peer, {topic: [0, 1]}, version):
        assert result.error_code == NONE
        assert result.log_dir.startswith("/")
        if version >= 4:
            assert 0 < result.usable_bytes < result.total_bytes
        if version >= 5:
            assert result.is_cordoned is False
        for one in result.topics:
            assert one.name == topic
            rows.update({row.partition_index: row for row in one.partitions})
    assert {index: row.partition_size for index, row in rows.items()} == {0: len(records), 1: 0}
    assert all(row.offset_lag == 0 and not row.is_future_key for row in rows.values())


def test_all_partitions_are_described_when_none_is_named(new_topic: NewTopic, peer: Peer) -> None:
    topic = new_topic(3)
    rows = [one for result in describe(peer, None) for one in result.topics if one.name == topic]
    assert sorted(row.partition_index for one in rows for row in one.partitions) == [0, 1, 2]


def test_unknown_partitions_are_left_out(topic: str, topic_name: str, peer: Peer) -> None:
    rows = [one for result in describe(peer, {topic: [0, 9], topic_name: [0]}) for one in result.topics]
    assert [(one.name, [row.partition_index for row in one.partitions]) for one in rows] == [(topic, [0])]
    assert all(result.topics == [] for result in describe(peer, {}))


def test_kafka_python_describes_the_folders(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        text = str(admin.describe_log_dirs())
    finally:
        admin.close()
    assert topic in text


def test_a_cordoned_folder_takes_no_partition(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    """As Apache Kafka 4.3.1 does with two folders."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    broker = broker_factory(log_dirs=f"{first},{second}", cordoned_log_dirs=second)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("kept", 4)
        assert [(row.log_dir, row.is_cordoned) for row in describe(peer, {}, 5)] == [(first, False), (second, True)]
        assert alter(peer, [(second, "kept", 0)]) == {("kept", 0): INVALID_REPLICA_ASSIGNMENT}
        assert alter(peer, [(second, "new", 0)]) == {("new", 0): INVALID_REPLICA_ASSIGNMENT}
        peer.create_topic("new")
        found = {row.log_dir: sorted(one.name for one in row.topics) for row in describe(peer, None)}
        assert found == {first: ["kept", "new"], second: []}


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_may_stay_where_it_is(topic: str, folder: str, peer: Peer, version: int) -> None:
    assert alter(peer, [(folder, topic, 0)], version) == {(topic, 0): NONE}
    assert peer.produce(topic, batch()).error_code == NONE


@pytest.mark.parametrize("wrong", ["/nowhere", "relative", "", "{folder}/", "{folder}/.."])
def test_a_folder_that_is_not_in_log_dirs(topic: str, folder: str, peer: Peer, wrong: str) -> None:
    assert alter(peer, [(wrong.format(folder=folder), topic, 0)]) == {(topic, 0): LOG_DIR_NOT_FOUND}


def test_partitions_that_are_not_there(topic: str, topic_name: str, folder: str, peer: Peer) -> None:
    for name, index in ((topic, 9), (topic, -1), (topic_name, 0), ("a/..", 0)):
        assert alter(peer, [(folder, name, index)]) == {(name, index): UNKNOWN_TOPIC_OR_PARTITION}
    assert alter(peer, []) == {}


def test_a_topic_whose_copy_would_have_too_long_a_name(folder: str, peer: Peer) -> None:
    longest, longer = "b" * 213, "b" * 214
    assert alter(peer, [(folder, longest, 0)]) == {(longest, 0): UNKNOWN_TOPIC_OR_PARTITION}
    assert alter(peer, [(folder, longer, 0)]) == {(longer, 0): INVALID_TOPIC}
    assert alter(peer, [("/nowhere", longer, 0)]) == {(longer, 0): INVALID_TOPIC}


def test_of_a_partition_that_is_named_twice_the_last_folder_counts(topic: str, folder: str, peer: Peer) -> None:
    assert alter(peer, [("/nowhere", topic, 0), (folder, topic, 0)]) == {(topic, 0): NONE}
    assert alter(peer, [(folder, topic, 0), ("/nowhere", topic, 0)]) == {(topic, 0): LOG_DIR_NOT_FOUND}

"""Output of the administration tools; every layout was printed by Apache Kafka 4.3.1's own tools."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition, parse_id
from ottla.cli.java.errors import java_class, java_text
from ottla.cli.java.hash_order import partition_order
from ottla.cli.java.options import OptionError
from ottla.cli.kafka.broker_api_versions import version_lines
from ottla.cli.kafka.cluster import endpoint_lines
from ottla.cli.kafka.features import feature_lines, result_lines
from ottla.cli.kafka.log_dirs import as_json, existing_brokers, parse_brokers
from ottla.cli.kafka.metadata_quorum import replication_lines, status_lines
from ottla.cli.metadata.storage import random_id
from ottla.cli.metadata.storage_folders import format_folder, info_lines, unformatted
from ottla.cli.reports.topic_report import legacy_line
from ottla.client.cluster import Feature, Features, Quorum
from ottla.client.errors import ClientError, error_from_code
from ottla.client.log_dirs import LogDir, Replica
from ottla.operations.sizes import size_text
from ottla.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribedQuorumPartition,
    QuorumListener,
    QuorumNode,
    QuorumReplica,
)


def test_apis_are_listed_with_the_version_that_can_be_used() -> None:
    lines = list(version_lines({3: (0, 13), 18: (0, 9), 46: (0, 0), 1: (99, 100), 999: (1, 2)}))
    assert "Metadata(3): 0 to 13 [usable: 13]" in lines
    assert "ApiVersions(18): 0 to 9 [usable: 4]" in lines
    assert "ListPartitionReassignments(46): 0 [usable: 0]" in lines
    assert "Fetch(1): 99 to 100 [unusable: node too new]" in lines
    assert "Produce(0): UNSUPPORTED" in lines
    assert lines[-1] == "UNKNOWN(999): 1 to 2"


def test_endpoints_are_a_table() -> None:
    brokers = [
        DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=9092),
        DescribeClusterBroker(broker_id=2, host="b", port=9093, rack="r", is_fenced=True),
    ]
    assert list(endpoint_lines(brokers[:1], is_controllers=False)) == [
        "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  ",
        "1          127.0.0.1 9092       null       unfenced   broker         ",
    ]
    assert list(endpoint_lines(brokers[:1], is_controllers=True))[1].split() == [
        "1",
        "127.0.0.1",
        "9092",
        "null",
        "controller",
    ]
    assert list(endpoint_lines(brokers, is_controllers=False))[2].split() == ["2", "b", "9093", "r", "fenced", "broker"]


def test_features_are_a_table() -> None:
    (line,) = feature_lines(Features(624, [Feature("metadata.version", 7, 30, 30)]))
    assert line == (
        "Feature: metadata.version                          SupportedMinVersion: 3.3-IV3          "
        "SupportedMaxVersion: 4.3-IV0          FinalizedVersionLevel: 4.3-IV0          Epoch: 624"
    )
    assert feature_lines(Features(None, [Feature("a", 0, 1, 0)]))[0].endswith("Epoch: -")


def test_results_of_feature_updates() -> None:
    results = {"b": error_from_code(Error.INVALID_UPDATE_VERSION, "No."), "a": None}
    assert result_lines("upgrade", {"a": 1, "b": 2}, results, False) == [
        "a was upgraded to 1.",
        "Could not upgrade b to 2. No.",
    ]
    assert result_lines("disable", {"a": 0}, {"a": None}, True) == ["a can be disabled."]


def quorum(followers: int = 0) -> Quorum:
    replicas = [
        QuorumReplica(
            replica_id=node, log_end_offset=100 - node, last_fetch_timestamp=1000, last_caught_up_timestamp=990
        )
        for node in range(1, 2 + followers)
    ]
    partition = DescribedQuorumPartition(
        partition_index=0, leader_id=1, leader_epoch=4, high_watermark=98, current_voters=replicas
    )
    return Quorum(partition, [QuorumNode(node_id=1, listeners=[QuorumListener(name="C", host="h", port=1)])])


def test_the_quorum_is_described() -> None:
    assert status_lines("id", quorum()) == [
        "ClusterId:              id",
        "LeaderId:               1",
        "LeaderEpoch:            4",
        "HighWatermark:          98",
        "MaxFollowerLag:         0",
        "MaxFollowerLagTimeMs:   0",
        'CurrentVoters:          [{"id": 1, "endpoints": ["C://h:1"]}]',
        "CurrentObservers:       []",
    ]
    assert "MaxFollowerLag:         2" in status_lines("id", quorum(followers=2))
    shown = replication_lines(quorum(followers=1), 1005, True)
    cells = ("1     ", "A" * 22, "99          ", "0  ", "5 ms ago          ", "15 ms ago            ", "Leader  ")
    assert shown[1] == "\t".join(cells) + "\t"
    assert shown[2].startswith("2     ")
    assert shown[2].endswith("Follower\t")


def test_a_quorum_without_its_leader_is_refused() -> None:
    lost = quorum()
    lost.partition.leader_id = 9
    with pytest.raises(OptionError, match="No value present"):
        status_lines("id", lost)


def test_folders_are_one_line_of_json() -> None:
    replicas = [Replica(TopicPartition(name, 0), 5, 0, False) for name in ("a", "b")]
    folders = {
        1: [LogDir("/data", Error.NONE, replicas, -1, -1), LogDir("/bad", Error.KAFKA_STORAGE_ERROR, [], -1, -1)]
    }
    text = as_json(folders, ["a"])
    assert '{"partition":"a-0","size":5,"offsetLag":0,"isFuture":false}' in text
    shown = json.loads(text)["brokers"][0]["logDirs"]
    assert {folder["logDir"]: folder["error"] for folder in shown} == {
        "/data": None,
        "/bad": "org.apache.kafka.common.errors.KafkaStorageException",
    }
    assert [folder["logDir"] for folder in shown if folder["partitions"]] == ["/data"]


def test_brokers_are_numbers_that_exist() -> None:
    assert existing_brokers(parse_brokers(""), [1, 2]) == [1, 2]
    assert existing_brokers(parse_brokers("2,,"), [1, 2]) == [2]
    with pytest.raises(OptionError, match=r"do not exist from --broker-list: 7,8. Current existent brokers: 1,2"):
        existing_brokers([8, 7, 1], [1, 2])
    with pytest.raises(OptionError, match='For input string: "x"'):
        parse_brokers("x")


def test_sizes_are_readable_on_a_terminal() -> None:
    assert [size_text(size) for size in (-1, 0, 1023, 1536, 5 << 30, 3 << 50)] == [
        *("?", "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3072.0 TiB")
    ]


def test_java_has_names_for_errors() -> None:
    assert java_class(Error.UNKNOWN_TOPIC_OR_PARTITION).endswith(".UnknownTopicOrPartitionException")
    assert java_class(Error.REQUEST_TIMED_OUT).endswith(".TimeoutException")
    assert java_text(error_from_code(Error.INVALID_CONFIG, "No.")) == (
        "org.apache.kafka.common.errors.InvalidConfigurationException: No."
    )
    assert java_text(error_from_code(Error.OFFSET_OUT_OF_RANGE)).endswith(
        "not within the range of offsets maintained by the server."
    )
    assert java_text(ClientError("cannot reach a:1", Error.BROKER_NOT_AVAILABLE)) == "cannot reach a:1"


def test_partitions_are_listed_as_a_java_map_lists_them() -> None:
    keys = [TopicPartition("d-one", number) for number in range(3)] + [TopicPartition("d-two", 0)]
    assert [str(key) for key in partition_order(keys)] == ["d-two-0", "d-one-0", "d-one-1", "d-one-2"]


def test_lines_of_old() -> None:
    assert legacy_line("Topic: t\tTopicId: x\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: a=b: c") == (
        "Topic:t\tPartitionCount:1\tReplicationFactor:1\tConfigs:a=b: c"
    )
    assert legacy_line("\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: ") == (
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1"
    )


def test_folders_are_prepared_once(tmp_path: Path) -> None:
    new, old = str(tmp_path / "new"), str(tmp_path / "old")
    format_folder(old, 1, "cluster", is_kraft=True)
    assert "version=1\n" in (tmp_path / "old" / "meta.properties").read_text()
    with pytest.raises(OptionError, match=f"Log directory {old} is already formatted"):
        unformatted([old, new], 1, "cluster", ignore_formatted=False)
    assert unformatted([old, new], 1, "cluster", ignore_formatted=True) == [new]
    with pytest.raises(OptionError, match="Expected other, but read cluster"):
        unformatted([old], 1, "other", ignore_formatted=True)
    with pytest.raises(OptionError, match="Stored node id 1 doesn't match previous node id 2"):
        unformatted([old], 2, "cluster", ignore_formatted=True)
    format_folder(new, 1, "cluster", is_kraft=False)
    assert "version=0\nbroker.id=1\n" in (tmp_path / "new" / "meta.properties").read_text()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"Unable to create storage directory .*file/folder"):
        format_folder(str(tmp_path / "file" / "folder"), 1, "cluster", is_kraft=True)


def test_info_reports_problems_of_folders(tmp_path: Path) -> None:
    for name, cluster in (("a", "one"), ("b", "two")):
        format_folder(str(tmp_path / name), 1, cluster, is_kraft=False)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "meta.properties").write_bytes(b"\x00\xff=\n")
    lines, code = info_lines([str(tmp_path / name) for name in ("a", "b", "file", "empty", "damaged", "missing")])
    assert code == 1
    assert "Found metadata: {broker.id=1, cluster.id=one, version=0}" in lines
    problems = lines[lines.index("Found problems:") + 1 : -1]
    for words, problem in zip(
        ("but other directories featured", "is not a directory", "is not formatted.", "is damaged", "does not exist"),
        problems,
        strict=True,
    ):
        assert words in problem


def test_random_ids_are_ids() -> None:
    for _ in range(50):
        text = random_id()
        assert isinstance(parse_id(text), UUID)
        assert not text.startswith("-")

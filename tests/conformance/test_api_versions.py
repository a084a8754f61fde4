"""ApiVersions: the ranges that Apache Kafka 4.3 announces, and features only together with their APIs."""

import pytest
from kafka.protocol.metadata import ApiVersionsRequest
from tests.conformance.peer import Peer
from tests.conformance.raw import api_versions_v0

# Key, lowest and highest version as Apache Kafka 4.3.1 tells them.
RANGES = {
    "Produce": (0, 0, 13),
    "Fetch": (1, 4, 18),
    "ListOffsets": (2, 1, 11),
    "Metadata": (3, 0, 13),
    "FindCoordinator": (10, 0, 6),
    "ApiVersions": (18, 0, 4),
    "CreateTopics": (19, 2, 7),
    "DeleteTopics": (20, 1, 6),
    "InitProducerId": (22, 0, 5),
    "OffsetForLeaderEpoch": (23, 2, 4),
    "DescribeConfigs": (32, 1, 4),
    "AlterConfigs": (33, 0, 2),
    "CreatePartitions": (37, 0, 3),
    "IncrementalAlterConfigs": (44, 0, 1),
    "DescribeCluster": (60, 0, 2),
    "DescribeTopicPartitions": (75, 0, 0),
}
# A feature may appear only beside the API that it switches on (KIP-584).
API_OF_FEATURE = {"group.version": 68, "transaction.version": 26, "share.version": 78, "streams.version": 88}


@pytest.mark.parametrize("name", RANGES)
def test_the_announced_range_is_that_of_apache_kafka(bootstrap: str, name: str) -> None:
    key, lowest, highest = RANGES[name]
    assert api_versions_v0(bootstrap)[key] == (lowest, highest)


def test_inter_broker_apis_are_not_announced(bootstrap: str) -> None:
    assert not {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 82} & set(api_versions_v0(bootstrap))


@pytest.mark.parametrize("version", range(5))
def test_every_version_announces_the_same_ranges(peer: Peer, bootstrap: str, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="conformance", client_software_version="1.0")
    answer = peer.ask(request, version)
    assert answer.error_code == 0
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert told == api_versions_v0(bootstrap)


@pytest.mark.parametrize("version", [3, 4])
def test_features_come_only_with_their_apis(peer: Peer, bootstrap: str, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="conformance", client_software_version="1.0")
    answer = peer.ask(request, version)
    served = api_versions_v0(bootstrap)
    supported = {row.name: (row.min_version, row.max_version) for row in answer.supported_features or []}
    finalized = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features or []}
    for name, (lowest, highest) in finalized.items():
        if name in supported or version >= 4:  # version 3 cannot tell of features that begin at 0
            assert supported[name][0] <= lowest <= highest <= supported[name][1]
    for name in {*supported, *finalized}:
        assert API_OF_FEATURE.get(name, 18) in served, f"{name} without its API"
    if finalized:
        assert answer.finalized_features_epoch >= 0


def test_eligible_leader_replicas_are_announced(peer: Peer) -> None:
    answer = peer.ask(ApiVersionsRequest(client_software_name="conformance", client_software_version="1.0"), 4)
    name = "eligible.leader.replicas.version"
    assert [(row.min_version, row.max_version) for row in answer.supported_features if row.name == name] == [(0, 1)]
    assert [row.max_version_level for row in answer.finalized_features if row.name == name] == [1]

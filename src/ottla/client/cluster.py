"""The cluster as a whole: brokers, API versions, features and the metadata quorum."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla import __version__
from ottla.client.client import Client
from ottla.client.errors import BrokerError, error_from_code, raise_for_error
from ottla.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedQuorumPartition,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumNode,
)

METADATA_TOPIC = "__cluster_metadata"
BROKERS, CONTROLLERS = 1, 2  # endpoint types of DescribeCluster


class UpgradeType(IntEnum):
    """The kind of a feature update, by its number on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Cluster(NamedTuple):
    """The result of DescribeCluster."""

    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]


class Feature(NamedTuple):
    """A feature: the levels that the broker supports, and the finalized level of the cluster (0: off)."""

    name: str
    min_version: int
    max_version: int
    level: int


class Features(NamedTuple):
    """All features; the epoch is None if the cluster has none."""

    epoch: int | None
    features: list[Feature]


class Quorum(NamedTuple):
    """The metadata quorum: its one partition, and the addresses of its nodes."""

    partition: DescribedQuorumPartition
    nodes: list[QuorumNode]


def describe_cluster(
    client: Client, *, endpoint_type: int = BROKERS, with_fenced: bool = False, from_controller: bool = False
) -> Cluster:
    """Brokers, or controllers if a controller is asked; with `from_controller` as the active controller knows them."""
    request = DescribeClusterRequest(endpoint_type=endpoint_type, include_fenced_brokers=with_fenced)
    ask = client.call_controller if from_controller else client.call
    answer = ask(request, DescribeClusterResponse)
    raise_for_error(answer.error_code, answer.error_message)
    return Cluster(answer.cluster_id, answer.controller_id, answer.brokers)


def api_versions(client: Client, broker_id: int | None = None) -> ApiVersionsResponse:
    """The API versions of one broker, or of any broker."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    if broker_id is None:
        answer = client.call(request, ApiVersionsResponse)
    else:
        answer = client.call_broker(broker_id, request, ApiVersionsResponse)
    raise_for_error(answer.error_code)
    return answer


def describe_features(client: Client, node_id: int | None = None) -> Features:
    """The features as one node reports them, or any node."""
    answer = api_versions(client, node_id)
    levels = {item.name: item.max_version_level for item in answer.finalized_features}
    features = [
        Feature(item.name, item.min_version, item.max_version, levels.get(item.name, 0))
        for item in answer.supported_features
    ]
    epoch = answer.finalized_features_epoch
    return Features(epoch if epoch >= 0 else None, sorted(features))


def update_features(
    client: Client, levels: Mapping[str, int], upgrade_type: UpgradeType, validate_only: bool
) -> dict[str, BrokerError | None]:
    """Request new levels; returns the outcome of each feature, None for success."""
    from ottla.protocol.messages.cluster import (  # noqa: PLC0415 (rarely needed)
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    updates = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            allow_downgrade=upgrade_type != UpgradeType.UPGRADE,
            upgrade_type=upgrade_type,
        )
        for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(timeout_ms=client.timeout_ms, feature_updates=updates, validate_only=validate_only)
    try:
        answer = client.call_controller(request, UpdateFeaturesResponse)
    except BrokerError as problem:
        return dict.fromkeys(levels, problem)
    if answer.error_code:
        return dict.fromkeys(levels, error_from_code(answer.error_code, answer.error_message))
    single = {
        item.feature: error_from_code(item.error_code, item.error_message) for item in answer.results if item.error_code
    }
    return {name: single.get(name) for name in levels}


def describe_quorum(client: Client) -> Quorum:
    wanted = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])
    answer = client.call(DescribeQuorumRequest(topics=[wanted]), DescribeQuorumResponse)
    raise_for_error(answer.error_code, answer.error_message)
    partition = answer.topics[0].partitions[0]
    raise_for_error(partition.error_code, partition.error_message)
    return Quorum(partition, answer.nodes)


def unregister_broker(client: Client, broker_id: int) -> None:
    """Remove a broker that will not return from the cluster."""
    from ottla.protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse  # noqa: PLC0415

    answer = client.call_controller(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
    raise_for_error(answer.error_code, answer.error_message)

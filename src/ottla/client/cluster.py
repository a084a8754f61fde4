"""The cluster as a whole: its brokers, what they offer, its features and the state of its metadata quorum."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla import __version__
from ottla.client.client import Client
from ottla.client.errors import RefusedError, refusal
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
    """What may happen to a feature, by its number on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Cluster(NamedTuple):
    """What DescribeCluster tells."""

    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterBroker]


class Feature(NamedTuple):
    """A feature flag: the levels that the broker could run at and the one that the cluster runs at (0: off)."""

    name: str
    least: int
    most: int
    level: int


class Features(NamedTuple):
    """All features; the epoch is None where the cluster has none."""

    epoch: int | None
    features: list[Feature]


class Quorum(NamedTuple):
    """The metadata quorum: its one partition, and where its nodes listen."""

    partition: DescribedQuorumPartition
    nodes: list[QuorumNode]


def describe_cluster(
    client: Client, *, endpoint_type: int = BROKERS, with_fenced: bool = False, is_decisive: bool = False
) -> Cluster:
    """Brokers, or the controllers where a controller is asked; as the active one knows them, on request."""
    request = DescribeClusterRequest(endpoint_type=endpoint_type, include_fenced_brokers=with_fenced)
    ask = client.call_controller if is_decisive else client.call
    answer = ask(request, DescribeClusterResponse)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message)
    return Cluster(answer.cluster_id, answer.controller_id, answer.brokers)


def api_versions(client: Client, broker_id: int | None = None) -> ApiVersionsResponse:
    """What one broker offers, any of them if none is named."""
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    if broker_id is None:
        answer = client.call(request, ApiVersionsResponse)
    else:
        answer = client.call_broker(broker_id, request, ApiVersionsResponse)
    if answer.error_code:
        raise refusal(answer.error_code)
    return answer


def describe_features(client: Client, node_id: int | None = None) -> Features:
    """The features as one node tells them, any of them if none is named."""
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
) -> dict[str, RefusedError | None]:
    """Ask for new levels; what became of each feature: None is a success."""
    from ottla.protocol.messages.features import (  # noqa: PLC0415 (rarely needed)
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
    except RefusedError as problem:
        return dict.fromkeys(levels, problem)
    if answer.error_code:
        return dict.fromkeys(levels, refusal(answer.error_code, answer.error_message))
    single = {item.feature: refusal(item.error_code, item.error_message) for item in answer.results if item.error_code}
    return {name: single.get(name) for name in levels}


def describe_quorum(client: Client) -> Quorum:
    wanted = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])
    answer = client.call(DescribeQuorumRequest(topics=[wanted]), DescribeQuorumResponse)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message)
    partition = answer.topics[0].partitions[0]
    if partition.error_code:
        raise refusal(partition.error_code, partition.error_message)
    return Quorum(partition, answer.nodes)


def unregister_broker(client: Client, broker_id: int) -> None:
    """Have the cluster forget a broker that will not come back."""
    from ottla.protocol.messages.registration import UnregisterBrokerRequest, UnregisterBrokerResponse  # noqa: PLC0415

    answer = client.call_controller(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message)

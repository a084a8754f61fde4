"""DescribeProducers, ListConfigResources, DescribeQuorum, UpdateFeatures, and settings of groups and subscriptions.

The same questions to ottla and to Apache Kafka.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeQuorumRequest,
    ListConfigResourcesRequest,
    UpdateFeaturesRequest,
)
from tests.conformance.config_requests import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DEFAULT,
    DELETE,
    GROUP,
    LOGGER,
    OK,
    SET,
    TOPIC,
    change,
    entries,
    synonyms_of,
    wait_for,
)
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch
from tests.conformance.waiting import eventually

FROM_CLIENT_METRICS, FROM_GROUP = 7, 8
INVALID_REQUEST, INVALID_CONFIG, UNSUPPORTED_VERSION, INVALID_UPDATE_VERSION = 42, 40, 35, 95
UNKNOWN_TOPIC, INVALID_TOPIC = 3, 17
NOT_HERE = "This server does not host this topic-partition."


@pytest.fixture
def name() -> str:
    return f"conformance-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def subscription(peer: Peer, name: str) -> Iterator[str]:
    yield name
    change(peer, (CLIENT_METRICS, name, [(key, DELETE, None) for key in ("interval.ms", "match", "metrics")]))


@pytest.fixture
def group(peer: Peer, name: str) -> Iterator[str]:
    yield name
    change(peer, (GROUP, name, [(key, DELETE, None) for key in ("consumer.session.timeout.ms",)]))


def resources(peer: Peer, *types: int, version: int = 1) -> set[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(types))
    answer = peer.ask(request, version)
    assert answer.error_code == 0
    return {(getattr(item, "resource_type", CLIENT_METRICS), item.resource_name) for item in answer.config_resources}


# ---- subscriptions to client metrics


def test_a_subscription_is_there_while_it_has_settings(peer: Peer, subscription: str) -> None:
    settings = [("interval.ms", SET, "1000"), ("match", SET, "client_id = a , client_id=b")]
    assert change(peer, (CLIENT_METRICS, subscription, settings)) == [OK]
    entry = wait_for(peer, CLIENT_METRICS, subscription, "interval.ms", "1000")
    assert (entry.config_source, synonyms_of(entry)) == (
        FROM_CLIENT_METRICS,
        [("interval.ms", "1000", FROM_CLIENT_METRICS)],
    )
    found = entries(peer, CLIENT_METRICS, subscription)
    assert {key: entry.value for key, entry in found.items()} == {
        "interval.ms": "1000",
        "match": "client_id = a,client_id=b",
        "metrics": "",
    }
    assert found["metrics"].config_source == DEFAULT
    assert (CLIENT_METRICS, subscription) in resources(peer, version=0)
    settings = [("interval.ms", DELETE, None), ("match", DELETE, None)]
    assert change(peer, (CLIENT_METRICS, subscription, settings)) == [OK]
    assert eventually(lambda: (CLIENT_METRICS, subscription) not in resources(peer, CLIENT_METRICS))


@pytest.mark.parametrize(
    ("key", "operation", "value", "code", "message"),
    [
        ("bogus", SET, "1", INVALID_REQUEST, "Unknown client metrics configuration: bogus"),
        (
            "interval.ms",
            SET,
            "99",
            INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ("match", SET, "bogus=1", INVALID_CONFIG, "Illegal client matching pattern: bogus=1"),
        ("metrics", APPEND, "a", INVALID_CONFIG, "Can't APPEND to key metrics because its type is not LIST."),
    ],
)
def test_a_wrong_setting_of_a_subscription(
    peer: Peer, subscription: str, key: str, operation: int, value: str, code: int, message: str
) -> None:
    assert change(peer, (CLIENT_METRICS, subscription, [(key, operation, value)])) == [(code, message)]
    assert (CLIENT_METRICS, subscription) not in resources(peer, CLIENT_METRICS)


def test_a_subscription_may_have_any_name(peer: Peer, subscription: str) -> None:
    name = f"{subscription} ../<default>/ü%"
    assert change(peer, (CLIENT_METRICS, name, [("metrics", SET, "a")])) == [OK]
    wait_for(peer, CLIENT_METRICS, name, "metrics", "a")
    assert change(peer, (CLIENT_METRICS, name, [("metrics", DELETE, None)])) == [OK]


# ---- groups


def test_settings_of_a_group_are_kept(peer: Peer, group: str) -> None:
    key = "consumer.session.timeout.ms"
    assert change(peer, (GROUP, group, [(key, SET, "50000")])) == [OK]
    entry = wait_for(peer, GROUP, group, key, "50000")
    assert entry.config_source == FROM_GROUP
    assert synonyms_of(entry) == [(key, "50000", FROM_GROUP), (f"group.{key}", "45000", DEFAULT)]
    assert (GROUP, group) in resources(peer, GROUP)


def test_a_group_stays_within_the_brokers_bounds(peer: Peer, group: str) -> None:
    key = "consumer.session.timeout.ms"
    message = f"{key} must be greater than or equal to group.consumer.min.session.timeout.ms"
    assert change(peer, (GROUP, group, [(key, SET, "5")])) == [(INVALID_CONFIG, message)]
    assert change(peer, (GROUP, group, [("bogus", SET, "5")])) == [(INVALID_CONFIG, "Unknown group config name: bogus")]


# ---- ListConfigResources


def test_topics_and_brokers_are_listed(peer: Peer, topic: str) -> None:
    found = resources(peer)
    assert (TOPIC, topic) in found
    brokers = {name for kind, name in found if kind == BROKER}
    assert brokers == {name for kind, name in found if kind == LOGGER} != set()
    assert resources(peer, TOPIC, BROKER) == {item for item in found if item[0] in (TOPIC, BROKER)}


@pytest.mark.parametrize("kind", [0, 99])
def test_an_unknown_type_is_refused(peer: Peer, kind: int) -> None:
    assert peer.ask(ListConfigResourcesRequest(resource_types=[kind]), 1).error_code == UNSUPPORTED_VERSION


# ---- DescribeProducers


def describe_producers(peer: Peer, topic: str, *partitions: int) -> list[Any]:
    request = DescribeProducersRequest(topics=[(topic, list(partitions))])
    return list(peer.ask(request, 0).topics[0].partitions)


def test_a_producer_is_described(peer: Peer, topic: str) -> None:
    producer_id = peer.new_producer_id()
    records = batch([b"a", b"b"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert peer.produce(topic, records).error_code == 0
    (partition,) = describe_producers(peer, topic, 0)
    (state,) = partition.active_producers
    assert (partition.error_code, partition.error_message) == (0, None)
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer_id, 0, 1)
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)
    assert state.last_timestamp > 0


def test_partitions_without_producers_and_without_existence(peer: Peer, topic: str) -> None:
    found = describe_producers(peer, topic, 0, 5, -1)
    assert [(row.error_code, row.error_message, row.active_producers) for row in found] == [
        (0, None, []),
        (UNKNOWN_TOPIC, None, []),
        (UNKNOWN_TOPIC, None, []),
    ]


@pytest.mark.parametrize(
    ("topic_name", "code", "message"),
    [
        ("no-such-topic", UNKNOWN_TOPIC, NOT_HERE),
        ("", INVALID_TOPIC, "Topic name is invalid: the empty string is not allowed"),
    ],
)
def test_producers_of_a_topic_that_is_none(peer: Peer, topic_name: str, code: int, message: str) -> None:
    (row,) = describe_producers(peer, topic_name, 0)
    assert (row.error_code, row.error_message) == (code, message)


# ---- DescribeQuorum


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_has_a_leader_that_votes(peer: Peer, version: int) -> None:
    answer = peer.ask(DescribeQuorumRequest(topics=[("__cluster_metadata", [(0,)])]), version)
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    (voter,) = partition.current_voters
    assert (partition.error_code, voter.replica_id) == (0, partition.leader_id)
    assert partition.leader_epoch >= 1
    assert voter.log_end_offset >= partition.high_watermark > 0
    if version >= 1:
        assert voter.last_caught_up_timestamp > 0
    if version >= 2:
        assert [node.node_id for node in answer.nodes] == [partition.leader_id]
        assert answer.nodes[0].listeners[0].port > 0


@pytest.mark.parametrize("asked", [[("other", [(0,)])], [("__cluster_metadata", [(0,), (1,)])]])
def test_no_other_topic_has_a_quorum(peer: Peer, asked: list[Any]) -> None:
    answer = peer.ask(DescribeQuorumRequest(topics=asked), 2)
    found = {(row.error_code, row.error_message) for row in answer.topics[0].partitions}
    assert (answer.error_code, found) == (0, {(UNKNOWN_TOPIC, NOT_HERE)})


# ---- UpdateFeatures


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_unknown_feature_cannot_be_set(peer: Peer, version: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="bogus.version", max_version_level=1, allow_downgrade=False, upgrade_type=1
    )
    request = UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[update], validate_only=False)
    answer = peer.ask(request, version)
    assert answer.error_code == INVALID_UPDATE_VERSION
    assert answer.error_message == (
        "The update failed for all features since the following feature had an error: Invalid update version 1 for "
        "feature bogus.version. Local controller 1 does not support this feature."
    )


def test_no_update_is_a_success(peer: Peer) -> None:
    answer = peer.ask(UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[], validate_only=False), 2)
    assert (answer.error_code, answer.error_message) == (0, None)

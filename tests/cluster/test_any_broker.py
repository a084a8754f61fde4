"""What each broker of a cluster says about partitions that others lead, and about the cluster as a whole."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from tests.cluster.coordinator_clients import coordinator_of
from tests.conformance.peer import LATEST, Peer, produce_request
from tests.conformance.raw_batches import batch

from ottla.client.client import Client
from ottla.client.coordinators import KeyType, find_coordinators
from ottla.testing.cluster import Cluster

OUT_OF_RANGE = 1
NOT_LEADER = 6
UNKNOWN_LEADER_EPOCH = 75


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """One partition, led by broker 1."""
    return cluster.create_topic(request.node.name[:80], assignment={0: [1, 2, 3]})


def test_requests_for_a_partition_that_another_broker_leads(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    others = [broker for broker in cluster.brokers if broker is not leader]
    host, port = leader.bootstrap_servers.split(":")
    with Peer(others[0].bootstrap_servers) as peer:
        produced = peer.ask(produce_request(topic, batch([b"x"])), 12)
        row = produced.responses[0].partition_responses[0]
        assert (row.error_code, row.current_leader.leader_id) == (NOT_LEADER, leader.id)
        (node,) = produced.node_endpoints
        assert (node.node_id, node.host, node.port) == (leader.id, host, int(port))

        assert peer.list_offset(topic, LATEST).error_code == NOT_LEADER

        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        epochs = OffsetForLeaderEpochRequest(
            replica_id=-2,
            topics=[
                asked(
                    topic=topic,
                    partitions=[asked.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)],
                )
            ],
        )
        assert peer.ask(epochs, 4).topics[0].partitions[0].error_code == NOT_LEADER

        wanted = DeleteRecordsRequest.DeleteRecordsTopic
        deletion = DeleteRecordsRequest(
            topics=[wanted(name=topic, partitions=[wanted.DeleteRecordsPartition(partition_index=0, offset=0)])],
            timeout_ms=5000,
        )
        assert peer.ask(deletion, 2).topics[0].partitions[0].error_code == NOT_LEADER


def test_a_follower_resets_no_consumer_to_the_beginning(cluster: Cluster, topic: str) -> None:
    """A consumer with old metadata and no leader epoch takes it for the leader."""
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    leader = cluster.leader_of(topic)
    follower = next(broker for broker in cluster.brokers if broker is not leader)
    with Peer(follower.bootstrap_servers) as peer:
        assert peer.fetch(topic, 999, max_wait_ms=0).error_code == NOT_LEADER
    with Peer(leader.bootstrap_servers) as peer:
        assert peer.fetch(topic, 999, max_wait_ms=0).error_code == OUT_OF_RANGE


def test_an_epoch_unknown_to_the_leader_is_not_reported_as_truncation(cluster: Cluster, topic: str) -> None:
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    row = asked.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=99)
    request = OffsetForLeaderEpochRequest(replica_id=-2, topics=[asked(topic=topic, partitions=[row])])
    with Peer(cluster.leader_of(topic).bootstrap_servers) as peer:
        peer.wait_until_led(topic)
        assert peer.ask(request, 4).topics[0].partitions[0].error_code == UNKNOWN_LEADER_EPOCH


def test_deleted_records_are_gone_on_all_replicas_when_the_answer_comes(cluster: Cluster, topic: str) -> None:
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    deletion = DeleteRecordsRequest(
        topics=[wanted(name=topic, partitions=[wanted.DeleteRecordsPartition(partition_index=0, offset=2)])],
        timeout_ms=10_000,
    )
    cluster.wait_for_isr(topic, 0, [1, 2, 3])
    leader = cluster.leader_of(topic)
    with Peer(leader.bootstrap_servers) as peer:
        assert peer.produce(topic, batch([b"a", b"b", b"c"])).error_code == 0
        row = peer.ask(deletion, 2).topics[0].partitions[0]
        assert (row.error_code, row.low_watermark) == (0, 2)
    leader.kill()
    follower = cluster.wait_for_leader(topic, other_than=leader)
    with Peer(follower.bootstrap_servers) as peer:
        peer.wait_until_led(topic)
        assert (peer.list_offset(topic, -2).offset, peer.end_offset(topic)) == (2, 3)


def test_every_broker_names_the_same_coordinators_controller_and_brokers(cluster: Cluster) -> None:
    coordinator_of(cluster, KeyType.GROUP, "some group")  # makes the topic
    keys = [f"group-{number}" for number in range(20)]
    told = []
    for broker in cluster.brokers:
        with Client(broker.bootstrap_servers) as client:
            found = find_coordinators(client, KeyType.GROUP, keys)
        told.append([(each.error_code, each.node_id, each.port) for each in found])
    assert told[0] == told[1] == told[2]
    assert {(error, node_id in (1, 2, 3)) for error, node_id, _ in told[0]} == {(0, True)}
    answers = cluster.metadata().values()
    assert {answer.controller_id for answer in answers} == {cluster.controller_id()}
    assert {tuple(sorted(row.node_id for row in answer.brokers)) for answer in answers} == {(1, 2, 3)}


def test_a_dead_broker_is_offline_and_out_of_the_metadata(cluster: Cluster, topic: str) -> None:
    dead = cluster.broker(1)
    dead.kill()
    cluster.wait_for_leader(topic, other_than=dead)
    cluster.wait_for_isr(topic, 0, [2, 3])
    for answer in cluster.metadata(topic).values():
        (row,) = answer.topics[0].partitions
        assert (row.error_code, row.offline_replicas, sorted(row.isr_nodes)) == (0, [1], [2, 3])
        assert sorted(each.node_id for each in answer.brokers) == [2, 3]

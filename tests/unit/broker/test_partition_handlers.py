"""Requests about partitions of a cluster: remote leaders, new leaders, and followers to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests import virtual_time
from tests.long_requests import Maker, Naming, World
from tests.unit.coordination.stand import NOW_MS, OTHER, Replicas, lead, lose, replicate
from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.logs import LogLimiter
from ottla.broker.coordinator_service.internal_topics import offsets_topic, require_brokers, transactions_topic
from ottla.broker.current_leaders import (
    add_node_endpoints_for_consumer,
    add_node_endpoints_for_producer,
    set_current_leader_for_consumer,
    set_current_leader_for_producer,
)
from ottla.broker.handlers import delete_records, describe_quorum, find_coordinator, list_offsets, write_txn_markers
from ottla.broker.handlers.table import APIS
from ottla.broker.served_api import ServedApi
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from ottla.network.connection import ConnectedClient
from ottla.network.peer import SOFTWARE_NAME
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.cluster import DescribeQuorumRequest
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.transactions import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.replication.partition import Partition

TOPIC_ID = UUID(int=7)


def image(leader: int = OTHER, topic: str = "t") -> MetadataImage:
    brokers = {
        1: BrokerImage(1, {"PLAINTEXT": Endpoint("one", 9091), "OUT": Endpoint("out-one", 1)}, None, 1),
        2: BrokerImage(2, {"PLAINTEXT": Endpoint("two", 9092)}, "rack-b", 2),
    }
    states = (PartitionImage(leader, 5, (1, 2), (1, 2)), PartitionImage(-1, 6, (), (1, 2)))
    return MetadataImage(brokers=brokers, topics={topic: TopicImage(topic, TOPIC_ID, states)}, controller_id=9)


class Asking:
    """A client with all permissions."""

    def __init__(self, broker: Any, api_version: int, listener: str = "PLAINTEXT", software: str = "client") -> None:
        self.broker = broker
        self.api_version = api_version
        self.listener_name = listener
        self.client = ConnectedClient("127.0.0.1", 1, listener)
        self.client.software_name = software

    def is_authorized(self, *_: object) -> bool:
        return True

    is_visible = is_granted = is_authorized


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


def broker_with(replicas: Any, **parts: Any) -> Any:
    return SimpleNamespace(
        replicas=replicas,
        clock=LoopClock(),
        image=parts.pop("image", image()),
        must_check_leadership=parts.pop("must_check_leadership", False),
        error_for_missing_partition=lambda *_: KafkaError(Error.NOT_LEADER_OR_FOLLOWER),
        **parts,
    )


def append(partition: Partition, *values: bytes) -> None:
    records = [Record(offset, NOW_MS, None, value, ()) for offset, value in enumerate(values)]
    partition.append(memoryview(build_batch(records)), False, NOW_MS)


# ---- current leader (KIP-951)


def test_a_producer_at_the_wrong_broker_gets_the_current_leader() -> None:
    context: Any = Asking(broker_with(None), 10)
    rows = [PartitionProduceResponse(index=index, error_code=6, base_offset=-1) for index in (0, 1)]
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])
    leaders = {set_current_leader_for_producer(row, "t", context) for row in rows}
    add_node_endpoints_for_producer(response, leaders, context)
    told = [(row.current_leader.leader_id, row.current_leader.leader_epoch) for row in rows if row.current_leader]
    assert told == [(2, 5), (-1, 6)]
    assert [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints] == [
        (2, "two", 9092, "rack-b")
    ]


def test_a_consumer_gets_it_too_unless_the_leader_lacks_its_listener() -> None:
    def answer(listener: str) -> FetchResponse:
        context: Any = Asking(broker_with(None), 16, listener)
        data = PartitionData(partition_index=0, error_code=Error.NOT_LEADER_OR_FOLLOWER, high_watermark=-1)
        response = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])
        add_node_endpoints_for_consumer(
            response, {set_current_leader_for_consumer(data, "", TOPIC_ID, context)}, context
        )
        return response

    inside = answer("PLAINTEXT")
    told = inside.responses[0].partitions[0].current_leader
    assert told is not None
    assert (told.leader_id, told.leader_epoch) == (2, 5)
    assert [node.node_id for node in inside.node_endpoints] == [2]
    assert answer("OUT").node_endpoints == []


# ---- ListOffsets of a new leader (KIP-207)


@pytest.mark.parametrize(("version", "unknown"), [(4, Error.LEADER_NOT_AVAILABLE), (5, Error.OFFSET_NOT_AVAILABLE)])
def test_a_new_leader_does_not_guess_the_log_end_offset(replicas: Replicas, version: int, unknown: Error) -> None:
    def latest() -> Any:
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
        )
        context: Any = Asking(broker_with(replicas.set), version)
        response = virtual_time.run(list_offsets.handle(request, context))
        row = response.topics[0].partitions[0]
        return row.error_code, row.offset

    partition = replicas.make("t")
    append(partition, b"a", b"b")
    assert latest() == (0, 0)
    lose(partition, 1)
    assert latest() == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    lead(partition, 2)  # the two records may have been committed by the other leader
    assert latest() == (unknown, -1)
    replicate(partition)
    assert latest() == (0, 2)


# ---- DeleteRecords waits for followers


def delete(replicas: Replicas, timeout_ms: int, then: Any = lambda: None) -> Any:
    async def whole() -> Any:
        async def keep(_: object) -> None:
            asyncio.get_running_loop().call_later(0.01, then)

        broker = broker_with(replicas.set, checkpoints=SimpleNamespace(sync_start_offsets=keep))
        replicas.set.log_dirs = SimpleNamespace(log_dir_of=lambda _: "folder")  # type: ignore[assignment]
        topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        response = await delete_records.handle(request, Asking(broker, 2))  # type: ignore[arg-type]
        row = response.topics[0].partitions[0]
        return row.error_code, row.low_watermark

    return virtual_time.run(whole())


def follow(partition: Partition, log_start_offset: int) -> None:
    """The follower fetches again, and reports its log start offset."""
    end = partition.log.end_offset
    epoch = partition.log.latest_epoch
    partition.read_for_replica(
        OTHER, -1, end, epoch, partition.leader_epoch, 1 << 20, True, 0, log_start_offset=log_start_offset
    )


def test_records_are_deleted_when_the_followers_have_deleted_them(replicas: Replicas) -> None:
    partition = replicas.make("t")
    append(partition, b"a", b"b")
    follow(partition, 0)
    assert delete(replicas, 20) == (Error.REQUEST_TIMED_OUT, -1)
    assert delete(replicas, 5000, lambda: follow(partition, 1)) == (0, 1)


def test_a_deposed_leader_does_not_confirm_the_deletion(replicas: Replicas) -> None:
    partition = replicas.make("t")
    append(partition, b"a", b"b")
    follow(partition, 0)
    assert delete(replicas, 5000, lambda: lose(partition, 1)) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


# ---- WriteTxnMarkers


class Markers:
    """A fake marker writer with a result per partition."""

    def write(self, _: object, __: str, index: int, ___: int, answered: Any) -> None:
        if index == 0:
            answered(Error.NONE)
        elif index == 1:
            asyncio.get_running_loop().call_later(0.01, answered, Error.NONE)
        elif index == 2:
            answered(Error.INVALID_PRODUCER_EPOCH)


def markers(monkeypatch: pytest.MonkeyPatch, indexes: list[int], software: str) -> list[int]:
    monkeypatch.setattr(write_txn_markers, "WAIT_SECONDS_MAX", 0.05)
    replicas: Any = SimpleNamespace(get=lambda _, index: None if index == 4 else "partition")
    broker = broker_with(replicas, coordinators=SimpleNamespace(markers=Markers()))
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=2,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=indexes)],
        coordinator_epoch=3,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    context: Any = Asking(broker, 2, software=software)
    response = virtual_time.run(write_txn_markers.handle(request, context))
    return [row.error_code for row in response.markers[0].topics[0].partitions]


def test_the_response_waits_for_pending_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert markers(monkeypatch, [0, 1], "client") == [0, 0]
    late = [0, Error.REQUEST_TIMED_OUT, Error.NOT_LEADER_OR_FOLLOWER]
    assert markers(monkeypatch, [1, 3, 4], "client") == late


def test_a_marker_with_an_old_epoch_gets_the_same_error_for_any_client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert markers(monkeypatch, [2], SOFTWARE_NAME) == [Error.INVALID_PRODUCER_EPOCH]
    assert markers(monkeypatch, [2], "client") == [Error.INVALID_PRODUCER_EPOCH]


class Refused(Asking):
    """A client without permissions that claims to be a broker."""

    def __init__(self, broker: Any, api_version: int) -> None:
        super().__init__(broker, api_version, software=SOFTWARE_NAME)

    def is_authorized(self, *_: object) -> bool:
        return False

    is_visible = is_granted = is_authorized


def test_a_client_that_claims_to_be_a_broker_may_not_write_markers() -> None:
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=2, transaction_result=True, topics=topics, coordinator_epoch=3
    )
    broker = broker_with(None)  # any write would fail
    request = WriteTxnMarkersRequest(markers=[marker])
    response = virtual_time.run(write_txn_markers.handle(request, Refused(broker, 2)))  # type: ignore[arg-type]
    assert response.markers[0].topics[0].partitions[0].error_code == Error.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("row", [row for row in APIS if row.is_inter_broker], ids=lambda row: str(row.key))
def test_a_client_that_claims_to_be_a_broker_may_not_use_inter_broker_apis(row: ServedApi) -> None:
    api = ALL_APIS[row.key]
    world = World([("t", TOPIC_ID)], ("t", TOPIC_ID), 1)
    for version in range(api.min_version, api.max_version + 1):
        request = Maker(version, ("nothing",), Naming.EXISTING, 1, world).make(api.request)
        answer = virtual_time.run(row.handle(request, Refused(broker_with(None), version)))
        assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED


# ---- FindCoordinator, internal topics, quorums


class Coordinating:
    """Coordinators with an existing internal topic."""

    def __init__(self, found: MetadataImage) -> None:
        self._image = found
        self.internal_topics = SimpleNamespace(offsets=lambda: "offsets")

    async def ensure_topic(self, _: object) -> TopicImage:
        return self._image.topics["__consumer_offsets"]


@pytest.mark.parametrize(
    ("leader", "listener", "expected"),
    [
        (1, "PLAINTEXT", (0, 1, "one", 9091)),
        (2, "PLAINTEXT", (0, 2, "two", 9092)),
        (1, "OUT", (0, 1, "out-one", 1)),
        (2, "OUT", (Error.COORDINATOR_NOT_AVAILABLE, -1, "", -1)),
        (-1, "PLAINTEXT", (Error.COORDINATOR_NOT_AVAILABLE, -1, "", -1)),
        (3, "PLAINTEXT", (Error.COORDINATOR_NOT_AVAILABLE, -1, "", -1)),
    ],
)
def test_the_coordinator_is_the_leader_with_the_clients_listener(leader: int, listener: str, expected: Any) -> None:
    known = image(leader, "__consumer_offsets")
    topic = known.topics["__consumer_offsets"]
    known = known.with_topics([topic._replace(partitions=topic.partitions[:1])])
    broker = broker_with(None, image=known, coordinators=Coordinating(known))
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    (row,) = virtual_time.run(find_coordinator.handle(request, Asking(broker, 4, listener))).coordinators  # type: ignore[arg-type]
    assert (row.error_code, row.node_id, row.host, row.port) == expected


def test_a_broker_with_an_unconfirmed_registration_names_no_coordinator() -> None:
    known = image(1, "__consumer_offsets")
    broker = broker_with(None, image=known, coordinators=Coordinating(known), must_check_leadership=True)
    context: Any = Asking(broker, 4)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    (row,) = virtual_time.run(find_coordinator.handle(request, context)).coordinators
    assert row.error_code == Error.COORDINATOR_NOT_AVAILABLE


def test_internal_topics_of_a_cluster_have_the_configured_replication_factor() -> None:
    settings = BrokerSettings({})
    assert offsets_topic(settings).replication_factor == 3
    assert dict(transactions_topic(settings).configs)["min.insync.replicas"] == "2"


def test_an_internal_topic_is_not_created_while_too_few_brokers_are_alive(caplog: pytest.LogCaptureFixture) -> None:
    require_brokers(offsets_topic(BrokerSettings({})), 3, LogLimiter(10))
    with pytest.raises(KafkaError) as refused:
        require_brokers(offsets_topic(BrokerSettings({})), 2, LogLimiter(10))
    assert refused.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert "2 brokers are alive, but it needs 3 replicas" in caplog.text


def test_a_cluster_has_no_quorum_to_describe() -> None:
    broker = broker_with(None, membership=object())
    answer = virtual_time.run(describe_quorum.handle(DescribeQuorumRequest(topics=[]), Asking(broker, 2)))  # type: ignore[arg-type]
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert "ZooKeeper" in (answer.error_message or "")

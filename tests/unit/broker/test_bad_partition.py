"""A damaged partition fails its own requests only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.two_brokers import CONTROLLER, Asker, AskingBroker, ControllerBroker, with_two_brokers

from ottla.base.errors import Error
from ottla.protocol.batches import Record, build_batch
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

TOPIC = "two"


def produce() -> ProduceRequest:
    batch = memoryview(build_batch([Record(0, 1, None, b"v", ())]))
    rows = [PartitionProduceData(index=index, records=batch) for index in range(2)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=rows)])


def fetch() -> FetchRequest:
    rows = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(2)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=rows)])


def test_requests_about_other_partitions_are_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(two: AskingBroker, request: Any, response: Any, version: int) -> Any:
        peer = two.peers.open(CONTROLLER, "client")
        return (await peer.call(request, response, version)).responses[0]

    async def play(one: ControllerBroker, two: AskingBroker) -> None:
        one.parts.node.images.add_listener(one.parts.publisher.on_image)
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        await Asker(two).ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
        await one.parts.publisher.wait_until_applied()
        bad = one.parts.replicas.get(TOPIC, 0)
        assert bad is not None
        bad.is_flushing, bad.log.recovery_point = True, 99
        rows = (await ask(two, produce(), ProduceResponse, 9)).partition_responses
        assert [row.error_code for row in rows] == [Error.UNKNOWN_SERVER_ERROR, Error.NONE]
        bad.high_watermark = 99
        rows = (await ask(two, fetch(), FetchResponse, 11)).partitions
        assert [row.error_code for row in rows] == [Error.UNKNOWN_SERVER_ERROR, Error.NONE]
        assert len(rows[1].records) > 0

    with_two_brokers(tmp_path, play)
    assert "cannot append to two-0" in caplog.text
    assert "cannot read two-0" in caplog.text

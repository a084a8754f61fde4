"""Requests of groups and transactions are what they are meant to be: ottla's decoder (other code) reads them."""

from typing import Any

import pytest
from bench import group_wire
from bench.raw_client import check_produced

from ottla.protocol.apis import APIS
from ottla.protocol.codec import decode_whole
from ottla.protocol.headers import decode_request_header

WHO = group_wire.Identity(4, 5)
REQUESTS = {
    "FindCoordinator": group_wire.find_coordinator_request("g", group_wire.GROUP),
    "JoinGroup": group_wire.join_request("g", "m", 10_000),
    "SyncGroup": group_wire.sync_request("g", 3, "m", ["m", "n"]),
    "Heartbeat": group_wire.heartbeat_request("g", 3, "m"),
    "ConsumerGroupHeartbeat": group_wire.pattern_heartbeat_request("g", "m", "a.*"),
    "OffsetCommit": group_wire.commit_request("g", 3, "m", "t", range(2), 7),
    "OffsetFetch": group_wire.fetch_nothing_request("g"),
    "InitProducerId": group_wire.init_producer_request("x", 10_000),
    "Produce": group_wire.transactional_produce_request("t", "x", group_wire.transactional_batch(b"v", WHO)),
    "EndTxn": group_wire.end_request("x", WHO, True),
}


def read(frame: bytes) -> tuple[str, Any]:
    """The name of the API and the message, which must fill the frame."""
    header = decode_request_header(memoryview(frame)[4:])
    api = APIS[header.api_key]
    return api.name, decode_whole(api.request, header.api_version, memoryview(frame)[4:], header.body_position)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_read_to_its_end(name: str) -> None:
    assert read(REQUESTS[name])[0] == name


def test_a_commit_names_its_partitions() -> None:
    _, commit = read(REQUESTS["OffsetCommit"])
    [topic] = commit.topics
    assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [(0, 7), (1, 7)]


def test_a_produce_answer_without_an_error_passes() -> None:
    check_produced(bytearray(40), "t")

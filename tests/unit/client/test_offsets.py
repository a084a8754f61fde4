"""Requests to leaders about their partitions, and failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import error_from_code
from ottla.client.offsets import EARLIEST, EARLIEST_PENDING_UPLOAD, delete_records, list_offsets
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


class FakeClient:
    """A cluster whose topic `a` has three partitions: leaders 1 and 2, and one without a leader."""

    timeout_ms = 1000

    def __init__(self) -> None:
        self.leaders = [1, 2, -1]
        self.version = 11
        self.asked: list[tuple[int, Any]] = []
        self.pauses: list[float] = []
        self.answer: Callable[[int, int], int] = lambda _broker, _partition: 0  # an error code

    def call(self, _request: object, _response: object) -> MetadataResponse:
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=leader)
            for number, leader in enumerate(self.leaders)
        ]
        return MetadataResponse(topics=[MetadataResponseTopic(name="a", partitions=partitions)])

    def call_broker(self, broker: int, request: Any, _response: object) -> ListOffsetsResponse:
        self.asked.append((broker, request))
        partitions = [
            ListOffsetsPartitionResponse(
                partition_index=item.partition_index, offset=7, error_code=self.answer(broker, item.partition_index)
            )
            for item in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=partitions)])

    def version_of(self, _request: type) -> int:
        return self.version

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.leaders[2] = 2 if len(self.pauses) > 1 else -1


@pytest.fixture
def cluster() -> FakeClient:
    return FakeClient()


def client_of(cluster: FakeClient) -> Client:
    return cluster  # type: ignore[return-value]


def test_each_leader_is_asked_about_its_own_and_a_missing_one_is_waited_for(cluster: FakeClient) -> None:
    found, failures = list_offsets(client_of(cluster), [A0, A1, A2], EARLIEST)
    assert {partition: item.offset for partition, item in found.items()} == {A0: 7, A1: 7, A2: 7}
    assert not failures
    assert [broker for broker, _ in cluster.asked] == [1, 2, 2]
    assert len(cluster.pauses) == 2


def test_missing_topics_are_reported_at_once(cluster: FakeClient) -> None:
    found, failures = list_offsets(client_of(cluster), [A0, TopicPartition("b", 0)], EARLIEST)
    assert list(found) == [A0]
    assert failures[TopicPartition("b", 0)].error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert not cluster.pauses


def test_a_leader_that_stays_away_is_given_up(cluster: FakeClient) -> None:
    cluster.answer = lambda _broker, partition: Error.NOT_LEADER_OR_FOLLOWER if partition == 1 else 0
    found, failures = list_offsets(client_of(cluster), [A0, A1], EARLIEST)
    assert (list(found), failures[A1].error) == ([A0], Error.NOT_LEADER_OR_FOLLOWER)
    assert len(cluster.pauses) == 5


def test_an_old_broker_is_not_asked_for_a_time_that_it_does_not_know(cluster: FakeClient) -> None:
    cluster.version = 8
    found, failures = list_offsets(client_of(cluster), [A0], EARLIEST_PENDING_UPLOAD)
    assert (found, failures[A0].error, cluster.asked) == ({}, Error.UNSUPPORTED_VERSION, [])


def test_a_leader_that_knows_no_such_request_fails_its_partitions(cluster: FakeClient) -> None:
    def refuse(*_: object) -> Any:
        raise error_from_code(Error.UNSUPPORTED_VERSION)

    cluster.call_broker = refuse  # type: ignore[method-assign]
    low_watermarks, failures = delete_records(client_of(cluster), {A0: 5, A1: -1})
    assert not low_watermarks
    assert {problem.error for problem in failures.values()} == {Error.UNSUPPORTED_VERSION}

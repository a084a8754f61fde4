"""Timestamps by offset: the record that counts, and the partitions that are fetched again."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.operations import record_times as module
from ottla.operations.record_times import Step, _read_times, first_record
from ottla.protocol.batches import COMMIT_MARKER, build_batch
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.records import Record

A, B, C = (TopicPartition("t", number) for number in range(3))


def batch(first: int, times: list[int], codec: int = 0) -> bytes:
    records = [Record(-1, at, None, b"v") for at in times]
    return bytes(build_batch(records, base_offset=first, codec=codec))


def marker(offset: int) -> bytes:
    record = Record(-1, 0, struct.pack(">hh", 0, COMMIT_MARKER), bytes(6))
    return bytes(build_batch([record], base_offset=offset, producer_id=7, is_transactional=True, is_control=True))


class Leader:
    """Answers fetches from logs in whole batches; the first partition gets at least one."""

    def __init__(self, logs: dict[TopicPartition, bytes], room: int, end: int) -> None:
        self.logs, self.room, self.end = logs, room, end
        self.asked: list[list[int]] = []

    def call_broker(
        self, _id: int, request: FetchRequest, _kind: type, _check: Callable[[Any], None], _version: int
    ) -> FetchResponse:
        (topic,) = request.topics
        self.asked.append([item.partition for item in topic.partitions])
        answers = []
        for number, item in enumerate(topic.partitions):
            log = self.logs[TopicPartition("t", item.partition)]
            records = log if number == 0 or len(log) <= self.room else b""
            answers.append(PartitionData(partition_index=item.partition, high_watermark=self.end, records=records))
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=answers)])


def ask(leader: Leader, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, object]:
    return dict(_read_times(cast("Client", leader), 1, offsets))


@pytest.mark.parametrize("codec", [0, 1])
def test_the_first_record_from_the_offset_on_counts(codec: int) -> None:
    log = batch(0, [10, 20, 30], codec) + batch(5, [50], codec)
    assert first_record(log, 0) == Step(10, 0)
    assert first_record(log, 2) == Step(30, 2)
    assert first_record(log, 3) == Step(50, 5), "compaction has taken what was between"
    assert first_record(log, 6) == Step(None, 6)
    assert first_record(log[:-1], 3) == Step(None, 3), "a batch that is cut off does not count"


def test_markers_are_passed() -> None:
    assert first_record(marker(4) + batch(5, [50]), 4) == Step(50, 5)
    assert first_record(marker(4), 4) == Step(None, 5)


def test_an_old_format_is_refused_and_not_misread() -> None:
    log = bytearray(batch(0, [10]))
    log[16] = 1
    with pytest.raises(KafkaError):
        first_record(bytes(log), 0)


def test_a_damaged_batch_has_no_timestamp() -> None:
    log = bytearray(batch(0, [10]))
    log[-1] ^= 1
    with pytest.raises(KafkaError, match="damaged"):
        first_record(bytes(log), 0)


def test_partitions_without_data_in_a_full_response_are_fetched_again() -> None:
    leader = Leader({A: batch(0, [1]), B: batch(0, [2]), C: batch(0, [3])}, room=0, end=1)
    assert ask(leader, {A: 0, B: 0, C: 0}) == {A: 1, B: 2, C: 3}
    assert leader.asked == [[0, 1, 2], [1, 2], [2]]


def test_nothing_but_markers_up_to_the_end_is_no_record() -> None:
    assert ask(Leader({A: marker(4)}, 0, end=5), {A: 4}) == {A: None}


def test_markers_without_end_are_not_followed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader({A: b""}, 0, end=10**6)
    steps = iter(range(1, 100))
    monkeypatch.setattr(module, "first_record", lambda _records, _offset: Step(None, next(steps)))
    (answer,) = ask(leader, {A: 0}).values()
    assert isinstance(answer, BrokerError)
    assert len(leader.asked) == module.ROUNDS_MAX


def test_a_broker_that_holds_records_back_leaves_the_time_unknown() -> None:
    (answer,) = ask(Leader({A: b""}, 0, end=9), {A: 4}).values()
    assert isinstance(answer, BrokerError)
    assert answer.error is Error.OFFSET_NOT_AVAILABLE

"""The engines of the console tools: failure messages of the producer, stop conditions of the consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.cli.records.console_consumer import ConsumePlan, _copy_records
from ottla.cli.records.console_producer import _failure_reason
from ottla.cli.records.formatters import Message
from ottla.cli.records.line_reader import Line


class FakeError:
    def name(self) -> str:
        return "_UNKNOWN_PARTITION"

    def str(self) -> str:
        return "Local: Unknown partition"


def test_a_partition_that_the_topic_lacks_is_named() -> None:
    assert _failure_reason(Line(None, b"x", [], partition=2), FakeError()) == "the topic has no partition 2"
    assert _failure_reason(Line(None, b"x", []), FakeError()) == "Unknown partition"


RECORD = Message("orders", 0, 0, "CreateTime", 1, None, b"a chair", [])


class FakeReader:
    """Has no partitions for a while, then one record, then none."""

    has_seen_all_partitions = False

    def messages(self) -> Iterator[list[Message]]:
        yield []
        yield []
        self.has_seen_all_partitions = True
        yield [RECORD]
        yield []
        raise AssertionError("the wait should have ended")

    def store_offsets(self, batch: list[Message]) -> None:
        pass


class FakeSink:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    @property
    def count(self) -> int:
        return len(self.messages)

    def print(self, batch: list[Message]) -> None:
        self.messages += batch

    def finish(self) -> None:
        pass


def test_the_timeout_starts_after_the_partitions_have_answered() -> None:
    sink, reader = FakeSink(), FakeReader()
    pump: Any = _copy_records
    pump(reader, sink, ConsumePlan("orders", timeout_ms=0))
    assert sink.messages == [RECORD]

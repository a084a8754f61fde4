"""When a console consumer stops by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.cli.records.consuming import Plan, _pump
from ottla.cli.records.formatters import Message

RECORD = Message("orders", 0, 0, "CreateTime", 1, None, b"a chair", [])


class FakeReader:
    """Finds its way for a while, then has a record, then nothing more."""

    is_settled = False

    def messages(self) -> Iterator[list[Message]]:
        yield []
        yield []
        self.is_settled = True
        yield [RECORD]
        yield []
        raise AssertionError("nobody should wait any longer")

    def printed(self, batch: list[Message]) -> None:
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


def test_the_time_does_not_run_before_the_partitions_have_answered() -> None:
    sink, reader = FakeSink(), FakeReader()
    pump: Any = _pump
    pump(reader, sink, Plan("orders", timeout_ms=0))
    assert sink.messages == [RECORD]

"""The base of dialogues: a coordinator shard with a log in memory whose high watermark can be held back.

A dialogue is a text file. A command starts at the beginning of a line; the indented lines below it are its output:
responses to clients and written records. Lines that start with # are comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.coordination.shard import CoordinatorContext
from ottla.protocol.batches import read_batch_header, read_records


class HeldPartition:
    """The partition interface that a shard needs; commit() advances the high watermark to the log end offset."""

    def __init__(self, is_held: bool, topic: str) -> None:
        self.name = TopicPartition(topic, 0)
        self.log = SimpleNamespace(settings=TopicSettings())
        self.is_leader = True
        self.is_under_min_isr = False
        self.leader_epoch = self.leader_since_epoch = 0
        self.is_held = is_held
        self.refusal: Any = None
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.high_watermark = 0
        self._waiting: list[tuple[int, Any]] = []

    def append_as_coordinator(self, batch: bytearray, _: int) -> int:
        if self.refusal is not None:
            raise self.refusal
        header = read_batch_header(batch, 0)
        self.batches.append(bytes(batch))
        self.end_offset += header.record_count
        if not self.is_held:
            self.high_watermark = self.end_offset
        return self.end_offset - 1

    def is_replicated(self, offset: int) -> bool:
        return self.high_watermark > offset

    def wait_for_replication(self, offset: int, waiting: Any) -> None:
        self._waiting.append((offset, waiting))

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        waiting, self._waiting = self._waiting, []
        for _, each in waiting:
            each.complete_partition()

    def records(self) -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        for batch in self.batches:
            found += [(record.key or b"", record.value) for record in read_records(batch)]
        return found


class Dialogue:
    """Runs the commands of a dialogue, collects the output and keeps the time.

    Subclasses define the commands, the description of records, and the machine.
    """

    commands: list[tuple[str, Callable[..., None]]]
    machine: Any
    shard: CoordinatorContext[Any]

    def __init__(self, is_held: bool = False, topic: str = "__consumer_offsets") -> None:
        self.partition = HeldPartition(is_held, topic)
        self.now_ms = 1_000_000
        self.output: list[str] = []
        self._written = 0

    def describe_record(self, key: bytes, value: bytes | None) -> str:
        raise NotImplementedError

    def load(self, machine: Any, on_settled: Callable[[Any], None] = lambda _: None) -> None:
        """Load the machine from the log, as a start does."""
        self.machine = machine
        for key, value in self.partition.records():
            machine.replay(key, value, None)
        self.shard = CoordinatorContext(self.partition, machine, with_error, lambda: self.now_ms, on_settled)  # type: ignore[arg-type]
        for decision in machine.on_loaded(self.now_ms):
            self.shard.execute(decision)

    def perform(self, line: str) -> list[str]:
        """Run one command; returns its output."""
        for pattern, method in self.commands:
            found = re.fullmatch(pattern, line)
            if found is not None:
                method(self, **{name: value for name, value in found.groupdict().items() if value is not None})
                break
        else:
            raise ValueError(f"unknown command {line!r}")
        self.check()
        records = self.partition.records()
        for key, value in records[self._written :]:
            self.print(f"log: {self.describe_record(key, value)}")
        self._written = len(records)
        heard, self.output = self.output, []
        return heard

    def check(self) -> None:
        """Check invariants after every command."""

    def print(self, line: str) -> None:
        self.output.append(line)

    # ---- commands of every dialogue

    def wait(self, milliseconds: str) -> None:
        end_ms = self.now_ms + int(milliseconds)
        while (at_ms := self.machine.next_wakeup_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            for decision in self.shard.sweep() or ():
                self.shard.execute(decision)
            self.shard.tick()
        self.now_ms = end_ms

    def release(self) -> None:
        self.partition.commit()

    def fail_writes(self, error: str) -> None:
        self.partition.refusal = KafkaError(Error[error])

    def let_write(self) -> None:
        self.partition.refusal = None


def check_metadata_count(machine: Any) -> None:
    """The memory count, updated with every change, must equal the sum over all members."""
    groups = [*machine.groups.values(), *machine.consumer.groups.values()]
    assert machine.memory.used == sum(each.metadata_bytes() for group in groups for each in group.members.values())


def with_error(response: Any, error: Error) -> Any:
    """The response with an error, as the broker creates it for a refused append."""
    if isinstance(response, Error):
        return error
    if hasattr(response, "_replace"):
        return type(response)(error)
    if hasattr(response, "error_code"):
        response.error_code = error
    for topic in getattr(response, "topics", ()):
        for row in topic.partitions:
            row.error_code = error
    return response


def play(text: str, perform: Callable[[str], list[str]]) -> str:
    """The dialogue with its actual output; equal to `text` if the test passes."""
    told: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        told.append(line)
        if line and not line.startswith("#"):
            told += [f"  {heard}" for heard in perform(line)]
    return "\n".join(told) + "\n"

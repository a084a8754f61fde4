"""The stage for dialogues: a shard of a coordinator with a log in memory whose high watermark is held back.

A dialogue is a text file. Each command stands at the beginning of a line; the lines below it, indented, are what is
heard after it: answers to clients and records that were written. Lines that begin with # are remarks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.coordination.shard import Shard
from ottla.protocol.batches import read_batch_header, read_records


class HeldPartition:
    """Just what a shard needs of a partition; commit() lets the high watermark pass all that was appended."""

    def __init__(self, is_held: bool, topic: str) -> None:
        self.name = TopicPartition(topic, 0)
        self.log = SimpleNamespace(settings=TopicSettings())
        self.is_leader = True
        self.has_too_few_in_sync = False
        self.leader_epoch = self.leading_since = 0
        self.is_held = is_held
        self.refusal: Any = None
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.high_watermark = 0
        self._waiting: list[tuple[int, Any]] = []

    def append_own(self, batch: bytearray, _: int) -> int:
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
            each.note()

    def records(self) -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        for batch in self.batches:
            found += [(record.key or b"", record.value) for record in read_records(batch)]
        return found


class Stage:
    """Understands the lines of a dialogue, hears what is said and keeps the time.

    A stage of its own says which commands there are, how its records are told, and what its machine and shard are.
    """

    commands: list[tuple[str, Callable[..., None]]]
    machine: Any
    shard: Shard[Any]

    def __init__(self, is_held: bool = False, topic: str = "__consumer_offsets") -> None:
        self.partition = HeldPartition(is_held, topic)
        self.now_ms = 1_000_000
        self.heard: list[str] = []
        self._written = 0

    def tell_record(self, key: bytes, value: bytes | None) -> str:
        raise NotImplementedError

    def load(self, machine: Any, on_settled: Callable[[Any], None] = lambda _: None) -> None:
        """Build the machine up from what is in the log, as a start does."""
        self.machine = machine
        for key, value in self.partition.records():
            machine.apply(key, value, None)
        self.shard = Shard(self.partition, machine, with_error, lambda: self.now_ms, on_settled)  # type: ignore[arg-type]
        for decision in machine.loaded(self.now_ms):
            self.shard.run(decision)

    def perform(self, line: str) -> list[str]:
        """Carry out one command; what was heard."""
        for pattern, method in self.commands:
            found = re.fullmatch(pattern, line)
            if found is not None:
                method(self, **{name: value for name, value in found.groupdict().items() if value is not None})
                break
        else:
            raise ValueError(f"nobody understands {line!r}")
        records = self.partition.records()
        for key, value in records[self._written :]:
            self.hear(f"log: {self.tell_record(key, value)}")
        self._written = len(records)
        heard, self.heard = self.heard, []
        return heard

    def hear(self, line: str) -> None:
        self.heard.append(line)

    # ---- commands of every stage

    def wait(self, milliseconds: str) -> None:
        end_ms = self.now_ms + int(milliseconds)
        while (at_ms := self.machine.next_wakeup_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            for decision in self.shard.sweep() or ():
                self.shard.run(decision)
            self.shard.tick()
        self.now_ms = end_ms

    def release(self) -> None:
        self.partition.commit()

    def fail_writes(self, error: str) -> None:
        self.partition.refusal = KafkaError(Error[error])

    def let_write(self) -> None:
        self.partition.refusal = None


def with_error(response: Any, error: Error) -> Any:
    """What a broker makes of an answer whose records could not be written."""
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
    """The dialogue with what was really heard: equal to `text` if all is as it should be."""
    told: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        told.append(line)
        if line and not line.startswith("#"):
            told += [f"  {heard}" for heard in perform(line)]
    return "\n".join(told) + "\n"

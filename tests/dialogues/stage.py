"""The stage for dialogues: a shard of a coordinator with a log in memory whose high watermark is held back.

A dialogue is a text file. Each command stands at the beginning of a line; the lines below it, indented, are what is
heard after it: answers to clients and records that were written. Lines that begin with # are remarks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.protocol.batches import read_batch_header, read_records


class HeldPartition:
    """Just what a shard needs of a partition; commit() lets the high watermark pass all that was appended."""

    def __init__(self, is_held: bool, topic: str) -> None:
        self.name = TopicPartition(topic, 0)
        self.is_leader = True
        self.leader_epoch = 0
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
    """Hears what is said and keeps the time."""

    def __init__(self, is_held: bool = False, topic: str = "__consumer_offsets") -> None:
        self.partition = HeldPartition(is_held, topic)
        self.now_ms = 1_000_000
        self.heard: list[str] = []

    def hear(self, line: str) -> None:
        self.heard.append(line)


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

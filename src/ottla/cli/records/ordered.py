"""Where read records can go beside standard output: into another topic, and through a sort by time before that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from ottla.cli.records.consuming import Sink
from ottla.cli.records.formatters import Message
from ottla.cli.records.line_reader import Line
from ottla.cli.records.producing import Sender, producer_settings, wait_for_topic
from ottla.cli.records.record_meter import RecordMeter
from ottla.cli.records.sorting import ExternalSort
from ottla.cli.terminal import ToolError

MAX_BLOCK_MS = 60_000
LINGER_MS = 20
BATCH_BYTES = 262_144
SORTED_LOT = 1000  # records that are passed on together


class TopicWriter:
    """Writes records to a topic with their keys, headers and timestamps, in large batches."""

    def __init__(self, bootstrap: str, topic: str, partition: int | None, properties: Mapping[str, str]) -> None:
        wait_for_topic(bootstrap, topic, properties, MAX_BLOCK_MS)
        own = {"client.id": "ottla-consume", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
        self.sender = Sender("ottla consume", topic, producer_settings(bootstrap, own, properties), properties)
        self.partition = partition
        self.count = 0

    def print(self, batch: list[Message]) -> None:
        for message in batch:
            self.count += 1
            timestamp = message.timestamp if message.timestamp_type and message.timestamp > 0 else None
            line = Line(message.key, message.value, message.headers, self.partition, timestamp)
            self.sender.send(line)

    def finish(self) -> None:
        if self.sender.finish():
            raise ToolError(f"{self.sender.failed} of {self.sender.sent} records were not stored")

    def __repr__(self) -> str:
        return f"<TopicWriter {self.sender!r}>"


class SortingSink:
    """Collects all records first, on disk if there are many, and passes them on in order of time."""

    def __init__(self, sink: Sink, memory_bytes: int) -> None:
        self.sink = sink
        self.sort = ExternalSort(memory_bytes=memory_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sort.__exit__()

    @property
    def count(self) -> int:
        return self.sort.count

    def print(self, batch: list[Message]) -> None:
        for message in batch:
            self.sort.add(message)

    def finish(self) -> None:
        lot: list[Message] = []
        with RecordMeter("writing", self.count) as meter:
            for message in self.sort.sorted():
                lot.append(message)
                if len(lot) == SORTED_LOT:
                    self.sink.print(lot)
                    lot = []
                    meter.reach(self.sink.count)
            self.sink.print(lot)
            self.sink.finish()

    def __repr__(self) -> str:
        return f"<SortingSink {self.sort!r} to {self.sink!r}>"

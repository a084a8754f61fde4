"""Sinks for consumed records: a sort by time in bounded memory, and another topic."""

from __future__ import annotations

import heapq
import marshal
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import IO, Self

from ottla.cli.progress_bar import RecordProgressBar
from ottla.cli.records.console_consumer import Sink
from ottla.cli.records.console_producer import ConsoleProducer, producer_settings, wait_for_topic
from ottla.cli.records.formatters import Message
from ottla.cli.records.line_reader import Line
from ottla.cli.terminal import ToolError

# ---- external merge sort
MEMORY_BYTES = 64 * 1024 * 1024
RECORD_OVERHEAD_BYTES = 400  # memory per record in addition to key, value and headers
RUNS_MAX = 128
RUN_BUFFER_BYTES = 256 * 1024

_LENGTH = struct.Struct(">I")

# The first three fields are the sort key; they are unique.
Row = tuple[int, int, int, str, str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class ExternalSort:
    """An external merge sort by timestamp, partition and offset: equal timestamps keep the order of their partition.

    Records are collected up to a limit, sorted and written to a temporary file as a run; at the end all runs are
    merged. Too many runs are merged into one first, which bounds the number of open files.

    `with ExternalSort() as sort: sort.add(message) …; for message in sort.sorted(): …`
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES, folder: str | None = None) -> None:
        self.memory_bytes = memory_bytes
        self.folder = folder
        self.count = 0
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._runs: list[IO[bytes]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, message: Message) -> None:
        topic, partition, offset, timestamp_type, timestamp, key, value, headers = message
        self._pending.append((timestamp, partition, offset, topic, timestamp_type, key, value, headers))
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name) + len(content or b"")
        self.count += 1
        self._pending_bytes += size
        if self._pending_bytes >= self.memory_bytes:
            self._spill()

    def sorted(self) -> Iterator[Message]:
        """All records in order."""
        self._pending.sort()
        for row in heapq.merge(*map(_read_run, self._runs), self._pending):
            timestamp, partition, offset, topic, timestamp_type, key, value, headers = row
            yield Message(topic, partition, offset, timestamp_type, timestamp, key, value, headers)

    def _spill(self) -> None:
        self._pending.sort()
        self._runs.append(self._write_run(self._pending))
        self._pending = []
        self._pending_bytes = 0
        if len(self._runs) >= RUNS_MAX:
            merged = self._write_run(heapq.merge(*map(_read_run, self._runs)))
            for run in self._runs:
                run.close()
            self._runs = [merged]

    def _write_run(self, rows: Iterable[Row]) -> IO[bytes]:
        # The file has no directory entry, so it disappears with this process.
        file = tempfile.TemporaryFile(dir=self.folder, buffering=RUN_BUFFER_BYTES)  # noqa: SIM115 (closed at the end)
        run = self._open.enter_context(file)
        for row in rows:
            data = marshal.dumps(row)
            run.write(_LENGTH.pack(len(data)))
            run.write(data)
        run.flush()
        return run

    def __repr__(self) -> str:
        return f"<ExternalSort {self.count} records, {len(self._runs)} runs>"


def _read_run(run: IO[bytes]) -> Iterator[Row]:
    run.seek(0)
    while head := run.read(_LENGTH.size):
        row: Row = marshal.loads(run.read(_LENGTH.unpack(head)[0]))  # noqa: S302 (no other process can open the file)
        yield row


MAX_BLOCK_MS = 60_000
LINGER_MS = 20
BATCH_BYTES = 262_144
SORTED_BATCH_RECORDS = 1000  # records per batch


class TopicWriter:
    """Writes records to a topic with their keys, headers and timestamps, in large batches."""

    def __init__(self, bootstrap: str, topic: str, partition: int | None, properties: Mapping[str, str]) -> None:
        wait_for_topic(bootstrap, topic, properties, MAX_BLOCK_MS)
        own = {"client.id": "ottla-consume", "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
        self.sender = ConsoleProducer("ottla consume", topic, producer_settings(bootstrap, own, properties), properties)
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
    """Collects all records, on disk if necessary, and passes them on in order of time."""

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
        batch: list[Message] = []
        with RecordProgressBar("writing", self.count) as meter:
            for message in self.sort.sorted():
                batch.append(message)
                if len(batch) == SORTED_BATCH_RECORDS:
                    self.sink.print(batch)
                    batch = []
                    meter.set_count(self.sink.count)
            self.sink.print(batch)
            self.sink.finish()

    def __repr__(self) -> str:
        return f"<SortingSink {self.sort!r} to {self.sink!r}>"

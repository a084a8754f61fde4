"""An external merge sort of records: any number of them in bounded memory.

Records are collected up to a limit, sorted and written to a temporary file as one run; at the end all runs are merged.
Too many runs are merged into one first, so that the number of open files stays bounded.
"""

from __future__ import annotations

import heapq
import marshal
import struct
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Self

from ottla.cli.records.formatters import Message

MEMORY_BYTES = 64 * 1024 * 1024
RECORD_OVERHEAD_BYTES = 400  # what a record costs in memory beside its key, value and headers
RUNS_MAX = 128
RUN_BUFFER_BYTES = 256 * 1024

_LENGTH = struct.Struct(">I")

# A record as it is sorted: the first three fields decide, and no two records have them in common.
Row = tuple[int, int, int, str, str, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class ExternalSort:
    """By timestamp, then partition, then offset: equal timestamps keep the order of their partition.

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
        # The file has no name in the folder, so nothing is left behind, whatever happens to this process.
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
        row: Row = marshal.loads(run.read(_LENGTH.unpack(head)[0]))  # noqa: S302 (nobody else can open the file)
        yield row

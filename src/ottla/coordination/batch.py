"""Records that a sweep collects one by one, batched for each write. Compiled with mypyc where possible.

A sweep (`Machine.sweep`) visits the whole state of a machine. Other work runs each time the sweep yields a decision, so
the state may change meanwhile. Therefore it first makes space in the batch, then reads the state, then adds records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.coordination.machine import RECORD_OVERHEAD_BYTES_MAX, Decision, Record

RECORDS_MAX: Final = 200
VISITS_MAX: Final = 1_000  # this many entries are visited, and as many records collected, in less than a millisecond


class SweepBatch:
    """The records of the next write."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._records: list[Record] = []
        self._bytes = 0
        self._visits = 0

    def is_full(self, key_bytes: int = 0) -> bool:
        """Return whether a tombstone with this key has to wait for the next batch. Call this before each entry."""
        self._visits += 1
        if self._visits > VISITS_MAX or len(self._records) >= RECORDS_MAX:
            return True
        return bool(self._records) and self._bytes + key_bytes + RECORD_OVERHEAD_BYTES_MAX > self._bytes_max

    def add(self, record: Record) -> None:
        self._records.append(record)
        self._bytes += record_bytes(record)

    def take(self) -> Decision:
        """Return the records as a decision, and start a new batch."""
        decision = Decision(self._records)
        self._records, self._bytes, self._visits = [], 0, 0
        return decision

    def fits(self, records: list[Record]) -> bool:
        """Return whether records that belong together fit. An empty batch accepts any number."""
        return not self._records or self._bytes + sum(map(record_bytes, records)) <= self._bytes_max

    def __repr__(self) -> str:
        return f"<SweepBatch {len(self._records)} records, {self._bytes} bytes>"


def record_bytes(record: Record) -> int:
    value = record.value
    return len(record.key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD_BYTES_MAX


def batch_records(records: Iterable[Record], bytes_max: int) -> Iterator[Decision]:
    """Yield decisions for records that need not be written together."""
    batch = SweepBatch(bytes_max)
    for record in records:
        if batch.is_full(len(record.key)):
            yield batch.take()
        batch.add(record)
    yield batch.take()

"""Records that a sweep finds one by one, for one write at a time. Compiled with mypyc where possible.

A sweep (`Machine.sweep`) goes through all that a machine holds, and others have their turn whenever it hands over a
decision. What it has seen before may not be so afterwards: it makes room first, then looks, then adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.coordination.machine import RECORD_BYTES_MORE, Decision, Record

RECORDS_MAX: Final = 200
LOOKS_MAX: Final = 1_000  # so much is looked at, and so much is found, in less than a millisecond


class Batch:
    """What is written next."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._records: list[Record] = []
        self._bytes = 0
        self._looks = 0

    def is_full(self, key_bytes: int = 0) -> bool:
        """Asked before each look at something: whether a tombstone with such a key has to wait for the next one."""
        self._looks += 1
        if self._looks > LOOKS_MAX or len(self._records) >= RECORDS_MAX:
            return True
        return bool(self._records) and self._bytes + key_bytes + RECORD_BYTES_MORE > self._bytes_max

    def add(self, record: Record) -> None:
        self._records.append(record)
        self._bytes += record_bytes(record)

    def taken(self) -> Decision:
        """What is in it; it begins anew."""
        decision = Decision(self._records)
        self._records, self._bytes, self._looks = [], 0, 0
        return decision

    def has_room_for(self, records: list[Record]) -> bool:
        """For records that belong together. An empty one has room for whatever there is."""
        return not self._records or self._bytes + sum(map(record_bytes, records)) <= self._bytes_max

    def __repr__(self) -> str:
        return f"<Batch {len(self._records)} records, {self._bytes} bytes>"


def record_bytes(record: Record) -> int:
    value = record.value
    return len(record.key) + (len(value) if value is not None else 0) + RECORD_BYTES_MORE


def in_batches(records: Iterable[Record], bytes_max: int) -> Iterator[Decision]:
    """Decisions for records that need not be written together."""
    batch = Batch(bytes_max)
    for record in records:
        if batch.is_full(len(record.key)):
            yield batch.taken()
        batch.add(record)
    yield batch.taken()

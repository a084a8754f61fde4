"""Records that a sweep finds, for one write at a time."""

from __future__ import annotations

from ottla.coordination.batch import LOOKS_MAX, RECORDS_MAX, Batch, in_batches, record_bytes
from ottla.coordination.machine import Record


def test_many_records_are_several_decisions() -> None:
    records = [Record(b"%d" % number, None) for number in range(2 * RECORDS_MAX + 1)]
    decisions = list(in_batches(records, 1 << 20))
    assert [len(decision.records) for decision in decisions] == [RECORDS_MAX, RECORDS_MAX, 1]
    assert [record for decision in decisions for record in decision.records] == records


def test_large_records_are_several_decisions() -> None:
    records = [Record(b"k" * 1_000, None)] * 5
    size_bytes = record_bytes(records[0])
    assert [len(decision.records) for decision in in_batches(records, 2 * size_bytes)] == [2, 2, 1]
    assert [len(decision.records) for decision in in_batches(records, 2 * size_bytes - 1)] == [1] * 5
    assert [len(decision.records) for decision in in_batches(records, 1)] == [1] * 5  # who writes it says what is wrong


def test_whoever_looks_in_vain_gives_way_too() -> None:
    batch = Batch(1 << 20)
    assert [batch.is_full() for _ in range(LOOKS_MAX + 1)] == [False] * LOOKS_MAX + [True]
    assert batch.taken().records == []
    assert not batch.is_full()


def test_what_belongs_together_waits_for_room() -> None:
    batch = Batch(100)
    two = [Record(b"k" * 30, b"v"), Record(b"k" * 30, None)]
    assert batch.has_room_for(two)  # for there will never be more
    batch.add(two[0])
    assert not batch.has_room_for(two)
    assert batch.has_room_for([Record(b"k", None)])

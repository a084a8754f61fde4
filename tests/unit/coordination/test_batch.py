"""Batches of a sweep's records."""

from __future__ import annotations

from ottla.coordination.batch import RECORDS_MAX, VISITS_MAX, SweepBatch, batch_records, record_bytes
from ottla.coordination.machine import Record


def test_many_records_are_several_decisions() -> None:
    records = [Record(b"%d" % number, None) for number in range(2 * RECORDS_MAX + 1)]
    decisions = list(batch_records(records, 1 << 20))
    assert [len(decision.records) for decision in decisions] == [RECORDS_MAX, RECORDS_MAX, 1]
    assert [record for decision in decisions for record in decision.records] == records


def test_large_records_are_several_decisions() -> None:
    records = [Record(b"k" * 1_000, None)] * 5
    size_bytes = record_bytes(records[0])
    assert [len(decision.records) for decision in batch_records(records, 2 * size_bytes)] == [2, 2, 1]
    assert [len(decision.records) for decision in batch_records(records, 2 * size_bytes - 1)] == [1] * 5
    assert [len(decision.records) for decision in batch_records(records, 1)] == [
        1
    ] * 5  # who writes it says what is wrong


def test_batch_is_full_after_many_visits() -> None:
    batch = SweepBatch(1 << 20)
    assert [batch.is_full() for _ in range(VISITS_MAX + 1)] == [False] * VISITS_MAX + [True]
    assert batch.take().records == []
    assert not batch.is_full()


def test_records_that_belong_together_wait_for_the_next_batch() -> None:
    batch = SweepBatch(100)
    two = [Record(b"k" * 30, b"v"), Record(b"k" * 30, None)]
    assert batch.fits(two)  # for there will never be more
    batch.add(two[0])
    assert not batch.fits(two)
    assert batch.fits([Record(b"k", None)])

"""Nothing of a producer is taken in before what was refused it a moment ago."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.replication.stand import NOW_MS, Stand, batch

from ottla.base.errors import Error, KafkaError
from ottla.replication import rejected_batches
from ottla.replication.rejected_batches import RETENTION_MS, RejectedBatches
from ottla.storage.log import Log

PRODUCER = 7


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    stand = Stand(tmp_path, count=1)
    yield stand.at[1].log
    stand.close()


def sent(sequence: int, epoch: int = 0, producer_id: int = PRODUCER) -> memoryview:
    return batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def note(refused: RejectedBatches, sequence: int, epoch: int = 0) -> None:
    refused.add(Error.NOT_ENOUGH_REPLICAS, "t", 0, sent(sequence, epoch), NOW_MS)


def is_taken(refused: RejectedBatches, log: Log, records: memoryview, now_ms: int = NOW_MS, index: int = 0) -> bool:
    try:
        refused.check("t", index, log, records, now_ms)
    except KafkaError as refusal:
        return refusal.error is not Error.NOT_ENOUGH_REPLICAS
    return True


def test_a_later_batch_waits_for_the_one_that_was_refused(log: Log) -> None:
    refused = RejectedBatches()
    note(refused, 0)
    assert not is_taken(refused, log, sent(1))
    assert not is_taken(refused, log, sent(2))
    assert is_taken(refused, log, sent(1), index=1)
    assert is_taken(refused, log, sent(1, producer_id=8))
    assert is_taken(refused, log, sent(0))
    assert not refused
    assert is_taken(refused, log, sent(1))


def test_the_earliest_of_several_counts(log: Log) -> None:
    refused = RejectedBatches()
    for sequence in (3, 1, 2):
        note(refused, sequence)
    assert not is_taken(refused, log, sent(2))
    assert is_taken(refused, log, sent(1))


def test_a_known_producer_gets_no_sequence_gap(log: Log) -> None:
    refused = RejectedBatches()
    log.append(sent(0), 0, NOW_MS)
    note(refused, 1)
    assert not is_taken(refused, log, sent(2))
    assert is_taken(refused, log, sent(1))


def test_what_another_broker_took_in_has_come(log: Log) -> None:
    refused = RejectedBatches()
    note(refused, 0)
    log.append(sent(0), 0, NOW_MS)
    assert is_taken(refused, log, sent(1))
    assert not refused


def test_a_new_epoch_a_marker_and_time_end_it(log: Log) -> None:
    refused = RejectedBatches()
    note(refused, 0)
    assert is_taken(refused, log, sent(1, epoch=1))
    note(refused, 0, epoch=2)
    note(refused, 0, epoch=1)  # of an earlier one: says nothing
    assert not is_taken(refused, log, sent(1, epoch=2))
    refused.remove("t", 0, PRODUCER)
    assert is_taken(refused, log, sent(1, epoch=2))
    note(refused, 0)
    assert not is_taken(refused, log, sent(1), NOW_MS + RETENTION_MS - 1)
    assert is_taken(refused, log, sent(1), NOW_MS + RETENTION_MS)


@pytest.mark.parametrize("error", [Error.INVALID_TXN_STATE, Error.CORRUPT_MESSAGE, Error.POLICY_VIOLATION])
def test_a_batch_that_is_not_retried_is_not_waited_for(error: Error) -> None:
    refused = RejectedBatches()
    refused.add(error, "t", 0, sent(0), NOW_MS)
    assert not refused


def test_without_a_producer_id_there_is_nothing_to_remember() -> None:
    refused = RejectedBatches()
    for records in (batch(b"v"), memoryview(b"short"), memoryview(bytes(100)), None):
        refused.add(Error.NOT_ENOUGH_REPLICAS, "t", 0, records, NOW_MS)
    assert not refused


def test_it_is_bounded(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejected_batches, "ENTRIES_MAX", 2)
    refused = RejectedBatches()
    for producer_id in (1, 2, 3):
        refused.add(Error.NOT_ENOUGH_REPLICAS, "t", 0, sent(0, producer_id=producer_id), NOW_MS)
    assert is_taken(refused, log, sent(1, producer_id=1))
    assert not is_taken(refused, log, sent(1, producer_id=3))

"""Idempotent producers: Kafka's window of five batches, and the snapshots that keep it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record
from ottla.storage.descriptors import DescriptorPool
from ottla.storage.log import Log
from ottla.storage.log_dir import create_log
from ottla.storage.producer_state import (
    UNREPLICATED_MAX,
    ProducerStates,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
)

NOW_MS = 1_700_000_000_000
MAX = 2**31 - 1
OUT_OF_ORDER = Error.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = Error.INVALID_PRODUCER_EPOCH

# What Apache Kafka 4.3.1 answered to these batches (epoch, first sequence, records): an offset or an error.
DIALOGUES: dict[str, list[tuple[tuple[int, int, int], int | Error]]] = {
    "an unknown producer may start anywhere": [((0, 7, 3), 0), ((0, 10, 1), 3)],
    "the last five batches are known": [
        ((0, 7, 3), 0),
        ((0, 7, 3), 0),
        *[((0, 10 + i, 1), 3 + i) for i in range(6)],
        ((0, 11, 1), 4),
        ((0, 15, 1), 8),
        ((0, 10, 1), OUT_OF_ORDER),
        ((0, 15, 2), OUT_OF_ORDER),
        ((0, 16, 1), 9),
    ],
    "a gap is refused": [((0, 0, 1), 0), ((0, 2, 1), OUT_OF_ORDER), ((0, 1, 1), 1)],
    "a new epoch starts at 0": [
        ((0, 0, 1), 0),
        ((1, 5, 1), OUT_OF_ORDER),
        ((1, 0, 1), 1),
        ((0, 1, 1), OLD_EPOCH),
        ((0, 0, 1), OLD_EPOCH),
        ((1, 1, 1), 2),
    ],
    "sequences wrap around between batches": [((0, MAX - 1, 2), 0), ((0, 0, 1), 2)],
    "sequences wrap around inside a batch": [((0, MAX, 3), 0), ((0, MAX, 3), 0), ((0, 2, 1), 3)],
    "an unknown producer may have any epoch": [((5, 3, 1), 0), ((4, 4, 1), OLD_EPOCH), ((5, 4, 1), 1)],
}


def new_log(directory: Path, **settings: object) -> Log:
    return create_log(
        TopicPartition("topic", 0),
        str(directory / "topic-0"),
        TopicSettings(**settings),  # type: ignore[arg-type]
        DescriptorPool(),
        None,
        NOW_MS,
        1000,
    )


def batch_of(epoch: int, sequence: int, count: int, timestamp: int = NOW_MS, producer_id: int = 9) -> memoryview:
    records = [Record(-1, timestamp, None, b"v") for _ in range(count)]
    return memoryview(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


@pytest.mark.parametrize("name", DIALOGUES)
def test_sequences_are_judged_as_kafka_does(tmp_path: Path, name: str) -> None:
    log = new_log(tmp_path)
    for place, (batch, expected) in enumerate(DIALOGUES[name]):
        before = log.end_offset
        if isinstance(expected, Error):
            with pytest.raises(KafkaError) as caught:
                log.append(batch_of(*batch), 0, NOW_MS)
            assert caught.value.error is expected, (place, batch)
            assert log.end_offset == before
        else:
            appended = log.append(batch_of(*batch), 0, NOW_MS)
            assert appended.base_offset == expected, (place, batch)
            assert appended.is_duplicate == (expected < before)


def test_a_duplicate_is_answered_with_the_time_of_the_first(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(0, 0, 1, NOW_MS - 7), 0, NOW_MS)

    assert log.append(batch_of(0, 0, 1, NOW_MS), 0, NOW_MS).log_append_time_ms == NOW_MS - 7


def test_a_failed_check_leaves_other_producers_alone(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(batch_of(0, 0, 1), 0, NOW_MS)
    log.append(batch_of(0, 50, 1, producer_id=10), 0, NOW_MS)

    assert log.append(batch_of(0, 1, 1), 0, NOW_MS).base_offset == 2
    assert log.append(batch_of(0, 51, 1, producer_id=10), 0, NOW_MS).base_offset == 3


def test_silent_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    producers = ProducerStates(1000)
    producers.append(1, 0, 0, 0, 0, 0, NOW_MS, False)
    producers.append(2, 0, 0, 0, 1, 1, NOW_MS, True)
    producers.append(3, 0, 0, 0, 2, 2, NOW_MS + 500, False)

    producers.remove_expired(NOW_MS + 1000)

    assert sorted(producers.by_id) == [2, 3]


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    producers = ProducerStates(1000)
    producers.append(1, 0, 0, 0, 10, 10, NOW_MS, True)
    producers.append(2, 0, 0, 0, 11, 11, NOW_MS, True)
    producers.append(1, 0, 1, 1, 12, 12, NOW_MS, True)
    assert producers.first_unstable_offset() == 10

    assert producers.end_transaction(1, 0, 3, NOW_MS) == 10

    assert producers.first_unstable_offset() == 11
    assert producers.by_id[1].coordinator_epoch == 3
    with pytest.raises(KafkaError) as caught:
        producers.check(2, 0, 1, False, 13)
    assert caught.value.error is Error.INVALID_TXN_STATE


# Written by Apache Kafka 4.3.1: producer 0, epoch 0, ten records up to sequence and offset 8739.
KAFKAS_SNAPSHOT = bytes.fromhex(
    "0001a5810714000000010000000000000000000000002223000000000000222300000009000001a1dea33e97ffffffffffffffffffffffff"
)


def test_kafkas_own_snapshot_is_read_and_written_byte_for_byte() -> None:
    producers = ProducerStates(1000)
    decode_snapshot(KAFKAS_SNAPSHOT, producers)

    producer = producers.by_id[0]
    assert (producer.last_sequence, producer.last_offset, producer.epoch) == (8739, 8739, 0)
    assert producers.find_duplicate(0, 0, 8730, 8739) is not None
    assert encode_snapshot(producers) == KAFKAS_SNAPSHOT


def test_a_snapshot_keeps_a_sequence_that_wrapped_around() -> None:
    producers = ProducerStates(1000)
    producers.append(1, 0, MAX, 1, 5, 7, NOW_MS, False)
    loaded = ProducerStates(1000)
    decode_snapshot(encode_snapshot(producers), loaded)

    assert loaded.find_duplicate(1, 0, MAX, 1) is not None


@pytest.mark.parametrize("position", range(len(KAFKAS_SNAPSHOT)))
def test_any_flipped_byte_in_a_snapshot_is_noticed(position: int) -> None:
    data = bytearray(KAFKAS_SNAPSHOT)
    data[position] ^= 0x10

    with pytest.raises(SnapshotError):
        decode_snapshot(bytes(data), ProducerStates(1000))
    with pytest.raises(SnapshotError):
        decode_snapshot(KAFKAS_SNAPSHOT[:position], ProducerStates(1000))


def test_snapshots_are_written_on_roll_and_the_newest_two_are_kept(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=300)
    for sequence in range(30):
        log.append(batch_of(0, sequence, 1), 0, NOW_MS)
        log.flush()

    names = sorted(path.name for path in Path(log.directory).glob("*.snapshot"))
    assert len(names) == 2
    assert names[-1] == f"{log.active.base_offset:020d}.snapshot"


def test_a_transaction_is_open_for_readers_until_its_marker_is_replicated() -> None:
    producers = ProducerStates(1000)
    producers.append(1, 0, 0, 0, 3, 3, NOW_MS, True)
    producers.append(2, 0, 0, 0, 4, 4, NOW_MS, True)
    assert producers.end_transaction(1, 0, 0, NOW_MS, 5) == 3
    assert producers.first_unstable_offset() == 4
    assert producers.first_unstable_offset_below(5) == 3
    assert producers.first_unstable_offset_below(6) == 4
    assert producers.end_transaction(2, 0, 0, NOW_MS, 6) == 4
    assert producers.first_unstable_offset_below(6) == 4
    producers.remove_unreplicated(7)
    assert producers.first_unstable_offset_below(0) == -1


@pytest.mark.parametrize("seed", range(10))
def test_the_oldest_open_transaction_holds_readers_back(seed: int) -> None:
    source = random.Random(seed)
    producers, open_txns, ended = ProducerStates(1000), dict[int, int](), list[tuple[int, int]]()
    high_watermark = 0
    for offset in range(2000):
        producer_id = source.randrange(100)
        if producer_id in open_txns and source.random() < 0.5:
            assert producers.end_transaction(producer_id, 0, 0, NOW_MS, offset) == open_txns[producer_id]
            ended.append((open_txns.pop(producer_id), offset))
        else:
            producers.append(producer_id, 0, 0, 0, offset, offset, NOW_MS, True)
            open_txns.setdefault(producer_id, offset)
        high_watermark = max(high_watermark, offset - source.randrange(100))
        if source.random() < 0.01:
            before, producers = producers, ProducerStates(1000)
            decode_snapshot(encode_snapshot(before), producers)
            ended = []  # a snapshot does not hold them
        held = [first for first, marker in ended if marker >= high_watermark]
        assert producers.first_unstable_offset() == min(open_txns.values(), default=-1)
        expected = min([*open_txns.values(), *held], default=-1)
        assert producers.first_unstable_offset_below(high_watermark) == expected


def test_many_transactions_with_unreplicated_markers_hide_at_least_what_they_must() -> None:
    producers = ProducerStates(1000)
    for number in range(UNREPLICATED_MAX + 10):
        producers.append(1, 0, number, number, 2 * number, 2 * number, NOW_MS, True)
        producers.end_transaction(1, 0, 0, NOW_MS, 2 * number + 1)
        assert producers.first_unstable_offset_below(0) == 0
    assert len(producers.unreplicated_txns) == UNREPLICATED_MAX
    assert producers.first_unstable_offset_below(1000) == 1000
    assert producers.first_unstable_offset_below(2 * UNREPLICATED_MAX + 20) == -1


class Offset(int):
    """An offset that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Offset.compared += 1
        return int(self) < other


def test_the_oldest_open_transaction_is_found_without_a_search() -> None:
    """Every fetch of a read_committed consumer asks for it, and a partition may have thousands."""
    producers = ProducerStates(1000)
    for number in range(3000):
        producers.append(number, 0, 0, 0, Offset(number), number, NOW_MS, True)
    for number in range(1000):
        producers.end_transaction(number, 0, 0, NOW_MS, Offset(3000 + number))
    Offset.compared = 0
    assert producers.first_unstable_offset_below(0) == 0
    assert producers.first_unstable_offset() == 1000
    assert Offset.compared < 10

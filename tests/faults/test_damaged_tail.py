"""W5 and W8: the end of an active segment is not what was written. Whole batches stay, nothing bad is served.

Every partition of one topic gets a damage of its own, so that one start of the broker proves many of them.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch, read_batches
from tests.conformance.waiting import eventually
from tests.faults.damage import BLOCK_BYTES, TAIL_DAMAGES, batches, damage_file, intact_bytes

TOPIC = "damaged"
SEEDS_AT_ONCE = 20
BATCHES_MIN, BATCHES_MAX = 5, 60
HEADER_AND_RECORD_BYTES = len(batch([b"x" * 3000])) - 3000
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE = 1, 2
BrokerFactory = Callable[..., Any]


def segment(broker: Any, partition: int) -> Path:
    """The active segment."""
    folder = broker.data_directory / f"{TOPIC}-{partition}"
    return max(folder.glob("*.log"))


def fill(peer: Peer, partition: int, chance: random.Random) -> None:
    """Batches of all sizes; every third partition has batches of exactly one block, which can be swapped unnoticed."""
    is_aligned = partition % 3 == 0
    producer_id = peer.new_producer_id()
    for sequence in range(chance.randint(BATCHES_MIN, BATCHES_MAX)):
        size = BLOCK_BYTES - HEADER_AND_RECORD_BYTES if is_aligned else chance.choice((1, 100, 1000, 6000))
        data = batch([chance.randbytes(size)], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        assert len(data) == BLOCK_BYTES or not is_aligned
        assert peer.produce(TOPIC, data, partition).error_code == 0


def served(peer: Peer, partition: int) -> bytes:
    """Everything that a consumer gets, with each CRC checked."""
    data, offset = b"", 0
    while True:
        answer = peer.fetch(TOPIC, offset, partition, max_wait_ms=0)
        assert answer.error_code == 0, (partition, offset, answer.error_code)
        piece = bytes(answer.records or b"")
        if not piece:
            assert offset == answer.high_watermark, (partition, offset, answer.high_watermark)
            return data
        offset = read_batches(piece)[-1].next_offset
        data += piece


def check_partition(peer: Peer, partition: int, before: bytes, after: bytes, what: str) -> None:
    data = served(peer, partition)
    ends = {0, *(end for _, end in batches(before))}
    assert before.startswith(data), f"{what}: partition {partition} serves something that was never written there"
    assert len(data) in ends, f"{what}: partition {partition} serves half a batch"
    assert len(data) >= intact_bytes(before, after), f"{what}: partition {partition} has lost more than was damaged"
    end_offset = peer.end_offset(TOPIC, partition)
    assert end_offset == sum(1 for end in ends if 0 < end <= len(data)), what
    for number in range(3):
        assert peer.produce(TOPIC, batch([b"after"]), partition).base_offset == end_offset + number, what
    longer = served(peer, partition)
    assert longer.startswith(data), what
    assert [header.base_offset for header in read_batches(longer)] == list(range(end_offset + 3)), what


def fill_and_damage(broker: Any, seeds: range, end: Callable[[], None]) -> dict[int, tuple[bytes, bytes, str]]:
    """Partition -> what its segment held, what it holds now, and in words what was done to it."""
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, len(seeds), index_interval_bytes=1000)
        for partition, seed in enumerate(seeds):
            fill(peer, partition, random.Random(seed))
    end()
    done = {}
    for partition, seed in enumerate(seeds):
        damage = TAIL_DAMAGES[seed % len(TAIL_DAMAGES)]
        path = segment(broker, partition)
        shutil.copy(path, broker.directory / f"{path.parent.name}.before")  # for the analysis of a failure
        done[partition] = (*damage_file(path, damage, random.Random(-seed)), f"seed {seed}, {damage.__name__}")
    return done


def check_after_kill(broker: Any, seeds: range) -> None:
    done = fill_and_damage(broker, seeds, broker.kill9)
    broker.start()
    with Peer(broker.bootstrap) as peer:
        for partition, (before, after, what) in done.items():
            check_partition(peer, partition, before, after, what)
        seen = {partition: served(peer, partition) for partition in done}
    broker.restart()
    with Peer(broker.bootstrap) as peer:
        assert all(served(peer, partition) == data for partition, data in seen.items())
    broker.assert_no_traceback()


def check_after_stop(broker: Any, seeds: range) -> None:
    """Damage after an orderly stop is not looked for at the start, so it may be found only when it is read."""
    done = fill_and_damage(broker, seeds, broker.stop)
    broker.start()
    with Peer(broker.bootstrap) as peer:
        for partition, (before, after, what) in done.items():
            check_in_order(peer, partition, before, intact_bytes(before, after), what)
            if "swapped" not in what:  # with whole batches in each other's places only a reader in order can tell
                check_each_offset(peer, partition, before, intact_bytes(before, after), what)
            assert peer.produce(TOPIC, batch([b"after"]), partition).error_code == 0, what
            assert peer.stored_batches(TOPIC, peer.end_offset(TOPIC, partition) - 1, partition), what
    broker.assert_no_traceback()


def check_in_order(peer: Peer, partition: int, before: bytes, intact: int, what: str) -> None:
    """A reader from the beginning gets what was written, and then an error: never something else."""
    data, offset = b"", 0
    while (answer := peer.fetch(TOPIC, offset, partition, max_wait_ms=0)).error_code == 0 and answer.records:
        data += bytes(answer.records)
        offset = read_batches(bytes(answer.records))[-1].next_offset
    assert before.startswith(data), f"{what}: partition {partition} skips or changes something before {offset}"
    assert len(data) >= intact, what
    assert answer.error_code in (0, CORRUPT_MESSAGE), what


def check_each_offset(peer: Peer, partition: int, before: bytes, intact: int, what: str) -> None:
    for offset, (start, end) in enumerate(batches(before)):
        answer = peer.fetch(TOPIC, offset, partition, max_wait_ms=0)
        data = bytes(answer.records or b"")
        if answer.error_code == 0 and data:
            assert data[: end - start] == before[start:end], f"{what}: partition {partition} is wrong at {offset}"
            read_batches(data)  # checks the CRCs
        else:
            assert end > intact, f"{what}: offset {offset} was not damaged, but is answered with {answer.error_code}"
            assert answer.error_code in (0, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE), what


def test_some_damaged_tails(broker_factory: BrokerFactory) -> None:
    check_after_kill(broker_factory(), range(SEEDS_AT_ONCE))


@pytest.mark.faults
@pytest.mark.parametrize("first_seed", range(100, 300, SEEDS_AT_ONCE))
def test_many_damaged_tails(broker_factory: BrokerFactory, first_seed: int) -> None:
    check_after_kill(broker_factory(), range(first_seed, first_seed + SEEDS_AT_ONCE))


@pytest.mark.faults
@pytest.mark.parametrize("first_seed", range(400, 480, SEEDS_AT_ONCE))
def test_tails_that_were_damaged_after_an_orderly_stop(broker_factory: BrokerFactory, first_seed: int) -> None:
    check_after_stop(broker_factory(), range(first_seed, first_seed + SEEDS_AT_ONCE))


@pytest.mark.faults
def test_lost_records_are_reported(broker_factory: BrokerFactory) -> None:
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC)
        for _ in range(10):
            assert peer.produce(TOPIC, batch()).error_code == 0
    broker.kill9()
    path = segment(broker, 0)
    path.write_bytes(path.read_bytes()[:-1])
    broker.start()
    assert eventually(lambda: "Lost: offsets 9 to 9" in broker.log_text), "a busy machine may recover after the start"

"""W6 on one broker: a bit of a stored batch has changed. It is never served as if it were right.

The checksum covers a batch from its attributes on. The fields before it (offset, length, leader epoch, magic) have to
be judged by their neighbours; only a wrong leader epoch in an old batch cannot be detected.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch, read_batches
from tests.faults.damage import batches

TOPIC = "flipped"
BATCHES = 40
PARTITIONS = 30
CORRUPT_MESSAGE = 2
EPOCH_START, EPOCH_END = 12, 16
BrokerFactory = Callable[..., Any]


def fill(peer: Peer) -> None:
    peer.create_topic(TOPIC, PARTITIONS, internal_segment_bytes=10_000, index_interval_bytes=500)
    for partition in range(PARTITIONS):
        chance = random.Random(partition)
        for number in range(BATCHES):
            data = batch([b"%d" % number + chance.randbytes(chance.choice((10, 300, 1500)))])
            assert peer.produce(TOPIC, data, partition).base_offset == number


def flip(broker: Any, partition: int, seed: int) -> tuple[int, str]:
    """Change one bit; the offset of the batch that it belongs to, and in words where it was."""
    chance = random.Random(seed)
    path = chance.choice(sorted((broker.data_directory / f"{TOPIC}-{partition}").glob("*.log")))
    data = bytearray(path.read_bytes())
    number, (start, end) = chance.choice(list(enumerate(batches(bytes(data)))))
    place = chance.randrange(0, 21) if chance.random() < 0.5 else chance.randrange(end - start)
    data[start + place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return int(path.stem) + number, f"seed {seed}: byte {place} of offset {int(path.stem) + number} in {path.name}"


def without_epoch(data: bytes) -> bytes:
    return data[:EPOCH_START] + data[EPOCH_END:]


def check(peer: Peer, partition: int, written: list[bytes], damaged: int, what: str) -> None:
    """Read in order as far as it goes, then ask for every single offset."""
    offset = 0
    while (answer := peer.fetch(TOPIC, offset, partition, max_wait_ms=0)).error_code == 0 and answer.records:
        offset = check_served(bytes(answer.records), offset, written, what)
    assert offset >= damaged, f"{what}: nothing before it was damaged, but reading ends at {offset}"
    assert answer.error_code in (0, CORRUPT_MESSAGE), what
    for asked in range(damaged - 1):  # the one before may be suspected too when it is asked for alone
        answer = peer.fetch(TOPIC, asked, partition, max_wait_ms=0, partition_max_bytes=2000)
        assert answer.error_code == 0, f"{what}: offset {asked} was not damaged"
        check_served(bytes(answer.records), asked, written, what)
    assert peer.produce(TOPIC, batch(), partition).error_code == 0, what


def check_served(data: bytes, asked: int, written: list[bytes], what: str) -> int:
    """Every batch is the one that was written under its offset, and none is left out; the next offset."""
    position = 0
    for header in read_batches(data):
        assert header.base_offset == asked, f"{what}: {header.base_offset} is served where {asked} was due"
        end = position + len(written[asked])
        assert without_epoch(data[position:end]) == without_epoch(written[asked]), f"{what}: offset {asked} is wrong"
        position, asked = end, asked + 1
    return asked


def check_flips(broker: Any, first_seed: int, end: Callable[[], None]) -> None:
    with Peer(broker.bootstrap) as peer:
        fill(peer)
        written = []
        for partition in range(PARTITIONS):
            data = b""
            while len(read_batches(data)) < BATCHES:
                data += bytes(peer.fetch(TOPIC, len(read_batches(data)), partition, max_wait_ms=0).records)
            written.append([data[start:end] for start, end in batches(data)])
    end()
    flips = [flip(broker, partition, first_seed + partition) for partition in range(PARTITIONS)]
    broker.start()
    with Peer(broker.bootstrap) as peer:
        for partition, (damaged, what) in enumerate(flips):
            check(peer, partition, written[partition], damaged, what)
    broker.assert_no_traceback()


def test_some_flipped_bits(broker_factory: BrokerFactory) -> None:
    """After an orderly stop nothing is read at the start: all of it has to be found when it is served."""
    broker = broker_factory()
    check_flips(broker, 0, broker.stop)


@pytest.mark.faults
@pytest.mark.parametrize("way", ["kill9", "stop"])
@pytest.mark.parametrize("first_seed", range(1000, 1000 + 10 * PARTITIONS, PARTITIONS))
def test_many_flipped_bits(broker_factory: BrokerFactory, first_seed: int, way: str) -> None:
    """After a kill all of the log lies past the recovery point, after a stop all of it lies below."""
    broker = broker_factory()
    check_flips(broker, first_seed, getattr(broker, way))

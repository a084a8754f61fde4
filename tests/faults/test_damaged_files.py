"""W7: indexes, snapshots and checkpoints are only copies of what the log says: without them everything is as before."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch, read_batches

TOPIC = "kept"
SETTINGS = {"internal_segment_bytes": 8_000, "index_interval_bytes": 300}
BATCHES = 60
SEEDS_AT_ONCE = 28  # every file with every damage
FIRST_TIMESTAMP = int(time.time() * 1000) - 3_600_000  # producers and records of long ago would be forgotten
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
PARTITION_FILES = ("*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint")
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")
CHORES = {
    "log_initial_task_delay_ms": 0,
    "log_flush_offset_checkpoint_interval_ms": 50,
    "log_flush_scheduler_interval_ms": 20,
}
BrokerFactory = Callable[..., Any]


@dataclass
class Written:
    """What one partition has acknowledged and must know afterwards."""

    producer_id: int
    timestamps: list[int] = field(default_factory=list)  # by offset: each batch holds one record
    stored: bytes = b""

    def first_at(self, timestamp: int) -> int:
        """What ListOffsets answers for a time: the first offset that is not older, or -1."""
        return next((offset for offset, found in enumerate(self.timestamps) if found >= timestamp), -1)

    def sequenced(self, sequence: int, chance: random.Random) -> bytes:
        timestamp = FIRST_TIMESTAMP + sequence * 1000 + chance.choice((0, 0, 5_500, -2_500))
        return batch(
            [b"%d" % sequence + b"x" * chance.choice((10, 200, 800))],
            timestamp=timestamp,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )


def delete(path: Path, _: random.Random) -> None:
    path.unlink()


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def shorten(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data) + 1)])


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(min(len(data), chance.choice((1, 1, 3)))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def garble(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size or 24))


def zero(path: Path, _: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path: Path, chance: random.Random) -> None:
    size = chance.choice((1, 8, 12, 24, 4096))
    path.write_bytes(path.read_bytes() + (bytes(size) if chance.random() < 0.5 else chance.randbytes(size)))


DAMAGES = [delete, empty, shorten, flip, garble, zero, lengthen]


def write_all(broker: Any, partitions: int) -> list[Written]:
    """Fill all partitions; flush.ms lets their recovery points follow where the broker looks often enough."""
    written = []
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, partitions, **SETTINGS, flush_ms=30)
        for partition in range(partitions):
            chance = random.Random(partition)
            state = Written(peer.new_producer_id())
            for sequence in range(BATCHES):
                data = state.sequenced(sequence, chance)
                assert peer.produce(TOPIC, data, partition).base_offset == sequence
                state.timestamps.append(read_batches(data)[0].max_timestamp)
            state.stored = read_all(peer, partition)
            written.append(state)
    return written


def read_all(peer: Peer, partition: int) -> bytes:
    data, offset = b"", 0
    while piece := bytes(peer.fetch(TOPIC, offset, partition, max_wait_ms=0).records or b""):
        data += piece
        offset = read_batches(piece)[-1].next_offset
    return data


def check(peer: Peer, partition: int, state: Written, what: str) -> None:
    """Offsets, times and producers are as before."""
    chance = random.Random(partition)
    for offset in chance.sample(range(BATCHES), 15):
        assert peer.stored_batches(TOPIC, offset, partition)[0].base_offset == offset, what
    for _ in range(20):
        timestamp = FIRST_TIMESTAMP + chance.randrange(-5_000, (BATCHES + 8) * 1000, 500)
        found = peer.list_offset(TOPIC, timestamp, partition)
        assert (found.error_code, found.offset) == (0, state.first_at(timestamp)), f"{what}: time {timestamp}"
    newest = peer.list_offset(TOPIC, -3, partition)
    assert (newest.offset, newest.timestamp) == (
        state.timestamps.index(max(state.timestamps)),
        max(state.timestamps),
    ), what
    assert read_all(peer, partition) == state.stored, what
    assert peer.list_offset(TOPIC, -2, partition).offset == 0, what
    assert peer.end_offset(TOPIC, partition) == BATCHES, what
    check_producer(peer, partition, state, what)


def check_producer(peer: Peer, partition: int, state: Written, what: str) -> None:
    chance = random.Random(0)
    sequenced = [state.sequenced(sequence, chance) for sequence in range(BATCHES + 2)]
    assert peer.produce(TOPIC, sequenced[BATCHES - 1], partition).base_offset == BATCHES - 1, f"{what}: a duplicate"
    early = peer.produce(TOPIC, sequenced[BATCHES + 1], partition)
    assert early.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER, f"{what}: a gap in the sequence"
    assert peer.produce(TOPIC, sequenced[BATCHES], partition).base_offset == BATCHES, f"{what}: the next in sequence"


def damage_partition(folder: Path, seed: int) -> str:
    """Damage one file, or all of a kind; in words what was done."""
    chance = random.Random(seed)
    pattern = PARTITION_FILES[seed % len(PARTITION_FILES)]
    damage = DAMAGES[seed // len(PARTITION_FILES) % len(DAMAGES)]
    paths = sorted(folder.glob(pattern))
    chosen = paths if chance.random() < 0.3 else [chance.choice(paths)] if paths else []
    for path in chosen:
        damage(path, chance)
    return f"seed {seed}, {damage.__name__} {folder.name}: {', '.join(path.name for path in chosen)}"


def check_seeds(broker: Any, seeds: range, end: Callable[[], None]) -> None:
    written = write_all(broker, len(seeds))
    end()
    done = [
        damage_partition(broker.data_directory / f"{TOPIC}-{partition}", seed) for partition, seed in enumerate(seeds)
    ]
    broker.start()
    with Peer(broker.bootstrap) as peer:
        for partition, (state, what) in enumerate(zip(written, done, strict=True)):
            check(peer, partition, state, what)
    broker.assert_no_traceback()


def test_some_damaged_files_after_a_kill(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(**CHORES)
    check_seeds(broker, range(SEEDS_AT_ONCE), broker.kill9)


def test_some_damaged_files_after_a_stop(broker_factory: BrokerFactory) -> None:
    broker = broker_factory()
    check_seeds(broker, range(SEEDS_AT_ONCE), broker.stop)


@pytest.mark.faults
@pytest.mark.parametrize("first_seed", range(1000, 1140, SEEDS_AT_ONCE))
@pytest.mark.parametrize("way", ["kill9", "stop"])
def test_many_damaged_files(broker_factory: BrokerFactory, first_seed: int, way: str) -> None:
    broker = broker_factory(**CHORES)
    check_seeds(broker, range(first_seed, first_seed + SEEDS_AT_ONCE), getattr(broker, way))


@pytest.mark.faults
@pytest.mark.parametrize("way", ["kill9", "stop"])
def test_damaged_checkpoints_cost_nothing(broker_factory: BrokerFactory, way: str) -> None:
    """Each round damages all three, and the mark of an orderly stop comes and goes as it likes."""
    broker = broker_factory(**CHORES)
    written = write_all(broker, 2)
    for round_number, damage in enumerate(DAMAGES):
        getattr(broker, way)()
        chance = random.Random(round_number)
        for name in CHECKPOINTS:
            if (path := broker.data_directory / name).exists():
                damage(path, chance)
        broker.start()
        with Peer(broker.bootstrap) as peer:
            for partition, state in enumerate(written):
                assert read_all(peer, partition) == state.stored, damage.__name__
                assert peer.end_offset(TOPIC, partition) == BATCHES, damage.__name__
    with Peer(broker.bootstrap) as peer:
        for partition, state in enumerate(written):
            check(peer, partition, state, "all damages together")
    broker.assert_no_traceback()


@pytest.mark.faults
@pytest.mark.parametrize("recovery_point", [0, 1, BATCHES // 2, BATCHES, BATCHES + 1, 2**40])
@pytest.mark.parametrize("is_marked_clean", [False, True])
def test_a_recovery_point_that_lies(broker_factory: BrokerFactory, recovery_point: int, is_marked_clean: bool) -> None:
    """Whatever the two files claim, a torn tail is cut and everything before it is served."""
    broker = broker_factory()
    (state,) = write_all(broker, 1)
    broker.kill9()
    data = broker.data_directory
    (data / CHECKPOINTS[0]).write_text(f"0\n1\n{TOPIC} 0 {recovery_point}\n")
    if is_marked_clean:
        (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    segment = max((data / f"{TOPIC}-0").glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    broker.start()
    with Peer(broker.bootstrap) as peer:
        stored = read_all(peer, 0)
        assert state.stored.startswith(stored)
        assert len(read_batches(stored)) == BATCHES - 1
        assert peer.produce(TOPIC, batch([b"next"])).base_offset == BATCHES - 1
    broker.assert_no_traceback()

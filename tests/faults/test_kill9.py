"""N1 and I2: kill -9 in the middle of load, also in the middle of a start, and everything that was promised is kept."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch, read_batches
from tests.conformance.waiting import eventually
from tests.faults.history import History, Place, violations
from tests.faults.loads import AioKafkaLoad, ConfluentLoad, KafkaPythonLoad, Load, Reader, read_everything
from tests.faults.metadata_load import MetadataLoad

SEED = 3
PLAIN, SYNCED, ROLLING = "plain", "synced", "rolling"
TOPICS = {PLAIN: {}, SYNCED: {"flush.messages": 1}, ROLLING: {"internal.segment.bytes": 30_000}}
PARTITIONS = 2
CHECKPOINTS = {
    # often, so that kills also fall between a flush, a checkpoint and the next roll
    "log_initial_task_delay_ms": 50,
    "log_flush_offset_checkpoint_interval_ms": 100,
    "log_flush_scheduler_interval_ms": 50,  # also the default of flush.ms
}


def run_with_kills(broker: Any, kills: int, seed: int, loads: list[type[Load]]) -> tuple[History, MetadataLoad]:
    """The whole run: all clients work, the broker dies again and again, all clients stop."""
    chance = random.Random(seed)
    history = History()
    places: list[Place] = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    with Peer(broker.bootstrap) as peer:
        for topic, configs in TOPICS.items():
            peer.create_topic(topic, PARTITIONS, **{key.replace(".", "_"): value for key, value in configs.items()})
    metadata = MetadataLoad(broker.bootstrap, history, seed)
    producers = [
        load(f"{load.__name__}{number}", broker.bootstrap, places, history, seed) for number, load in enumerate(loads)
    ]
    reader = Reader(broker.bootstrap, places, history)
    for thread in (reader, metadata, *producers):
        thread.start()
    try:
        wait_for_producers(history, len(producers))
        kill_again_and_again(broker, kills, chance, history)
        for thread in (*producers, metadata):
            thread.stop()
        stored = read_everything(broker.bootstrap, places)
        wait_for_reader(history, stored)
    finally:
        for thread in (*producers, metadata, reader):
            thread.stop()
    history.problems = [*violations(history, stored), *metadata.violations()]
    check_every_crc(broker, places)
    return history, metadata


def kill_again_and_again(broker: Any, kills: int, chance: random.Random, history: History) -> None:
    idle_rounds = 0
    for _ in range(kills):
        acknowledged = history.acknowledged_count
        time.sleep(chance.uniform(0.2, 1.2))
        idle_rounds += history.acknowledged_count == acknowledged
        broker.kill9()
        if chance.random() < 0.25:
            broker.launch()
            time.sleep(chance.uniform(0.05, 0.6))
            broker.kill9()
        broker.start()
    if idle_rounds > kills / 2:
        history.complain(f"L: nothing was acknowledged in {idle_rounds} of {kills} rounds")


def wait_for_producers(history: History, count: int, seconds_max: float = 20.0) -> None:
    """Only a producer that has begun can be disturbed."""
    deadline = time.monotonic() + seconds_max
    while sum(sent.acknowledged_count > 0 for sent in list(history.producers.values())) < count:
        assert time.monotonic() < deadline, history
        time.sleep(0.02)


def wait_for_reader(history: History, stored: dict[Place, list[tuple[int, bytes]]], seconds_max: float = 20.0) -> None:
    deadline = time.monotonic() + seconds_max
    while any(len(history.seen.get(place, ())) < len(records) for place, records in stored.items()):
        if time.monotonic() > deadline:
            history.complain("M: the reader did not reach the end")
            return
        time.sleep(0.05)


def check_every_crc(broker: Any, places: list[Place]) -> None:
    with Peer(broker.bootstrap) as peer:
        for topic, partition in places:
            offset = 0
            while data := bytes(peer.fetch(topic, offset, partition, max_wait_ms=0).records or b""):
                offset = read_batches(data)[-1].next_offset


def report(history: History, metadata: MetadataLoad, kills: int) -> str:
    lines = [f"{kills} kills, {metadata.answered} changes of metadata answered, {metadata.in_doubt} in doubt"]
    for name, sent in history.producers.items():
        lines.append(f"{name}: {sent.acknowledged_count} acknowledged, {len(sent.failures)} given up")
        lines += [f"  {count} x {reason}" for reason, count in Counter(sent.failures.values()).most_common(5)]
    return "\n".join([*lines, f"the reader saw {sum(map(len, history.seen.values()))}", *history.problems])


def check(broker: Any, kills: int, seed: int, loads: list[type[Load]]) -> None:
    history, metadata = run_with_kills(broker, kills, seed, loads)
    summary = report(history, metadata, kills)
    print(summary)
    assert not history.problems, summary
    assert not [failure for sent in history.producers.values() for failure in sent.failures], summary
    assert all(sent.acknowledged_count > 10 * kills for sent in history.producers.values()), summary
    assert metadata.answered > 2 * kills, summary
    broker.assert_no_traceback()


def test_a_few_kills_lose_and_double_nothing(broker_factory: Callable[..., Any]) -> None:
    check(broker_factory(**CHECKPOINTS), 6, SEED, [ConfluentLoad, KafkaPythonLoad])


@pytest.mark.faults
def test_a_hundred_kills_lose_and_double_nothing(broker_factory: Callable[..., Any]) -> None:
    check(broker_factory(**CHECKPOINTS), 100, SEED, [ConfluentLoad, KafkaPythonLoad, AioKafkaLoad])


@pytest.mark.faults
def test_kills_of_a_broker_with_two_folders_lose_and_double_nothing(
    broker_factory: Callable[..., Any], tmp_path: Path
) -> None:
    folders = f"{tmp_path / 'first'},{tmp_path / 'second'}"
    check(broker_factory(log_dirs=folders, **CHECKPOINTS), 30, SEED + 1, [ConfluentLoad, KafkaPythonLoad])


@pytest.mark.faults
def test_rolled_segments_are_not_read_again_after_a_kill(broker_factory: Callable[..., Any]) -> None:
    """Also without any flush setting old segments reach the disk, and with them the recovery point moves on."""
    broker = broker_factory(log_initial_task_delay_ms=50, log_flush_offset_checkpoint_interval_ms=100)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(ROLLING, internal_segment_bytes=30_000)
        for _ in range(100):
            assert peer.produce(ROLLING, batch([b"x" * 1000])).error_code == 0
    checkpoint = broker.data_directory / "recovery-point-offset-checkpoint"

    def recovery_point() -> int:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return next((int(line.split()[2]) for line in lines if line.startswith(f"{ROLLING} 0 ")), -1)

    assert eventually(lambda: recovery_point() >= 50), recovery_point()

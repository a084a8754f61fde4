"""The checker must be able to fail: every kind of loss is planted once, and each must be found."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.cluster_checker import TOPIC, Checker, check_replicas
from tests.faults.cluster_replicas import StoredBatch, compare_replicas, read_replica, read_segment
from tests.faults.history import Place

from ottla.protocol.batches import build_batch
from ottla.protocol.records import Record

PLACE: Place = ("topic", 0)
BATCHES = 20
RECORDS = 3
END = BATCHES * RECORDS


def batch(number: int, epoch: int = 0, value: bytes = b"") -> bytes:
    data = bytearray(
        build_batch([Record(-1, 1_000, b"key", value or b"%d" % number) for _ in range(RECORDS)], producer_id=7)
    )
    data[:8] = (number * RECORDS).to_bytes(8)
    data[12:16] = epoch.to_bytes(4)
    return bytes(data)


def replicas() -> dict[int, list[bytes]]:
    return {broker: [batch(number, epoch=number // 8) for number in range(BATCHES)] for broker in (1, 2, 3)}


def problems(stored: dict[int, list[bytes]], high_watermark: int = END) -> list[str]:
    read = {broker: list(read_segment(b"".join(batches))) for broker, batches in stored.items()}
    return compare_replicas(PLACE, read, high_watermark)


def test_equal_replicas_are_equal() -> None:
    assert problems(replicas()) == []


def test_records_above_the_high_watermark_may_differ() -> None:
    stored = replicas()
    stored[2][-1] = batch(BATCHES - 1, epoch=2, value=b"other")
    stored[3].pop()
    assert problems(stored, END - RECORDS) == []
    assert problems(stored, END)


def test_a_replica_may_begin_later() -> None:
    stored = replicas()
    del stored[2][:4]
    assert problems(stored) == []


def lose_one(batches: list[bytes]) -> None:
    del batches[9]


def lose_the_tail(batches: list[bytes]) -> None:
    del batches[-2:]


def flip_a_bit(batches: list[bytes]) -> None:
    data = bytearray(batches[5])
    data[-2] ^= 1
    batches[5] = bytes(data)


def write_another_value(batches: list[bytes]) -> None:
    batches[5] = batch(5, value=b"z")


def write_another_epoch(batches: list[bytes]) -> None:
    batches[5] = batch(5, epoch=1)
    for number in (6, 7):
        batches[number] = batch(number, epoch=1)


def write_one_twice(batches: list[bytes]) -> None:
    batches.insert(6, batches[5])


@pytest.mark.parametrize(
    "plant", [lose_one, lose_the_tail, flip_a_bit, write_another_value, write_another_epoch, write_one_twice]
)
@pytest.mark.parametrize("broker", [1, 3])
def test_a_replica_that_differs_is_found(plant: Callable[[list[bytes]], None], broker: int) -> None:
    stored = replicas()
    plant(stored[broker])
    assert problems(stored)


class OneBroker:
    """A broker alone, in the eyes of the checker."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.bootstrap: str = broker.bootstrap

    def replica_folders(self, topic: str, partition: int) -> dict[int, Path]:
        return {1: self.broker.data_directory / f"{topic}-{partition}"}


def rewrite(folder: Path, change: Callable[[list[StoredBatch]], list[StoredBatch]]) -> None:
    """Another log in place of the one that is there, without a trace: offsets go on without a gap."""
    (path,) = sorted(folder.glob("*.log"))
    offset = 0
    changed = bytearray()
    for kept in change(read_replica(folder)):
        data = bytearray(kept.data)
        data[:8] = offset.to_bytes(8)
        offset += kept.last_offset - kept.base_offset + 1
        changed += data
    path.write_bytes(changed)
    for old in (*folder.glob("*index"), *folder.glob("*.snapshot")):
        old.unlink()


def without(index: int) -> Callable[[list[StoredBatch]], list[StoredBatch]]:
    return lambda batches: [*batches[:index], *batches[index + 1 :]]


def twice(index: int) -> Callable[[list[StoredBatch]], list[StoredBatch]]:
    return lambda batches: [*batches[: index + 1], *batches[index:]]


def exchanged(index: int) -> Callable[[list[StoredBatch]], list[StoredBatch]]:
    return lambda batches: [*batches[:index], batches[index + 1], batches[index], *batches[index + 2 :]]


@pytest.mark.parametrize(
    ("change", "letters"), [(None, set()), (without, {"D", "M"}), (twice, {"U", "C"}), (exchanged, {"C", "M"})]
)
def test_errors_planted_in_a_log_are_found(
    broker_factory: Callable[..., Any], tmp_path: Path, change: Any, letters: set[str]
) -> None:
    broker = broker_factory()
    with Checker(broker.bootstrap, tmp_path / "logs", partitions=2, replicas=1) as checker:
        checker.wait_for_acknowledgements(20)
        for load in checker.loads:
            load.stop()
        broker.stop()
        if change is not None:
            for partition in (0, 1):
                folder = broker.data_directory / f"{TOPIC}-{partition}"
                index = random.Random(partition).randrange(3, len(read_replica(folder)) - 3)
                rewrite(folder, change(index))
        broker.start()
        outcome = checker.finish(OneBroker(broker))
    assert outcome.acknowledged > 40
    found = {line.partition(":")[0] for line in outcome.violations}
    assert letters <= found if letters else not found, outcome


def test_the_files_of_a_broker_are_read_as_they_are(broker_factory: Callable[..., Any], tmp_path: Path) -> None:
    """A replica that lacks the tail is reported, and only after the time that a follower may take."""
    broker = broker_factory()
    cluster = OneBroker(broker)
    with Checker(broker.bootstrap, tmp_path / "logs", partitions=1, replicas=1) as checker:
        checker.wait_for_acknowledgements(5)
        assert not checker.finish(cluster).violations
    folder = broker.data_directory / f"{TOPIC}-0"
    copy = tmp_path / "copy"
    copy.mkdir()
    (path,) = folder.glob("*.log")
    (copy / path.name).write_bytes(path.read_bytes()[: -len(read_replica(folder)[-1].data)])
    cluster.replica_folders = lambda *_: {1: folder, 2: copy}  # type: ignore[method-assign]
    assert len(check_replicas(cluster, [(TOPIC, 0)], seconds_max=0.1)) == 2

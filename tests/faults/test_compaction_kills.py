"""W12, and N1 with compaction running: broker and cleaner are killed again and again while logs are cleaned.

Of every key the last acknowledged word stays, tombstones too; what stays keeps its order, and the cleaner gets on.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from tests.conformance.peer import Peer
from tests.conformance.test_compaction import cleaner_pids, read_all
from tests.conformance.waiting import eventually
from tests.faults.loads import LIBRDKAFKA

TOPIC = "compacted"
KEYS = 40
SETTINGS = {
    "log_cleaner_backoff_ms": 50,
    "log_initial_task_delay_ms": 50,
    "log_flush_offset_checkpoint_interval_ms": 100,
    "log_cleaner_io_max_bytes_per_second": 5_000_000.0,  # so that kills fall into the work
}
TOPIC_SETTINGS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 20_000,
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": 100,
}
Stored = list[tuple[int, bytes | None, bytes | None]]


class KeyedLoad(threading.Thread):
    """Writes a rising number, or nothing, under each of a few keys; knows which of them were acknowledged."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[bytes, tuple[int, bytes | None]] = {}  # key -> offset and value
        self.count = 0
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        settings = {"enable.idempotence": True, "batch.size": 8000}  # a batch must fit into a small segment
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings, **LIBRDKAFKA})

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            key = b"%d" % self._chance.randrange(KEYS)
            value = None if self._chance.random() < 0.1 else b"%d:" % number + b"x" * self._chance.randrange(300)
            self._send(key, value)
            number += 1
            self._producer.poll(0)
            if number % 10 == 0:
                time.sleep(0.005)
        self._producer.flush(60)

    def _send(self, key: bytes, value: bytes | None) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.produce(TOPIC, value, key=key, on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _note(self, error: object, message: Message) -> None:
        if error is None:
            key, offset = message.key(), message.offset()
            assert isinstance(key, bytes)
            assert offset is not None
            self.count += 1
            if offset > self.acknowledged.get(key, (-1, None))[0]:
                self.acknowledged[key] = (offset, message.value())  # type: ignore[assignment]

    def stop(self) -> None:
        self._stopping.set()
        self.join(90)
        assert not self.is_alive()


def violations(stored: Stored, acknowledged: dict[bytes, tuple[int, bytes | None]]) -> list[str]:
    problems = []
    offsets = [offset for offset, _, _ in stored]
    if offsets != sorted(set(offsets)):
        problems.append("offsets are not in order")
    newest = {key: (offset, value) for offset, key, value in stored}
    for key, (offset, value) in acknowledged.items():
        found_offset, found_value = newest.get(key, (-1, None))
        if found_offset < offset or (found_offset == offset and found_value != value):
            problems.append(f"{key!r}: acknowledged at {offset}, found at {found_offset}")
    numbers: dict[bytes | None, int] = {}
    for offset, key, value in stored:
        if value is not None:
            number = int(value.split(b":")[0])
            if number <= numbers.get(key, -1):
                problems.append(f"{key!r}: an older value at offset {offset}")
            numbers[key] = number
    return problems


def kill_one(broker: Any, chance: random.Random) -> None:
    """The broker, its cleaner, or the broker right after its start."""
    choice = chance.random()
    if choice < 0.4:
        for pid in cleaner_pids(broker):
            os.kill(pid, signal.SIGKILL)
        return
    broker.kill9()
    if choice > 0.9:
        broker.launch()
        time.sleep(chance.uniform(0.05, 0.4))
        broker.kill9()
    broker.start()


def run_rounds(broker: Any, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    with Peer(broker.bootstrap) as peer:
        peer.create_topic(TOPIC, **TOPIC_SETTINGS)
    load = KeyedLoad(broker.bootstrap, seed)
    load.start()
    try:
        for _ in range(rounds):
            time.sleep(chance.uniform(0.2, 1.0))
            kill_one(broker, chance)
            before = dict(load.acknowledged)
            assert violations(read_all(broker.bootstrap, TOPIC), before) == []
    finally:
        load.stop()
    stored = read_all(broker.bootstrap, TOPIC)
    assert violations(stored, load.acknowledged) == []
    assert load.count > rounds * 20, "the load was not disturbed only, it was stopped"
    # On a busy machine the cleaner, which has the lowest priority, runs late, but it runs.
    gets_on = eventually(lambda: broker.log_text.count("cleaned compacted-0") >= rounds // 3, seconds_max=30)
    assert gets_on, "the cleaner does not get on"
    assert "is not cleaned until" not in broker.log_text
    broker.stop()
    broker.start()
    assert violations(read_all(broker.bootstrap, TOPIC), load.acknowledged) == []
    assert_is_tidy(Path(broker.data_directory))


def assert_is_tidy(data_directory: Path) -> None:
    assert not list(data_directory.glob("*/*.swap"))
    assert not [path for path in data_directory.glob("*/*.log.deleted") if path.stat().st_mtime < time.time() - 60]


@pytest.mark.needs_ottla
def test_kills_while_a_log_is_cleaned_lose_no_last_word(broker_factory: Callable[..., Any]) -> None:
    run_rounds(broker_factory(**SETTINGS), rounds=3, seed=1)


@pytest.mark.faults
@pytest.mark.needs_ottla
def test_fifty_kills_while_a_log_is_cleaned_lose_no_last_word(broker_factory: Callable[..., Any]) -> None:
    run_rounds(broker_factory(**SETTINGS), rounds=50, seed=2)

"""A checker after the manner of Jepsen over produce, consume and transactions: X3, X4, X7, X8, I2, G.

Writers, tellers, copiers, readers and a follower are processes of their own. They and the broker are killed, stopped in
an orderly way, and held still for longer than their session; in the end everything that was promised must be there.
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from conformance.peer import Peer
from faults.history import Place, Stored
from faults.transaction_history import Logs, transaction_violations
from faults.worker import INPUT, LEDGER, OUTPUT, PARTITIONS, READERS, SESSION_MS, group_settings

PROGRAM = Path(__file__).parent / "worker.py"
PLACES: list[Place] = [(topic, partition) for topic in (INPUT, OUTPUT, LEDGER) for partition in range(PARTITIONS)]
SETTINGS = {
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 500,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
    "log_initial_task_delay_ms": 50,
    "log_flush_offset_checkpoint_interval_ms": 100,
}
END_SECONDS_MAX = 60.0
BrokerFactory = Callable[..., Any]


class Crew:
    """The processes of all workers."""

    def __init__(self, bootstrap: str, folder: Path, seed: int) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        folder.mkdir()
        self.chance = random.Random(seed)
        self.faults: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """`Teller-2` is a Teller with the ledger 2."""
        kind, _, number = name.partition("-")
        arguments = [kind, self.bootstrap, name, str(self.folder / f"{name}.log"), number.partition("_")[0]]
        with (self.folder / f"{name}.err").open("ab") as errors:
            self._processes[name] = subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stderr=errors)

    def names(self, *kinds: str) -> list[str]:
        return [name for name in self._processes if name.startswith(kinds)]

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def end(self, names: list[str], number: signal.Signals = signal.SIGTERM) -> None:
        for name in names:
            self._processes[name].send_signal(number)
        for name in names:
            self._processes[name].wait(END_SECONDS_MAX)

    def disturb(self, broker: Any, what: str) -> None:
        self.faults[what] = self.faults.get(what, 0) + 1
        victim = self.chance.choice(self.names("Transactional", "Teller", "Copier", "GroupReader"))
        if what == "kill broker":
            broker.kill9()
            broker.start()
        elif what == "stop broker":
            broker.restart()
        elif what == "freeze worker":
            self.send(victim, signal.SIGSTOP)
            time.sleep(SESSION_MS * 1.5 / 1000)
            self.send(victim, signal.SIGCONT)
        else:
            self.end([victim], signal.SIGKILL if what == "kill worker" else signal.SIGTERM)
            self.start(victim)

    def discard(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def read_committed(bootstrap: str, seconds_max: float = 60.0) -> Stored:
    consumer = Consumer({**group_settings(bootstrap, "nobody"), "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in PLACES])
    stored: Stored = {place: [] for place in PLACES}
    unread = set(PLACES)
    deadline = time.monotonic() + seconds_max
    while unread:
        assert time.monotonic() < deadline, f"L: no end of {unread}"
        for message in consumer.consume(1000, 0.1):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                stored[place].append((message.offset() or 0, message.value() or b""))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(place)
    consumer.close()
    return stored


def group_places(bootstrap: str, group: str) -> dict[int, int]:
    consumer = Consumer(group_settings(bootstrap, group))
    places = consumer.committed([TopicPartition(INPUT, partition) for partition in range(PARTITIONS)], 20)
    consumer.close()
    return {place.partition: max(place.offset, 0) for place in places}


def wait_for_copies(bootstrap: str) -> Stored:
    """Until every record is copied, or nothing moves any more."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        stored = read_committed(bootstrap)
        left = sum(len(stored[INPUT, index]) - len(stored[OUTPUT, index]) for index in range(PARTITIONS))
        if left <= 0 or time.monotonic() > deadline:
            return stored
        time.sleep(0.3)


def make_topics(broker: Any) -> None:
    with Peer(broker.bootstrap) as peer:
        for topic in (INPUT, OUTPUT, LEDGER):
            peer.create_topic(topic, PARTITIONS)


def check(broker: Any, folder: Path, faults: list[str], seed: int) -> None:
    make_topics(broker)
    crew = Crew(broker.bootstrap, folder, seed)
    try:
        for name in ("Follower-0", "TransactionalWriter-0", "TransactionalWriter-1", "Teller-0", "Teller-1"):
            crew.start(name)
        for name in ("Copier-0", "Copier-1", "GroupReader-0", "GroupReader-1"):
            crew.start(name)
        time.sleep(1)
        for fault in faults:
            time.sleep(crew.chance.uniform(0.3, 1.5))
            crew.disturb(broker, fault)
        time.sleep(1)
        crew.end(crew.names("Transactional", "Teller"))
        stored = wait_for_copies(broker.bootstrap)
        time.sleep(0.5)  # for the follower's last look
        crew.end(crew.names("Copier", "GroupReader", "Follower"))
        logs = Logs(folder)
        found = transaction_violations(logs, stored, group_places(broker.bootstrap, READERS))
        summary = f"{crew.faults}: {logs.summary(stored)}"
        print(summary)
        assert not found, "\n".join([summary, *found[:20]])
        assert len(stored[INPUT, 0]) > 10, summary
        assert not [path for path in folder.glob("*.err") if "Traceback" in path.read_text()], "a worker has died"
        broker.assert_no_traceback()
    finally:
        crew.discard()


def test_nothing_that_was_promised_is_broken_by_kills(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    faults = ["kill broker", "kill worker", "freeze worker", "kill broker", "stop broker", "stop worker", "kill broker"]
    check(broker_factory(**SETTINGS), tmp_path / "logs", faults, 1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_was_promised_is_broken_by_many_kills(
    broker_factory: BrokerFactory, tmp_path: Path, seed: int
) -> None:
    kinds = ["kill broker", "kill broker", "stop broker", "kill worker", "stop worker", "freeze worker"]
    chance = random.Random(seed)
    check(broker_factory(**SETTINGS), tmp_path / "logs", [chance.choice(kinds) for _ in range(60)], seed)


@pytest.mark.faults
@pytest.mark.parametrize("bounce", ["kill broker", "stop broker", "kill worker", "stop worker"])
def test_a_hundred_thousand_records_are_copied_exactly_once(
    broker_factory: BrokerFactory, tmp_path: Path, bounce: str
) -> None:
    """X7: transactions of 750 records, broker or copiers bounced three times, in an orderly way and not."""
    broker = broker_factory(**SETTINGS)
    make_topics(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(100_000):
        producer.produce(INPUT, f"loader:{number}:", partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0
    crew = Crew(broker.bootstrap, tmp_path / "logs", 1)
    try:
        crew.start("Copier-0")
        crew.start("Copier-1")
        for _ in range(3):
            time.sleep(1.5)
            crew.disturb(broker, bounce)
        stored = wait_for_copies(broker.bootstrap)
        crew.end(crew.names("Copier"))
        logs = Logs(crew.folder)
        print(bounce, logs.summary(stored))
        assert not transaction_violations(logs, stored, {})
        assert sum(len(stored[OUTPUT, index]) for index in range(PARTITIONS)) == 100_000
        broker.assert_no_traceback()
    finally:
        crew.discard()

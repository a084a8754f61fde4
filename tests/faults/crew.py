"""Workers (worker.py) as processes that come and go, and what they leave behind in the end."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.faults.history import Place, Stored
from tests.faults.worker import INPUT, LEDGER, OUTPUT, PARTITIONS, SESSION_MS, group_settings

PROGRAM = Path(__file__).parent / "worker.py"
PLACES: list[Place] = [(topic, partition) for topic in (INPUT, OUTPUT, LEDGER) for partition in range(PARTITIONS)]
END_SECONDS_MAX = 60.0


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
            try:
                self._processes[name].wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:  # librdkafka can wait for ever: known limits in docs/reliability.md
                print(f"{name} does not end and is killed; its log tells all that it was told")
                self._processes[name].kill()
                self._processes[name].wait()

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
    consumer = Consumer({**group_settings(bootstrap, "nobody"), "enable.partition.eof": True, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in PLACES])
    stored: Stored = {place: [] for place in PLACES}
    unread = set(PLACES)
    deadline = time.monotonic() + seconds_max
    while unread:
        assert time.monotonic() < deadline, f"L: no end of {unread}"
        for message in consumer.consume(1000, 0.02):
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

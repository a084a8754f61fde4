"""A checker after the manner of Jepsen for whole clusters.

Idempotent producers write rising numbers to all partitions with acks=all, a reader follows them, and a crew of workers
runs transactions, exactly-once copies and a consumer group. Every answer is recorded. When the
faults are over, a last read and the files of all replicas are compared with it: the letters are those of `history.py`
and `transaction_history.py`; L is the longest time without an acknowledgement, by partition.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.cluster_replicas import compare_replicas, read_replica
from tests.faults.crew import Crew, group_places, wait_for_copies
from tests.faults.history import History, Place, violations
from tests.faults.loads import LIBRDKAFKA, ConfluentLoad, Reader, read_everything
from tests.faults.transaction_history import Logs, transaction_violations
from tests.faults.worker import INPUT, LEDGER, OUTPUT, READERS, security_of
from tests.faults.worker import PARTITIONS as WORKER_PARTITIONS

TOPIC = "checked"
CREW = ("Follower-0", "TransactionalWriter-0", "Teller-0", "Copier-0", "GroupReader-0")
ACKNOWLEDGE_SECONDS_MAX = 90.0  # an upper bound, not a promise: sessions may be lost and replaced meanwhile
READ_SECONDS_MAX = 120.0
REPLICAS_SECONDS_MAX = 60.0


class Replicas(Protocol):
    """What the checker must know of a cluster."""

    bootstrap: str

    def replica_folders(self, topic: str, partition: int) -> dict[int, Path]: ...


class TimedHistory(History):
    """A history that also knows when acknowledgements came."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[Place, float] = {}
        self.gaps: dict[Place, float] = {}
        self._times = threading.Lock()

    def acknowledge(self, place: Place, value: bytes, offset: int) -> None:
        super().acknowledge(place, value, offset)
        now = time.monotonic()
        with self._times:
            if place in self.last:
                self.gaps[place] = max(self.gaps.get(place, 0.0), now - self.last[place])
            self.last[place] = now

    def gap(self) -> float:
        """The longest time that any partition went without an acknowledgement, up to now."""
        now = time.monotonic()
        with self._times:
            return max([*self.gaps.values(), *(now - last for last in self.last.values())], default=0.0)

    def forget_gaps(self) -> None:
        with self._times:
            self.gaps.clear()


class PatientLoad(ConfluentLoad):
    """librdkafka at a modest pace: correctness is looked for, not speed.

    It waits 3 s for an answer instead of 30: else a broker that is paused holds it up for longer than the cluster does.
    """

    records_per_pause = 2
    settings: ClassVar[dict[str, object]] = {"request.timeout.ms": 3000, "socket.timeout.ms": 3000}


@dataclass
class Outcome:
    """What came out of a run; `violations` is empty if every promise was kept."""

    acknowledged: int = 0
    given_up: Counter[str] = field(default_factory=Counter)
    longest_gap_seconds: float = 0.0
    transactions: str = ""
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            (
                f"{self.acknowledged} acknowledged, {sum(self.given_up.values())} given up {dict(self.given_up)}, "
                f"longest gap {self.longest_gap_seconds:.1f} s"
            )
        ]
        return "\n".join([*lines, *([self.transactions] if self.transactions else []), *self.violations[:20]])


class Checker:
    """Load from start() until finish(), which returns the outcome. A context manager that stops all workers."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        topic: str = TOPIC,
        seed: int = 0,
        partitions: int = 4,
        producers: int = 2,
        replicas: int = 3,
        has_transactions: bool = False,
        topic_settings: dict[str, str] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.replicas = replicas
        self.history = TimedHistory()
        self.places: list[Place] = [(topic, partition) for partition in range(partitions)]
        self.topic_settings = topic_settings or {}
        self.loads = [
            PatientLoad(f"producer{number}", bootstrap, self.places, self.history, seed) for number in range(producers)
        ]
        self.reader: Reader | None = None
        self.crew: Crew | None = Crew(bootstrap, folder, seed) if has_transactions else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for load in self.loads:
            load._stopping.set()
        if self.reader is not None:
            self.reader.stop()
        if self.crew is not None:
            self.crew.discard()

    def start(self) -> None:
        topics = {self.topic: len(self.places)}
        if self.crew is not None:
            topics |= dict.fromkeys((INPUT, OUTPUT, LEDGER), WORKER_PARTITIONS)
        make_topics(self.bootstrap, topics, self.replicas, self.topic_settings)
        self.reader = Reader(self.bootstrap, self.places, self.history)
        for thread in (self.reader, *self.loads):
            thread.start()
        for name in CREW if self.crew is not None else ():
            assert self.crew is not None
            self.crew.start(name)
        self.wait_for_acknowledgements(1)

    def wait_for_acknowledgements(self, count: int, seconds_max: float = ACKNOWLEDGE_SECONDS_MAX) -> None:
        """Until every partition has got one more acknowledgement, `count` times over."""
        deadline = time.monotonic() + seconds_max
        for _ in range(count):
            begin = time.monotonic()
            while any(self.history.last.get(place, 0.0) <= begin for place in self.places):
                late = [place for place in self.places if self.history.last.get(place, 0.0) <= begin]
                assert time.monotonic() < deadline, f"L: no acknowledgement for {late} within {seconds_max:g} s"
                time.sleep(0.01)

    def finish(self, cluster: Replicas | None = None) -> Outcome:
        """Stop all workers, read everything, check every promise."""
        longest_gap = self.history.gap()
        for load in self.loads:
            load.stop()
        if self.crew is not None:
            self.crew.end(self.crew.names("Transactional", "Teller"))
        outcome = Outcome(self.history.acknowledged_count, longest_gap_seconds=longest_gap)
        for sent in self.history.producers.values():
            outcome.given_up.update(sent.failures.values())
        self._check_reads(outcome)
        self._check_transactions(outcome)
        if cluster is not None:
            outcome.violations += check_replicas(cluster, self._all_places())
        return outcome

    def _all_places(self) -> list[Place]:
        if self.crew is None:
            return self.places
        topics = (INPUT, OUTPUT, LEDGER)
        return [*self.places, *((topic, partition) for topic in topics for partition in range(WORKER_PARTITIONS))]

    def _check_reads(self, outcome: Outcome) -> None:
        stored = read_everything(self.bootstrap, self.places, READ_SECONDS_MAX)
        deadline = time.monotonic() + READ_SECONDS_MAX
        while any(len(self.history.seen.get(place, ())) < len(rows) for place, rows in stored.items()):
            if time.monotonic() > deadline:
                self.history.complain(f"M: the reader did not reach the end: {self.history!r}")
                break
            time.sleep(0.05)
        if self.reader is not None:
            self.reader.stop()
            self.reader = None
        outcome.violations += violations(self.history, stored)

    def _check_transactions(self, outcome: Outcome) -> None:
        if self.crew is None:
            return
        stored = wait_for_copies(self.bootstrap)
        time.sleep(0.5)  # for the follower's last look
        self.crew.end(self.crew.names("Copier", "GroupReader", "Follower"))
        logs = Logs(self.crew.folder)
        outcome.transactions = logs.summary(stored)
        outcome.violations += transaction_violations(logs, stored, group_places(self.bootstrap, READERS))
        died = [path.stem for path in self.crew.folder.glob("*.err") if "Traceback" in path.read_text()]
        outcome.violations += [f"worker {name} has died: its .err file says why" for name in died]


def make_topics(bootstrap: str, topics: dict[str, int], replicas: int, settings: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **LIBRDKAFKA, **security_of(bootstrap)})
    wanted = [NewTopic(name, count, replicas, config=settings) for name, count in topics.items()]
    for future in admin.create_topics(wanted, operation_timeout=30).values():
        future.result(60)


def check_replicas(cluster: Replicas, places: Iterable[Place], seconds_max: float = REPLICAS_SECONDS_MAX) -> list[str]:
    """The files of all replicas, once they no longer change: followers may be a little behind."""
    found: list[str] = []
    deadline = time.monotonic() + seconds_max
    for place in places:
        while True:
            high_watermark = end_offset(cluster.bootstrap, place)
            folders = cluster.replica_folders(*place)
            problems = compare_replicas(
                place, {broker: read_replica(folder) for broker, folder in folders.items()}, high_watermark
            )
            if not problems or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        found += problems
    return found


def end_offset(bootstrap: str, place: Place) -> int:
    """The high watermark, as reported to a read_uncommitted reader."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody",
        **LIBRDKAFKA,
        **security_of(bootstrap),
    }
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    deadline = time.monotonic() + READ_SECONDS_MAX
    with contextlib.closing(consumer):
        while True:
            try:
                return int(consumer.get_watermark_offsets(TopicPartition(*place), timeout=30)[1])
            except KafkaException:  # a new leader does not know it yet (KIP-207)
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

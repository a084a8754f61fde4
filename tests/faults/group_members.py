"""Members of a consumer group as threads that log their partitions, the records they see and the offsets they get."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tests.faults.loads import LIBRDKAFKA

TOPIC, GROUP = "shared", "workers"
CLASSIC, CONSUMER = "classic", "consumer"


class GroupHistory:
    """What all members of the group have lived through."""

    def __init__(self, bootstrap: str, partitions: int, protocol: str, session_ms: int = 3000) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.protocol = protocol
        self.session_ms = session_ms
        self.seen: set[tuple[int, int]] = set()
        self.places: dict[int, int] = {}  # the highest that was acknowledged
        self.acknowledged = 0
        self.rebalances = 0
        self.owners: dict[int, str] = {}
        self.problems: list[str] = []
        self.lock = threading.Lock()

    def own(self, member: str, partitions: list[int]) -> None:
        with self.lock:
            self.rebalances += 1
            for partition in partitions:
                owner = self.owners.get(partition)
                if owner not in (None, member):
                    self.problems.append(f"partition {partition} was given to {member} and still belongs to {owner}")
                self.owners[partition] = member

    def disown(self, member: str, partitions: list[int]) -> None:
        with self.lock:
            for partition in partitions:
                if self.owners.get(partition) == member:
                    del self.owners[partition]

    def acknowledge(self, partition: int, offset: int) -> None:
        with self.lock:
            self.acknowledged += 1
            self.places[partition] = max(offset, self.places.get(partition, 0))

    def is_shared_out(self) -> bool:
        with self.lock:
            return len(self.owners) == self.partitions

    def check_places(self) -> None:
        """G: an acknowledged place never goes back, and nothing below it is unseen."""
        with self.lock:
            told = dict(self.places)
        now = self.committed()
        back = {partition: (told[partition], now[partition]) for partition in told if now[partition] < told[partition]}
        if back:
            self.problems.append(f"G: places went back (told, now): {back}")
        with self.lock:
            for partition, place in now.items():
                unseen = [offset for offset in range(place) if (partition, offset) not in self.seen]
                if unseen:
                    self.problems.append(f"G: partition {partition} is at {place}, unseen are {unseen[:5]}")

    def committed(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP, **LIBRDKAFKA})
        rows = consumer.committed([TopicPartition(TOPIC, index) for index in range(self.partitions)], 20)
        consumer.close()
        return {row.partition: max(row.offset, 0) for row in rows}


class Member(threading.Thread):
    """Reads, writes down, commits; `stop()` leaves the group in an orderly way."""

    def __init__(self, history: GroupHistory, name: str, **settings: object) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.assigned: set[int] = set()
        self.assignments = 0
        self.fatal: KafkaError | None = None
        self._stopping = threading.Event()
        timeouts = {"session.timeout.ms": history.session_ms, "heartbeat.interval.ms": 300}
        self._consumer = Consumer(
            {
                "bootstrap.servers": history.bootstrap,
                "group.id": GROUP,
                "group.protocol": history.protocol,
                **(timeouts if history.protocol == CLASSIC else {}),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                "retry.backoff.ms": 20,
                **LIBRDKAFKA,
                **settings,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        while not self._stopping.is_set() and self.fatal is None:
            places: dict[int, int] = {}
            for message in self._consume():
                self._take(message, places)
            if places:
                self._commit(places)
        self._consumer.close()
        self.history.disown(self.name, list(range(self.history.partitions)))

    def _consume(self) -> list[Message]:
        try:
            return self._consumer.consume(50, 0.1)
        except KafkaException as problem:
            self.fatal = problem.args[0]
            return []

    def _take(self, message: Message, places: dict[int, int]) -> None:
        error = message.error()
        if error is None:
            partition, offset = message.partition() or 0, message.offset() or 0
            self.history.seen.add((partition, offset))
            places[partition] = offset + 1
        elif error.fatal() or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID):
            self.fatal = error

    def _commit(self, places: dict[int, int]) -> None:
        offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in places.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as problem:
            if problem.args[0].fatal():
                self.fatal = problem.args[0]
            return
        for place in done:
            if place.error is None:
                self.history.acknowledge(place.partition, place.offset)

    def _assign(self, _: Consumer, places: list[TopicPartition]) -> None:
        self.assignments += 1
        partitions = [place.partition for place in places]
        self.assigned.update(partitions)  # what is added, with an incremental protocol
        self.history.own(self.name, partitions)

    def _revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        partitions = [place.partition for place in places]
        self.assigned.difference_update(partitions)
        self.history.disown(self.name, partitions)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        if self.is_alive():
            self.history.problems.append(f"{self.name} does not come to an end")


def wait_until(check: Callable[[], Any], seconds_max: float, history: GroupHistory) -> None:
    deadline = time.monotonic() + seconds_max
    while not check():
        assert time.monotonic() < deadline, (history.owners, history.problems)
        time.sleep(0.02)

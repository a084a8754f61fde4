"""A producer with a steady rate, and consumers that read at a pace of their own and commit at intervals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer

RATE = 100  # records a second
PIECE = 1_000
Pace = Callable[[float], float]  # how many records may have been read after so many seconds


class Writer(threading.Thread):
    """RATE records a second, until it is closed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        began, written = time.monotonic(), 0
        while not self._is_over.wait(0.05):
            due = int((time.monotonic() - began) * RATE)
            for _ in range(due - written):
                self._producer.produce(self._topic, b"a record")
            written = due
            self._producer.poll(0)

    def close(self) -> None:
        self._is_over.set()
        self.join(30)
        self._producer.flush(30)


class PacedReader(threading.Thread):
    """A member alone in its group."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, commit_s: float, pace: Pace, name: str) -> None:
        super().__init__(daemon=True)
        self.group = f"{topic}-{name}-{protocol}-{commit_s:g}"
        self._pace = pace
        self._is_over = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": self.group, "group.protocol": protocol}
            | {"auto.commit.interval.ms": int(commit_s * 1_000), "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])
        self.start()

    def run(self) -> None:
        began, read = time.monotonic(), 0
        while not self._is_over.wait(0.05):
            allowed = self._pace(time.monotonic() - began) - read
            if allowed >= 1 or read == 0:
                read += len(self._consumer.consume(max(1, min(PIECE, int(allowed))), 0.02))

    def close(self) -> None:
        self._is_over.set()
        self.join(30)
        self._consumer.close()


def share_of(ratio: float) -> Pace:
    return lambda seconds: ratio * RATE * seconds


def saw_tooth(period_s: float) -> Pace:
    """To the end once in a period, and nothing in between."""
    return lambda seconds: RATE * period_s * (seconds // period_s)

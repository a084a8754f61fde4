"""Answers for the keys of a batch of rows: each different key once, from memory where it is known, else by asking.

Lives in a process of Spark's and is kept there from batch to batch, with its connections and its memory: so a key is
asked once in `cache_for` by each process. Answers with a problem are not remembered.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from ottla.pipelines.steps.lookups.asking import Answer, Key, Patience, Place, asked
from ottla.pipelines.steps.lookups.cache import Cache

CLIENTS_MAX = 8

_clients: dict[Question, Client] = {}


class Address(Protocol):
    """Picklable, and can be compared."""

    @property
    def shown(self) -> str: ...

    @property
    def keys(self) -> list[str]: ...

    def connected(self) -> Place: ...


@dataclass(frozen=True)
class Question:
    """Where one asks, and how."""

    address: Address
    cache_size: int = 10_000
    cache_seconds: float = 60.0
    concurrency: int = 4
    retry_seconds: float = 10.0


class Client:
    """`seconds` and `sleep` are the clock."""

    def __init__(
        self,
        question: Question,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.question = question
        self.cache: Cache[Answer] = Cache(question.cache_size, question.cache_seconds)
        self.seconds = seconds
        self.sleep = sleep
        self.threads = ThreadPoolExecutor(question.concurrency, thread_name_prefix="lookup")
        self.places: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for _ in range(question.concurrency):
            self.places.put(question.address.connected())

    def __repr__(self) -> str:
        return f"Client({self.question.address.shown}, {self.cache})"

    def answers(self, keys: Iterable[Key]) -> dict[Key, Answer]:
        """For each different key one; a key with a null in it has no answer."""
        different = [key for key in dict.fromkeys(keys) if None not in key]
        now = self.seconds()
        known = {key: self.cache.get(key, now) for key in different}
        new = [key for key, answer in known.items() if answer is None]
        patience = Patience(self.question.retry_seconds)
        found = zip(new, self.threads.map(lambda key: self._asked(key, patience), new), strict=True)
        answers = {key: answer for key, answer in known.items() if answer is not None}
        for key, answer in found:
            answers[key] = answer
            if answer.problem is None:
                self.cache.put(key, answer, self.seconds())
        return answers

    def _asked(self, key: Key, patience: Patience) -> Answer:
        place = self.places.get()
        try:
            return asked(place, key, patience, self.sleep)
        finally:
            self.places.put(place)

    def close(self) -> None:
        self.threads.shutdown()
        while not self.places.empty():
            self.places.get().close()


def client_for(question: Question) -> Client:
    """The one of this process."""
    if question not in _clients:
        while len(_clients) >= CLIENTS_MAX:
            _clients.pop(next(iter(_clients))).close()
        _clients[question] = Client(question)
    return _clients[question]

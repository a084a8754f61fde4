"""Answers for the keys of a batch of rows: each distinct key once, from the cache or by a lookup.

The client stays in a Spark worker process from batch to batch, with its connections and cache: each process looks up a
key once per `cache_for`. Failed lookups are not cached.

Transient failures (`AwayError`: no connection, timeout, overload) are retried with growing pauses; permanent ones
(`LookupFailedError`) are not. All keys of a batch share one retry budget, so an unavailable server delays a batch only
once; after AWAY_MAX keys in a row without an answer the rest is skipped. Retry decisions are pure: no clock, no socket.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

RETRY_BACKOFF_SECONDS = 0.1
RETRY_BACKOFF_SECONDS_MAX = 10.0
FAILED_KEYS_MAX = 20  # consecutive keys
REASON_CHARACTERS_MAX = 300

Key = tuple[Any, ...]
Row = dict[str, Any]

Value = TypeVar("Value")
CLIENTS_MAX = 8


class LookupFailedError(Exception):
    """There is no answer, and a retry would not help: the text has the reason."""


class UnavailableError(Exception):
    """There is no answer now. `after_seconds`: the server's Retry-After, if any."""

    def __init__(self, text: str, after_seconds: float | None = None) -> None:
        self.after_seconds = after_seconds
        super().__init__(text)


class Answer(NamedTuple):
    """`row` None: the key is unknown, or with `problem`, the lookup failed."""

    row: Row | None
    problem: str | None = None


class LookupConnection(Protocol):
    """A connection for lookups, used by one thread."""

    def lookup(self, key: Key) -> Row | None:
        """Return None if the key is unknown. Raises LookupFailedError, AwayError."""

    def close(self) -> None: ...


@dataclass
class RetryBudget:
    """The retry budget of one batch, shared by its threads."""

    seconds: float
    failed_keys: int = 0  # consecutive keys without an answer
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def next_backoff(self, attempt: int, wished: float | None) -> float | None:
        """Seconds before the next attempt; None if there is none."""
        with self.lock:
            if self.seconds <= 0:
                return None
            wanted = RETRY_BACKOFF_SECONDS * 2**attempt if wished is None else wished
            seconds = min(wanted, RETRY_BACKOFF_SECONDS_MAX, self.seconds)
            self.seconds -= seconds
            return seconds

    def record_result(self, was_there: bool) -> None:
        with self.lock:
            self.failed_keys = 0 if was_there else self.failed_keys + 1

    @property
    def is_exhausted(self) -> bool:
        return self.failed_keys >= FAILED_KEYS_MAX


def ask_with_retries(
    place: LookupConnection, key: Key, patience: RetryBudget, sleep: Callable[[float], None]
) -> Answer:
    """Never raises for server errors."""
    attempt = 0
    while True:
        if patience.is_exhausted:
            return Answer(None, f"skipped: {FAILED_KEYS_MAX} other keys in a row had no answer")
        try:
            found = place.lookup(key)
        except LookupFailedError as problem:
            patience.record_result(was_there=True)
            return Answer(None, str(problem)[:REASON_CHARACTERS_MAX])
        except UnavailableError as problem:
            seconds = patience.next_backoff(attempt, problem.after_seconds)
            if seconds is None:
                patience.record_result(was_there=False)
                attempts = f"{attempt + 1} attempt{'s' if attempt else ''}"
                return Answer(None, f"no answer after {attempts}: {problem}"[:REASON_CHARACTERS_MAX])
            sleep(seconds)
            attempt += 1
        else:
            patience.record_result(was_there=True)
            return Answer(found)


class Cache(Generic[Value]):
    """A bounded cache with expiry; evicts the least recently used entry. Pure: the time is an argument.

    `get` returns None for unknown keys: an answer is never None.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self.size = size
        self.seconds = seconds
        self._kept: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    def __repr__(self) -> str:
        return f"Cache({len(self._kept)} of {self.size}, {self.seconds} s)"

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, now: float) -> Value | None:
        found = self._kept.get(key)
        if found is None:
            return None
        answered, value = found
        if now - answered >= self.seconds:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return value

    def put(self, key: Hashable, value: Value, now: float) -> None:
        if self.size < 1 or self.seconds <= 0:
            return
        self._kept[key] = (now, value)
        self._kept.move_to_end(key)
        while len(self._kept) > self.size:
            self._kept.popitem(last=False)


_clients: dict[LookupSettings, LookupClient] = {}


class LookupTarget(Protocol):
    """Picklable and comparable."""

    @property
    def display_name(self) -> str: ...

    @property
    def keys(self) -> list[str]: ...

    def connect(self) -> LookupConnection: ...


@dataclass(frozen=True)
class LookupSettings:
    """The lookup target, and the limits of lookups."""

    address: LookupTarget
    cache_size: int = 10_000
    cache_seconds: float = 60.0
    concurrency: int = 4
    retry_seconds: float = 10.0


class LookupClient:
    """`seconds` and `sleep` are the clock."""

    def __init__(
        self,
        question: LookupSettings,
        seconds: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = question
        self.cache: Cache[Answer] = Cache(question.cache_size, question.cache_seconds)
        self.seconds = seconds
        self.sleep = sleep
        self.threads = ThreadPoolExecutor(question.concurrency, thread_name_prefix="lookup")
        self.connections: queue.SimpleQueue[LookupConnection] = queue.SimpleQueue()
        for _ in range(question.concurrency):
            self.connections.put(question.address.connect())

    def __repr__(self) -> str:
        return f"LookupClient({self.settings.address.display_name}, {self.cache})"

    def answers(self, keys: Iterable[Key]) -> dict[Key, Answer]:
        """One answer per distinct key; a key that contains null has none."""
        different = [key for key in dict.fromkeys(keys) if None not in key]
        now = self.seconds()
        known = {key: self.cache.get(key, now) for key in different}
        new = [key for key, answer in known.items() if answer is None]
        patience = RetryBudget(self.settings.retry_seconds)
        found = zip(new, self.threads.map(lambda key: self._lookup_key(key, patience), new), strict=True)
        answers = {key: answer for key, answer in known.items() if answer is not None}
        for key, answer in found:
            answers[key] = answer
            if answer.problem is None:
                self.cache.put(key, answer, self.seconds())
        return answers

    def _lookup_key(self, key: Key, patience: RetryBudget) -> Answer:
        place = self.connections.get()
        try:
            return ask_with_retries(place, key, patience, self.sleep)
        finally:
            self.connections.put(place)

    def close(self) -> None:
        self.threads.shutdown()
        while not self.connections.empty():
            self.connections.get().close()


def client_for(question: LookupSettings) -> LookupClient:
    """The client of this process."""
    if question not in _clients:
        while len(_clients) >= CLIENTS_MAX:
            _clients.pop(next(iter(_clients))).close()
        _clients[question] = LookupClient(question)
    return _clients[question]

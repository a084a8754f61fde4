"""Clients of kafka-python in the clothes of confluent_kafka's.

Rules:
1. Only what our tools call is here, under the names and with the errors of confluent_kafka.
2. Callbacks run inside poll() and flush(), in the thread of whoever calls, as librdkafka's do.
3. The place of a group moves with what was stored (store_offsets), not with what was fetched.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

EARLIEST: Final = -2  # librdkafka's numbers for the ends of a partition
LATEST: Final = -1
COMMIT_SECONDS: Final = 5.0
COMMIT_MS_MAX: Final = 10_000
POSITION_MS: Final = 1_000
START_MS: Final = 2_000
BATCH_MAX: Final = 500
WAITING_MAX: Final = 100_000


class Producer:
    """What our tools use of confluent_kafka's Producer."""

    def __init__(self, library: Any, inner: Any, on_delivery: Callable[[Any, Any], None] | None = None) -> None:
        """`on_delivery` is told of records that nobody else asks about."""
        self._library = library
        self._inner = inner
        self._on_delivery = on_delivery or _nobody
        self._waiting = 0
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        on_delivery: Callable[[Any, Any], None] | None = None,
        timestamp: int = 0,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> None:
        if self._waiting >= WAITING_MAX:
            raise BufferError("too many records wait")
        chosen = None if partition is None or partition < 0 else partition
        place = {"partition": chosen, "timestamp_ms": timestamp or None, "headers": list(headers or [])}
        from kafka.errors import KafkaError  # noqa: PLC0415

        try:
            future = self._inner.send(topic, value, key, **place)
        except (AssertionError, TypeError, ValueError, KafkaError) as problem:
            raise self._library.KafkaException(self._error(problem)) from None
        self._waiting += 1
        tell = on_delivery or self._on_delivery
        future.add_callback(lambda _: self._events.put(lambda: tell(None, None)))
        future.add_errback(lambda problem: self._events.put(lambda: tell(self._error(problem), None)))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> int:
        """How many were taken; the others have an `_error`."""
        taken = 0
        for message in messages:
            try:
                self.produce(topic, message.get("value"), message.get("key"), message.get("partition", partition))
                taken += 1
            except BufferError:
                message["_error"] = self._library.KafkaError(self._library.KafkaError._QUEUE_FULL)
            except self._library.KafkaException as problem:
                message["_error"] = problem.args[0]
        return taken

    def poll(self, seconds: float = 0) -> int:
        """Reports deliveries; waits for the first if there is none."""
        count = 0
        while True:
            try:
                event = self._events.get(block=count == 0 and seconds > 0, timeout=seconds or None)
            except queue.Empty:
                return count
            count += 1
            self._waiting -= 1
            event()

    def flush(self, seconds: float = 1e9) -> int:
        """How many still wait when the time is over."""
        deadline = time.monotonic() + seconds
        if self._waiting:
            from kafka.errors import KafkaError  # noqa: PLC0415

            with suppress(KafkaError):  # what has not come in time is still counted
                self._inner.flush(timeout=seconds)
        while self._waiting:
            left = deadline - time.monotonic()
            if not self.poll(max(left, 0.0)) and left <= 0:
                break
        return self._waiting

    def list_topics(self, *_: object, **__: object) -> None:
        """Asked to hurry: kafka-python does so by itself."""

    def __len__(self) -> int:
        return self._waiting

    def __repr__(self) -> str:
        return f"<Producer of kafka-python, {self._waiting} waiting>"

    def _error(self, problem: Exception) -> Any:
        return library_error(self._library, problem)


class Consumer:
    """What our tools use of confluent_kafka's Consumer."""

    def __init__(self, library: Any, inner: Any) -> None:
        self._library = library
        self._inner = inner
        self._items: deque[Item] = deque()
        self._told_ends: dict[Any, int] = {}
        self._stored: dict[Any, Any] = {}
        self._commit_at = time.monotonic() + COMMIT_SECONDS

    def subscribe(self, topics: list[str]) -> None:
        if any(topic.startswith("^") for topic in topics):
            self._inner.subscribe(pattern="|".join(topics))
        else:
            self._inner.subscribe(topics)

    def incremental_assign(self, partitions: Iterable[Any]) -> None:
        from kafka import TopicPartition  # noqa: PLC0415

        new = {TopicPartition(each.topic, each.partition): each.offset for each in partitions}
        self._inner.assign([*self._inner.assignment(), *new])
        for place, offset in new.items():
            if offset == EARLIEST:
                self._inner.seek_to_beginning(place)
            elif offset == LATEST:
                self._inner.seek_to_end(place)
            else:
                self._inner.seek(place, offset)

    def poll(self, seconds: float = 0) -> Item | None:
        if not self._items:
            self._fetch(seconds)
        return self._items.popleft() if self._items else None

    def consume(self, count: int = 1, seconds: float = 0) -> list[Item]:
        if not self._items:
            self._fetch(seconds)
        return [self._items.popleft() for _ in range(min(count, len(self._items)))]

    def store_offsets(self, offsets: Iterable[Any]) -> None:
        from kafka import TopicPartition  # noqa: PLC0415
        from kafka.structs import OffsetAndMetadata  # noqa: PLC0415

        for each in offsets:
            self._stored[TopicPartition(each.topic, each.partition)] = OffsetAndMetadata(each.offset, "", -1)
        if time.monotonic() >= self._commit_at:
            self._commit_at = time.monotonic() + COMMIT_SECONDS
            self._inner.commit_async(dict(self._stored))
            self._stored.clear()

    def list_topics(self, *_: object, **__: object) -> None:
        """Asked to hurry: kafka-python does so by itself."""

    def close(self) -> None:
        from kafka.errors import KafkaError  # noqa: PLC0415

        if self._stored:
            with suppress(KafkaError):  # as librdkafka: what is not committed is read again
                self._inner.commit(dict(self._stored), timeout_ms=COMMIT_MS_MAX)
        self._inner.close(autocommit=False)

    def __repr__(self) -> str:
        return f"<Consumer of kafka-python, {len(self._items)} items>"

    def _fetch(self, seconds: float) -> None:
        from kafka.errors import KafkaError  # noqa: PLC0415

        wait_ms = int(seconds * 1000)
        if wait_ms and not self._places():  # a short poll may give up joining a group again and again
            wait_ms = max(wait_ms, START_MS)
        try:
            for records in self._inner.poll(timeout_ms=wait_ms, max_records=BATCH_MAX).values():
                self._items.extend(Item(record) for record in records)
            self._note_ends()
        except KafkaError as problem:
            self._items.append(Item(None, library_error(self._library, problem)))

    def _note_ends(self) -> None:
        """Each end of a partition is told once, after the records before it."""
        places = self._places()
        ends = self._inner.end_offsets(places) if places and self._is_committed_only else {}
        for place in places:
            end = ends.get(place, self._inner.highwater(place))
            if self._told_ends.get(place) != end and self._inner.position(place, timeout_ms=POSITION_MS) == end:
                self._told_ends[place] = end
                self._items.append(Item(place, self._library.KafkaError(self._library.KafkaError._PARTITION_EOF)))

    def _places(self) -> list[Any]:
        """The partitions that a broker has told something about."""
        return [place for place in self._inner.assignment() if self._inner.highwater(place) is not None]

    @property
    def _is_committed_only(self) -> bool:
        """The last stable offset is the end then, which only the broker knows."""
        return bool(self._inner.config["isolation_level"] == "read_committed")


class Item:
    """A record of kafka-python, or an event, as confluent_kafka's Message."""

    def __init__(self, record: Any, error: Any = None) -> None:
        self._record = record
        self._error = error

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return str(self._record.topic)

    def partition(self) -> int:
        return int(self._record.partition)

    def offset(self) -> int:
        return int(self._record.offset)

    def timestamp(self) -> tuple[int, int]:
        """librdkafka counts the types from 1 on."""
        return int(self._record.timestamp_type) + 1, int(self._record.timestamp)

    def key(self) -> bytes | None:
        key: bytes | None = self._record.key
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self._record.value
        return value

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._record.headers)

    def __repr__(self) -> str:
        return f"<Item {self._error or self._record}>"


def library_error(library: Any, problem: Exception) -> Any:
    """An error of kafka-python as one of librdkafka: the same number where the protocol has one."""
    number = getattr(problem, "errno", None)
    known = isinstance(number, int) and number > 0
    return library.KafkaError(number if known else library.KafkaError._FAIL, str(problem))


def _nobody(*_: object) -> None:
    """Nobody wants to know."""

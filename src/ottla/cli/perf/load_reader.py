"""Reads records as fast as they come and counts them: the engine of the consumer perf tests.

Where the broker has consumer groups the reader joins one, as Kafka's perf test does, and measures how long that took;
elsewhere it takes all partitions itself, which takes no time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.base.errors import Error
from ottla.cli.librdkafka import hurry_metadata, library, make_consumer
from ottla.cli.records.consuming import EARLIEST, LATEST
from ottla.cli.terminal import ToolError, end_on_sigterm
from ottla.client.admin import Admin
from ottla.client.errors import ClientError

POLL_SECONDS = 0.1
BATCH_MAX = 500  # as Java's max.poll.records: Kafka's own test overshoots by up to one batch, too
MEBIBYTE = 1024 * 1024


class Reading(NamedTuple):
    """What to read, and when to stop."""

    topic: str | None
    include: re.Pattern[str] | None
    records: int
    timeout_ms: int
    interval_ms: int
    from_latest: bool
    has_group: bool  # else it takes all partitions itself
    until_end: bool = False  # stop at the ends of the partitions; only without a group


class Figures(NamedTuple):
    """A span of reading: from when to when, what was read, and how much of the time went into joining a group."""

    start_ms: int
    end_ms: int
    records: int
    bytes: int
    join_ms: int
    last_record_ms: int = 0

    @property
    def fetch_ms(self) -> int:
        return self.end_ms - self.start_ms - self.join_ms

    @property
    def mebibytes(self) -> float:
        return self.bytes / MEBIBYTE


class LoadReader:
    """One run of a consumer."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any], reading: Reading) -> None:
        self.admin = admin
        self.reading = reading
        self.library = library()
        self.records = 0
        self.bytes = 0
        self.join_ms = 0
        self.window_join_ms = 0
        self.join_start_ms = now_ms()
        self.last_record_ms = self.join_start_ms
        self.assigned = 0
        self.places: set[tuple[str, int]] = set()
        self.at_end: set[tuple[str, int]] = set()
        self.consumer = make_consumer(settings, is_measured=True)

    def run(
        self,
        on_window: Callable[[Figures], None],
        on_progress: Callable[[int], None] | None = None,
        before_close: Callable[[], None] | None = None,
    ) -> Figures:
        """Read until there was enough or nothing came for too long."""
        end_on_sigterm()
        start_ms = now_ms()
        try:
            self._start()
            self._read(on_window, on_progress)
            end_ms = now_ms()
            if before_close is not None:
                before_close()
        finally:
            self.consumer.close()
        return Figures(start_ms, end_ms, self.records, self.bytes, self.join_ms, self.last_record_ms)

    @property
    def is_done(self) -> bool:
        """Whether all was read that was there."""
        return self.reading.until_end and self.at_end >= self.places

    def _read(self, on_window: Callable[[Figures], None], on_progress: Callable[[int], None] | None) -> None:
        reading = self.reading
        now = last_window = self.last_record_ms = now_ms()
        seen = (0, 0)  # records and bytes at the last window
        consume = self.consumer.consume
        while self.records < reading.records and now - self.last_record_ms <= reading.timeout_ms:
            if self.is_done:
                return
            batch = consume(BATCH_MAX, 0)
            if not batch:
                first = self.consumer.poll(POLL_SECONDS)
                batch = [] if first is None else [first]
            now = now_ms()
            if self._count(batch):
                self.last_record_ms = now
                if now - last_window >= reading.interval_ms:
                    figures = (self.records - seen[0], self.bytes - seen[1], self.window_join_ms)
                    on_window(Figures(last_window, now, *figures))
                    seen = (self.records, self.bytes)
                    self.window_join_ms = 0
                    last_window = now
            if on_progress is not None:
                on_progress(self.records)

    def _count(self, batch: list[Any]) -> int:
        count = size = 0
        for message in batch:
            if message.error() is not None:
                self._event(message)
                continue
            count += 1
            size += len(message)
            key = message.key()
            if key is not None:
                size += len(key)
        self.records += count
        self.bytes += size
        return count

    def _start(self) -> None:
        reading = self.reading
        if reading.has_group:
            wanted = reading.topic if reading.include is None else f"^({reading.include.pattern})$"
            self.consumer.subscribe([wanted], on_assign=self._assigned, on_revoke=self._revoked)
            return
        offset = LATEST if reading.from_latest else EARLIEST
        hurry_metadata(self.consumer, reading.topic)
        self.places = set(self.partitions())
        self.consumer.assign([self.library.TopicPartition(*place, offset) for place in sorted(self.places)])

    def partitions(self) -> list[tuple[str, int]]:
        reading = self.reading
        try:
            if reading.include is not None:
                topics = [topic for topic in self.admin.topics() if reading.include.fullmatch(topic.name)]
            else:
                topics = [self.admin.topic(reading.topic or "", may_create=True)]
        except ClientError as problem:
            if problem.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise ToolError(f"topic {reading.topic} does not exist") from None
        return [(topic.name, partition.number) for topic in topics for partition in topic.partitions]

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        if not self.assigned:
            elapsed_ms = now_ms() - self.join_start_ms
            self.join_ms += elapsed_ms
            self.window_join_ms += elapsed_ms
        self.assigned += len(partitions)

    def _revoked(self, _: Any, partitions: list[Any]) -> None:
        self.assigned = max(0, self.assigned - len(partitions))
        if not self.assigned:
            self.join_start_ms = now_ms()

    def _event(self, message: Any) -> None:
        error = message.error()
        if error.name() == "_PARTITION_EOF":
            self.at_end.add((message.topic(), message.partition()))
        elif error.fatal() or error.name().endswith("AUTHORIZATION_FAILED"):
            raise ToolError(error.str())

    def __repr__(self) -> str:
        return f"<LoadReader records={self.records} of {self.reading.records}>"


def now_ms() -> int:
    return int(time.time() * 1000)

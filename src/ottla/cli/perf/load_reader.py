"""The engine of the consumer perf tests: reads records at full speed and counts them.

With a group it joins the group, as Kafka's perf test does, and measures the join time; without one it assigns all
partitions itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.base.errors import Error
from ottla.cli.librdkafka import library, make_consumer, prefetch_metadata
from ottla.cli.records.console_consumer import EARLIEST, LATEST
from ottla.cli.terminal import ToolError, exit_on_sigterm
from ottla.client.admin import Admin
from ottla.client.errors import ClientError

POLL_SECONDS = 0.1
BATCH_MAX = 500  # as Java's max.poll.records; Kafka's test also overshoots by up to one batch
MEBIBYTE = 1024 * 1024


class ReadPlan(NamedTuple):
    """The records to read and the conditions to stop."""

    topic: str | None
    include: re.Pattern[str] | None
    records: int
    timeout_ms: int
    interval_ms: int
    from_latest: bool
    has_group: bool  # without a group it assigns all partitions itself
    until_end: bool = False  # stop at the ends of the partitions; requires no group


class ReadFigures(NamedTuple):
    """The figures of an interval: start, end, records, bytes, and the time spent joining a group."""

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

    def __init__(self, admin: Admin, settings: Mapping[str, Any], reading: ReadPlan) -> None:
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
        self.partitions_read: set[tuple[str, int]] = set()
        self.at_end: set[tuple[str, int]] = set()
        self.consumer = make_consumer(settings, requires_librdkafka=True)

    def run(
        self,
        on_window: Callable[[ReadFigures], None],
        on_progress: Callable[[int], None] | None = None,
        before_close: Callable[[], None] | None = None,
    ) -> ReadFigures:
        """Read until the requested number of records is reached or no record arrives within the timeout."""
        exit_on_sigterm()
        start_ms = now_ms()
        try:
            self._start()
            self._read(on_window, on_progress)
            end_ms = now_ms()
            if before_close is not None:
                before_close()
        finally:
            self.consumer.close()
        return ReadFigures(start_ms, end_ms, self.records, self.bytes, self.join_ms, self.last_record_ms)

    @property
    def is_done(self) -> bool:
        """Whether all existing records were read."""
        return self.reading.until_end and self.at_end >= self.partitions_read

    def _read(self, on_window: Callable[[ReadFigures], None], on_progress: Callable[[int], None] | None) -> None:
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
                    on_window(ReadFigures(last_window, now, *figures))
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
        prefetch_metadata(self.consumer, reading.topic)
        self.partitions_read = set(self.partitions())
        self.consumer.assign(
            [self.library.TopicPartition(*partition, offset) for partition in sorted(self.partitions_read)]
        )

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

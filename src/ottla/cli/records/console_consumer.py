"""The engine of the console consumers: chooses partitions and positions, reads records, passes them to a sink.

Without a group it assigns all partitions of its topics and follows new ones; with a group the coordinator assigns them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, Protocol

from ottla.base.errors import Error
from ottla.cli.client_settings import make_client
from ottla.cli.librdkafka import is_coordinator_error, library, make_consumer, prefetch_metadata, rejoin_group
from ottla.cli.records.formatters import Formatter, Message
from ottla.cli.terminal import ToolError, exit_on_sigterm, warn
from ottla.client.admin import Admin
from ottla.client.errors import ClientError
from ottla.client.librdkafka_properties import translate
from ottla.operations.records.deserializers import DeserializationError

POLL_SECONDS = 0.1  # Python handles signals only between library calls
BATCH_MAX = 500
NEW_PARTITIONS_SECONDS = 5.0
FIRST_FETCH_SECONDS_MAX = 5.0  # a partition without an event for this time after the start is not waited for
TIME_SECONDS_MAX = 30.0  # to look up the offset of a time
EARLIEST = -2  # librdkafka's numbers for the ends of a partition
LATEST = -1
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}

DEFAULTS: Mapping[str, Any] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",  # commit what was printed, not what was fetched
    "isolation.level": "read_uncommitted",  # as in Java's consumer; librdkafka's default differs
    "fetch.wait.max.ms": "500",
    "fetch.queue.backoff.ms": "5",  # librdkafka's default pause with a full queue is one second
    "enable.partition.eof": "true",
}


class ConsumePlan(NamedTuple):
    """What to read. Exactly one of `topic` and `include` is given."""

    topic: str | None
    include: re.Pattern[str] | None = None
    partition: int | None = None
    offset: int = LATEST
    since_ms: int | None = None  # instead of `offset`: start at the first record of this time or later
    group: str | None = None
    max_messages: int | None = None
    timeout_ms: int | None = None  # stop after this time without a record
    until_end: bool = False  # stop at the current ends of the partitions
    may_create: bool = False
    must_exist: bool = False


def consumer_settings(bootstrap: str, plan: ConsumePlan, *layers: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(DEFAULTS)
    settings["auto.offset.reset"] = "earliest" if plan.offset == EARLIEST else "latest"
    if plan.group is not None:
        settings["enable.auto.commit"] = "true"
    for layer in layers:
        settings |= translate({name: str(value) for name, value in layer.items()})
    settings["bootstrap.servers"] = bootstrap
    settings["group.id"] = plan.group or f"console-consumer-{time.time_ns() % 100_000}"
    return settings


class ConsoleConsumer:
    """A consumer that executes a plan."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any], plan: ConsumePlan) -> None:
        self.admin = admin
        self.plan = plan
        self.library = library()
        self.assigned: set[tuple[str, int]] = set()
        self.at_end: set[tuple[str, int]] = set()
        self.warned: set[str] = set()
        self.partitions_seen: set[tuple[str, int]] = set()
        self.next_metadata_check_s = 0.0
        self.must_rejoin = False
        self.settle_until = time.monotonic() + FIRST_FETCH_SECONDS_MAX
        self.consumer = make_consumer(settings)
        if plan.group is not None:
            self.consumer.subscribe(self._subscription())

    def messages(self) -> Iterator[list[Message]]:
        """Yield batches of messages as they arrive, and sometimes an empty one, so that the caller can check its
        limits.
        """
        while True:
            if self.plan.group is None and time.monotonic() >= self.next_metadata_check_s:
                self._assign_new()
            first = self.consumer.poll(POLL_SECONDS)
            raw = [] if first is None else [first, *self.consumer.consume(BATCH_MAX, 0)]
            if not self.has_seen_all_partitions:
                self.partitions_seen.update((item.topic(), item.partition()) for item in raw)
            batch = [self._message(item) for item in raw if item.error() is None]
            for item in raw:
                if item.error() is not None:
                    self._event(item)
            yield batch
            if self.must_rejoin:
                self.must_rejoin = not rejoin_group(self.consumer, self._subscription())
            if self.plan.until_end and self.assigned and self.at_end >= self.assigned:
                return

    @property
    def has_seen_all_partitions(self) -> bool:
        """Whether each partition has returned a record or its end; before that, silence does not mean emptiness."""
        return self.partitions_seen >= self.assigned or time.monotonic() >= self.settle_until

    def store_offsets(self, batch: list[Message]) -> None:
        """Store the offsets of printed records for the group."""
        if self.plan.group is not None:
            ends = {(message.topic, message.partition): message.offset + 1 for message in batch}
            positions = [self.library.TopicPartition(*partition, offset) for partition, offset in ends.items()]
            with suppress(self.library.KafkaException):  # the partition was revoked in the meantime
                self.consumer.store_offsets(offsets=positions)

    def close(self) -> None:
        self.consumer.close()

    def _subscription(self) -> list[str]:
        if self.plan.include is not None:
            return [f"^({self.plan.include.pattern})$"]
        return [self.plan.topic] if self.plan.topic is not None else []

    def _assign_new(self) -> None:
        """Assign new partitions. Those of the first call start where the plan says, later ones at their beginning."""
        offset = self.plan.offset if not self.assigned else EARLIEST
        found = set(self._partitions())
        new = [self.library.TopicPartition(*partition, offset) for partition in sorted(found - self.assigned)]
        if new:
            prefetch_metadata(self.consumer, self.plan.topic)
            if self.plan.since_ms is not None and not self.assigned:
                new = self._at_time(new, self.plan.since_ms)
            self.consumer.incremental_assign(new)
            self.assigned |= found
        self.next_metadata_check_s = time.monotonic() + (NEW_PARTITIONS_SECONDS if self.assigned else 10 * POLL_SECONDS)

    def _at_time(self, places: list[Any], time_ms: int) -> list[Any]:
        """The partitions with the offset of a time; the end if no record is that recent."""
        queries = [self.library.TopicPartition(partition.topic, partition.partition, time_ms) for partition in places]
        try:
            found: list[Any] = self.consumer.offsets_for_times(queries, timeout=TIME_SECONDS_MAX)
        except self.library.KafkaException as problem:
            raise ToolError(f"looking up the time failed: {problem.args[0].str()}") from None
        for partition in found:
            if partition.error is not None:
                raise ToolError(partition.error.str())
        return found

    def _partitions(self) -> list[tuple[str, int]]:
        plan = self.plan
        if plan.partition is not None and plan.topic is not None and not plan.must_exist:
            return [(plan.topic, plan.partition)]
        try:
            if plan.include is not None:
                topics = [topic for topic in self.admin.topics() if plan.include.fullmatch(topic.name)]
            else:
                topics = [self.admin.topic(plan.topic or "", may_create=plan.may_create)]
        except ClientError as problem:
            self._handle_missing_topic(problem)
            return []
        partitions = [(topic.name, partition.number) for topic in topics for partition in topic.partitions]
        if plan.partition is None:
            return partitions
        if (plan.topic, plan.partition) not in partitions:
            raise ToolError(f"topic {plan.topic} has only the partitions 0 to {len(partitions) - 1}")
        return [(plan.topic or "", plan.partition)]

    def _handle_missing_topic(self, problem: ClientError) -> None:
        """After the start, wait for a missing topic or broker; at the start, report it."""
        if problem.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            if self.plan.must_exist and not self.assigned:
                name = self.plan.topic
                raise ToolError(f"topic {name} does not exist. Create it with: ottla topics create {name}")
            self._warn_once(f"warning: topic {self.plan.topic} does not exist yet; waiting for it")
        elif problem.error is Error.INVALID_TOPIC_EXCEPTION or not self.assigned:
            raise problem

    def _event(self, item: Any) -> None:
        error = item.error()
        if error.name() == "_PARTITION_EOF":
            self.at_end.add((item.topic(), item.partition()))
        elif error.fatal() or error.name().endswith("AUTHORIZATION_FAILED"):
            raise ToolError(error.str())
        elif self.plan.group is not None and is_coordinator_error(error):
            self.must_rejoin = True
        else:
            self._warn_once(f"warning: {error.str()}")

    def _message(self, item: Any) -> Message:
        self.at_end.discard((item.topic(), item.partition()))
        kind, timestamp = item.timestamp()
        return Message(
            item.topic(),
            item.partition(),
            item.offset(),
            TIMESTAMP_TYPES.get(kind, ""),
            timestamp,
            item.key(),
            item.value(),
            item.headers() or [],
        )

    def _warn_once(self, line: str) -> None:
        if line not in self.warned:
            self.warned.add(line)
            warn(line)

    def __repr__(self) -> str:
        return f"<ConsoleConsumer assigned={len(self.assigned)} at_end={len(self.at_end)}>"


class Sink(Protocol):
    """The destination of messages; `count` is their number."""

    @property
    def count(self) -> int: ...

    def print(self, batch: list[Message]) -> None: ...

    def finish(self) -> None:
        """Called after the last message."""


class Printer:
    """Writes messages to stdout or a file and counts them."""

    def __init__(self, formatter: Formatter, *, skip_errors: bool = False, file: BinaryIO | None = None) -> None:
        self.format = formatter.format
        self.skip_errors = skip_errors
        self.count = 0
        out = sys.stdout.buffer if file is None else file
        self.write: Callable[[bytes], object] = out.write
        self.flush = out.flush

    def print(self, batch: list[Message]) -> None:
        for message in batch:
            self.count += 1
            try:
                self.write(self.format(message))
            except DeserializationError as problem:
                origin = f"message at {message.topic}-{message.partition} offset {message.offset}"
                if not self.skip_errors:
                    raise ToolError(f"{origin}: {problem}") from None
                warn(f"warning: {origin} is skipped: {problem}")
        self.flush()

    def finish(self) -> None:
        self.flush()

    def __repr__(self) -> str:
        return f"<Printer count={self.count}>"


def read_and_print(
    settings: Mapping[str, Any], properties: Mapping[str, str], plan: ConsumePlan, printer: Sink
) -> None:
    """Read until the plan is complete. A signal raises an exception after the consumer is closed."""
    exit_on_sigterm()
    with make_client(str(settings["bootstrap.servers"]), dict(properties)) as client:
        client.cluster()  # fail now if no broker is reachable
        reader = ConsoleConsumer(Admin(client), settings, plan)
        try:
            _copy_records(reader, printer, plan)
        finally:
            reader.close()


def _copy_records(reader: ConsoleConsumer, printer: Sink, plan: ConsumePlan) -> None:
    if plan.max_messages is not None and plan.max_messages <= 0:
        return
    last = time.monotonic()
    for batch in reader.messages():
        if batch:
            left = len(batch) if plan.max_messages is None else plan.max_messages - printer.count
            printer.print(batch[:left])
            reader.store_offsets(batch[:left])
            last = time.monotonic()
            if plan.max_messages is not None and printer.count >= plan.max_messages:
                return
        elif not reader.has_seen_all_partitions:
            last = time.monotonic()
        elif plan.timeout_ms is not None and (time.monotonic() - last) * 1000 >= plan.timeout_ms:
            return

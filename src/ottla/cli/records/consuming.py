"""Reading records from a tool: which partitions, from where, until when, and writing them out.

Without a group the tool takes all partitions of its topics itself and follows new ones; with a group the group's
coordinator shares them out.
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
from ottla.cli.librdkafka import has_no_place, hurry_metadata, join_again, library, make_consumer
from ottla.cli.records.formatters import Formatter, Message
from ottla.cli.terminal import ToolError, end_on_sigterm, warn
from ottla.client.admin import Admin
from ottla.client.errors import ClientError
from ottla.client.java_properties import translate
from ottla.operations.records.deserializers import DeserializationError

POLL_SECONDS = 0.1  # Python hears signals only between calls of the library
BATCH_MAX = 500
NEW_PARTITIONS_SECONDS = 5.0
SETTLE_SECONDS_MAX = 5.0  # a partition that says nothing for so long at the start is waited for no longer
TIME_SECONDS_MAX = 30.0  # to find the offset of a time
EARLIEST = -2  # librdkafka's numbers for the ends of a partition
LATEST = -1
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}

DEFAULTS: Mapping[str, Any] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",  # a group's place moves on with what was printed, not with what was fetched
    "isolation.level": "read_uncommitted",  # as Java's consumer; librdkafka's own default is the other one
    "fetch.wait.max.ms": "500",
    "fetch.queue.backoff.ms": "5",  # by default the library rests for a second whenever its queue is full
    "enable.partition.eof": "true",
}


class Plan(NamedTuple):
    """What to read. Exactly one of `topic` and `include` is given."""

    topic: str | None
    include: re.Pattern[str] | None = None
    partition: int | None = None
    offset: int = LATEST
    since_ms: int | None = None  # instead: at the first record of this time or later
    group: str | None = None
    max_messages: int | None = None
    timeout_ms: int | None = None  # stop when nothing came for so long
    until_end: bool = False  # stop at the ends that the partitions have now
    may_create: bool = False
    must_exist: bool = False


def consumer_settings(bootstrap: str, plan: Plan, *layers: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(DEFAULTS)
    settings["auto.offset.reset"] = "earliest" if plan.offset == EARLIEST else "latest"
    if plan.group is not None:
        settings["enable.auto.commit"] = "true"
    for layer in layers:
        settings |= translate({name: str(value) for name, value in layer.items()})
    settings["bootstrap.servers"] = bootstrap
    settings["group.id"] = plan.group or f"console-consumer-{time.time_ns() % 100_000}"
    return settings


class Reader:
    """A consumer at work on a plan."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any], plan: Plan) -> None:
        self.admin = admin
        self.plan = plan
        self.library = library()
        self.assigned: set[tuple[str, int]] = set()
        self.at_end: set[tuple[str, int]] = set()
        self.warned: set[str] = set()
        self.heard: set[tuple[str, int]] = set()
        self.next_look = 0.0
        self.must_join_again = False
        self.settle_until = time.monotonic() + SETTLE_SECONDS_MAX
        self.consumer = make_consumer(settings)
        if plan.group is not None:
            self.consumer.subscribe(self._subscription())

    def messages(self) -> Iterator[list[Message]]:
        """Batches of messages as they come; an empty list now and then, so that the caller can look around."""
        while True:
            if self.plan.group is None and time.monotonic() >= self.next_look:
                self._assign_new()
            first = self.consumer.poll(POLL_SECONDS)
            raw = [] if first is None else [first, *self.consumer.consume(BATCH_MAX, 0)]
            if not self.is_settled:
                self.heard.update((item.topic(), item.partition()) for item in raw)
            batch = [self._message(item) for item in raw if item.error() is None]
            for item in raw:
                if item.error() is not None:
                    self._event(item)
            yield batch
            if self.must_join_again:
                self.must_join_again = not join_again(self.consumer, self._subscription())
            if self.plan.until_end and self.assigned and self.at_end >= self.assigned:
                return

    @property
    def is_settled(self) -> bool:
        """Whether every partition has told a record or its end: what comes before is the library finding its way."""
        return self.heard >= self.assigned or time.monotonic() >= self.settle_until

    def printed(self, batch: list[Message]) -> None:
        """Remember for the group what need not be read again."""
        if self.plan.group is not None:
            ends = {(message.topic, message.partition): message.offset + 1 for message in batch}
            places = [self.library.TopicPartition(*place, offset) for place, offset in ends.items()]
            with suppress(self.library.KafkaException):  # a partition that was taken away meanwhile
                self.consumer.store_offsets(offsets=places)

    def close(self) -> None:
        self.consumer.close()

    def _subscription(self) -> list[str]:
        if self.plan.include is not None:
            return [f"^({self.plan.include.pattern})$"]
        return [self.plan.topic] if self.plan.topic is not None else []

    def _assign_new(self) -> None:
        """Take partitions that were not there before; those of the first look start where the plan says."""
        offset = self.plan.offset if not self.assigned else EARLIEST
        found = set(self._partitions())
        new = [self.library.TopicPartition(*place, offset) for place in sorted(found - self.assigned)]
        if new:
            hurry_metadata(self.consumer, self.plan.topic)
            if self.plan.since_ms is not None and not self.assigned:
                new = self._at_time(new, self.plan.since_ms)
            self.consumer.incremental_assign(new)
            self.assigned |= found
        self.next_look = time.monotonic() + (NEW_PARTITIONS_SECONDS if self.assigned else 10 * POLL_SECONDS)

    def _at_time(self, places: list[Any], time_ms: int) -> list[Any]:
        """The same partitions from a time on: at their ends if nothing is so new."""
        asked = [self.library.TopicPartition(place.topic, place.partition, time_ms) for place in places]
        try:
            found: list[Any] = self.consumer.offsets_for_times(asked, timeout=TIME_SECONDS_MAX)
        except self.library.KafkaException as problem:
            raise ToolError(f"the time cannot be looked up: {problem.args[0].str()}") from None
        for place in found:
            if place.error is not None:
                raise ToolError(place.error.str())
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
            self._missing(problem)
            return []
        places = [(topic.name, partition.number) for topic in topics for partition in topic.partitions]
        if plan.partition is None:
            return places
        if (plan.topic, plan.partition) not in places:
            raise ToolError(f"topic {plan.topic} has only the partitions 0 to {len(places) - 1}")
        return [(plan.topic or "", plan.partition)]

    def _missing(self, problem: ClientError) -> None:
        """A topic may appear later; a broker that is gone for a while may come back: both only once we had started."""
        if problem.error is Error.UNKNOWN_TOPIC_OR_PARTITION:
            if self.plan.must_exist and not self.assigned:
                name = self.plan.topic
                raise ToolError(f"topic {name} does not exist. Create it with: ottla topics create {name}")
            self._warn_once(f"warning: topic {self.plan.topic} does not exist (yet); waiting for it")
        elif problem.error is Error.INVALID_TOPIC_EXCEPTION or not self.assigned:
            raise problem

    def _event(self, item: Any) -> None:
        error = item.error()
        if error.name() == "_PARTITION_EOF":
            self.at_end.add((item.topic(), item.partition()))
        elif error.fatal() or error.name().endswith("AUTHORIZATION_FAILED"):
            raise ToolError(error.str())
        elif self.plan.group is not None and has_no_place(error):
            self.must_join_again = True
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
        return f"<Reader assigned={len(self.assigned)} at_end={len(self.at_end)}>"


class Sink(Protocol):
    """Where the messages go; `count` tells how many came."""

    @property
    def count(self) -> int: ...

    def print(self, batch: list[Message]) -> None: ...

    def finish(self) -> None:
        """Nothing more comes."""


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
                place = f"message at {message.topic}-{message.partition} offset {message.offset}"
                if not self.skip_errors:
                    raise ToolError(f"{place}: {problem}") from None
                warn(f"warning: {place} is skipped: {problem}")
        self.flush()

    def finish(self) -> None:
        self.flush()

    def __repr__(self) -> str:
        return f"<Printer count={self.count}>"


def read_and_print(settings: Mapping[str, Any], properties: Mapping[str, str], plan: Plan, printer: Sink) -> None:
    """Read until the plan is done. A signal ends it by an exception, after everything is closed in order."""
    end_on_sigterm()
    with make_client(str(settings["bootstrap.servers"]), dict(properties)) as client:
        client.cluster()  # no broker: say so at once
        reader = Reader(Admin(client), settings, plan)
        try:
            _pump(reader, printer, plan)
        finally:
            reader.close()


def _pump(reader: Reader, printer: Sink, plan: Plan) -> None:
    if plan.max_messages is not None and plan.max_messages <= 0:
        return
    last = time.monotonic()
    for batch in reader.messages():
        if batch:
            left = len(batch) if plan.max_messages is None else plan.max_messages - printer.count
            printer.print(batch[:left])
            reader.printed(batch[:left])
            last = time.monotonic()
            if plan.max_messages is not None and printer.count >= plan.max_messages:
                return
        elif not reader.is_settled:
            last = time.monotonic()
        elif plan.timeout_ms is not None and (time.monotonic() - last) * 1000 >= plan.timeout_ms:
            return

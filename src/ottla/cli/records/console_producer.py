"""The engine of the console producers: sends records and reports failures with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from ottla.base.errors import Error
from ottla.base.names import topic_name_problem
from ottla.cli.client_settings import make_client
from ottla.cli.librdkafka import library, make_producer, prefetch_metadata
from ottla.cli.records.line_reader import Line, RecordReader, read_lines
from ottla.cli.terminal import ToolError, exit_on_sigterm, warn
from ottla.client.admin import Admin
from ottla.client.errors import ClientError
from ottla.client.librdkafka_properties import translate

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_BLOCK_MS = 60_000
FAILURES_SHOWN_MAX = 10
POLL_SECONDS = 0.2  # Python handles signals only between library calls
FATAL_REASON_SECONDS = 1.0
FLUSH_SECONDS_ON_STOP = 5.0
TRANSACTION_TIMEOUT_MS = 60_000
TOPIC_WAIT_MS_MAX = 3_000  # an auto-created topic appears a moment later

# Settings of Kafka's console producer that differ from librdkafka's defaults.
DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "message.max.bytes": 1_048_576,
    "message.timeout.ms": 120_000,
    "partitioner": "murmur2_random",  # partitions keys like Java's producer
    "queue.buffering.max.kbytes": 32_768,
    "linger.ms": 5,
}


def producer_settings(bootstrap: str, *layers: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka settings: the defaults, overridden by each layer of Java properties."""
    settings = dict(DEFAULTS)
    for layer in layers:
        settings |= translate({name: str(value) for name, value in layer.items()})
    settings["bootstrap.servers"] = bootstrap
    if "transactional.id" in settings:  # librdkafka rejects a message timeout above the transaction timeout
        most_ms = int(settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
        settings["message.timeout.ms"] = min(int(settings["message.timeout.ms"]), most_ms)
    if "enable.idempotence" not in settings and str(settings["acks"]) in ("all", "-1"):
        settings["enable.idempotence"] = str(settings.get("retries", 1)) != "0"
    return settings


def wait_for_topic(bootstrap: str, topic: str, properties: Mapping[str, str], timeout_ms: int) -> None:
    """Wait until a broker and the topic are available, so that errors appear before input is read."""
    client = make_client(bootstrap, dict(properties))
    client.timeout_ms = min(client.timeout_ms, timeout_ms)
    with client:
        admin = Admin(client)
        deadline_ms = client.clock.monotonic_ms() + min(timeout_ms, TOPIC_WAIT_MS_MAX)
        while True:
            try:
                admin.topic(topic, may_create=True, needs_leaders=True)
            except ClientError as problem:
                if problem.error is Error.INVALID_TOPIC_EXCEPTION:
                    raise ToolError(topic_name_problem(topic) or f"{topic!r} is not a valid topic name") from None
                if problem.error is Error.TOPIC_AUTHORIZATION_FAILED:
                    raise ToolError(authorization_message(topic, properties)) from None
                if problem.error is not Error.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if client.clock.monotonic_ms() >= deadline_ms:
                    raise ToolError(
                        f"topic {topic} does not exist and the broker does not create it automatically. "
                        f"Create it with: ottla topics create {topic}"
                    ) from None
                client.sleep(POLL_SECONDS)
            else:
                return


def authorization_message(topic: str, properties: Mapping[str, str]) -> str:
    """The message of a denied write, with the command that allows it."""
    from shlex import quote  # noqa: PLC0415 (only for denied requests)

    from ottla.security.client_protocol import client_principal  # noqa: PLC0415

    principal = client_principal(properties)
    allowed = quote(principal) if principal is not None else "User:NAME"
    return (
        f"{principal or 'this login'} is not authorized to write to topic {topic}. "
        f"Allow it with: ottla acls add --allow {allowed} --producer --topic {quote(topic)}"
    )


class ConsoleProducer:
    """Sends records to one topic and counts the results."""

    def __init__(
        self,
        name: str,
        topic: str,
        settings: Mapping[str, Any],
        properties: Mapping[str, str],
        *,
        is_synchronous: bool = False,
    ) -> None:
        """`settings` are librdkafka's; `properties` are the user's and identify the principal."""
        self.name = name
        self._properties = properties
        self.topic = topic
        self.is_synchronous = is_synchronous
        self.library = library()
        self.producer = make_producer(settings)
        prefetch_metadata(self.producer, topic)
        self.sent = 0
        self.stored = 0
        self.failed = 0

    def send(self, line: Line, partition: int | None = None) -> None:
        """Enqueue one record; waits while the queue is full."""
        self.sent += 1
        number = self.sent
        details: dict[str, Any] = {}
        if partition is not None:
            line = line._replace(partition=partition)
        if line.partition is not None:
            details["partition"] = line.partition
        if line.timestamp is not None:
            details["timestamp"] = line.timestamp
        if line.headers:
            details["headers"] = line.headers

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                self.stored += 1
            else:
                self._report_failure(number, line, error)

        while True:
            try:
                self.producer.produce(self.topic, line.value, line.key, on_delivery=delivered, **details)
                break
            except BufferError:
                self._poll(self.producer.poll, POLL_SECONDS)
            except self.library.KafkaException as problem:
                if problem.args[0].name() == "_FATAL":  # the callback reports the reason
                    self._poll(self.producer.poll, FATAL_REASON_SECONDS)
                self._report_failure(number, line, problem.args[0])
                break
        self._poll(self.producer.poll, 0)
        if self.is_synchronous:
            self.flush()

    def _poll(self, wait: Callable[[float], int], seconds: float) -> int:
        """Poll or flush; a fatal error raises ToolError."""
        try:
            return wait(seconds)
        except self.library.KafkaException as problem:
            error = problem.args[0]
            # IdempotentWrite is implied by the right to write to any topic (KIP-679)
            is_forbidden = error.name() == Error.CLUSTER_AUTHORIZATION_FAILED.name
            raise ToolError(
                authorization_message(self.topic, self._properties) if is_forbidden else error_text(error)
            ) from None

    def flush(self, seconds: float | None = None) -> None:
        """Wait until each record is stored or has failed, or until the time is over."""
        rounds = None if seconds is None else int(seconds / POLL_SECONDS)
        while self._poll(self.producer.flush, POLL_SECONDS):
            if rounds is not None:
                rounds -= 1
                if rounds <= 0:
                    return

    def finish(self) -> int:
        """Wait for all records; returns the tool's exit code."""
        self.flush()
        if self.failed > FAILURES_SHOWN_MAX:
            warn(f"{self.name}: {self.failed} of {self.sent} messages were not stored")
        return 1 if self.failed else 0

    def _report_failure(self, number: int, line: Line, error: Any) -> None:
        self.failed += 1
        if self.failed <= FAILURES_SHOWN_MAX:
            size = len(line.key or b"") + len(line.value or b"")
            is_forbidden = error.name() == Error.TOPIC_AUTHORIZATION_FAILED.name
            why = authorization_message(self.topic, self._properties) if is_forbidden else _failure_reason(line, error)
            warn(f"{self.name}: message {number} ({size} bytes) was not stored in {self.topic}: {why}")

    def __repr__(self) -> str:
        return f"<ConsoleProducer {self.topic} sent={self.sent} stored={self.stored} failed={self.failed}>"


def send_all(
    sender: ConsoleProducer, lines: Iterable[Line], *, is_prompting: bool = False, partition: int | None = None
) -> int:
    """Send all records. A signal or an invalid line ends the input; records that were read are still sent."""
    exit_on_sigterm()
    is_everything_read = False
    try:
        for line in lines:
            sender.send(line, partition)
            if is_prompting:
                sender.flush(1)  # report errors immediately to an interactive user
        is_everything_read = True
    finally:
        if not is_everything_read:
            sender.flush(FLUSH_SECONDS_ON_STOP)
    return sender.finish()


def _failure_reason(line: Line, error: Any) -> str:
    if error.name() == "_UNKNOWN_PARTITION" and line.partition is not None:
        return f"the topic has no partition {line.partition}"
    return error_text(error)


def error_text(error: Any) -> str:
    """A librdkafka error in words that suggest a remedy."""
    if error.name() in ("MSG_SIZE_TOO_LARGE", "MESSAGE_TOO_LARGE"):
        return "it is larger than max.request.size (1048576 by default) or the topic's max.message.bytes"
    if error.name() == "_MSG_TIMED_OUT":
        return "no broker acknowledged it in time"
    text = str(error.str())
    return text.removeprefix("Broker: ").removeprefix("Local: ")


def parse_lines(reader: RecordReader, stream: BinaryIO, is_prompting: bool) -> Iterator[Line]:
    """Parse lines into records, with a prompt before each line on a terminal."""
    _prompt(is_prompting)
    for number, line in enumerate(read_lines(stream), 1):
        yield reader.parse(line, number)
        _prompt(is_prompting)


def _prompt(is_prompting: bool) -> None:
    if is_prompting:
        print(">", end="", flush=True)

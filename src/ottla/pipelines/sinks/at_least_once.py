"""At-least-once delivery: tasks send rows directly to a topic, without staging and without markers.

Each worker process keeps one idempotent producer between tasks. A task ends when all its records are acknowledged; a
rejected record fails the task, and Spark or the next start sends the batch again.

Kerberos: confluent-kafka's wheels are built without it, so kafka-python sends instead. It is used for at-least-once
only, because exactly-once delivery is verified with librdkafka's transactions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.client import open_client
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError
from ottla.client.kafka_python import KafkaPythonError, has_kerberos, make_client, wants_kerberos
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_markers import LOG_LEVEL
from ottla.pipelines.sinks.record_sender import PRODUCER_SETTINGS, RecordSender, Target, size_settings
from ottla.security.jaas import JaasError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


REPORT_SCHEMA = "rows long, refused long"
FLUSH_SECONDS = 1.0
DELIVERY_TIMEOUT_MS = 120_000
ERRORS_MAX = 100

PRODUCERS: dict[str, ProcessProducer] = {}
NOT_EXACTLY_ONCE = (
    "topic {topic}: a sink that logs in by Kerberos delivers at least once, since confluent-kafka is built without "
    "Kerberos: set delivery: at-least-once, or use another login (SCRAM, for instance)"
)


class SendCounts(NamedTuple):
    rows: int
    refused: int


class ProcessProducer:
    """The producer of this process, and its delivery errors since the last flush."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.pid = os.getpid()
        self.errors: list[str] = []
        self.producer = make_producer({**settings, "on_delivery": self._on_delivery})

    def __repr__(self) -> str:
        return f"ProcessProducer(process {self.pid}, {len(self.producer)} waiting, {len(self.errors)} errors)"

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None and len(self.errors) < ERRORS_MAX:
            self.errors.append(error.str() if message is None else f"{message.topic()}: {error.str()}")

    def flush(self) -> None:
        """Wait until every record is acknowledged or rejected. Raises SinkError."""
        while len(self.producer):
            self.producer.flush(FLUSH_SECONDS)
        errors, self.errors = self.errors, []
        if errors:
            raise SinkError(f"records were not delivered: {errors[0]}")


def publish_rows(rows: DataFrame, client: dict[str, str], target: Target) -> SendCounts:
    """Run the plan; `rows` has the columns that Sending accepts."""
    settings = producer_settings(client, target)

    def publish(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 (runs in Spark's workers)

        report = send_batches(batches, settings, target)
        yield pa.RecordBatch.from_pydict({"rows": [report.rows], "refused": [report.refused]})

    reports = rows.mapInArrow(publish, REPORT_SCHEMA).collect()
    return SendCounts(sum(int(each.rows) for each in reports), sum(int(each.refused) for each in reports))


def producer_settings(client: dict[str, str], target: Target) -> dict[str, Any]:
    return {
        **PRODUCER_SETTINGS,
        **size_settings(target.record_bytes_max),
        "delivery.report.only.error": True,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        **client,
        "log_level": LOG_LEVEL,
    }


def send_batches(batches: Iterator[Any], settings: dict[str, Any], target: Target) -> SendCounts:
    plain = producer_for(settings)
    sending = RecordSender(plain.producer, target)
    try:
        for batch in batches:
            sending.send(batch)
    finally:
        plain.flush()
    return SendCounts(sending.rows, sending.dead_lettered)


def producer_for(settings: dict[str, Any]) -> ProcessProducer:
    """One producer per settings and process: workers are forked, and a parent's producer must not be used."""
    key = repr(sorted(settings.items()))
    plain = PRODUCERS.get(key)
    if plain is None or plain.pid != os.getpid():
        plain = PRODUCERS[key] = ProcessProducer(settings)
    return plain


def needs_kafka_python(settings: Mapping[str, Any]) -> bool:
    import confluent_kafka  # # noqa: PLC0415 (loaded on first use)

    return wants_kerberos(settings) and not has_kerberos(confluent_kafka)


def make_producer(settings: Mapping[str, Any]) -> Any:
    """librdkafka's producer, or kafka-python's if the login needs it. Raises SinkError."""
    import confluent_kafka  # noqa: PLC0415 (loaded in Spark's workers)

    if not needs_kafka_python(settings):
        return confluent_kafka.Producer(dict(settings))
    try:
        return make_client(
            "Producer", confluent_kafka, settings, lambda _: None
        )  # most of the settings are librdkafka's own
    except (KafkaPythonError, JaasError) as problem:
        raise SinkError(str(problem)) from None


def topic_setting(settings: Mapping[str, str], topic: str, name: str) -> str:
    """A topic setting, read with our own client. Raises SinkError."""
    try:
        with open_client(settings["bootstrap.servers"], settings) as client:
            found = describe_configs(client, Resource.TOPIC, [topic])[topic]
    except ClientError as problem:
        raise SinkError(f"topic {topic} cannot be described: {problem}") from None
    return next(config.value or "" for config in found if config.name == name)

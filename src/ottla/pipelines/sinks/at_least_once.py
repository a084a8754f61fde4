"""Rows straight from their tasks into a topic: nothing is pinned, nothing is remembered.

An idempotent producer per worker process, kept between tasks. A task is done when all its records are acknowledged; a
record that is refused fails the task, and Spark or the next start sends the batch again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.kerberos import make_producer
from ottla.pipelines.sinks.markers import LOG_LEVEL
from ottla.pipelines.sinks.producing import PRODUCER_SETTINGS, Sending, Target, size_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPORT_SCHEMA = "rows long, refused long"
FLUSH_SECONDS = 1.0
DELIVERY_TIMEOUT_MS = 120_000
ERRORS_MAX = 100


class Report(NamedTuple):
    rows: int
    refused: int


class Plain:
    """The producer of this process, and what it could not deliver since it was asked last."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.process = os.getpid()
        self.errors: list[str] = []
        self.producer = make_producer({**settings, "on_delivery": self._note})

    def __repr__(self) -> str:
        return f"Plain(process {self.process}, {len(self.producer)} waiting, {len(self.errors)} errors)"

    def _note(self, error: Any, message: Any) -> None:
        if error is not None and len(self.errors) < ERRORS_MAX:
            self.errors.append(error.str() if message is None else f"{message.topic()}: {error.str()}")

    def finish(self) -> None:
        """Until everything is acknowledged or refused. Raises SinkError."""
        while len(self.producer):
            self.producer.flush(FLUSH_SECONDS)
        errors, self.errors = self.errors, []
        if errors:
            raise SinkError(f"records were not delivered: {errors[0]}")


PRODUCERS: dict[str, Plain] = {}


def publish_rows(rows: DataFrame, client: dict[str, str], target: Target) -> Report:
    """Runs the plan; `rows` has the columns that Sending knows."""
    settings = producer_settings(client, target)

    def publish(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 (runs in Spark's workers)

        report = send_all(batches, settings, target)
        yield pa.RecordBatch.from_pydict({"rows": [report.rows], "refused": [report.refused]})

    reports = rows.mapInArrow(publish, REPORT_SCHEMA).collect()
    return Report(sum(int(each.rows) for each in reports), sum(int(each.refused) for each in reports))


def producer_settings(client: dict[str, str], target: Target) -> dict[str, Any]:
    return {
        **PRODUCER_SETTINGS,
        **size_settings(target.record_bytes_max),
        "delivery.report.only.error": True,
        "message.timeout.ms": DELIVERY_TIMEOUT_MS,
        **client,
        "log_level": LOG_LEVEL,
    }


def send_all(batches: Iterator[Any], settings: dict[str, Any], target: Target) -> Report:
    plain = producer_for(settings)
    sending = Sending(plain.producer, target)
    try:
        for batch in batches:
            sending.send(batch)
    finally:
        plain.finish()
    return Report(sending.rows, sending.refused)


def producer_for(settings: dict[str, Any]) -> Plain:
    """One per settings and process: workers are forked, and a parent's producer is not ours."""
    key = repr(sorted(settings.items()))
    plain = PRODUCERS.get(key)
    if plain is None or plain.process != os.getpid():
        plain = PRODUCERS[key] = Plain(settings)
    return plain

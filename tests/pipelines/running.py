"""Running pipelines in tests: records in, a run to the end, records out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from ottla.operations.pipeline_runs.snapshots import StepCount
from ottla.pipelines.model.document import parse_document
from ottla.pipelines.model.pipeline import Pipeline, read_pipeline
from ottla.pipelines.model.variables import substitute_variables
from ottla.pipelines.running.builder import Choices
from ottla.pipelines.running.runner import Runner, RunOptions
from ottla.pipelines.steps.step_table import STEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SECONDS_MAX = 300.0
READ_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.02


class Message(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.value or b"null")


def pipeline_of(text: str, folder: Path | str = ".") -> Pipeline:
    values = substitute_variables(parse_document(text, "pipeline.yaml").values, os.environ)
    return read_pipeline(values, STEPS, str(folder))


def run_once(spark: SparkSession, pipeline: Pipeline, folder: Path, **options: Any) -> list[StepCount]:
    """Process all existing records, and return the counts of all steps; fails when a query fails."""
    return follow(Runner(pipeline, spark, RunOptions(str(folder), is_once=True, **options)))


def run_batch(spark: SparkSession, pipeline: Pipeline, folder: Path, starting: str = "earliest") -> list[StepCount]:
    choices = Choices(starting=starting)
    return follow(Runner(pipeline, spark, RunOptions(str(folder), is_batch=True, choices=choices)))


def follow(runner: Runner) -> list[StepCount]:
    runner.start()
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while True:
        states = runner.poll()
        failures = [state.failure for state in states if state.failure]
        assert not failures, failures
        if not any(state.is_active for state in states):
            return [count for state in states for count in state.counts]
        assert time.monotonic() < deadline, f"{runner} did not end"
        time.sleep(LOOK_SECONDS)


def produce(bootstrap: str, topic: str, records: Iterable[tuple[Any, Any] | Any], partition: int = -1) -> None:
    """Values, or pairs of key and value; what is no text and no bytes is written as JSON."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for record in records:
        key, value = record if isinstance(record, tuple) else (None, record)
        data = value if value is None or isinstance(value, str | bytes) else json.dumps(value)
        producer.produce(topic, data, key, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def read_all(bootstrap: str, topic: str, is_committed: bool = True) -> list[Message]:
    """Every record of a topic up to its current end; empty if the topic does not exist."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # an empty answer marks the end
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        return _read(consumer, set(partitions))
    finally:
        consumer.close()


def _read(consumer: Consumer, open_partitions: set[int]) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + READ_SECONDS_MAX
    while open_partitions:
        assert time.monotonic() < deadline, f"partitions {open_partitions} have no end"
        for message in consumer.consume(1000, LOOK_SECONDS):
            error = message.error()
            if error is None:
                headers = {key: (value or b"").decode(errors="replace") for key, value in message.headers() or ()}
                found.append(Message(message.partition(), message.offset(), message.key(), message.value(), headers))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise AssertionError(error.str())
    return found


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)

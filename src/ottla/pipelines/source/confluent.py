"""The same questions and the same reading through confluent-kafka, for clusters that want TLS or a login.

An object is made for each record here, which is several times slower than our own client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import confluent_kafka
import numpy as np
import pyarrow as pa

from ottla.base.names import TopicPartition
from ottla.client.java_properties import make_without_unknown, translate
from ottla.pipelines.source.bounds import Offsets
from ottla.pipelines.source.cluster import CLIENT_ID, chosen
from ottla.pipelines.source.losses import SourceError, report_loss
from ottla.pipelines.source.offset_ranges import Range
from ottla.pipelines.source.options import Options, Subscription
from ottla.pipelines.source.schema import arrow_schema

QUESTION_SECONDS = 60.0
FIRST_QUESTION_SECONDS = 20.0  # a wrong address should not take long to be told
GROUP = "ottla-spark-reader"  # the library wants a name; nothing is committed under it
ROWS_PER_BATCH = 20_000
POLL_SECONDS = 1.0
LOG_APPEND_TIME = confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
GONE = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})

logger = logging.getLogger(__name__)


class Trouble:
    """Remembers what the library last said about its connections: a failed question itself says only that it failed."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # true, but it hides why
            self.text = error.str()

    def __repr__(self) -> str:
        return f"<Trouble {self.text!r}>"


class ConfluentCluster:
    """Asks through a consumer of the library."""

    def __init__(self, options: Options) -> None:
        self.trouble = Trouble()
        self.consumer = _consumer(options, error_cb=self.trouble)
        self.seconds = FIRST_QUESTION_SECONDS
        self.bootstrap = options.bootstrap

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        topics = self._ask(lambda: self.consumer.list_topics(timeout=self.seconds)).topics.values()
        self.seconds = QUESTION_SECONDS
        found = [
            TopicPartition(topic.topic, number)
            for topic in topics
            if topic.error is None and not (subscription.pattern and topic.topic.startswith("__"))
            for number in topic.partitions
        ]
        return sorted(chosen(subscription, found))

    def topic_ids(self) -> dict[str, str]:
        return {}  # the library's consumer does not tell them

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self._watermarks(each)[0] for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self._watermarks(each)[1] for each in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        wanted = [confluent_kafka.TopicPartition(*each, moment) for each, moment in times_ms.items()]
        found = self._ask(lambda: self.consumer.offsets_for_times(wanted, timeout=self.seconds)) if wanted else []
        return {TopicPartition(item.topic, item.partition): _offset_or_none(item) for item in found}

    def _watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """With read_committed the second is that of the last stable record."""
        wanted = confluent_kafka.TopicPartition(*partition)
        low, high = self._ask(lambda: self.consumer.get_watermark_offsets(wanted, timeout=self.seconds))
        return low, high

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except confluent_kafka.KafkaException as problem:
            self.consumer.poll(0)  # has the library tell what it knows
            _refuse(problem, f"{self.bootstrap} does not answer", self.trouble.text)

    def close(self) -> None:
        self.consumer.close()

    def __repr__(self) -> str:
        return f"<ConfluentCluster {self.bootstrap}>"


def read_range(wanted: Range, options: Options) -> Iterator[pa.RecordBatch]:
    """All records of the range that exist, in the order of their offsets."""
    schema = arrow_schema(options.columns)
    consumer = _consumer(options, **{"enable.partition.eof": True})
    try:
        consumer.assign([confluent_kafka.TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        position = wanted.start
        quiet_since = time.monotonic()
        while position < wanted.end:
            messages = consumer.consume(ROWS_PER_BATCH, POLL_SECONDS)
            records = [message for message in messages if message.error() is None]
            after = _position_after(consumer, messages, position, wanted, options)
            if after > position:
                position, quiet_since = after, time.monotonic()
            elif time.monotonic() - quiet_since > options.poll_timeout_ms / 1000:
                report_loss(options, f"{wanted}: nothing came from {position} on")
                return
            while records and records[-1].offset() >= wanted.end:
                records.pop()
            if records:
                yield _to_arrow(records, wanted, options.columns, schema)
    finally:
        consumer.close()


def commit(properties: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit for a group without members."""
    consumer = _make(properties, {"group.id": group})
    wanted = [confluent_kafka.TopicPartition(*each, offset) for each, offset in offsets.items()]
    try:
        consumer.commit(offsets=wanted, asynchronous=False)
    except confluent_kafka.KafkaException as problem:
        _refuse(problem, f"the group {group}")
    finally:
        consumer.close()


def _position_after(consumer: Any, messages: list[Any], position: int, wanted: Range, options: Options) -> int:
    """Where reading goes on; raises or reports what the library says has gone wrong."""
    for message in messages:
        error = message.error()
        if error is None or error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            position = max(position, message.offset() + (error is None))
        elif error.name() in GONE:
            report_loss(options, f"{wanted}: the topic or partition does not exist any more")
            return wanted.end
        elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            return _leave_gap(consumer, position, wanted, options)
        elif not error.retriable() and error.name() not in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
            raise SourceError(f"{wanted}: {error.str()}")
    return position


def _leave_gap(consumer: Any, position: int, wanted: Range, options: Options) -> int:
    """The log does not reach to this position: go on where it begins, or not at all if it ends before."""
    partition = confluent_kafka.TopicPartition(wanted.topic, wanted.partition)
    low, high = consumer.get_watermark_offsets(partition, timeout=QUESTION_SECONDS)
    sentence = f"{wanted}: offset {position} is not in the log, which holds {low} to {high}"
    report_loss(options, sentence)
    if not position < low < wanted.end:
        return wanted.end
    partition.offset = low
    consumer.assign([partition])
    return int(low)


def _to_arrow(records: list[Any], wanted: Range, columns: Iterable[str], schema: pa.Schema) -> pa.RecordBatch:
    count = len(records)
    makers = {
        "key": lambda: pa.array([record.key() for record in records], pa.binary()),
        "value": lambda: pa.array([record.value() for record in records], pa.binary()),
        "topic": lambda: pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
        "partition": lambda: pa.array(np.full(count, wanted.partition, np.int32)),
        "offset": lambda: pa.array(np.fromiter((record.offset() for record in records), np.int64, count)),
        "timestamp": lambda: pa.array(
            np.fromiter((record.timestamp()[1] * 1000 for record in records), np.int64, count),
            schema.field("timestamp").type,
        ),
        "timestampType": lambda: pa.array(
            [int(record.timestamp()[0] == LOG_APPEND_TIME) for record in records], pa.int32()
        ),
        "headers": lambda: pa.array([_headers(record) for record in records], schema.field("headers").type),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)


def _headers(record: Any) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in record.headers() or ()] or None


def _consumer(options: Options, **more: Any) -> Any:
    settings = {
        "group.id": GROUP,
        "auto.offset.reset": "error",  # whether to go on is for us to decide
        "isolation.level": "read_committed" if options.is_committed_only else "read_uncommitted",
        "fetch.queue.backoff.ms": 2,
        "queued.min.messages": 1_000_000,
        **more,
    }
    return _make(options.properties, settings)


def _make(properties: Mapping[str, str], settings: Mapping[str, Any]) -> Any:
    wanted = {"client.id": CLIENT_ID, **translate(properties), **settings, "enable.auto.commit": False, "log_level": 2}
    try:
        return make_without_unknown(confluent_kafka.Consumer, wanted, confluent_kafka.KafkaException, _warn_unknown)
    except confluent_kafka.KafkaException as problem:
        _refuse(problem, "the options kafka.* do not fit")


def _warn_unknown(name: str) -> None:
    logger.warning("the option kafka.%s is not known to confluent-kafka and has no effect", name)


def _refuse(problem: confluent_kafka.KafkaException, what: str, cause: str = "") -> NoReturn:
    raise SourceError(f"{what}: {cause or problem.args[0].str()}") from None


def _offset_or_none(item: Any) -> int | None:
    return item.offset if item.offset >= 0 else None

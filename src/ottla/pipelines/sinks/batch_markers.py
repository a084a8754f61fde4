"""Batch markers: the newest batch that each transactional id has published, in a compacted topic.

A marker is written in the transaction of the rows, so it exists exactly if they do. Committed offsets would work the
same way but expire with their group; a compacted topic keeps the newest marker of every key.

Rules:
1. Call init_transactions before reading the markers of a transactional id. Then every earlier transaction of that id is
   complete, and other users of it are fenced.
2. Read up to the high watermark at the start of the read, not only to the last stable offset: an open transaction of
   another id may precede the marker.
3. Different transactional ids of a query use different partitions as far as possible, so rule 2 rarely waits.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.base.names import PIPELINE_MARKERS_TOPIC
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch

PARTITIONS = 32
CLUSTER_DEFAULT = -1
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),  # the active segment is never compacted, so segments are short
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
REQUEST_SECONDS = 30.0
POLL_SECONDS = 0.2
READ_MAX = 1000
FETCH_WAIT_MS = 5  # the end of the partition is reported only when a fetch returns empty
BEGINNING_OFFSET = 0
LOG_LEVEL = 2  # errors are raised as exceptions, not logged to the terminal

Answer = TypeVar("Answer")
Settings = Mapping[str, str]
Positions = dict[int, int]  # partition -> offset before which all markers are known


class Marker(NamedTuple):
    """The newest marker of one transactional id."""

    recorded: LastBatch
    partition: int
    offset: int
    at_ms: int
    target: str = ""  # the topic of the rows


def marker_value(recorded: LastBatch, rows: int, target: str) -> bytes:
    value = {"batch": recorded.batch_id, "identity": recorded.identity, "rows": rows, "at_ms": int(time.time() * 1000)}
    return json.dumps({**value, "topic": target}).encode()


def parse_marker(value: bytes | None, partition: int, offset: int) -> Marker | None:
    """None for a record that is not a marker: a tombstone, or a foreign record."""
    try:
        decoded = json.loads(value or b"")
        recorded = LastBatch(int(decoded["batch"]), str(decoded["identity"]))
        return Marker(recorded, partition, offset, int(decoded["at_ms"]), str(decoded.get("topic", "")))
    except (ValueError, KeyError, TypeError):
        return None


def marker_partition(prefix: str, number: int, partitions: int) -> int:
    """Consecutive file numbers use different partitions, and queries start at different ones."""
    return (zlib.crc32(prefix.encode()) + number) % partitions


class MarkerReader:
    """Reads markers with one consumer; close it, or keep it for the next batch."""

    def __init__(self, settings: Settings, topic: str = PIPELINE_MARKERS_TOPIC) -> None:
        from confluent_kafka import Consumer  # # noqa: PLC0415 (loaded on first use, in drivers and workers)
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        self.topic = topic
        self._admin = AdminClient({**settings, "log_level": LOG_LEVEL})
        self._consumer = Consumer(
            {
                **settings,
                "log_level": LOG_LEVEL,
                "group.id": "ottla-pipeline-markers",  # never joined or committed: partitions are assigned
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
            }
        )

    def __repr__(self) -> str:
        return f"MarkerReader({self.topic})"

    def close(self) -> None:
        self._consumer.close()

    def end_offsets(self, partitions: Iterable[int]) -> Positions:
        """High watermarks, regardless of open transactions."""
        from confluent_kafka import IsolationLevel, TopicPartition  # noqa: PLC0415
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # noqa: PLC0415

        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.topic, number): newest for number in partitions}

        def ask() -> Positions:
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_SECONDS
            )
            return {place.partition: int(answer.result().offset) for place, answer in answers.items()}

        return retry_transient(ask)

    def read(self, positions: Positions, prefix: str, wait_seconds: float) -> tuple[dict[str, Marker], Positions]:
        """Committed markers whose keys begin with `prefix`, from these positions to the ends; the newest of each key.

        Raises SinkError if another transaction stays open before an end for longer than the wait.
        """
        ends = self.end_offsets(positions)
        behind = {number for number, at in positions.items() if at < ends[number]}
        found: dict[str, Marker] = {}
        if behind:
            self._assign({number: positions[number] for number in behind})
            self._read_to(ends, behind, prefix.encode(), found, wait_seconds)
        return found, ends

    def _assign(self, positions: Positions) -> None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        self._consumer.assign([TopicPartition(self.topic, number, at) for number, at in positions.items()])

    def _read_to(
        self, ends: Positions, behind: set[int], prefix: bytes, found: dict[str, Marker], wait_seconds: float
    ) -> None:
        deadline = time.monotonic() + wait_seconds
        while behind:
            messages = self._consumer.consume(READ_MAX, POLL_SECONDS)
            for message in messages:
                if message.error() is not None:
                    self._handle_error_event(message, ends, behind)
                elif (message.key() or b"").startswith(prefix):
                    _apply_marker(message, found)
            if time.monotonic() > deadline:
                raise SinkError(
                    f"{self.topic}: partitions {sorted(behind)} could not be read to the end in {wait_seconds:.0f} s:"
                    " a transaction is open, or the broker does not answer; try again later"
                )
        self._consumer.unassign()

    def _handle_error_event(self, message: Any, ends: Positions, behind: set[int]) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= ends[message.partition()]:
                behind.discard(message.partition())
        elif not error.retriable() and not _is_transient(error):
            raise KafkaException(error)

    def read_all(self, wait_seconds: float) -> dict[str, Marker]:
        """Every committed marker; none if the topic does not exist. Raises SinkError."""
        begin = dict.fromkeys(range(self._partition_count()), BEGINNING_OFFSET)
        return self.read(begin, "", wait_seconds)[0] if begin else {}

    def offset_count(self) -> int:
        """The offsets between the start and the end of all partitions; 0 if the topic does not exist."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        places = [TopicPartition(self.topic, number) for number in range(self._partition_count())]
        bounds = [self._consumer.get_watermark_offsets(place, REQUEST_SECONDS) for place in places]
        return sum(end - start for start, end in bounds)

    def ensure_topic(self) -> int:
        """The number of partitions; creates the topic if it does not exist. Raises SinkError."""
        count = self._partition_count()
        if count == 0:
            self._create()
            count = self._await_partition_count()
        self._check_cleanup_policy()
        return count

    def _partition_count(self) -> int:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection  # noqa: PLC0415

        try:
            asked = TopicCollection([self.topic])
            described = self._admin.describe_topics(asked, request_timeout=REQUEST_SECONDS)[self.topic]
            return len(described.result().partitions)
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise SinkError(f"{self.topic} cannot be described: {problem.args[0].str()}") from problem

    def _await_partition_count(self) -> int:
        deadline = time.monotonic() + REQUEST_SECONDS
        while (count := self._partition_count()) == 0:
            if time.monotonic() > deadline:
                raise SinkError(f"{self.topic} was created but does not appear")
            time.sleep(POLL_SECONDS)
        return count

    def _create(self) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # noqa: PLC0415

        wanted = NewTopic(self.topic, PARTITIONS, CLUSTER_DEFAULT, config=TOPIC_SETTINGS)
        try:
            self._admin.create_topics([wanted], request_timeout=REQUEST_SECONDS)[self.topic].result()
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another query created it first
                raise SinkError(
                    f"topic {self.topic} is needed for exactly-once delivery and cannot be created:"
                    f" {problem.args[0].str()}; create it with cleanup.policy=compact, or use delivery: at-least-once"
                ) from problem

    def _check_cleanup_policy(self) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        try:
            policy = topic_settings(self._admin, self.topic)["cleanup.policy"]
        except KafkaException:  # reading topic settings may be forbidden
            return
        if "compact" not in policy:
            raise SinkError(
                f"topic {self.topic} has cleanup.policy={policy}: its markers would be deleted after a time;"
                f" set cleanup.policy=compact"
            )


def retry_transient(ask: Callable[[], Answer]) -> Answer:
    """Retry transient errors: a topic that was just created, a broker that just restarted."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as problem:
            error = problem.args[0]
            passes = error.retriable() or _is_transient(error) or error.code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not passes or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def topic_settings(admin: Any, topic: str) -> dict[str, str]:
    """Raises KafkaException, UNKNOWN_TOPIC_OR_PART included; never creates the topic."""
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined] # noqa: PLC0415

    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    answer = next(iter(admin.describe_configs([asked], request_timeout=REQUEST_SECONDS).values())).result()
    return {name: str(entry.value) for name, entry in answer.items()}


def _apply_marker(message: Any, found: dict[str, Marker]) -> None:
    """Within a partition the last marker wins. A key is in two partitions only if partitions were added to the
    topic."""
    marker = parse_marker(message.value(), message.partition(), message.offset())
    key = message.key().decode(errors="replace")
    known = found.get(key)
    is_same_place = known is None or known.partition == message.partition()
    if marker is None:
        if is_same_place:
            found.pop(key, None)
    elif is_same_place or known is None or known.at_ms <= marker.at_ms:
        found[key] = marker


def _is_transient(error: Any) -> bool:
    """The broker is unavailable: librdkafka keeps retrying, and so does the caller until the deadline."""
    from confluent_kafka import KafkaError  # noqa: PLC0415

    return error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)

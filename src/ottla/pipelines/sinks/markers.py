"""Markers: which batch of a query each transactional id has published last, in a compacted topic of ours.

A marker is written in the transaction of the rows, so it is there exactly if they are. Committed offsets would do the
same but expire with their group; a compacted topic keeps the newest marker of every key for ever.

Rules:
1. Whoever wants to know what its own transactional id has published calls init_transactions first: then every earlier
   transaction of that id is decided, and whoever else used it is fenced.
2. A reader goes on to the end of the partition as it was when it began, not only to the last stable offset: another
   id's open transaction may lie in front of the marker that is looked for.
3. Different transactional ids of a query use different partitions as far as there are enough, so that rule 2 seldom
   means waiting.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.ledger import Recorded

MARKER_TOPIC = "ottla_pipeline_markers"
PARTITIONS = 32
CLUSTER_DEFAULT = -1
TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 << 20),  # the active segment is never compacted: keep it short
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
REQUEST_SECONDS = 30.0
POLL_SECONDS = 0.2
READ_MAX = 1000
FETCH_WAIT_MS = 5  # the end of the partition is told only when a fetch comes back empty
BEGINNING = 0
LOG_LEVEL = 2  # what goes wrong is told by exceptions, not by lines in somebody's terminal

Answer = TypeVar("Answer")
Settings = Mapping[str, str]
Position = dict[int, int]  # partition -> offset up to which everything is known


class Marker(NamedTuple):
    """The newest that is known of one transactional id."""

    recorded: Recorded
    partition: int
    offset: int
    at_ms: int
    target: str = ""  # the topic that has the rows


def marker_value(recorded: Recorded, rows: int, target: str) -> bytes:
    value = {"batch": recorded.batch_id, "identity": recorded.identity, "rows": rows, "at_ms": int(time.time() * 1000)}
    return json.dumps({**value, "topic": target}).encode()


def parse_marker(value: bytes | None, partition: int, offset: int) -> Marker | None:
    """None for what is not a marker: a tombstone, a foreign record."""
    try:
        decoded = json.loads(value or b"")
        recorded = Recorded(int(decoded["batch"]), str(decoded["identity"]))
        return Marker(recorded, partition, offset, int(decoded["at_ms"]), str(decoded.get("topic", "")))
    except (ValueError, KeyError, TypeError):
        return None


def marker_partition(prefix: str, number: int, partitions: int) -> int:
    """Neighbours lie in different partitions, and queries begin at different ones."""
    return (zlib.crc32(prefix.encode()) + number) % partitions


class MarkerReader:
    """Reads markers with one consumer; close it, or keep it for the next batch."""

    def __init__(self, settings: Settings, topic: str = MARKER_TOPIC) -> None:
        from confluent_kafka import Consumer  # noqa: PLC0415 (loaded where it is used: drivers and workers)
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        self.topic = topic
        self._admin = AdminClient({**settings, "log_level": LOG_LEVEL})
        self._consumer = Consumer(
            {
                **settings,
                "log_level": LOG_LEVEL,
                "group.id": "ottla-pipeline-markers",  # never joined, never committed: offsets are assigned
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

    def ends(self, partitions: Iterable[int]) -> Position:
        """High watermarks, whatever transactions are open."""
        from confluent_kafka import IsolationLevel, TopicPartition  # noqa: PLC0415
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # noqa: PLC0415

        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self.topic, number): newest for number in partitions}

        def ask() -> Position:
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=REQUEST_SECONDS
            )
            return {place.partition: int(answer.result().offset) for place, answer in answers.items()}

        return patiently(ask)

    def read(self, positions: Position, prefix: str, wait_seconds: float) -> tuple[dict[str, Marker], Position]:
        """Committed markers whose keys begin with `prefix`, from these positions to the ends; the newest of each key.

        Raises SinkError when a transaction of somebody else stays open in front of an end for longer than the wait.
        """
        ends = self.ends(positions)
        behind = {number for number, at in positions.items() if at < ends[number]}
        found: dict[str, Marker] = {}
        if behind:
            self._assign({number: positions[number] for number in behind})
            self._read_to(ends, behind, prefix.encode(), found, wait_seconds)
        return found, ends

    def _assign(self, positions: Position) -> None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        self._consumer.assign([TopicPartition(self.topic, number, at) for number, at in positions.items()])

    def _read_to(
        self, ends: Position, behind: set[int], prefix: bytes, found: dict[str, Marker], wait_seconds: float
    ) -> None:
        deadline = time.monotonic() + wait_seconds
        while behind:
            messages = self._consumer.consume(READ_MAX, POLL_SECONDS)
            for message in messages:
                if message.error() is not None:
                    self._take_event(message, ends, behind)
                elif (message.key() or b"").startswith(prefix):
                    _take_marker(message, found)
            if time.monotonic() > deadline:
                raise SinkError(
                    f"{self.topic}: partitions {sorted(behind)} could not be read to the end in {wait_seconds:.0f} s:"
                    " a transaction is open there, or the broker does not answer; try again later"
                )
        self._consumer.unassign()

    def _take_event(self, message: Any, ends: Position, behind: set[int]) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= ends[message.partition()]:
                behind.discard(message.partition())
        elif not error.retriable() and not _is_passing(error):
            raise KafkaException(error)

    def read_all(self, wait_seconds: float) -> dict[str, Marker]:
        """Every committed marker; none where there is no such topic. Raises SinkError."""
        begin = dict.fromkeys(range(self._count()), BEGINNING)
        return self.read(begin, "", wait_seconds)[0] if begin else {}

    def length(self) -> int:
        """The offsets between the beginnings and the ends of all partitions; none where there is no such topic."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        places = [TopicPartition(self.topic, number) for number in range(self._count())]
        bounds = [self._consumer.get_watermark_offsets(place, REQUEST_SECONDS) for place in places]
        return sum(end - start for start, end in bounds)

    def topic_partitions(self) -> int:
        """How many partitions the topic has; it is made when there is none. Raises SinkError."""
        count = self._count()
        if count == 0:
            self._create()
            count = self._count_when_made()
        self._check_policy()
        return count

    def _count(self) -> int:
        from confluent_kafka import KafkaError, KafkaException, TopicCollection  # noqa: PLC0415

        try:
            asked = TopicCollection([self.topic])
            described = self._admin.describe_topics(asked, request_timeout=REQUEST_SECONDS)[self.topic]
            return len(described.result().partitions)
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise SinkError(f"{self.topic} cannot be looked at: {problem.args[0].str()}") from problem

    def _count_when_made(self) -> int:
        deadline = time.monotonic() + REQUEST_SECONDS
        while (count := self._count()) == 0:
            if time.monotonic() > deadline:
                raise SinkError(f"{self.topic} was created and does not appear")
            time.sleep(POLL_SECONDS)
        return count

    def _create(self) -> None:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined] # noqa: PLC0415

        wanted = NewTopic(self.topic, PARTITIONS, CLUSTER_DEFAULT, config=TOPIC_SETTINGS)
        try:
            self._admin.create_topics([wanted], request_timeout=REQUEST_SECONDS)[self.topic].result()
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another query was faster
                raise SinkError(
                    f"topic {self.topic} is needed for exactly-once delivery and cannot be created:"
                    f" {problem.args[0].str()}; create it with cleanup.policy=compact, or use delivery: at-least-once"
                ) from problem

    def _check_policy(self) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        try:
            policy = topic_settings(self._admin, self.topic)["cleanup.policy"]
        except KafkaException:  # not everybody may look at settings
            return
        if "compact" not in policy:
            raise SinkError(
                f"topic {self.topic} has cleanup.policy={policy}: markers in it would be deleted in time;"
                f" set cleanup.policy=compact"
            )


def patiently(ask: Callable[[], Answer]) -> Answer:
    """Ask again while the broker says that this will pass: a topic that was just made, a broker that just came back."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415

    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as problem:
            error = problem.args[0]
            passes = error.retriable() or _is_passing(error) or error.code() == KafkaError.NOT_LEADER_FOR_PARTITION
            if not passes or time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)


def topic_settings(admin: Any, topic: str) -> dict[str, str]:
    """Raises KafkaException, UNKNOWN_TOPIC_OR_PART among them: looking creates nothing."""
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined] # noqa: PLC0415

    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    answer = next(iter(admin.describe_configs([asked], request_timeout=REQUEST_SECONDS).values())).result()
    return {name: str(entry.value) for name, entry in answer.items()}


def _take_marker(message: Any, found: dict[str, Marker]) -> None:
    """Within a partition the last one counts; a key is in two only if the topic was given more partitions."""
    marker = parse_marker(message.value(), message.partition(), message.offset())
    key = message.key().decode(errors="replace")
    known = found.get(key)
    is_same_place = known is None or known.partition == message.partition()
    if marker is None:
        if is_same_place:
            found.pop(key, None)
    elif is_same_place or known is None or known.at_ms <= marker.at_ms:
        found[key] = marker


def _is_passing(error: Any) -> bool:
    """The broker is away: librdkafka goes on trying, and so do we until the deadline."""
    from confluent_kafka import KafkaError  # noqa: PLC0415

    return error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)

"""Sends Arrow columns through a producer: a tight loop, bounded memory, and no record that the topic would reject.

Columns: `value`, and optionally `key`, `headers`, `topic`, `partition`, `timestamp_ms`. Rows without headers and
timestamps use librdkafka's batch call, at half the cost per row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ottla.pipelines.sinks.batch import SinkError

SLICE_ROWS = 10_000
SLICE_BYTES = 8 << 20
PENDING_BYTES_MAX = 64 << 20
PENDING_ROWS_MAX = 200_000
POLL_SECONDS = 0.005  # without delivery reports nothing wakes the poll early
RECORD_OVERHEAD_BYTES = 128  # a batch with one record: header, lengths, timestamp
EXCERPT_BYTES = 4096
REQUEST_SECONDS = 30.0
NO_HEADERS: Mapping[str, str] = {}
ANY_PARTITION = -1  # librdkafka chooses, by the key if there is one
# The partitioner matches Java producers; batches are as large as a topic accepts by default.
PRODUCER_SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}
DEAD_LETTER_BYTES_MAX = 16_384  # for an oversized row: excerpts of key and value, headers
MESSAGE_BYTES_HIGHEST = 1_000_000_000  # librdkafka's upper limit


class Target(NamedTuple):
    """The target of rows. `dead_letters` receives rows that `topic` cannot accept; without it such a row is an
    error."""

    topic: str
    record_bytes_max: int
    dead_letters: str | None = None


def size_settings(record_bytes_max: int) -> dict[str, Any]:
    """librdkafka checks sizes against its own setting, which must match the topic's. Dead letters of a topic with a
    very small limit use the same producer."""
    bytes_max = min(max(record_bytes_max, DEAD_LETTER_BYTES_MAX), MESSAGE_BYTES_HIGHEST)
    return {"message.max.bytes": bytes_max, "batch.size": min(record_bytes_max, 1_000_000)}


class RecordSender:
    """Sends record batches through one producer, in order, and counts them."""

    def __init__(self, producer: Any, target: Target) -> None:
        self.producer = producer
        self.target = target
        self.rows = 0
        self.dead_lettered = 0
        self._queued = 0
        self._pending: deque[tuple[int, int]] = deque()  # (messages queued so far, bytes)
        self._pending_bytes = 0
        self._partitions: dict[str, int] = {}  # partition counts of topics for rows with an explicit partition

    def __repr__(self) -> str:
        return f"RecordSender({self.target.topic}, {self.rows} rows, {self.dead_lettered} refused)"

    def send(self, batch: Any) -> None:
        """Raises SinkError for an oversized row without a dead-letter topic; never BufferError."""
        for piece in slice_batch(batch):
            self._await_capacity()
            self._send_slice(piece)
            size = piece.nbytes
            self._pending.append((self._queued, size))
            self._pending_bytes += size

    def _await_capacity(self) -> None:
        while self._is_full():
            self.producer.poll(POLL_SECONDS)

    def _is_full(self) -> bool:
        """Drop sent slices from the accounting; return whether too much is pending."""
        sent = self._queued - len(self.producer)
        while self._pending and self._pending[0][0] <= sent:
            self._pending_bytes -= self._pending.popleft()[1]
        return self._pending_bytes > PENDING_BYTES_MAX or len(self.producer) > PENDING_ROWS_MAX

    def _send_slice(self, piece: Any) -> None:
        columns = Columns.of(piece)
        if columns.partitions is not None:
            columns = self._without_unknown_partitions(columns, columns.partitions)
        if largest_record_bytes(piece, columns) + RECORD_OVERHEAD_BYTES > self.target.record_bytes_max:
            columns = self._without_oversized(columns)
        if columns.headers is None and columns.timestamps is None:
            self._produce_batch(columns)
        else:
            columns = self._without_unsendable(columns)
            self._produce_rows(columns)
        self.rows += len(columns.values)

    def _produce_batch(self, columns: Columns) -> None:
        for (topic, partition), messages in columns.messages(self.target.topic).items():
            queued = self.producer.produce_batch(topic, messages, partition)
            self._queued += queued
            if queued != len(messages):
                self._retry_queue_full(topic, partition, messages)

    def _retry_queue_full(self, topic: str, partition: int, messages: list[dict[str, Any]]) -> None:
        from confluent_kafka import KafkaError  # # noqa: PLC0415 (loaded in Spark's workers)

        for message in messages:
            error = message.pop("_error", None)
            if error is None:
                continue
            if error.code() != KafkaError._QUEUE_FULL:
                raise SinkError(f"topic {topic} accepts no record: {error.str()}")
            self._produce(topic, partition=partition, **message)

    def _produce_rows(self, columns: Columns) -> None:
        for row in columns.rows(self.target.topic):
            self._produce(**row)

    def _produce(self, topic: str, **message: Any) -> None:
        while True:
            try:
                self.producer.produce(topic, **message)
            except BufferError:
                self.producer.poll(POLL_SECONDS)
            else:
                self._queued += 1
                return

    def _without_unknown_partitions(self, columns: Columns, partitions: list[int | None]) -> Columns:
        """librdkafka takes -1 as "any", and reports other unknown partitions without a row."""
        wanted = [True] * len(partitions)
        for index, partition in enumerate(partitions):
            topic = columns.topic(index, self.target.topic)
            count = self._partition_count(topic)
            if partition is None or (partition >= 0 and (partition < count or not count)):
                continue
            wanted[index] = False
            reason = f"partition {partition} does not exist in topic {topic}, which has {count}"
            self._dead_letter(columns, index, reason, "correct it")
        return columns if all(wanted) else columns.filter_rows(wanted)

    def _partition_count(self, topic: str) -> int:
        """0 for a topic that does not exist yet: sending to it reports the error."""
        if topic not in self._partitions:
            described = self.producer.list_topics(topic, REQUEST_SECONDS)  # None: kafka-python checks partitions itself
            found = described.topics.get(topic) if described is not None else None
            self._partitions[topic] = len(found.partitions) if found else 0
        return self._partitions[topic]

    def _without_oversized(self, columns: Columns) -> Columns:
        limit = self.target.record_bytes_max - RECORD_OVERHEAD_BYTES
        sizes = columns.sizes()
        for index, size in enumerate(sizes):
            if size > limit:
                topic = columns.topic(index, self.target.topic)
                reason = f"record of {size} bytes is larger than topic {topic} accepts ({self.target.record_bytes_max})"
                self._dead_letter(
                    columns, index, reason, "raise max.message.bytes of the topic", {"ottla.bytes": str(size)}
                )
        return columns.filter_rows([size <= limit for size in sizes])

    def _without_unsendable(self, columns: Columns) -> Columns:
        """librdkafka takes the time 0 as "now", and confluent-kafka sends a header without name as "None"."""
        wanted = [True] * len(columns.values)
        for index in range(len(wanted)):
            if columns.timestamps is not None and columns.timestamps[index] == 0:
                wanted[index] = False
                self._dead_letter(columns, index, "the time 1970-01-01T00:00:00.000Z cannot be sent", "leave it out")
            elif columns.headers is not None and any(each["key"] is None for each in columns.headers[index] or ()):
                wanted[index] = False
                self._dead_letter(columns, index, "a header has no name", "give it one")
        return columns if all(wanted) else columns.filter_rows(wanted)

    def _dead_letter(
        self, columns: Columns, index: int, reason: str, cure: str, more: Mapping[str, str] = NO_HEADERS
    ) -> None:
        if self.target.dead_letters is None:
            raise SinkError(f"{reason}: {cure}, or name a dead-letter topic")
        value, key = columns.values[index], None if columns.keys is None else columns.keys[index]
        topic = columns.topic(index, self.target.topic)
        headers = {"ottla.reason": reason, "ottla.topic": topic, **more}
        self._produce(
            self.target.dead_letters,
            value=None if value is None else value[:EXCERPT_BYTES],
            key=None if key is None else key[:EXCERPT_BYTES],
            headers=[(name, text.encode()) for name, text in headers.items()],
        )
        self.dead_lettered += 1


class Columns(NamedTuple):
    """One slice as Python lists; None for missing columns."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    topics: list[str | None] | None
    partitions: list[int | None] | None
    timestamps: list[int | None] | None
    headers: list[list[dict[str, Any]] | None] | None

    @classmethod
    def of(cls, piece: Any) -> Columns:
        return cls(
            piece.column("value").to_pylist(),
            *(_column(piece, name) for name in ("key", "topic", "partition", "timestamp_ms", "headers")),
        )

    def topic(self, index: int, default: str) -> str:
        return default if self.topics is None else self.topics[index] or default

    def sizes(self) -> list[int]:
        keys = self.keys or [None] * len(self.values)
        headers = self.headers or [None] * len(self.values)
        return [
            len(value or b"") + len(key or b"") + header_bytes(each)
            for value, key, each in zip(self.values, keys, headers, strict=True)
        ]

    def filter_rows(self, wanted: list[bool]) -> Columns:
        return Columns(*(None if each is None else _select_rows(each, wanted) for each in self))  # type: ignore[arg-type]

    def messages(self, default_topic: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """Arguments of the batch call, each list in row order.

        Grouped by partition: the call takes one partition for all its messages and ignores that of a message.
        """
        if self.topics is None and self.partitions is None:
            place = default_topic, ANY_PARTITION
            if self.keys is None:
                return {place: [{"value": value} for value in self.values]}
            pairs = zip(self.keys, self.values, strict=True)
            return {place: [{"key": key, "value": value} for key, value in pairs]}
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in self.rows(default_topic):
            found.setdefault((row.pop("topic"), row.pop("partition", ANY_PARTITION)), []).append(row)
        return found

    def rows(self, default_topic: str) -> Iterator[dict[str, Any]]:
        """Arguments of produce(), without those that are null in the row."""
        optional = {"key": self.keys, "partition": self.partitions, "timestamp": self.timestamps}
        present = {name: column for name, column in optional.items() if column is not None}
        for index, value in enumerate(self.values):
            row: dict[str, Any] = {"value": value}
            row["topic"] = self.topic(index, default_topic)
            row |= {name: column[index] for name, column in present.items() if column[index] is not None}
            if self.headers is not None and self.headers[index]:
                row["headers"] = [(each["key"], each["value"]) for each in self.headers[index] or ()]
            yield row


def slice_batch(batch: Any) -> Iterator[Any]:
    """Slices of a record batch, bounded in rows and, on average, in bytes."""
    if batch.num_rows == 0:
        return
    rows = max(1, min(SLICE_ROWS, SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def largest_record_bytes(piece: Any, columns: Columns) -> int:
    """An upper bound for the largest record, without looking at each row."""
    import pyarrow.compute as pc  # noqa: PLC0415 (this package is imported without Arrow)

    names = ("value",) if columns.keys is None else ("value", "key")
    parts = sum(pc.max(pc.binary_length(piece.column(name))).as_py() or 0 for name in names)
    return int(parts) + max((header_bytes(each) for each in columns.headers or ()), default=0)


def header_bytes(headers: list[dict[str, Any]] | None) -> int:
    return sum(len(each["key"] or "") + len(each["value"] or b"") + 10 for each in headers or ())


def check_columns(names: Mapping[str, Any] | list[str]) -> None:
    """Raises SinkError with the available names."""
    if "value" not in names:
        raise SinkError(f"rows for a topic need a column 'value'; there are: {', '.join(names)}")


def _column(piece: Any, name: str) -> list[Any] | None:
    index = piece.schema.get_field_index(name)
    return None if index < 0 else piece.column(index).to_pylist()


def _select_rows(column: list[Any], wanted: list[bool]) -> list[Any]:
    return [value for value, is_wanted in zip(column, wanted, strict=True) if is_wanted]

"""From Arrow columns to a producer: a tight loop, bounded memory, and no record that the topic cannot take.

Columns: `value`, and where they are wanted `key`, `headers`, `topic`, `partition`, `timestamp_ms`. Rows without headers
and timestamps go through librdkafka's batch call, which costs half as much per row as one call each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ottla.pipelines.sinks.batch import SinkError

SLICE_ROWS = 10_000
SLICE_BYTES = 8 << 20
WAITING_BYTES_MAX = 64 << 20
WAITING_ROWS_MAX = 200_000
POLL_SECONDS = 0.005  # nothing wakes the poll when records are sent without reports
RECORD_OVERHEAD_BYTES = 128  # of a batch with one record: its header, lengths, timestamp
EXCERPT_BYTES = 4096
REQUEST_SECONDS = 30.0
NOTHING_MORE: Mapping[str, str] = {}
ANY_PARTITION = -1  # librdkafka chooses, by the key if there is one
# Keys find the partition that a Java producer would choose; batches are as large as a topic takes by default.
PRODUCER_SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}
LETTER_BYTES_MAX = 16_384  # of a row that a topic will not take: excerpts of key and value, headers
MESSAGE_BYTES_HIGHEST = 1_000_000_000  # what librdkafka knows as a size


class Target(NamedTuple):
    """Where rows go. `dead_letters` takes what `topic` cannot; without it such a row is an error."""

    topic: str
    record_bytes_max: int
    dead_letters: str | None = None


def size_settings(record_bytes_max: int) -> dict[str, Any]:
    """librdkafka refuses what it believes to be too large: it must believe what the topic says. Letters of the rows
    that a topic of very small records does not take go through the same producer."""
    bytes_max = min(max(record_bytes_max, LETTER_BYTES_MAX), MESSAGE_BYTES_HIGHEST)
    return {"message.max.bytes": bytes_max, "batch.size": min(record_bytes_max, 1_000_000)}


class Sending:
    """Sends record batches through one producer, in order, and counts."""

    def __init__(self, producer: Any, target: Target) -> None:
        self.producer = producer
        self.target = target
        self.rows = 0
        self.refused = 0
        self._queued = 0
        self._waiting: deque[tuple[int, int]] = deque()  # (messages queued up to here, bytes)
        self._waiting_bytes = 0
        self._partitions: dict[str, int] = {}  # of the topics that rows with a partition go to

    def __repr__(self) -> str:
        return f"Sending({self.target.topic}, {self.rows} rows, {self.refused} refused)"

    def send(self, batch: Any) -> None:
        """Raises SinkError for a row that is too large and has nowhere to go, BufferError never."""
        for piece in slices(batch):
            self._make_room()
            self._send_slice(piece)
            size = piece.nbytes
            self._waiting.append((self._queued, size))
            self._waiting_bytes += size

    def _make_room(self) -> None:
        while self._is_full():
            self.producer.poll(POLL_SECONDS)

    def _is_full(self) -> bool:
        """Forget what has been sent; whether too much is left."""
        sent = self._queued - len(self.producer)
        while self._waiting and self._waiting[0][0] <= sent:
            self._waiting_bytes -= self._waiting.popleft()[1]
        return self._waiting_bytes > WAITING_BYTES_MAX or len(self.producer) > WAITING_ROWS_MAX

    def _send_slice(self, piece: Any) -> None:
        columns = Columns.of(piece)
        if columns.partitions is not None:
            columns = self._without_unknown_partitions(columns, columns.partitions)
        if largest(piece, columns) + RECORD_OVERHEAD_BYTES > self.target.record_bytes_max:
            columns = self._without_oversized(columns)
        if columns.headers is None and columns.timestamps is None:
            self._send_together(columns)
        else:
            columns = self._without_unsaid(columns)
            self._send_singly(columns)
        self.rows += len(columns.values)

    def _send_together(self, columns: Columns) -> None:
        for (topic, partition), messages in columns.messages(self.target.topic).items():
            queued = self.producer.produce_batch(topic, messages, partition)
            self._queued += queued
            if queued != len(messages):
                self._send_rest(topic, partition, messages)

    def _send_rest(self, topic: str, partition: int, messages: list[dict[str, Any]]) -> None:
        from confluent_kafka import KafkaError  # noqa: PLC0415 (loaded in Spark's workers)

        for message in messages:
            error = message.pop("_error", None)
            if error is None:
                continue
            if error.code() != KafkaError._QUEUE_FULL:
                raise SinkError(f"topic {topic} takes no record: {error.str()}")
            self._produce(topic, partition=partition, **message)

    def _send_singly(self, columns: Columns) -> None:
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
        """librdkafka takes -1 for "any", and says of others only that they are unknown."""
        wanted = [True] * len(partitions)
        for index, partition in enumerate(partitions):
            topic = columns.topic(index, self.target.topic)
            count = self._partition_count(topic)
            if partition is None or (partition >= 0 and (partition < count or not count)):
                continue
            wanted[index] = False
            reason = f"partition {partition} is none of topic {topic}, which has {count}"
            self._refuse(columns, index, reason, "correct it")
        return columns if all(wanted) else columns.only(wanted)

    def _partition_count(self, topic: str) -> int:
        """0 of a topic that is not there, or not yet: whoever sends to it hears of that."""
        if topic not in self._partitions:
            described = self.producer.list_topics(topic, REQUEST_SECONDS)  # none: kafka-python looks by itself
            found = described.topics.get(topic) if described is not None else None
            self._partitions[topic] = len(found.partitions) if found else 0
        return self._partitions[topic]

    def _without_oversized(self, columns: Columns) -> Columns:
        limit = self.target.record_bytes_max - RECORD_OVERHEAD_BYTES
        sizes = columns.sizes()
        for index, size in enumerate(sizes):
            if size > limit:
                topic = columns.topic(index, self.target.topic)
                reason = f"record of {size} bytes is larger than topic {topic} takes ({self.target.record_bytes_max})"
                self._refuse(columns, index, reason, "raise max.message.bytes of the topic", {"ottla.bytes": str(size)})
        return columns.only([size <= limit for size in sizes])

    def _without_unsaid(self, columns: Columns) -> Columns:
        """librdkafka takes the time 0 for "now", and confluent-kafka a header without name for one called None."""
        wanted = [True] * len(columns.values)
        for index in range(len(wanted)):
            if columns.timestamps is not None and columns.timestamps[index] == 0:
                wanted[index] = False
                self._refuse(columns, index, "the time 1970-01-01T00:00:00.000Z cannot be sent", "leave it out")
            elif columns.headers is not None and any(each["key"] is None for each in columns.headers[index] or ()):
                wanted[index] = False
                self._refuse(columns, index, "a header has no name", "give it one")
        return columns if all(wanted) else columns.only(wanted)

    def _refuse(
        self, columns: Columns, index: int, reason: str, cure: str, more: Mapping[str, str] = NOTHING_MORE
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
        self.refused += 1


class Columns(NamedTuple):
    """One slice as Python lists; None where the rows have no such column."""

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

    def only(self, wanted: list[bool]) -> Columns:
        return Columns(*(None if each is None else _chosen(each, wanted) for each in self))  # type: ignore[arg-type]

    def messages(self, default_topic: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """For the batch call, each list in the order of the rows.

        By partition too: that call takes a partition for all its messages, and ignores the one that a message names.
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
        """Arguments of produce(), without those that a row leaves open."""
        optional = {"key": self.keys, "partition": self.partitions, "timestamp": self.timestamps}
        present = {name: column for name, column in optional.items() if column is not None}
        for index, value in enumerate(self.values):
            row: dict[str, Any] = {"value": value}
            row["topic"] = self.topic(index, default_topic)
            row |= {name: column[index] for name, column in present.items() if column[index] is not None}
            if self.headers is not None and self.headers[index]:
                row["headers"] = [(each["key"], each["value"]) for each in self.headers[index] or ()]
            yield row


def slices(batch: Any) -> Iterator[Any]:
    """Pieces of a record batch that are bounded in rows and, by their average, in bytes."""
    if batch.num_rows == 0:
        return
    rows = max(1, min(SLICE_ROWS, SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def largest(piece: Any, columns: Columns) -> int:
    """An upper bound for the largest record, without looking at each row."""
    import pyarrow.compute as pc  # noqa: PLC0415 (this package is imported without Arrow)

    names = ("value",) if columns.keys is None else ("value", "key")
    parts = sum(pc.max(pc.binary_length(piece.column(name))).as_py() or 0 for name in names)
    return int(parts) + max((header_bytes(each) for each in columns.headers or ()), default=0)


def header_bytes(headers: list[dict[str, Any]] | None) -> int:
    return sum(len(each["key"] or "") + len(each["value"] or b"") + 10 for each in headers or ())


def check_columns(names: Mapping[str, Any] | list[str]) -> None:
    """Raises SinkError with the names that would be understood."""
    if "value" not in names:
        raise SinkError(f"rows for a topic need a column 'value'; there are: {', '.join(names)}")


def _column(piece: Any, name: str) -> list[Any] | None:
    index = piece.schema.get_field_index(name)
    return None if index < 0 else piece.column(index).to_pylist()


def _chosen(column: list[Any], wanted: list[bool]) -> list[Any]:
    return [value for value, is_wanted in zip(column, wanted, strict=True) if is_wanted]

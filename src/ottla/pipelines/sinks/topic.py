"""Rows into a topic: at least once, or exactly once.

Rows have a column `value`, binary or text, and optionally `key`, `headers`, `topic`, `partition`, `timestamp`, as in
Spark's own Kafka sink. Other rows are encoded first (encoding.py).

In a notebook:
    query = rows.writeStream.foreachBatch(exactly_once_topic("out", bootstrap_servers="…", query="views", folder="…"))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from ottla.client.errors import ClientError
from ottla.client.librdkafka_properties import translate
from ottla.pipelines.sinks.at_least_once import (
    NOT_EXACTLY_ONCE,
    SendCounts,
    needs_kafka_python,
    publish_rows,
    topic_setting,
)
from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError
from ottla.pipelines.sinks.batch_ledger import BatchCheck, LastBatch, is_written
from ottla.pipelines.sinks.batch_markers import (
    BEGINNING_OFFSET,
    LOG_LEVEL,
    Marker,
    MarkerReader,
    marker_partition,
    topic_settings,
)
from ottla.pipelines.sinks.encoding import Encoding, partition_number
from ottla.pipelines.sinks.file_publisher import (
    NO_OFFSET,
    OUTCOME_SCHEMA,
    READ_ROWS,
    PublisherSettings,
    PublishFile,
    PublishResult,
    PublishTask,
    delete_marker,
    transactional_id,
)
from ottla.pipelines.sinks.record_sender import Target, check_columns
from ottla.pipelines.sinks.staging import LocalStaging, StagedBatch, StagedFile, Staging, run_staged, staging_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRANSACTION_TIMEOUT_SECONDS = 300.0
RECORD_BYTES_MAX = 1_048_588  # Kafka's default, if reading the topic's settings is forbidden
HEADERS_TYPE = "array<struct<key:string,value:binary>>"

Answer = TypeVar("Answer")


class PublishCounts(NamedTuple):
    """The result of a batch. `skipped`: files that an earlier run had published."""

    rows: int
    refused: int
    skipped: int


@dataclass(frozen=True)
class TopicSink(ABC):
    """The common part of both deliveries. `dead_letters` names a topic for rows that `topic` cannot accept."""

    topic: str
    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    encoding: Encoding | None = None
    dead_letters: str | None = None

    def __post_init__(self) -> None:
        if not self.topic or not self.bootstrap_servers:
            raise SinkError("a topic sink needs a topic and bootstrap servers")

    def client(self) -> dict[str, str]:
        """Settings of librdkafka; Java names and Spark's prefix are translated."""
        own = {name.removeprefix("kafka."): str(value) for name, value in self.options.items()}
        try:
            return {"bootstrap.servers": self.bootstrap_servers, **translate(own)}
        except ClientError as problem:
            raise SinkError(f"topic {self.topic}: {problem}") from None

    @property
    def place(self) -> str:
        return f"topic {self.topic}"

    def encoded(self, rows: DataFrame) -> DataFrame:
        return to_producer_columns(rows if self.encoding is None else self.encoding.apply(rows))

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.publish(rows, batch)

    @abstractmethod
    def publish(self, rows: DataFrame, batch: Batch) -> PublishCounts:
        """Raises SinkError."""

    def target(self) -> Target:
        return Target(self.topic, topic_record_bytes_max(self.client(), self.topic), self.dead_letters)


@dataclass(frozen=True)
class AtLeastOnceTopic(TopicSink):
    """Every row at least once: a batch that is repeated after a crash is sent again."""

    _targets: list[Target] = field(default_factory=list, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_targets": []}

    def publish(self, rows: DataFrame, batch: Batch) -> PublishCounts:  # # noqa: ARG002 (batches do not matter here)
        if not self._targets:
            self._targets.append(self.target())
        report: SendCounts = publish_rows(self.encoded(rows), self.client(), self._targets[0])
        return PublishCounts(report.rows, report.refused, 0)


@dataclass(frozen=True)
class ExactlyOnceTopic(TopicSink):
    """Every row exactly once, for readers with isolation.level=read_committed.

    `name` distinguishes the sinks of a query (default: the topic). `begin_at` is a batch that is published regardless
    of the markers. `needs_marker=False` is for queries whose batch numbers have gaps.
    """

    name: str = ""
    transaction_timeout_seconds: float = TRANSACTION_TIMEOUT_SECONDS
    begin_at: int | None = None
    needs_marker: bool = True
    has_single_query: ClassVar[bool] = False
    may_forget_batches: ClassVar[bool] = False
    _progress_by_query: dict[str, QueryProgress] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}  # state of this driver is not pickled

    def client(self) -> dict[str, str]:
        found = super().client()
        if needs_kafka_python(found):
            raise SinkError(NOT_EXACTLY_ONCE.format(topic=self.topic))
        return found

    def last_batches(self) -> Mapping[str, LastBatch]:
        end = f".{self.name or self.topic}.0"  # the first file of a batch always has a marker
        return {key.removesuffix(end): marker.recorded for key, marker in self.markers().items() if key.endswith(end)}

    def markers(self) -> dict[str, Marker]:
        """The markers of all queries that have written to the topic, by transactional id."""
        found = self._with_reader(
            MarkerReader(self.client()), lambda reader: reader.read_all(self.transaction_timeout_seconds)
        )
        return {key: marker for key, marker in found.items() if marker.target in ("", self.topic)}

    def delete_markers(self, queries: Collection[str]) -> None:
        """Delete the markers of these queries; running publishers of them are fenced."""
        for key, marker in self.markers().items():
            prefix, _, number = key.rpartition(".")
            for query in queries:
                if prefix == self.prefix(query) and number.isdigit():
                    settings = self.settings(query, Target(self.topic, RECORD_BYTES_MAX))
                    delete_marker(settings, PublishTask(int(number), marker.recorded, marker.partition))

    def record_count(self) -> int:
        """The number of offsets in the topic; 0 if it does not exist."""
        return self._with_reader(MarkerReader(self.client(), self.topic), MarkerReader.offset_count)

    def _with_reader(self, reader: MarkerReader, ask: Callable[[MarkerReader], Answer]) -> Answer:
        """Raises SinkError."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 (loaded where it is used)

        try:
            return ask(reader)
        except KafkaException as problem:
            raise SinkError(f"{reader.topic} cannot be described: {problem.args[0].str()}") from problem
        finally:
            reader.close()

    def publish(self, rows: DataFrame, batch: Batch) -> PublishCounts:
        """Stage, publish unpublished files, release."""
        known = self._progress_by_query.get(batch.query) or QueryProgress(staging_for(batch, self.name or self.topic))
        staged = known.staging.pin(self.encoded(rows), batch.batch_id)
        return self._publish_staged(rows.sparkSession, staged, known, batch)

    def publish_files(self, files: Sequence[StagedFile], batch: Batch) -> PublishCounts:
        """The same with rows that tasks have already written, as columns of Sending. Runs entirely in this process."""
        known = self._progress_by_query.get(batch.query) or QueryProgress(staging_for(batch, self.name or self.topic))
        assert isinstance(known.staging, LocalStaging), "files are moved, which other file systems cannot do"
        return self._publish_staged(None, known.staging.pin_files(files, batch.batch_id), known, batch)

    def _publish_staged(
        self, spark: SparkSession | None, staged: StagedBatch, known: QueryProgress, batch: Batch
    ) -> PublishCounts:
        if staged.is_released and not self.needs_marker:
            return PublishCounts(0, 0, 1)
        if known.batch_id != batch.batch_id - 1 or staged.is_released:
            is_published = known.load_markers(self, batch, staged)
            if is_published and staged.is_released:
                return PublishCounts(0, 0, 1)
            staged.reject_if_released(f"topic {self.topic}")
        outcomes = self._run(spark, staged, known, batch)
        known.store_results(batch.batch_id, outcomes)
        self._progress_by_query[batch.query] = known
        known.staging.release(staged)
        return PublishCounts(
            sum(each.rows for each in outcomes),
            sum(each.refused for each in outcomes),
            sum(each.what != "published" for each in outcomes),
        )

    def prefix(self, query: str) -> str:
        return f"{query}.{self.name or self.topic}"

    def _run(
        self, spark: SparkSession | None, staged: StagedBatch, known: QueryProgress, batch: Batch
    ) -> list[PublishResult]:
        settings = self.settings(batch.query, known.target or self.target())
        recorded = LastBatch(batch.batch_id, staged.identity)
        works = [known.publish_task(number, recorded, settings.prefix) for number in range(max(1, len(staged.files)))]
        rows = run_staged(spark, staged, PublishFile(settings, works), OUTCOME_SCHEMA, READ_ROWS)
        return [PublishResult(**row) for row in rows]

    def settings(self, query: str, target: Target) -> PublisherSettings:
        return PublisherSettings(
            self.client(), target, self.transaction_timeout_seconds, self.prefix(query), self.needs_marker
        )


@dataclass
class QueryProgress:
    """The driver's knowledge about one query: hints that avoid work, never the basis of a decision."""

    staging: Staging
    batch_id: int = -2  # no batch directly follows it
    target: Target | None = None
    partitions: int = 0
    positions: dict[int, int] = field(default_factory=dict)  # file number -> offset of its newest marker, or later
    ends: dict[int, int] = field(default_factory=dict)  # marker partition -> offset before which all markers were read
    holders: dict[int, str] = field(default_factory=dict)

    def load_markers(self, sink: ExactlyOnceTopic, batch: Batch, staged: StagedBatch) -> bool:
        """Read the markers of the query: is (the first file of) the batch published? Raises SinkError if that is
        unclear."""
        self.target = sink.target()
        self.positions, self.holders, self.ends = {}, {}, {}
        reader = MarkerReader(sink.client())
        try:
            self.partitions = reader.ensure_topic()
            return sink.needs_marker and self._read_query_markers(sink, batch, staged, reader)
        finally:
            reader.close()

    def _read_query_markers(
        self, sink: ExactlyOnceTopic, batch: Batch, staged: StagedBatch, reader: MarkerReader
    ) -> bool:
        prefix = sink.prefix(batch.query)
        begin = dict.fromkeys(range(self.partitions), BEGINNING_OFFSET)
        found, self.ends = reader.read(begin, f"{prefix}.", sink.transaction_timeout_seconds)
        first = found.get(transactional_id(prefix, 0))
        subject = f"query {batch.query}, topic {sink.topic}"
        question = BatchCheck(batch.batch_id, staged.identity, subject, sink.begin_at)
        is_published = is_written(question, None if first is None else first.recorded)
        if sink.begin_at == batch.batch_id:
            self._delete_old_markers(
                sink.settings(batch.query, sink.target()), found, (batch.batch_id, staged.identity)
            )
            return is_published
        for key, marker in found.items():
            number = key.removeprefix(f"{prefix}.")
            if number.isdigit() and marker.partition == marker_partition(prefix, int(number), self.partitions):
                self.positions[int(number)] = marker.offset
        return is_published

    def _delete_old_markers(
        self, settings: PublisherSettings, found: Mapping[str, Marker], kept: tuple[int, str]
    ) -> None:
        """Delete all earlier markers: the remaining ones would make later batches look late."""
        for key, marker in found.items():
            number = key.removeprefix(f"{settings.prefix}.")
            if number.isdigit() and marker.recorded != kept:
                delete_marker(settings, PublishTask(int(number), marker.recorded, marker.partition))

    def publish_task(self, number: int, recorded: LastBatch, prefix: str) -> PublishTask:
        partition = marker_partition(prefix, number, self.partitions)
        position = self.positions.get(number, self.ends.get(partition, BEGINNING_OFFSET))
        return PublishTask(number, recorded, partition, position, self.holders.get(number, ""))

    def store_results(self, batch_id: int, outcomes: list[PublishResult]) -> None:
        self.batch_id = batch_id
        for each in outcomes:
            self.holders[each.number] = each.holder
            if each.what == "published" and each.marker_offset != NO_OFFSET:
                self.positions[each.number] = each.marker_offset


def exactly_once_topic(topic: str, *, bootstrap_servers: str, query: str, folder: str, **options: Any) -> ForeachBatch:
    """For foreachBatch: rows without a column `value` become JSON. `options` are fields of ExactlyOnceTopic."""
    return ForeachBatch(ExactlyOnceTopic(topic, bootstrap_servers, **_with_encoding(options)), query, folder)


def at_least_once_topic(topic: str, *, bootstrap_servers: str, **options: Any) -> ForeachBatch:
    """For foreachBatch: rows without a column `value` become JSON. `options` are fields of AtLeastOnceTopic."""
    return ForeachBatch(AtLeastOnceTopic(topic, bootstrap_servers, **_with_encoding(options)), topic, "-")


def to_producer_columns(rows: DataFrame) -> DataFrame:
    """The columns and types that a producer accepts. Raises SinkError."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    names = set(rows.columns)
    check_columns(rows.columns)
    types = {"key": "binary", "value": "binary", "headers": HEADERS_TYPE, "topic": "string"}
    columns = [F.col(f"`{name}`").cast(kind).alias(name) for name, kind in types.items() if name in names]
    if "partition" in names:
        columns.append(partition_number("partition").alias("partition"))
    if "timestamp" in names:
        columns.append(F.unix_millis(F.col("timestamp").cast("timestamp")).alias("timestamp_ms"))
    return rows.select(*columns)


def topic_record_bytes_max(client: Mapping[str, str], topic: str) -> int:
    """The largest record that the topic accepts. Raises SinkError if it does not exist."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 (loaded where it is used)
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    if needs_kafka_python(client):
        return int(topic_setting(client, topic, "max.message.bytes"))
    try:
        return int(topic_settings(AdminClient({**client, "log_level": LOG_LEVEL}), topic)["max.message.bytes"])
    except KafkaException as problem:
        error = problem.args[0]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SinkError(f"there is no topic {topic}: create it, or correct its name") from problem
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return RECORD_BYTES_MAX
        raise SinkError(f"topic {topic} cannot be described: {error.str()}") from problem


def _with_encoding(options: dict[str, Any]) -> dict[str, Any]:
    return {"encoding": Encoding(), **options}

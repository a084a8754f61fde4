"""Publishes one file of staged rows in one transaction with its marker. Runs in Spark's Python workers.

Producers are kept between batches. A producer that was not fenced since its last commit needs no new epoch and no
marker check: any other publisher of its id would have fenced it.

Failures:
  fenced                another process has the id. If the marker shows that this batch is published, this process is
                        late and returns. Otherwise it retries from the start: the other process may have been the late
                        one.
  abortable             flush, abort, retry.
  fatal, or no answer   use a new producer: its init_transactions ends the open transaction, and the marker shows
                        the result.
An unanswered commit is repeated. The marker always decides, never local state.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.base.names import PIPELINE_MARKERS_TOPIC
from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.batch_markers import BEGINNING_OFFSET, LOG_LEVEL, MarkerReader, marker_value
from ottla.pipelines.sinks.record_sender import PRODUCER_SETTINGS, RecordSender, Target, size_settings

ATTEMPTS_MAX = 4
FENCED_WAIT_SECONDS = (2.0, 5.0, 10.0)
ABORT_SECONDS = 30.0
READ_ROWS = 10_000
PRODUCERS_KEPT_MAX = 16
NO_OFFSET = -1

Batches = Callable[[], Iterator[Any]]

OUTCOME_SCHEMA = "number int, what string, rows long, refused long, marker_offset long, holder string"


class PublisherSettings(NamedTuple):
    """The settings that all files of a sink share."""

    client: dict[str, str]
    target: Target
    transaction_timeout_seconds: float
    prefix: str  # prefix of the transactional ids
    needs_marker: bool


class PublishTask(NamedTuple):
    """One file to publish. `holder` published with the id last, and its marker is at `position` or later."""

    number: int
    recorded: LastBatch  # contents of the marker
    marker_partition: int
    position: int = BEGINNING_OFFSET
    holder: str = ""


class PublishResult(NamedTuple):
    """`what`: published, already (by an earlier attempt), superseded (by a later batch)."""

    number: int
    what: str
    rows: int
    refused: int
    marker_offset: int
    holder: str


class PooledProducer(NamedTuple):
    """A producer between two batches, with its last commit."""

    producer: Any
    holder: str
    last: PublishResult | None
    recorded: LastBatch | None


class ProducerFenced(Exception):  # # noqa: N818 (the marker decides whether it is an error)
    """Another process uses our transactional id."""


class TransactionalPublisher:
    """All producers of one worker process."""

    def __init__(self) -> None:
        self._pool: OrderedDict[tuple[str, str], PooledProducer] = OrderedDict()
        self._readers: dict[str, MarkerReader] = {}
        self._process = 0

    def __repr__(self) -> str:
        return f"TransactionalPublisher({len(self._pool)} producers, process {self._process})"

    def publish(self, settings: PublisherSettings, work: PublishTask, batches: Batches) -> PublishResult:
        """Raises SinkError if all attempts fail."""
        self._reset_after_fork()
        problem = ""
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._attempt(settings, work, batches)
            except ProducerFenced as fenced:
                problem = str(fenced)
                if attempt < len(FENCED_WAIT_SECONDS) and self._is_published_by_other(settings, work, attempt):
                    return PublishResult(work.number, "already", 0, 0, NO_OFFSET, "")
            except _kafka_exception() as failure:
                problem = failure.args[0].str()
            self._discard_producer(settings, work)
        raise SinkError(
            f"{_transactional_id(settings, work)}: batch {work.recorded.batch_id} could not be published: {problem}"
        )

    def _attempt(self, settings: PublisherSettings, work: PublishTask, batches: Batches) -> PublishResult:
        held = self._pool.pop(_producer_key(settings, work), None)
        if held is not None and held.recorded == work.recorded and held.last is not None:
            self._pool_producer(settings, work, held)
            return held.last._replace(what="already", rows=0, refused=0)
        if held is None or held.holder != work.holder:
            held = self._open_producer(settings, work)
            outcome = self._read_marker(settings, work)
            if outcome is not None:
                self._pool_producer(settings, work, held)
                return outcome._replace(holder=held.holder)
        outcome = self._transaction(held, settings, work, batches)
        self._pool_producer(settings, work, held._replace(last=outcome, recorded=work.recorded))
        return outcome

    def _open_producer(self, settings: PublisherSettings, work: PublishTask) -> PooledProducer:
        """A new producer: older ones with this id are fenced, and their transactions are ended."""
        from confluent_kafka import Producer  # noqa: PLC0415 (loaded in Spark's workers)

        producer = Producer(producer_settings(settings, work))
        _retry_until_done(producer.init_transactions, settings.transaction_timeout_seconds)
        return PooledProducer(producer, f"{os.getpid()}-{uuid.uuid4().hex}", None, None)

    def _read_marker(self, settings: PublisherSettings, work: PublishTask) -> PublishResult | None:
        """Read the marker: None if the file is to be published."""
        reader = self._reader(settings)
        found, ends = reader.read(
            {work.marker_partition: work.position},
            _transactional_id(settings, work),
            settings.transaction_timeout_seconds,
        )
        marker = found.get(_transactional_id(settings, work))
        if marker is None or marker.recorded.batch_id < work.recorded.batch_id:
            return None
        if marker.recorded.batch_id > work.recorded.batch_id:
            return PublishResult(work.number, "superseded", 0, 0, NO_OFFSET, "")
        if settings.needs_marker and marker.recorded.identity != work.recorded.identity:
            raise SinkError(
                f"{_transactional_id(settings, work)}: batch {work.recorded.batch_id} was published from "
                "other staged rows: the"
                " folder beside the checkpoint was removed or replaced, or two drivers run this query"
            )
        return PublishResult(work.number, "already", 0, 0, ends[work.marker_partition], "")

    def _transaction(
        self, held: PooledProducer, settings: PublisherSettings, work: PublishTask, batches: Batches
    ) -> PublishResult:
        producer = held.producer
        try:
            producer.begin_transaction()
            sending = RecordSender(producer, settings.target)
            for batch in batches():
                sending.send(batch)
            place = _send_marker(producer, settings, work, sending.rows)
            _retry_until_done(producer.commit_transaction, settings.transaction_timeout_seconds)
        except _kafka_exception() as failure:
            _abort_if_required(producer, failure)
            raise
        except BaseException:
            _abort_transaction(producer)
            raise
        return PublishResult(work.number, "published", sending.rows, sending.dead_lettered, place[0], held.holder)

    def _is_published_by_other(self, settings: PublisherSettings, work: PublishTask, attempt: int) -> bool:
        """Wait briefly for the process that fenced this one."""
        deadline = time.monotonic() + FENCED_WAIT_SECONDS[attempt]
        while time.monotonic() < deadline:
            if self._read_marker(settings, work) is not None:
                return True
            time.sleep(0.2)
        return False

    def _reader(self, settings: PublisherSettings) -> MarkerReader:
        key = _reader_key(settings)
        if key not in self._readers:
            self._readers[key] = MarkerReader(settings.client)
        return self._readers[key]

    def _pool_producer(self, settings: PublisherSettings, work: PublishTask, held: PooledProducer) -> None:
        self._pool[_producer_key(settings, work)] = held
        while len(self._pool) > PRODUCERS_KEPT_MAX:
            self._pool.popitem(last=False)

    def _discard_producer(self, settings: PublisherSettings, work: PublishTask) -> None:
        """The reader as well: librdkafka caches leader epochs, which may be wrong after the broker was recreated."""
        self._pool.pop(_producer_key(settings, work), None)
        reader = self._readers.pop(_reader_key(settings), None)
        if reader is not None:
            reader.close()

    def _reset_after_fork(self) -> None:
        """Workers are forked: connections of the parent must not be used."""
        if self._process != os.getpid():
            self._pool.clear()
            self._readers.clear()
            self._process = os.getpid()


PUBLISHER = TransactionalPublisher()


@dataclass(frozen=True)
class PublishFile:
    """The work of a task on its file; a class, so that workers use the publisher of their own process."""

    settings: PublisherSettings
    tasks: list[PublishTask]

    def __call__(self, number: int, batches: Batches) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 (runs in Spark's workers)

        outcome = PUBLISHER.publish(self.settings, self.tasks[number], batches)
        kinds = {"number": pa.int32(), "what": pa.string(), "holder": pa.string()}
        columns = {name: pa.array([value], kinds.get(name, pa.int64())) for name, value in outcome._asdict().items()}
        yield pa.RecordBatch.from_pydict(columns)


def delete_marker(settings: PublisherSettings, work: PublishTask) -> None:
    """Fence users of the id and delete its marker."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer(producer_settings(settings, work))
    _retry_until_done(producer.init_transactions, settings.transaction_timeout_seconds)
    producer.begin_transaction()
    producer.produce(
        PIPELINE_MARKERS_TOPIC,
        key=_transactional_id(settings, work).encode(),
        value=None,
        partition=work.marker_partition,
    )
    _retry_until_done(producer.commit_transaction, settings.transaction_timeout_seconds)


def transactional_id(prefix: str, number: int) -> str:
    return f"{prefix}.{number}"


def producer_settings(settings: PublisherSettings, work: PublishTask) -> dict[str, Any]:
    milliseconds = int(settings.transaction_timeout_seconds * 1000)
    return {
        **PRODUCER_SETTINGS,
        **size_settings(settings.target.record_bytes_max),
        **settings.client,
        "transactional.id": _transactional_id(settings, work),
        "transaction.timeout.ms": milliseconds,
        "message.timeout.ms": milliseconds,
        "log_level": LOG_LEVEL,
    }


def _send_marker(producer: Any, settings: PublisherSettings, work: PublishTask, rows: int) -> list[int]:
    """Return a list with the marker's offset, known after the commit."""
    place = [NO_OFFSET]

    def note(error: Any, message: Any) -> None:
        if error is None:
            place[0] = int(message.offset())

    producer.produce(
        PIPELINE_MARKERS_TOPIC,
        key=_transactional_id(settings, work).encode(),
        value=marker_value(work.recorded, rows, settings.target.topic),
        partition=work.marker_partition,
        on_delivery=note,
    )
    return place


def _retry_until_done(call: Callable[[float], None], seconds: float) -> None:
    """Retry retriable errors until the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call(max(0.1, deadline - time.monotonic()))
        except _kafka_exception() as failure:
            error = failure.args[0]
            if is_fenced(error):
                raise ProducerFenced(error.str()) from failure
            if not error.retriable() or time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _abort_if_required(producer: Any, failure: Any) -> None:
    error = failure.args[0]
    if is_fenced(error):
        raise ProducerFenced(error.str()) from failure
    if error.txn_requires_abort():
        _abort_transaction(producer)


def _abort_transaction(producer: Any) -> None:
    """Flush first: a record that the abort purges leaves its sequence number to the next transaction."""
    try:
        producer.flush(ABORT_SECONDS)
        producer.abort_transaction(ABORT_SECONDS)
    except _kafka_exception():
        return  # the next init_transactions ends the transaction


def is_fenced(error: Any) -> bool:
    from confluent_kafka import KafkaError  # noqa: PLC0415

    return error.code() in (
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException  # noqa: PLC0415

    return KafkaException


def _transactional_id(settings: PublisherSettings, work: PublishTask) -> str:
    return transactional_id(settings.prefix, work.number)


def _reader_key(settings: PublisherSettings) -> str:
    return repr(sorted(settings.client.items()))


def _producer_key(settings: PublisherSettings, work: PublishTask) -> tuple[str, str]:
    return settings.client.get("bootstrap.servers", ""), _transactional_id(settings, work)

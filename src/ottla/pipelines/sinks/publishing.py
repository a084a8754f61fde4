"""One file of pinned rows, published in one transaction with its marker. Runs in Spark's Python workers.

Producers are kept between batches: a producer that nobody has fenced since its last commit needs no new epoch and no
look at the markers, because whoever else published under its id would have had to fence it.

What may happen, and what is done:
  fenced                somebody else has the id now. If the marker says that this batch is published, we are late and
                        end quietly. If not, once more from the start: the other one may have been the late one.
  to be aborted         flush, abort, once more.
  fatal, or unanswered  a new producer: its init_transactions ends whatever is open, and the marker tells what it was.
A commit that is not answered is asked for again. The marker always decides, never what we believe to have done.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.ledger import Recorded
from ottla.pipelines.sinks.markers import BEGINNING, LOG_LEVEL, MARKER_TOPIC, MarkerReader, marker_value
from ottla.pipelines.sinks.producing import PRODUCER_SETTINGS, Sending, Target, size_settings

ATTEMPTS_MAX = 4
FENCED_WAIT_SECONDS = (2.0, 5.0, 10.0)
ABORT_SECONDS = 30.0
READ_ROWS = 10_000
PRODUCERS_KEPT_MAX = 16
NO_OFFSET = -1

Batches = Callable[[], Iterator[Any]]


class Settings(NamedTuple):
    """What all files of a sink share."""

    client: dict[str, str]
    target: Target
    transaction_timeout_seconds: float
    prefix: str  # of the transactional ids
    needs_marker: bool


class Work(NamedTuple):
    """One file to publish. `holder` published the id last, and `position` is where its marker lies or later."""

    number: int
    recorded: Recorded  # what the marker will say
    marker_partition: int
    position: int = BEGINNING
    holder: str = ""


class Outcome(NamedTuple):
    """`what`: published, already (by an earlier attempt), superseded (by a later batch)."""

    number: int
    what: str
    rows: int
    refused: int
    marker_offset: int
    holder: str


OUTCOME_SCHEMA = "number int, what string, rows long, refused long, marker_offset long, holder string"


class Held(NamedTuple):
    """A producer between two batches, and the last that it committed."""

    producer: Any
    holder: str
    last: Outcome | None
    recorded: Recorded | None


class Fenced(Exception):  # noqa: N818 (not an error until the marker says so)
    """Another process has our transactional id."""


class Publisher:
    """All producers of one worker process."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str], Held] = OrderedDict()
        self._readers: dict[str, MarkerReader] = {}
        self._process = 0

    def __repr__(self) -> str:
        return f"Publisher({len(self._held)} producers, process {self._process})"

    def publish(self, settings: Settings, work: Work, batches: Batches) -> Outcome:
        """Raises SinkError when it cannot be done, also after several attempts."""
        self._forget_parent()
        problem = ""
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._attempt(settings, work, batches)
            except Fenced as fenced:
                problem = str(fenced)
                if attempt < len(FENCED_WAIT_SECONDS) and self._is_done_by_other(settings, work, attempt):
                    return Outcome(work.number, "already", 0, 0, NO_OFFSET, "")
            except _kafka_exception() as failure:
                problem = failure.args[0].str()
            self._drop(settings, work)
        raise SinkError(f"{_id(settings, work)}: batch {work.recorded.batch_id} could not be published: {problem}")

    def _attempt(self, settings: Settings, work: Work, batches: Batches) -> Outcome:
        held = self._held.pop(_place(settings, work), None)
        if held is not None and held.recorded == work.recorded and held.last is not None:
            self._keep(settings, work, held)
            return held.last._replace(what="already", rows=0, refused=0)
        if held is None or held.holder != work.holder:
            held = self._begin(settings, work)
            outcome = self._look(settings, work)
            if outcome is not None:
                self._keep(settings, work, held)
                return outcome._replace(holder=held.holder)
        outcome = self._transaction(held, settings, work, batches)
        self._keep(settings, work, held._replace(last=outcome, recorded=work.recorded))
        return outcome

    def _begin(self, settings: Settings, work: Work) -> Held:
        """A producer that nobody else is: older ones with this id are fenced and their transactions ended."""
        from confluent_kafka import Producer  # noqa: PLC0415 (loaded in Spark's workers)

        producer = Producer(producer_settings(settings, work))
        _until_done(producer.init_transactions, settings.transaction_timeout_seconds)
        return Held(producer, f"{os.getpid()}-{uuid.uuid4().hex}", None, None)

    def _look(self, settings: Settings, work: Work) -> Outcome | None:
        """What the marker says: None if the file is to be published."""
        reader = self._reader(settings)
        found, ends = reader.read(
            {work.marker_partition: work.position}, _id(settings, work), settings.transaction_timeout_seconds
        )
        marker = found.get(_id(settings, work))
        if marker is None or marker.recorded.batch_id < work.recorded.batch_id:
            return None
        if marker.recorded.batch_id > work.recorded.batch_id:
            return Outcome(work.number, "superseded", 0, 0, NO_OFFSET, "")
        if settings.needs_marker and marker.recorded.identity != work.recorded.identity:
            raise SinkError(
                f"{_id(settings, work)}: batch {work.recorded.batch_id} was published from other pinned rows: the"
                " folder beside the checkpoint was removed or replaced, or two drivers run this query"
            )
        return Outcome(work.number, "already", 0, 0, ends[work.marker_partition], "")

    def _transaction(self, held: Held, settings: Settings, work: Work, batches: Batches) -> Outcome:
        producer = held.producer
        try:
            producer.begin_transaction()
            sending = Sending(producer, settings.target)
            for batch in batches():
                sending.send(batch)
            place = _send_marker(producer, settings, work, sending.rows)
            _until_done(producer.commit_transaction, settings.transaction_timeout_seconds)
        except _kafka_exception() as failure:
            _end(producer, failure)
            raise
        except BaseException:
            _abort(producer)
            raise
        return Outcome(work.number, "published", sending.rows, sending.refused, place[0], held.holder)

    def _is_done_by_other(self, settings: Settings, work: Work, attempt: int) -> bool:
        """Wait a little for the one who fenced us."""
        deadline = time.monotonic() + FENCED_WAIT_SECONDS[attempt]
        while time.monotonic() < deadline:
            if self._look(settings, work) is not None:
                return True
            time.sleep(0.2)
        return False

    def _reader(self, settings: Settings) -> MarkerReader:
        key = _reader_key(settings)
        if key not in self._readers:
            self._readers[key] = MarkerReader(settings.client)
        return self._readers[key]

    def _keep(self, settings: Settings, work: Work, held: Held) -> None:
        self._held[_place(settings, work)] = held
        while len(self._held) > PRODUCERS_KEPT_MAX:
            self._held.popitem(last=False)

    def _drop(self, settings: Settings, work: Work) -> None:
        """The reader, too: it may hold the epochs of a broker that was started anew, and librdkafka keeps them."""
        self._held.pop(_place(settings, work), None)
        reader = self._readers.pop(_reader_key(settings), None)
        if reader is not None:
            reader.close()

    def _forget_parent(self) -> None:
        """Workers are forked: what a parent had opened is not ours."""
        if self._process != os.getpid():
            self._held.clear()
            self._readers.clear()
            self._process = os.getpid()


PUBLISHER = Publisher()


@dataclass(frozen=True)
class PublishFile:
    """What a task does with its file; a class, so that workers find the publisher of their own process."""

    settings: Settings
    works: list[Work]

    def __call__(self, number: int, batches: Batches) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 (runs in Spark's workers)

        outcome = PUBLISHER.publish(self.settings, self.works[number], batches)
        kinds = {"number": pa.int32(), "what": pa.string(), "holder": pa.string()}
        columns = {name: pa.array([value], kinds.get(name, pa.int64())) for name, value in outcome._asdict().items()}
        yield pa.RecordBatch.from_pydict(columns)


def forget_marker(settings: Settings, work: Work) -> None:
    """On purpose: fence whoever uses the id, and delete what is remembered of it."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer(producer_settings(settings, work))
    _until_done(producer.init_transactions, settings.transaction_timeout_seconds)
    producer.begin_transaction()
    producer.produce(MARKER_TOPIC, key=_id(settings, work).encode(), value=None, partition=work.marker_partition)
    _until_done(producer.commit_transaction, settings.transaction_timeout_seconds)


def transactional_id(prefix: str, number: int) -> str:
    return f"{prefix}.{number}"


def producer_settings(settings: Settings, work: Work) -> dict[str, Any]:
    milliseconds = int(settings.transaction_timeout_seconds * 1000)
    return {
        **PRODUCER_SETTINGS,
        **size_settings(settings.target.record_bytes_max),
        **settings.client,
        "transactional.id": _id(settings, work),
        "transaction.timeout.ms": milliseconds,
        "message.timeout.ms": milliseconds,
        "log_level": LOG_LEVEL,
    }


def _send_marker(producer: Any, settings: Settings, work: Work, rows: int) -> list[int]:
    """Where it lies, known after the commit."""
    place = [NO_OFFSET]

    def note(error: Any, message: Any) -> None:
        if error is None:
            place[0] = int(message.offset())

    producer.produce(
        MARKER_TOPIC,
        key=_id(settings, work).encode(),
        value=marker_value(work.recorded, rows, settings.target.topic),
        partition=work.marker_partition,
        on_delivery=note,
    )
    return place


def _until_done(call: Callable[[float], None], seconds: float) -> None:
    """What is retriable is asked for again until the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            call(max(0.1, deadline - time.monotonic()))
        except _kafka_exception() as failure:
            error = failure.args[0]
            if is_fenced(error):
                raise Fenced(error.str()) from failure
            if not error.retriable() or time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _end(producer: Any, failure: Any) -> None:
    error = failure.args[0]
    if is_fenced(error):
        raise Fenced(error.str()) from failure
    if error.txn_requires_abort():
        _abort(producer)


def _abort(producer: Any) -> None:
    """Flush first: a record that is purged by the abort leaves its sequence number to the next transaction."""
    try:
        producer.flush(ABORT_SECONDS)
        producer.abort_transaction(ABORT_SECONDS)
    except _kafka_exception():
        return  # the next init_transactions ends it


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


def _id(settings: Settings, work: Work) -> str:
    return transactional_id(settings.prefix, work.number)


def _reader_key(settings: Settings) -> str:
    return repr(sorted(settings.client.items()))


def _place(settings: Settings, work: Work) -> tuple[str, str]:
    return settings.client.get("bootstrap.servers", ""), _id(settings, work)

"""The topic of the schemas (Confluent's KafkaStore): one thread reads and follows it, another one writes.

Rules of reading:
1. Records are applied on the event loop in log order, in slices that keep it responsive.
2. The reading thread waits until the loop has applied a slice, so memory holds at most one fetch response.
3. An unreadable record is skipped, counted and logged once; a bounded number of names is kept.
4. If the topic is deleted, recreated or truncated, reading ends for good: `failure` has the reason.

Rules of writing:
1. Related records form one batch and are written atomically. Only a set too large for one batch is split.
2. A new leader first takes over (`take_over`): it gets a new epoch of the shared producer ID, and its first record
   fences all older epochs. A paused node that still believes to be the leader is rejected by the broker.
3. Batches have sequence numbers, so a retried or delayed one is written once.
4. If the response is lost the batch is retried until a timeout. Then the outcome is unknown (UnknownOutcomeError), and
   the next write takes over again before it decides anything.

The topic needs exactly one partition, which gives a total order, and must not delete records by retention.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.coordinators import KeyType, call_coordinator
from ottla.client.errors import ClientError, error_from_code
from ottla.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets, partitions_by_leader
from ottla.operations.fetched_batches import FetchedDataError, record_chunks
from ottla.operations.range_fetcher import FetchedRecords, FetchError, FetchSettings, OffsetRange, RangeFetcher
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records import Record as WireRecord
from ottla.protocol.records import RecordReader
from ottla.protocol.schema import ZERO_UUID
from ottla.registry.records import Key, Record, UnreadableRecordError, decode_key, decode_value

REPLICATION_FACTOR: Final = 3
POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"


class KafkaStoreError(Exception):
    """The topic cannot be used; str() is one line."""


def prepare_topic(client: Client, topic: str, replication_factor: int) -> UUID:
    """Create the topic if it does not exist; returns its ID. Blocking. Raises KafkaStoreError or ClientError."""
    admin = Admin(client)
    found = admin.topics([topic])
    if not found:
        copies = max(1, min(replication_factor, len(admin.live_brokers())))
        try:
            admin.create_topic(topic, partitions=1, replication_factor=copies, configs={POLICY: COMPACT})
        except ClientError as problem:
            if problem.error is not Error.TOPIC_ALREADY_EXISTS:  # another registry created it
                raise
        found = [admin.topic(topic, needs_leaders=True)]
    if len(found[0].partitions) != 1:
        raise KafkaStoreError(
            f"the topic {topic} has {len(found[0].partitions)} partitions, and the order of schemas needs exactly "
            "one: name another topic with kafkastore.topic, or recreate it"
        )
    configs = {item.name: item.value for item in admin.topic_configs([topic])[topic]}
    policy = configs.get(POLICY) or ""
    if policy.replace(" ", "") != COMPACT:
        raise KafkaStoreError(
            f"the topic {topic} has {POLICY}={policy}, which would delete schemas: set it to {COMPACT} with "
            f"ottla configs set --topic {topic} {POLICY}={COMPACT}"
        )
    return found[0].topic_id


def topic_bounds(client: Client, topic: str) -> tuple[int, int]:
    """Start and end offset of the topic. Raises ClientError."""
    partition = TopicPartition(topic, 0)
    found = []
    for time in (EARLIEST, LATEST):
        offsets, failures = list_offsets(client, [partition], time, READ_COMMITTED)
        for problem in failures.values():
            raise problem
        found.append(offsets[partition].offset)
    return found[0], found[1]


# ---- writing
ALL_IN_SYNC: Final = -1
NAMES_VERSION: Final = 12  # the last version of Produce with topic names; later ones have topic IDs
BATCH_BYTES_MAX: Final = 500_000
TRANSACTION_TIMEOUT_MS: Final = 60_000
FENCED_ERRORS: Final = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED})
TOO_LARGE: Final = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})


class FencedError(Exception):
    """Another node has taken over."""


class TooLargeError(Exception):
    """The broker rejects a record of this size."""


class UnknownOutcomeError(Exception):
    """It is unknown whether the records were written; str() is the reason."""


class KafkaStoreWriter:
    """The producer of this node. Blocking; one call at a time."""

    def __init__(self, client: Client, topic: str, group: str, clock: Clock | None = None) -> None:
        self.client = client
        self.topic = topic
        self.transactional_id = f"{group}-{topic}"
        self.clock = clock or SystemClock()
        self.producer_id = -1
        self.epoch = -1
        self.sequence = 0
        self.leader: int | None = None  # of the partition; None: unknown

    def __repr__(self) -> str:
        return f"<KafkaStoreWriter {self.topic} producer {self.producer_id} epoch {self.epoch}>"

    @property
    def has_taken_over(self) -> bool:
        return self.epoch >= 0

    def take_over(self) -> None:
        """Fence earlier writers as of the first record written. Raises ClientError."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        def ask(broker: int) -> InitProducerIdResponse:
            answer = self.client.call_broker(broker, request, InitProducerIdResponse)
            if answer.error_code:
                raise error_from_code(answer.error_code)
            return answer

        answer = call_coordinator(self.client, KeyType.TRANSACTION, self.transactional_id, ask)
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def step_down(self) -> None:
        self.epoch = -1

    def write(self, records: Sequence[Record]) -> int:
        """Write the records; returns the offset of the last one."""
        offset = -1
        for part in _batches(records):
            offset = self._write_batch(part)
        return offset

    def _write_batch(self, records: Sequence[Record]) -> int:
        now = self.clock.now_ms()
        batch = build_batch(
            [WireRecord(-1, now, record.key_bytes, record.value_bytes) for record in records],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        data = PartitionProduceData(index=0, records=memoryview(bytes(batch)))
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=self.client.timeout_ms,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        try:
            base = self.client.retry(lambda: self._send(request))
        except ClientError as problem:
            raise self._failure(problem) from None
        self.sequence += len(records)
        return base + len(records) - 1

    def _send(self, request: ProduceRequest) -> int:
        leader, self.leader = self.leader, None
        if leader is None:
            by_leader, failures = partitions_by_leader(self.client, [TopicPartition(self.topic, 0)])
            for problem in failures.values():
                raise problem
            leader = next(iter(by_leader))
        answer = self.client.call_broker(leader, request, ProduceResponse, version_max=NAMES_VERSION)
        item = answer.responses[0].partition_responses[0]
        if item.error_code:
            raise error_from_code(item.error_code, item.error_message)
        self.leader = leader
        return item.base_offset

    def _failure(self, problem: ClientError) -> Exception:
        if problem.error in FENCED_ERRORS:
            self.step_down()
            return FencedError(str(problem))
        if problem.error in TOO_LARGE:
            return TooLargeError(str(problem))
        self.step_down()
        return UnknownOutcomeError(str(problem))


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    part: list[Record] = []
    length = 0
    for record in records:
        size = len(record.key_bytes) + len(record.value_bytes or b"")
        if part and length + size > BATCH_BYTES_MAX:
            yield part
            part, length = [], 0
        part.append(record)
        length += size
    if part:
        yield part


logger = logging.getLogger(__name__)

# ---- reading
FETCH_BYTES: Final = 4 << 20
RECORDS_PER_SLICE: Final = 200  # records applied at once: 2 ms
NAMES_MAX: Final = 100
NO_END_OFFSET: Final = 2**62
NO_TIMEOUT_MS: Final = 2**40
T = TypeVar("T")


class ReadRecord(NamedTuple):
    """One record; `raw` is its key as written, `trouble` the reason if it cannot be read."""

    offset: int
    key: Key | None
    value: Mapping[str, Any] | None
    raw: bytes | None
    error: str = ""


class KafkaStore:
    """The topic as read by this node. `make_client` creates a client for each thread; `apply` raises
    UnreadableRecordError.
    """

    def __init__(
        self,
        make_client: Callable[[], Client],
        topic: str,
        replication_factor: int,
        group: str,
        apply: Callable[[Key, Mapping[str, Any] | None, bytes | None], None],
    ) -> None:
        self.make_client = make_client
        self.topic = topic
        self.replication_factor = replication_factor
        self.apply = apply
        self.writer = KafkaStoreWriter(make_client(), topic, group)
        self.position = 0  # the offset after the last applied record
        self.cluster_id = ""
        self._topic_id = ZERO_UUID
        self.unreadable = 0
        self.unreadable_names: deque[str] = deque(maxlen=NAMES_MAX)
        self.failure: asyncio.Future[str] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._threads = ThreadPoolExecutor(1, "registry-log")
        self._end_threads = ThreadPoolExecutor(1, "registry-end")
        self._end_client: Client | None = None
        self._end_lock = asyncio.Lock()
        self._end_requests = 0
        self._end = 0
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: threading.Thread | None = None
        self._reading_client: Client | None = None

    def __repr__(self) -> str:
        return f"<KafkaStore {self.topic} at {self.position}>"

    async def open(self) -> int:
        """Create the topic if needed and start reading; returns its end offset.

        Raises KafkaStoreError or ClientError.
        """
        self._loop = asyncio.get_running_loop()
        self.failure = self._loop.create_future()
        start, end = await self._in_thread(self._prepare)
        self.position = start
        self._reader = threading.Thread(target=self._read, args=(start,), name="registry-reader", daemon=True)
        self._reader.start()
        return end

    async def write(self, records: Sequence[Record]) -> int:
        """Returns the offset of the last record once all in-sync replicas have it."""
        return await self._in_thread(lambda: self.writer.write(records))

    async def take_over(self) -> None:
        await self._in_thread(self.writer.take_over)

    async def wait_for_offset(self, offset: int) -> None:
        """Wait until the record at this offset is applied."""
        if self.position > offset:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, waiter))
        await waiter

    async def catch_up(self) -> None:
        """Read up to the current end of the topic; concurrent callers share one request for the end offset."""
        wanted = self._end_requests + 1
        async with self._end_lock:
            if self._end_requests < wanted:
                self._end_requests += 1
                self._end = await asyncio.get_running_loop().run_in_executor(self._end_threads, self._read_end_offset)
        await self.wait_for_offset(self._end - 1)

    def _read_end_offset(self) -> int:
        if self._end_client is None:
            self._end_client = self.make_client()
        return topic_bounds(self._end_client, self.topic)[1]

    async def close(self) -> None:
        self._is_stopping = True
        for _, waiter in self._waiting:
            waiter.cancel()
        if self._reading_client is not None:
            self._reading_client.close()
        for threads in (self._threads, self._end_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._end_client is not None:
            self._end_client.close()
        self.writer.client.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _prepare(self) -> tuple[int, int]:
        client = self.writer.client
        self._topic_id = prepare_topic(client, self.topic, self.replication_factor)
        self.cluster_id = client.cluster().cluster_id or ""
        return topic_bounds(client, self.topic)

    # ---- in the reading thread

    def _read(self, start: int) -> None:
        client = self._reading_client = self.make_client()
        client.sleep = self._pause(client.sleep)
        topic_id = str(self._topic_id) if self._topic_id != ZERO_UUID else None  # old brokers have no topic IDs
        wanted = OffsetRange(self.topic, 0, start, NO_END_OFFSET)
        fetcher = RangeFetcher(client, wanted, FetchSettings(FETCH_BYTES, True, NO_TIMEOUT_MS), self._on_loss, topic_id)
        try:
            for fetched in fetcher:
                records, after = _decode(fetched, self.topic)
                for first in range(0, max(len(records), 1), RECORDS_PER_SLICE):
                    part = records[first : first + RECORDS_PER_SLICE]
                    is_last = first + RECORDS_PER_SLICE >= len(records)
                    self._apply_on_loop(part, after if is_last else part[-1].offset + 1)
        except (FetchError, FetchedDataError, KafkaError, ClientError, KafkaStoreError, OSError) as problem:
            self._report_failure(str(problem))
        except _StoppedError:
            return
        finally:
            client.close()

    def _apply_on_loop(self, records: Sequence[ReadRecord], position: int) -> None:
        assert self._loop is not None
        is_taken = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._apply_records, records, position, is_taken)
        except RuntimeError:  # the loop has ended
            raise _StoppedError from None
        while not is_taken.wait(1.0):
            if self._is_stopping:
                raise _StoppedError

    def _pause(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        def pause(seconds: float) -> None:
            if self._is_stopping:
                raise _StoppedError
            sleep(seconds)

        return pause

    def _on_loss(self, sentence: str) -> NoReturn:
        raise KafkaStoreError(sentence)

    def _report_failure(self, sentence: str) -> None:
        if self._loop is not None and not self._is_stopping:
            self._loop.call_soon_threadsafe(self._fail, sentence)

    # ---- on the event loop

    def _fail(self, sentence: str) -> None:
        if self.failure is not None and not self.failure.done():
            self.failure.set_result(sentence)

    def _apply_records(self, records: Sequence[ReadRecord], position: int, is_taken: threading.Event) -> None:
        for record in records:
            if record.key is None:
                self._add_unreadable(record.offset, record.error)
                continue
            try:
                self.apply(record.key, record.value, record.raw)
            except UnreadableRecordError as problem:
                self._add_unreadable(record.offset, str(problem))
            except Exception as problem:  # our own bug, which must not stop the reading of later records
                logger.exception("%s offset %d", self.topic, record.offset)
                self._add_unreadable(record.offset, f"{type(problem).__name__}: {problem}")
        self.position = max(self.position, position)
        is_taken.set()
        if self._waiting:
            still = [item for item in self._waiting if item[0] >= self.position]
            for offset, waiter in self._waiting:
                if offset < self.position and not waiter.done():
                    waiter.set_result(None)
            self._waiting = still

    def _add_unreadable(self, offset: int, trouble: str) -> None:
        self.unreadable += 1
        name = f"{self.topic} offset {offset}: {trouble}"
        if len(self.unreadable_names) < NAMES_MAX:
            logger.warning("skipped a record: %s", name)
        self.unreadable_names.append(name)


class _StoppedError(Exception):
    """The node is stopping."""


def _decode(fetched: FetchedRecords, topic: str) -> tuple[list[ReadRecord], int]:
    """The records of a response, and the offset after them."""
    found: list[ReadRecord] = []
    after = fetched.first
    for piece in record_chunks(fetched.records, f"{topic}-0", fetched.first, NO_END_OFFSET, fetched.aborted):
        for span in piece.spans:
            reader = RecordReader(bytes(piece.data[span.start : span.end]), span.base_offset, span.timestamp)
            for _ in range(span.records):
                record = reader.read_record()
                if record.offset >= fetched.first:
                    found.append(_decode_one(record.offset, record.key, record.value))
        after = max(after, piece.next_offset)
    return found, after


def _decode_one(offset: int, key: bytes | None, value: bytes | None) -> ReadRecord:
    try:
        return ReadRecord(offset, decode_key(key), decode_value(value), key)
    except UnreadableRecordError as problem:
        return ReadRecord(offset, None, None, key, str(problem))

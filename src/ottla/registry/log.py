"""The topic of the schemas as this node has it: a thread reads it from its beginning and follows it, another writes.

Rules:
1. What was read is handed to the event loop in the order of the topic, in slices that keep it free (`on_records`).
2. The thread that reads waits until the loop has taken a slice: memory holds one answer of the broker at most.
3. A record that cannot be read is skipped, counted and named, once; so many names are kept at most.
4. A topic that is gone, was made anew, or was cut, ends the reading for good: `failure` says why.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from ottla.base.errors import KafkaError
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.batches import FetchedDataError, pieces
from ottla.operations.fetching import Fetched, FetchError, Range, RangeFetcher
from ottla.protocol.records import RecordReader
from ottla.protocol.schema import ZERO_UUID
from ottla.registry.log_topic import LogError, bounds, prepare_topic
from ottla.registry.log_writer import LogWriter
from ottla.registry.records import Key, Record, UnreadableRecordError, decode_key, decode_value

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 4 << 20
SLICE: Final = 200  # records that are applied in one go: 2 ms
NAMES_MAX: Final = 100
END_OF_TIME: Final = 2**62
FOR_EVER_MS: Final = 2**40
T = TypeVar("T")


class ReadRecord(NamedTuple):
    """One record; `raw` is its key as it was written, `trouble` why it cannot be read."""

    offset: int
    key: Key | None
    value: Mapping[str, Any] | None
    raw: bytes | None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class _Reading:
    fetch_bytes: int = FETCH_BYTES
    is_committed_only: bool = True
    poll_timeout_ms: int = FOR_EVER_MS


class SchemaLog:
    """`make_client` gives each thread a client; `apply` raises UnreadableRecordError for what it cannot take."""

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
        self.writer = LogWriter(make_client(), topic, group)
        self.position = 0  # the offset after the last record that was applied
        self.cluster_id = ""
        self._topic_id = ZERO_UUID
        self.unreadable = 0
        self.unreadable_names: deque[str] = deque(maxlen=NAMES_MAX)
        self.failure: asyncio.Future[str] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._threads = ThreadPoolExecutor(1, "registry-log")
        self._askers = ThreadPoolExecutor(1, "registry-end")
        self._asking_client: Client | None = None
        self._asking = asyncio.Lock()
        self._questions = 0
        self._end = 0
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: threading.Thread | None = None
        self._reading_client: Client | None = None

    def __repr__(self) -> str:
        return f"<SchemaLog {self.topic} at {self.position}>"

    async def open(self) -> int:
        """Make the topic if needed and begin to read; returns where it ends. Raises LogError or ClientError."""
        self._loop = asyncio.get_running_loop()
        self.failure = self._loop.create_future()
        start, end = await self._in_thread(self._prepare)
        self.position = start
        self._reader = threading.Thread(target=self._read, args=(start,), name="registry-reader", daemon=True)
        self._reader.start()
        return end

    async def write(self, records: Sequence[Record]) -> int:
        """The offset of the last one, when all replicas in sync have it; raises what LogWriter.write() does."""
        return await self._in_thread(lambda: self.writer.write(records))

    async def take_over(self) -> None:
        await self._in_thread(self.writer.take_over)

    async def reached(self, offset: int) -> None:
        """Wait until this record was applied here."""
        if self.position > offset:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, waiter))
        await waiter

    async def catch_up(self) -> None:
        """Read to where the topic ends now; whoever asks while the cluster is asked shares the next question."""
        wanted = self._questions + 1
        async with self._asking:
            if self._questions < wanted:
                self._questions += 1
                self._end = await asyncio.get_running_loop().run_in_executor(self._askers, self._ask_for_end)
        await self.reached(self._end - 1)

    def _ask_for_end(self) -> int:
        if self._asking_client is None:
            self._asking_client = self.make_client()
        return bounds(self._asking_client, self.topic)[1]

    async def close(self) -> None:
        self._is_stopping = True
        for _, waiter in self._waiting:
            waiter.cancel()
        if self._reading_client is not None:
            self._reading_client.close()
        for threads in (self._threads, self._askers):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._asking_client is not None:
            self._asking_client.close()
        self.writer.client.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _prepare(self) -> tuple[int, int]:
        client = self.writer.client
        self._topic_id = prepare_topic(client, self.topic, self.replication_factor)
        self.cluster_id = client.cluster().cluster_id or ""
        return bounds(client, self.topic)

    # In the thread that reads

    def _read(self, start: int) -> None:
        client = self._reading_client = self.make_client()
        client.sleep = self._pause(client.sleep)
        topic_id = str(self._topic_id) if self._topic_id != ZERO_UUID else None  # old brokers have none
        wanted = Range(self.topic, 0, start, END_OF_TIME)
        fetcher = RangeFetcher(client, wanted, _Reading(), self._lost, topic_id)
        try:
            for fetched in fetcher:
                records, after = _decode(fetched, self.topic)
                for first in range(0, max(len(records), 1), SLICE):
                    part = records[first : first + SLICE]
                    is_last = first + SLICE >= len(records)
                    self._hand_over(part, after if is_last else part[-1].offset + 1)
        except (FetchError, FetchedDataError, KafkaError, ClientError, LogError, OSError) as problem:
            self._tell_failure(str(problem))
        except _StoppedError:
            return
        finally:
            client.close()

    def _hand_over(self, records: Sequence[ReadRecord], position: int) -> None:
        assert self._loop is not None
        is_taken = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._take, records, position, is_taken)
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

    def _lost(self, sentence: str) -> NoReturn:
        raise LogError(sentence)

    def _tell_failure(self, sentence: str) -> None:
        if self._loop is not None and not self._is_stopping:
            self._loop.call_soon_threadsafe(self._fail, sentence)

    # On the loop

    def _fail(self, sentence: str) -> None:
        if self.failure is not None and not self.failure.done():
            self.failure.set_result(sentence)

    def _take(self, records: Sequence[ReadRecord], position: int, is_taken: threading.Event) -> None:
        for record in records:
            if record.key is None:
                self._note(record.offset, record.trouble)
                continue
            try:
                self.apply(record.key, record.value, record.raw)
            except UnreadableRecordError as problem:
                self._note(record.offset, str(problem))
            except Exception as problem:  # ours, and still no reason to read nothing after it
                logger.exception("%s offset %d", self.topic, record.offset)
                self._note(record.offset, f"{type(problem).__name__}: {problem}")
        self.position = max(self.position, position)
        is_taken.set()
        if self._waiting:
            still = [item for item in self._waiting if item[0] >= self.position]
            for offset, waiter in self._waiting:
                if offset < self.position and not waiter.done():
                    waiter.set_result(None)
            self._waiting = still

    def _note(self, offset: int, trouble: str) -> None:
        self.unreadable += 1
        name = f"{self.topic} offset {offset}: {trouble}"
        if len(self.unreadable_names) < NAMES_MAX:
            logger.warning("a record is skipped: %s", name)
        self.unreadable_names.append(name)


class _StoppedError(Exception):
    """The node ends."""


def _decode(fetched: Fetched, topic: str) -> tuple[list[ReadRecord], int]:
    """The records of an answer, and the offset after them."""
    found: list[ReadRecord] = []
    after = fetched.first
    for piece in pieces(fetched.records, f"{topic}-0", fetched.first, END_OF_TIME, fetched.aborted):
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

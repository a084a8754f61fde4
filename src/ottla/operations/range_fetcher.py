"""Fetches one offset range of a partition through our own wire client, in whole record batches.

Rules:
1. The next fetch is sent before the caller processes the previous response.
2. A leader change or broker restart costs time, not the query: metadata is refreshed and the fetch retried until no
   data has arrived for `poll_timeout_ms`.
3. Offsets that no longer exist are data loss: `on_loss` gets a sentence, and raises if loss is not acceptable.
4. A topic is fetched by its ID if that is known, so a recreated topic returns nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.connection import Connection, best_version
from ottla.client.errors import ClientError, error_from_code
from ottla.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets, partitions_by_leader
from ottla.operations.fetched_batches import offset_after
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.schema import ZERO_UUID, layout_of

NAMES_VERSION = 12  # the last version of Fetch with topic names; later ones have topic IDs
WAIT_MS = 500
ANSWER_TIMEOUT_MS = 30_000
BACKOFF_S, BACKOFF_S_MAX = 0.1, 1.0
UNKNOWN_TOPIC_ERRORS = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.INCONSISTENT_TOPIC_ID)
UNKNOWN_TOPIC_TIMEOUT_S = 5.0  # a topic may be unknown for a moment while its leader moves
FETCH_BYTES_MIN = 64 << 10
FIRST_GUESS_BYTES = 1024  # per record, until the first response
MARGIN = 1.1  # record sizes vary


class FetchError(Exception):
    """A range that cannot be read; str() is a sentence with the cause, `error` is the broker's error code, if any."""

    def __init__(self, message: str, error: Error | None = None) -> None:
        super().__init__(message)
        self.error = error


class FetchOptions(Protocol):
    """Fetch size, isolation level and timeout."""

    @property
    def fetch_bytes(self) -> int: ...
    @property
    def is_read_committed(self) -> bool: ...
    @property
    def poll_timeout_ms(self) -> int: ...


class FetchSettings(NamedTuple):
    """The options of a reader."""

    fetch_bytes: int
    is_read_committed: bool
    poll_timeout_ms: int


class OffsetRange(NamedTuple):
    """The offsets start … end - 1 of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.start} to {self.end}"


class FetchedRecords(NamedTuple):
    """One response in whole batches. The first batch may begin before `first`, the last may end after the range."""

    records: bytes
    aborted: Sequence[AbortedTransaction]
    first: int


class RangeFetcher:
    """Iterates over the responses for one range; together they contain every existing offset in start … end - 1."""

    def __init__(
        self,
        client: Client,
        wanted: OffsetRange,
        options: FetchOptions,
        on_loss: Callable[[str], None],
        topic_id: str | None = None,
    ) -> None:
        self.client = client
        self.wanted = wanted
        self.topic_id = UUID(topic_id) if topic_id else None
        self.options = options
        self.on_loss = on_loss
        self.partition = TopicPartition(wanted.topic, wanted.partition)
        self.position = wanted.start
        self.bytes_per_offset = float(FIRST_GUESS_BYTES)
        self.connection: Connection | None = None  # to the leader, with a fetch in flight
        self.version = 0
        self.idle_since = time.monotonic()
        self.unknown_topic_since: float | None = None
        self.backoff_s = BACKOFF_S

    def __iter__(self) -> Iterator[FetchedRecords]:
        while self.position < self.wanted.end:
            try:
                answer = self._next_answer()
            except ClientError as problem:
                self._recover(problem)
                continue
            records = bytes(answer.records) if answer.records else b""  # type: ignore[arg-type]
            after = offset_after(records, str(self.partition))
            if after is None or after <= self.position:
                self._check_idle_timeout(answer)
                self._prefetch()
                continue
            fetched = FetchedRecords(records, answer.aborted_transactions or (), self.position)
            self._advance(after, len(records))
            yield fetched

    def _advance(self, after: int, fetched_bytes: int) -> None:
        """Move behind the fetched batches, and send the next fetch before they are processed."""
        self.bytes_per_offset = fetched_bytes / (after - self.position)
        self.position = after
        self.idle_since = time.monotonic()
        self.unknown_topic_since = None
        self.backoff_s = BACKOFF_S
        self._prefetch()

    def _prefetch(self) -> None:
        """Send the next fetch. An error shows when its response is received."""
        if self.position < self.wanted.end and self.connection is not None:
            try:
                self._send()
            except ClientError:
                self._forget_connection()

    def _next_answer(self) -> PartitionData:
        """The response to the fetch in flight, or to a new one; raises its error code."""
        if self.connection is None:
            self.connection = self._find_leader()
            self._send()
        body = self.connection.receive(FetchRequest, self.version, ANSWER_TIMEOUT_MS)
        try:
            response, _ = decode(FetchResponse, self.version, body)
        except ProtocolError as problem:
            raise FetchError(f"{self.connection.address} sent an invalid response: {problem}") from None
        if response.error_code:
            raise error_from_code(response.error_code)
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.error_code:
                    raise error_from_code(answer.error_code)
                return answer
        raise FetchError(f"{self.connection.address} did not answer for {self.partition}")

    def _find_leader(self) -> Connection:
        by_leader, failures = partitions_by_leader(self.client, [self.partition])
        for problem in failures.values():
            raise problem
        connection = self.client.connection_to(next(iter(by_leader)))
        version = best_version(layout_of(FetchRequest), connection.versions)
        if version is None:
            raise FetchError(f"the broker {connection.address} supports no version of Fetch that we know")
        self.version = version if self.topic_id is not None else min(version, NAMES_VERSION)
        return connection

    def _send(self) -> None:
        assert self.connection is not None
        left = (self.wanted.end - self.position) * self.bytes_per_offset * MARGIN
        fetch_bytes = min(self.options.fetch_bytes, max(FETCH_BYTES_MIN, int(left)))
        partition = FetchPartition(
            partition=self.wanted.partition, fetch_offset=self.position, partition_max_bytes=fetch_bytes
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=fetch_bytes,
            isolation_level=READ_COMMITTED if self.options.is_read_committed else READ_UNCOMMITTED,
            topics=[FetchTopic(topic=self.wanted.topic, topic_id=self.topic_id or ZERO_UUID, partitions=[partition])],
        )
        self.connection.send(request, self.version, ANSWER_TIMEOUT_MS)

    def _check_idle_timeout(self, answer: PartitionData) -> None:
        """The range existed when it was planned but no data arrives: wait, at most `poll_timeout_ms`."""
        if time.monotonic() - self.idle_since < self.options.poll_timeout_ms / 1000:
            return
        seconds = self.options.poll_timeout_ms / 1000
        end = answer.high_watermark
        sentence = f"{self.wanted}: no data from offset {self.position} for {seconds:g} s; the log ends at {end}"
        self._report_loss(sentence, self.wanted.end)

    def _recover(self, problem: ClientError) -> None:
        """Prepare a retry, or raise if a retry cannot help."""
        self._forget_connection()
        if problem.error is Error.OFFSET_OUT_OF_RANGE:
            self._handle_offset_out_of_range()
            return
        now = time.monotonic()
        if problem.error in UNKNOWN_TOPIC_ERRORS:
            self.unknown_topic_since = self.unknown_topic_since or now
            if now - self.unknown_topic_since > UNKNOWN_TOPIC_TIMEOUT_S:
                is_anew = problem.error is not Error.UNKNOWN_TOPIC_OR_PARTITION
                what = "the topic was deleted and recreated" if is_anew else "the topic or partition does not exist"
                self._report_loss(f"{self.wanted}: {what}{'' if is_anew else ' any more'}", self.wanted.end)
                return
        elif not (problem.is_retriable or problem.error is Error.BROKER_NOT_AVAILABLE):
            raise FetchError(f"{self.wanted}: {problem}", problem.error)
        if now - self.idle_since > self.options.poll_timeout_ms / 1000:
            raise FetchError(f"{self.wanted}: {problem} (tried for {now - self.idle_since:.0f} s)")
        self.client.sleep(self.backoff_s)
        self.backoff_s = min(2 * self.backoff_s, BACKOFF_S_MAX)

    def _forget_connection(self) -> None:
        self.connection = None
        self.client.close()
        self.client.metadata = None

    def _handle_offset_out_of_range(self) -> None:
        """The position is outside the log: records aged out, or the log was truncated or recreated."""
        try:
            earliest = self._list_offset(EARLIEST)
            latest = self._list_offset(LATEST)
        except ClientError as problem:
            self._recover(problem)
            return
        where = f"{self.wanted}: offset {self.position} is not in the log, which holds {earliest} to {latest}"
        target = earliest if self.position < earliest else self.wanted.end
        self._report_loss(where, min(target, self.wanted.end))

    def _list_offset(self, time_ms: int) -> int:
        found, failures = list_offsets(self.client, [self.partition], time_ms)
        for problem in failures.values():
            raise problem
        return found[self.partition].offset

    def _report_loss(self, sentence: str, target: int) -> None:
        self.on_loss(sentence)
        self.position = target
        self._forget_connection()

    def __repr__(self) -> str:
        return f"<RangeFetcher {self.wanted} at {self.position}>"

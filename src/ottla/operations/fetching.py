"""Fetches one range of a partition through our own wire client, whole record batches at a time.

Rules:
1. The next fetch is on its way while the answer to the one before is worked on.
2. A leader that moves or a broker that restarts costs time, not the query: new metadata, another try, until nothing
   has come for `poll_timeout_ms`.
3. Offsets that are not there any more are a loss: `on_loss` is told in a sentence, and raises if that must not be.
4. A topic is asked for by its id, where that is known: one that was made anew since then answers nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.connection import Connection
from ottla.client.errors import ClientError, refusal
from ottla.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets, partitions_by_leader
from ottla.client.versions import best_version
from ottla.operations.batches import offset_after
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

NAMES_VERSION = 12  # the last version of Fetch that names topics; later ones have ids
WAIT_MS = 500
ANSWER_TIMEOUT_MS = 30_000
BACKOFF_S, BACKOFF_S_MAX = 0.1, 1.0
GONE = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID, Error.INCONSISTENT_TOPIC_ID)
GONE_PATIENCE_S = 5.0  # a topic may be unknown for a moment while its leader moves
FETCH_BYTES_MIN = 64 << 10
FIRST_GUESS_BYTES = 1024  # of a record, until we know better
MARGIN = 1.1  # records differ in size


class FetchError(Exception):
    """A range that cannot be read; str() is a sentence with the cause, `error` what a broker has said, if one has."""

    def __init__(self, message: str, error: Error | None = None) -> None:
        super().__init__(message)
        self.error = error


class FetchOptions(Protocol):
    """How to read: at most so many bytes at once, with or without open transactions, and when to give up."""

    @property
    def fetch_bytes(self) -> int: ...
    @property
    def is_committed_only(self) -> bool: ...
    @property
    def poll_timeout_ms(self) -> int: ...


class Range(NamedTuple):
    """What is read in one go: the offsets start … end - 1 of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets {self.start} to {self.end}"


class Fetched(NamedTuple):
    """One answer: whole batches, the first of which may begin before `first` and the last end after the range."""

    records: bytes
    aborted: Sequence[AbortedTransaction]
    first: int


class RangeFetcher:
    """Iterates over the answers for one range; everything in start … end - 1 that exists is in one of them."""

    def __init__(
        self,
        client: Client,
        wanted: Range,
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
        self.connection: Connection | None = None  # to the leader, with a fetch under way
        self.version = 0
        self.quiet_since = time.monotonic()
        self.gone_since: float | None = None
        self.backoff_s = BACKOFF_S

    def __iter__(self) -> Iterator[Fetched]:
        while self.position < self.wanted.end:
            try:
                answer = self._next_answer()
            except ClientError as problem:
                self._recover(problem)
                continue
            records = bytes(answer.records) if answer.records else b""  # type: ignore[arg-type]
            after = offset_after(records, str(self.partition))
            if after is None or after <= self.position:
                self._check_quiet(answer)
                self._send_ahead()
                continue
            fetched = Fetched(records, answer.aborted_transactions or (), self.position)
            self._advance(after, len(records))
            yield fetched

    def _advance(self, after: int, fetched_bytes: int) -> None:
        """Go on behind the fetched batches, and ask for what follows before they are worked on."""
        self.bytes_per_offset = fetched_bytes / (after - self.position)
        self.position = after
        self.quiet_since = time.monotonic()
        self.gone_since = None
        self.backoff_s = BACKOFF_S
        self._send_ahead()

    def _send_ahead(self) -> None:
        """Ask for what follows; trouble with it shows when the answer is wanted."""
        if self.position < self.wanted.end and self.connection is not None:
            try:
                self._send()
            except ClientError:
                self._forget_connection()

    def _next_answer(self) -> PartitionData:
        """The answer to the fetch under way, or to a new one; raises what it refuses."""
        if self.connection is None:
            self.connection = self._find_leader()
            self._send()
        body = self.connection.receive(FetchRequest, self.version, ANSWER_TIMEOUT_MS)
        try:
            response, _ = decode(FetchResponse, self.version, body)
        except ProtocolError as problem:
            raise FetchError(f"{self.connection.address} sent an answer that makes no sense: {problem}") from None
        if response.error_code:
            raise refusal(response.error_code)
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.error_code:
                    raise refusal(answer.error_code)
                return answer
        raise FetchError(f"{self.connection.address} did not answer for {self.partition}")

    def _find_leader(self) -> Connection:
        by_leader, failures = partitions_by_leader(self.client, [self.partition])
        for problem in failures.values():
            raise problem
        connection = self.client.connection_to(next(iter(by_leader)))
        version = best_version(layout_of(FetchRequest), connection.versions)
        if version is None:
            raise FetchError(f"the broker {connection.address} does not offer Fetch in a version that we know")
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
            isolation_level=READ_COMMITTED if self.options.is_committed_only else READ_UNCOMMITTED,
            topics=[FetchTopic(topic=self.wanted.topic, topic_id=self.topic_id or ZERO_UUID, partitions=[partition])],
        )
        self.connection.send(request, self.version, ANSWER_TIMEOUT_MS)

    def _check_quiet(self, answer: PartitionData) -> None:
        """Nothing came although the range was there when it was planned: it may still come, but not for ever."""
        if time.monotonic() - self.quiet_since < self.options.poll_timeout_ms / 1000:
            return
        seconds = self.options.poll_timeout_ms / 1000
        end = answer.high_watermark
        sentence = f"{self.wanted}: nothing came from {self.position} on for {seconds:g} s; the log ends at {end}"
        self._lose(sentence, self.wanted.end)

    def _recover(self, problem: ClientError) -> None:
        """Make the next try possible, or raise what cannot be helped."""
        self._forget_connection()
        if problem.error is Error.OFFSET_OUT_OF_RANGE:
            self._leave_gap()
            return
        now = time.monotonic()
        if problem.error in GONE:
            self.gone_since = self.gone_since or now
            if now - self.gone_since > GONE_PATIENCE_S:
                is_anew = problem.error is not Error.UNKNOWN_TOPIC_OR_PARTITION
                what = "the topic was deleted and made anew" if is_anew else "the topic or partition does not exist"
                self._lose(f"{self.wanted}: {what}{'' if is_anew else ' any more'}", self.wanted.end)
                return
        elif not (problem.is_retriable or problem.error is Error.BROKER_NOT_AVAILABLE):
            raise FetchError(f"{self.wanted}: {problem}", problem.error)
        if now - self.quiet_since > self.options.poll_timeout_ms / 1000:
            raise FetchError(f"{self.wanted}: {problem} (tried for {now - self.quiet_since:.0f} s)")
        self.client.sleep(self.backoff_s)
        self.backoff_s = min(2 * self.backoff_s, BACKOFF_S_MAX)

    def _forget_connection(self) -> None:
        self.connection = None
        self.client.close()
        self.client.metadata = None

    def _leave_gap(self) -> None:
        """The log does not reach to our position: aged out, or cut, or made anew."""
        try:
            earliest = self._bound(EARLIEST)
            latest = self._bound(LATEST)
        except ClientError as problem:
            self._recover(problem)
            return
        where = f"{self.wanted}: offset {self.position} is not in the log, which holds {earliest} to {latest}"
        target = earliest if self.position < earliest else self.wanted.end
        self._lose(where, min(target, self.wanted.end))

    def _bound(self, time_ms: int) -> int:
        found, failures = list_offsets(self.client, [self.partition], time_ms)
        for problem in failures.values():
            raise problem
        return found[self.partition].offset

    def _lose(self, sentence: str, target: int) -> None:
        self.on_loss(sentence)
        self.position = target
        self._forget_connection()

    def __repr__(self) -> str:
        return f"<RangeFetcher {self.wanted} at {self.position}>"

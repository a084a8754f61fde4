"""Search in a topic: fetches whole batches, rules out what cannot be a hit, and tells what it found as it comes.

    for event in Search(open_client, Window("orders"), parse("value.user.id = 42")).events(): ...

Rules:
1. Hits come as they are found, Progress at least after every piece, Summary at the end, always.
2. Nothing is left out in silence: the summary names every offset of the window that was not read, and why.
3. stop() may be called from any thread. Nothing is looked at for longer than a piece of 4 MB before it is noticed,
   and a connection that waits is cut.
4. Everything is bounded: hits, records, bytes, seconds; reaching a bound is told as such.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.fetching import FetchError, Range
from ottla.operations.messages.chunks import Chunk, Chunks
from ottla.operations.messages.decoding import Decoder
from ottla.operations.messages.expressions.matching import compile_expression
from ottla.operations.messages.expressions.prefilter import prefilter_of
from ottla.operations.messages.expressions.syntax import Expression
from ottla.operations.messages.masking import Masks
from ottla.operations.messages.message import Message, Row
from ottla.operations.messages.ranges import read_range
from ottla.operations.messages.walking import Piece, State, Unread, merged, walk
from ottla.operations.messages.windows import Window, find_extents

FETCH_BYTES = 4 << 20
QUIET_TIMEOUT_MS = 10_000  # a partition from which nothing comes for so long counts as unreadable
LOOK_EVERY_ROWS = 256
UNREAD_MAX = 1000  # before neighbours are put together
STOPPED = "the search was stopped"


@dataclass(frozen=True)
class SearchLimits:
    """None: no bound."""

    hits: int | None = None
    records: int | None = None
    read_bytes: int | None = None
    seconds: float | None = None


class Progress(NamedTuple):
    """`done` of `total` offsets are dealt with; bytes are those of the records, decompressed."""

    done: int
    total: int
    records: int
    read_bytes: int
    hits: int


class Summary(NamedTuple):
    """How it ended."""

    progress: Progress
    unread: list[Unread]
    is_stopped: bool
    limit: str | None  # the bound that was reached, in words

    @property
    def has_trouble(self) -> bool:
        return any(item.is_trouble for item in self.unread)


@dataclass(frozen=True)
class _FetchOptions:
    fetch_bytes: int
    is_committed_only: bool
    poll_timeout_ms: int = QUIET_TIMEOUT_MS


class _EndError(Exception):
    """The search ends here, for this reason."""


@dataclass
class _Counts:
    done: int = 0
    total: int = 0
    records: int = 0
    read_bytes: int = 0
    hits: int = 0
    unread: list[Unread] = field(default_factory=list)

    def progress(self) -> Progress:
        return Progress(self.done, self.total, self.records, self.read_bytes, self.hits)


class Search:
    """One search; events() may be iterated once, in one thread."""

    def __init__(
        self,
        open_client: Callable[[], Client],
        window: Window,
        expression: Expression,
        *,
        limits: SearchLimits | None = None,
        decoder: Decoder | None = None,
        masks: Masks | None = None,
        is_newest_first: bool = False,
        with_aborted: bool = False,
        fetch_bytes: int = FETCH_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.open_client = open_client
        self.window = window
        self.limits = limits or SearchLimits()
        self.decoder = decoder or Decoder(window.topic)
        self.masks = masks or Masks((), window.topic)
        self.is_newest_first = is_newest_first
        self.with_aborted = with_aborted
        self.fetch_bytes = fetch_bytes
        self.monotonic = monotonic
        self._matches = compile_expression(expression)
        # What is masked or made by an internal decoder has other bytes than those that were fetched.
        can_filter = self.masks.is_empty and self.decoder.internal is None
        self._prefilter = prefilter_of(expression) if can_filter else None
        self._stopping = threading.Event()
        self._client: Client | None = None
        self._counts = _Counts()
        self._deadline: float | None = None
        self._position = 0  # in the chunk that is being read: everything before it is dealt with

    def stop(self) -> None:
        """End soon; from any thread."""
        self._stopping.set()
        client = self._client
        for connection in list(client.connections.values()) if client is not None else ():
            with suppress(OSError):
                connection.socket.shutdown(2)

    def events(self) -> Iterator[Message | Progress | Summary]:
        """Hits, progress and, as the last, the summary. Raises ClientError if there is no such topic."""
        counts = self._counts
        if self.limits.seconds is not None:
            self._deadline = self.monotonic() + self.limits.seconds
        with self.open_client() as client:
            self._client = client
            extents, counts.unread = find_extents(client, self.window)
            chunks = Chunks(extents, self.is_newest_first)
            counts.total = chunks.total
            ending: str | None = None
            yield counts.progress()
            try:
                for chunk in chunks:
                    yield from self._search(client, chunk, chunks)
            except _EndError as end:
                ending = str(end)
        is_stopped = self._stopping.is_set()
        if ending is not None:
            reason = STOPPED if is_stopped else ending
            counts.unread += [Unread(part.partition, part.start, part.end, reason, False) for part in chunks.left()]
        yield counts.progress()
        yield Summary(counts.progress(), merged(counts.unread), is_stopped, None if is_stopped else ending)

    def _search(self, client: Client, chunk: Chunk, chunks: Chunks) -> Iterator[Message | Progress]:
        """One chunk; what cannot be fetched of it is noted, and the search goes on."""
        counts = self._counts
        wanted = Range(self.window.topic, chunk.partition, chunk.start, chunk.end)
        answers = read_range(client, wanted, _FetchOptions(self.fetch_bytes, chunk.is_stable), self._note)
        self._position = chunk.start
        hits: list[Message] = []
        try:
            for fetched, after in answers:
                self._check()
                begin, bytes_before = self._position, counts.read_bytes
                for hit in self._hits(walk(fetched, chunk.partition, chunk.end, is_stable=chunk.is_stable)):
                    if self.is_newest_first:
                        hits.append(hit)
                        continue
                    yield hit
                    self._position = hit.offset + 1
                    self._count_hit()
                self._position = after
                chunks.note(after - begin, counts.read_bytes - bytes_before)
                counts.done += after - begin
                yield counts.progress()
        except _EndError:
            chunks.advance(chunk, self._position)
            raise
        except (ClientError, FetchError) as problem:
            self._give_up(chunk, chunks, str(problem))
            return
        finally:
            answers.close()
        counts.done += chunk.end - self._position
        chunks.advance(chunk, chunk.end)
        for hit in reversed(hits):
            yield hit
            try:
                self._count_hit()
            except _EndError:
                chunks.retreat(chunk, hit.offset)
                raise
        yield counts.progress()

    def _give_up(self, chunk: Chunk, chunks: Chunks, problem: str) -> None:
        """Nothing more comes of this partition; that it was stopped is no problem of the partition."""
        chunks.advance(chunk, self._position)
        self._check()
        for extent in chunks.abandon(chunk.partition):
            self._counts.done += extent.size
            self._note(Unread(extent.partition, extent.start, extent.end, problem))

    def _note(self, unread: Unread) -> None:
        if len(self._counts.unread) >= UNREAD_MAX:
            self._counts.unread = merged(self._counts.unread)
        self._counts.unread.append(unread)

    def _hits(self, pieces: Iterator[Piece | Unread]) -> Iterator[Message]:
        counts = self._counts
        for piece in pieces:
            if isinstance(piece, Unread):
                self._note(piece)
                continue
            row_view = Row(piece, self.decoder)
            is_masked = not self.masks.is_empty
            has_voids = not self.with_aborted and piece.has_state(frozenset({State.ABORTED}))
            for index, row in enumerate(self._candidates(piece)):
                if index % LOOK_EVERY_ROWS == 0:
                    self._position = piece.offsets[row]
                    self._check()
                if has_voids and piece.state(row) is State.ABORTED:
                    continue
                row_view.row = row
                if not is_masked and not self._matches(row_view):
                    continue
                message = Message(piece.record(row), self.decoder, self.masks)
                if not is_masked or self._matches(message):
                    yield message
            counts.records += piece.rows
            counts.read_bytes += piece.walked_bytes
            self._check()

    def _candidates(self, piece: Piece) -> Iterator[int]:
        if self._prefilter is None:
            return iter(range(piece.rows))
        found = self._prefilter.candidates(piece.data, piece.starts(), piece.end)
        if self.decoder.is_plain:
            return found
        return iter(sorted(set(found) | {row for row in range(piece.rows) if _has_schema(piece, row)}))

    def _count_hit(self) -> None:
        self._counts.hits += 1
        if self.limits.hits is not None and self._counts.hits >= self.limits.hits:
            raise _EndError(f"the limit of {self.limits.hits} hits was reached")

    def _check(self) -> None:
        limits, counts = self.limits, self._counts
        if self._stopping.is_set():
            raise _EndError(STOPPED)
        if limits.records is not None and counts.records >= limits.records:
            raise _EndError(f"the limit of {limits.records} records was reached")
        if limits.read_bytes is not None and counts.read_bytes >= limits.read_bytes:
            raise _EndError(f"the limit of {limits.read_bytes} bytes was reached")
        if self._deadline is not None and self.monotonic() >= self._deadline:
            raise _EndError(f"the limit of {limits.seconds:g} seconds was reached")

    def __repr__(self) -> str:
        return f"<Search in {self.window.topic}: {self._counts.progress()}>"


def _has_schema(piece: Piece, row: int) -> bool:
    """Whether a registry may know more about the row than its bytes say."""
    return any(data is not None and data[:1] == b"\0" for data in (piece.key(row), piece.value(row)))

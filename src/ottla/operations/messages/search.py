"""Searches a topic: fetches whole batches, excludes non-matching rows by the prefilter, and yields hits as it finds
them.

    for event in Search(open_client, Window("orders"), parse("value.user.id = 42")).events(): ...

Rules:
1. Hits are yielded immediately, Progress at least after every piece, Summary always at the end.
2. Nothing is left out silently: the summary lists every range of the window that was not read, and why.
3. stop() may be called from any thread. It takes effect after a piece of at most 4 MB, and shuts down a connection that
   waits for a response.
4. Hits, records, bytes and seconds are bounded; the summary names the bound that was reached.
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
from ottla.operations.messages.expressions.evaluator import compile_expression
from ottla.operations.messages.expressions.prefilter import prefilter_of
from ottla.operations.messages.expressions.syntax import Expression
from ottla.operations.messages.field_masks import Masks
from ottla.operations.messages.message import Message, SearchRow
from ottla.operations.messages.message_decoder import Decoder
from ottla.operations.messages.offset_ranges import Chunk, ChunkPlan, OffsetWindow, fetch_range, find_extents
from ottla.operations.messages.record_reader import RecordChunk, RecordState, UnreadRange, merge_unread, walk
from ottla.operations.range_fetcher import FetchError, FetchSettings, OffsetRange

FETCH_BYTES = 4 << 20
QUIET_TIMEOUT_MS = 10_000  # a partition without data for so long counts as unreadable
CHECK_EVERY_ROWS = 256
UNREAD_MAX = 1000  # before adjacent ranges are merged
STOPPED = "the search was stopped"


@dataclass(frozen=True)
class SearchLimits:
    """None: unlimited."""

    hits: int | None = None
    records: int | None = None
    read_bytes: int | None = None
    seconds: float | None = None


class Progress(NamedTuple):
    """`done` of `total` offsets are processed; bytes are those of the decompressed records."""

    done: int
    total: int
    records: int
    read_bytes: int
    hits: int


class Summary(NamedTuple):
    """The outcome of a search."""

    progress: Progress
    unread: list[UnreadRange]
    is_stopped: bool
    limit: str | None  # the bound that was reached, as text

    @property
    def has_failures(self) -> bool:
        return any(item.is_failure for item in self.unread)


class _SearchEndedError(Exception):
    """Ends the search; str() is the reason."""


@dataclass
class _Counts:
    done: int = 0
    total: int = 0
    records: int = 0
    read_bytes: int = 0
    hits: int = 0
    unread: list[UnreadRange] = field(default_factory=list)

    def progress(self) -> Progress:
        return Progress(self.done, self.total, self.records, self.read_bytes, self.hits)


class Search:
    """One search; events() may be iterated once, in one thread."""

    def __init__(
        self,
        open_client: Callable[[], Client],
        window: OffsetWindow,
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
        # Masked values and internal records have other bytes than those fetched.
        can_filter = self.masks.is_empty and self.decoder.internal is None
        self._prefilter = prefilter_of(expression) if can_filter else None
        self._stop_requested = threading.Event()
        self._client: Client | None = None
        self._counts = _Counts()
        self._deadline: float | None = None
        self._position = 0  # in the current chunk: all earlier offsets are processed

    def stop(self) -> None:
        """Stop soon. Thread-safe."""
        self._stop_requested.set()
        client = self._client
        for connection in list(client.connections.values()) if client is not None else ():
            with suppress(OSError):
                connection.socket.shutdown(2)

    def events(self) -> Iterator[Message | Progress | Summary]:
        """Hits, progress and finally the summary. Raises ClientError if the topic does not exist."""
        counts = self._counts
        if self.limits.seconds is not None:
            self._deadline = self.monotonic() + self.limits.seconds
        with self.open_client() as client:
            self._client = client
            extents, counts.unread = find_extents(client, self.window)
            chunks = ChunkPlan(extents, self.is_newest_first)
            counts.total = chunks.total
            ending: str | None = None
            yield counts.progress()
            try:
                for chunk in chunks:
                    yield from self._search(client, chunk, chunks)
            except _SearchEndedError as end:
                ending = str(end)
        is_stopped = self._stop_requested.is_set()
        if ending is not None:
            reason = STOPPED if is_stopped else ending
            counts.unread += [
                UnreadRange(part.partition, part.start, part.end, reason, False) for part in chunks.remaining()
            ]
        yield counts.progress()
        yield Summary(counts.progress(), merge_unread(counts.unread), is_stopped, None if is_stopped else ending)

    def _search(self, client: Client, chunk: Chunk, chunks: ChunkPlan) -> Iterator[Message | Progress]:
        """Search one chunk. Unreadable ranges are noted, and the search continues."""
        counts = self._counts
        wanted = OffsetRange(self.window.topic, chunk.partition, chunk.start, chunk.end)
        answers = fetch_range(
            client, wanted, FetchSettings(self.fetch_bytes, chunk.is_stable, QUIET_TIMEOUT_MS), self._add_unread
        )
        self._position = chunk.start
        hits: list[Message] = []
        try:
            for fetched, after in answers:
                self._check_limits()
                begin, bytes_before = self._position, counts.read_bytes
                for hit in self._hits(walk(fetched, chunk.partition, chunk.end, is_stable=chunk.is_stable)):
                    if self.is_newest_first:
                        hits.append(hit)
                        continue
                    yield hit
                    self._position = hit.offset + 1
                    self._count_hit()
                self._position = after
                chunks.add_sizes(after - begin, counts.read_bytes - bytes_before)
                counts.done += after - begin
                yield counts.progress()
        except _SearchEndedError:
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
            except _SearchEndedError:
                chunks.retreat(chunk, hit.offset)
                raise
        yield counts.progress()

    def _give_up(self, chunk: Chunk, chunks: ChunkPlan, problem: str) -> None:
        """Give up the rest of a partition. A stop is not an error of the partition."""
        chunks.advance(chunk, self._position)
        self._check_limits()
        for extent in chunks.abandon(chunk.partition):
            self._counts.done += extent.size
            self._add_unread(UnreadRange(extent.partition, extent.start, extent.end, problem))

    def _add_unread(self, unread: UnreadRange) -> None:
        if len(self._counts.unread) >= UNREAD_MAX:
            self._counts.unread = merge_unread(self._counts.unread)
        self._counts.unread.append(unread)

    def _hits(self, pieces: Iterator[RecordChunk | UnreadRange]) -> Iterator[Message]:
        counts = self._counts
        for piece in pieces:
            if isinstance(piece, UnreadRange):
                self._add_unread(piece)
                continue
            row_view = SearchRow(piece, self.decoder)
            is_masked = not self.masks.is_empty
            has_voids = not self.with_aborted and piece.has_state(frozenset({RecordState.ABORTED}))
            for index, row in enumerate(self._candidates(piece)):
                if index % CHECK_EVERY_ROWS == 0:
                    self._position = piece.offsets[row]
                    self._check_limits()
                if has_voids and piece.state(row) is RecordState.ABORTED:
                    continue
                row_view.row = row
                if not is_masked and not self._matches(row_view):
                    continue
                message = Message(piece.record(row), self.decoder, self.masks)
                if not is_masked or self._matches(message):
                    yield message
            counts.records += piece.rows
            counts.read_bytes += piece.decoded_bytes
            self._check_limits()

    def _candidates(self, piece: RecordChunk) -> Iterator[int]:
        if self._prefilter is None:
            return iter(range(piece.rows))
        found = self._prefilter.candidates(piece.data, piece.starts(), piece.end)
        if self.decoder.uses_raw_json:
            return found
        return iter(sorted(set(found) | {row for row in range(piece.rows) if _has_schema(piece, row)}))

    def _count_hit(self) -> None:
        self._counts.hits += 1
        if self.limits.hits is not None and self._counts.hits >= self.limits.hits:
            raise _SearchEndedError(f"the limit of {self.limits.hits} hits was reached")

    def _check_limits(self) -> None:
        limits, counts = self.limits, self._counts
        if self._stop_requested.is_set():
            raise _SearchEndedError(STOPPED)
        if limits.records is not None and counts.records >= limits.records:
            raise _SearchEndedError(f"the limit of {limits.records} records was reached")
        if limits.read_bytes is not None and counts.read_bytes >= limits.read_bytes:
            raise _SearchEndedError(f"the limit of {limits.read_bytes} bytes was reached")
        if self._deadline is not None and self.monotonic() >= self._deadline:
            raise _SearchEndedError(f"the limit of {limits.seconds:g} seconds was reached")

    def __repr__(self) -> str:
        return f"<Search in {self.window.topic}: {self._counts.progress()}>"


def _has_schema(piece: RecordChunk, row: int) -> bool:
    """Whether a registry may decode the row to more than its bytes."""
    return any(data is not None and data[:1] == b"\0" for data in (piece.key(row), piece.value(row)))

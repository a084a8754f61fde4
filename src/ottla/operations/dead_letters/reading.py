"""Letters of one pipeline in its topic: counted by step and reason, listed newest first, and those that somebody chose.

Rules:
1. Only what is committed counts: pipelines send letters in transactions.
2. Counting goes on where it stopped: a topic is read once, however often somebody looks. If records are gone at its
   start, or the topic is another one of that name, it begins anew.
3. Everything is bounded, by letters or by time; whatever was not looked at is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.dead_letters.letter import Letter, read_letter
from ottla.operations.fetching import FetchError, Range
from ottla.operations.messages.ranges import read_range
from ottla.operations.messages.reading import PageRequest, read_one, read_page
from ottla.operations.messages.walking import Record, State, Unread, merged, walk
from ottla.operations.messages.windows import Extent, Window, find_extents, partitions_of

FETCH_BYTES = 1 << 20
QUIET_TIMEOUT_MS = 5_000
KINDS_MAX = 1_000  # of reasons, one by one
PAGE_RECORDS = 2_000  # at most, in one look
LOOK_SECONDS = 2.0  # for a page of letters
CHOOSE_SECONDS = 20.0  # for those that are sent again
PAGE_BYTES = 16 << 20  # of letters that are held for one
CHOSEN_BYTES = 64 << 20  # of letters that are sent again in one go
OTHER_REASONS = "other reasons"
UNREAD_MAX = 100


@dataclass(frozen=True)
class _FetchOptions:
    fetch_bytes: int = FETCH_BYTES
    is_committed_only: bool = True
    poll_timeout_ms: int = QUIET_TIMEOUT_MS


class Kind(NamedTuple):
    """Letters are told apart by where and why they died; None: whatever."""

    step: str | None = None
    reason: str | None = None

    def takes(self, letter: Letter) -> bool:
        return self.step in (None, letter.step) and self.reason in (None, letter.kind)


Bounds = Mapping[int, tuple[int, int]]  # by partition, from an offset to before another


@dataclass
class Count:
    letters: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    firsts: dict[int, int] = field(default_factory=dict)  # by partition, the offset of the first one
    lasts: dict[int, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """In the order of offsets."""
        at_ms = record.timestamp_ms
        self.oldest_ms = min(self.oldest_ms, at_ms) if self.letters else at_ms
        self.newest_ms = max(self.newest_ms, at_ms)
        self.letters += 1
        self.firsts.setdefault(record.partition, record.offset)
        self.lasts[record.partition] = record.offset


@dataclass
class Tally:
    """The letters of a pipeline in a topic, counted so far."""

    topic: str
    pipeline: str
    topic_id: UUID | None = None
    kinds: dict[Kind, Count] = field(default_factory=dict)
    others: int = 0  # records that are no letters of this pipeline
    firsts: dict[int, int] = field(default_factory=dict)  # by partition, where counting began
    positions: dict[int, int] = field(default_factory=dict)  # and where it goes on
    left: int = 0  # offsets that were not looked at yet
    waits: bool = True  # a transaction is open: there is more than may be read
    damaged: list[Unread] = field(default_factory=list)  # gone past for good
    unasked: list[Unread] = field(default_factory=list)  # the next look may have more luck

    @property
    def letters(self) -> int:
        return sum(count.letters for count in self.kinds.values())

    def go_on(
        self, client: Client, topic_id: UUID | None, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Count what is new, for so long. Raises ClientError if there is no such topic."""
        deadline = monotonic() + seconds
        extents, unasked = find_extents(client, Window(self.topic))
        if topic_id != self.topic_id or any(self._is_behind(extent) for extent in extents):
            self._forget(topic_id)
        self.left = 0
        self.unasked = unasked
        self.waits = any(extent.stable < extent.end for extent in extents)
        for extent in extents:
            partition, end = extent.partition, min(extent.end, extent.stable)
            self.firsts.setdefault(partition, extent.start)
            wanted = Range(self.topic, partition, self.positions.setdefault(partition, extent.start), end)
            if wanted.size and monotonic() < deadline:
                self._read(client, wanted, lambda: monotonic() >= deadline)
            self.left += max(0, end - self.positions[partition])

    def _read(self, client: Client, wanted: Range, is_over: Callable[[], bool]) -> None:
        partition = wanted.partition
        try:
            for records, after in records_between(client, wanted, self._note):
                self._add(records)
                self.positions[partition] = after
                if is_over():
                    return
        except (ClientError, FetchError) as problem:
            self.unasked.append(Unread(partition, self.positions[partition], wanted.end, str(problem)))

    def bounds(self, kind: Kind) -> Bounds | None:
        """Where all letters of a kind lie; None: not everything was looked at, or nobody knows."""
        if self.left or self.waits or self.unasked or len(self.kinds) >= KINDS_MAX:
            return None
        found: dict[int, tuple[int, int]] = {}
        for own, count in self.kinds.items():
            if kind.step in (None, own.step) and kind.reason in (None, own.reason):
                for number, first in count.firsts.items():
                    low, high = found.get(number, (first, 0))
                    found[number] = min(low, first), max(high, count.lasts[number] + 1)
        return found

    def _is_behind(self, extent: Extent) -> bool:
        first = self.firsts.get(extent.partition)
        return first is not None and (extent.start > first or extent.end < self.positions[extent.partition])

    def _forget(self, topic_id: UUID | None) -> None:
        self.topic_id = topic_id
        for each in (self.kinds, self.firsts, self.positions, self.damaged):
            each.clear()
        self.others = 0

    def _note(self, unread: Unread) -> None:
        self.damaged = merged([*self.damaged, unread])[-UNREAD_MAX:]

    def _add(self, records: Sequence[Record]) -> None:
        for record in records:
            letter = read_letter(record)
            if letter is None or letter.pipeline != self.pipeline:
                self.others += 1
                continue
            kind = Kind(letter.step, letter.kind)
            if kind not in self.kinds and len(self.kinds) >= KINDS_MAX:
                kind = Kind(letter.step[:0], OTHER_REASONS)
            self.kinds.setdefault(kind, Count()).add(record)


class LetterPage(NamedTuple):
    """`positions` lead to the next page; `has_more`: there is something older."""

    letters: list[Letter]
    positions: dict[int, int]
    has_more: bool


def list_letters(
    client: Client,
    topic: str,
    pipeline: str,
    kind: Kind,
    limit: int,
    positions: Mapping[int, int] | None = None,
    bounds: Bounds | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> LetterPage:
    """The newest of these letters, or those before `positions`; they lie within `bounds`, if these are known.

    Raises ClientError.
    """
    deadline = monotonic() + LOOK_SECONDS
    found: list[Letter] = []
    held_bytes, records = 0, limit
    at: dict[int, int] = dict(positions or {})
    if not at and bounds is not None:
        at = {number: bounds.get(number, (0, 0))[1] for number in partitions_of(client, topic)}
    while True:
        page = read_page(client, PageRequest(topic, records, positions=at or None, read_bytes=PAGE_BYTES))
        for record in page.records:
            letter = read_letter(record) if record.state is State.COMMITTED else None
            if letter is not None and letter.pipeline == pipeline and kind.takes(letter):
                found.append(letter)
                held_bytes += size_of(letter)
            at[record.partition] = record.offset
            if len(found) == limit or held_bytes > PAGE_BYTES:
                at = {**{extent.partition: extent.end for extent in page.extents}, **at}
                return LetterPage(found, at, _has_more(at, bounds))
        at = dict(page.positions)
        if not page.has_more or not _has_more(at, bounds):
            return LetterPage(found, at, False)
        if monotonic() >= deadline:
            return LetterPage(found, at, True)
        records = min(4 * records, PAGE_RECORDS)


def _has_more(at: Mapping[int, int], bounds: Bounds | None) -> bool:
    return bounds is None or any(position > bounds[number][0] for number, position in at.items() if number in bounds)


def read_one_letter(client: Client, topic: str, partition: int, offset: int) -> Letter | None:
    record = read_one(client, topic, partition, offset)
    return None if record is None or record.state is not State.COMMITTED else read_letter(record)


class Chosen(NamedTuple):
    """`ends` fixes which letters there were; `is_cut`: there are more than one request may take. `skipped` were left
    out because somebody said so."""

    letters: list[Letter]
    ends: dict[int, int]
    is_cut: bool
    unread: list[Unread]
    skipped: int = 0


class Choice(NamedTuple):
    """Which letters are wanted: up to `ends`, within `bounds` (if they are known), without those that `skips` names."""

    kind: Kind = Kind()
    most: int = 1_000
    ends: Mapping[int, int] | None = None
    bounds: Bounds | None = None
    skips: Callable[[Letter], bool] = lambda _: False


def choose_letters(
    client: Client, topic: str, pipeline: str, choice: Choice, monotonic: Callable[[], float] = time.monotonic
) -> Chosen:
    """The oldest of these letters. Raises ClientError."""
    deadline = monotonic() + CHOOSE_SECONDS
    extents, unread = find_extents(client, Window(topic))
    found: list[Letter] = []
    ends: dict[int, int] = {}
    held_bytes = skipped = 0
    for wanted in (_wanted(topic, extent, choice) for extent in extents):
        try:
            for records, after in records_between(client, wanted, unread.append) if wanted.size else ():
                for letter in filter(None, map(read_letter, records)):
                    if letter.pipeline != pipeline or not choice.kind.takes(letter):
                        continue
                    if choice.skips(letter):
                        skipped += 1
                        continue
                    found.append(letter)
                    held_bytes += size_of(letter)
                    if len(found) == choice.most or held_bytes > CHOSEN_BYTES:
                        ends[wanted.partition] = letter.record.offset + 1
                        return Chosen(found, ends, True, merged(unread), skipped)
                ends[wanted.partition] = after
                if monotonic() >= deadline:
                    return Chosen(found, ends, True, merged(unread), skipped)
        except (ClientError, FetchError) as problem:
            unread.append(Unread(wanted.partition, wanted.start, wanted.end, str(problem)))
        ends[wanted.partition] = wanted.end
    return Chosen(found, ends, False, merged(unread), skipped)


def _wanted(topic: str, extent: Extent, choice: Choice) -> Range:
    start, end = extent.start, min(extent.end, extent.stable)
    if choice.bounds is not None:
        first, last = choice.bounds.get(extent.partition, (0, 0))
        start, end = max(start, first), min(end, last)
    if choice.ends is not None:
        end = min(end, choice.ends.get(extent.partition, 0))
    return Range(topic, extent.partition, start, max(start, end))


def size_of(letter: Letter) -> int:
    """The bytes of its key and value."""
    return len(letter.record.key or b"") + len(letter.record.value or b"")


def records_between(
    client: Client, wanted: Range, on_unread: Callable[[Unread], None]
) -> Iterator[tuple[list[Record], int]]:
    """Committed records, answer by answer, each with the offset after it; what is damaged is told, and gone past.

    Raises ClientError or FetchError if nothing more comes.
    """
    answers = read_range(client, wanted, _FetchOptions(), on_unread)
    try:
        for fetched, after in answers:
            records: list[Record] = []
            for piece in walk(fetched, wanted.partition, wanted.end):
                if isinstance(piece, Unread):
                    on_unread(piece)
                else:
                    records += [piece.record(row) for row in range(piece.rows) if piece.state(row) is State.COMMITTED]
            yield records, after
    finally:
        answers.close()

"""Dead letters of a pipeline: counted by step and reason, listed, and resent to their topics.

A dead letter is a record that a pipeline could not process. It keeps key, value and headers, and has further headers at
the end:

    ottla.pipeline  ottla.step  ottla.reason  ottla.topic  ottla.partition  ottla.offset  ottla.timestamp

Rules of the format:
1. These are the last headers. A dead letter of a dead letter has two sets, and the last set counts.
2. A resent record has its original key, value and headers, without the last set.
3. A reason describes one record; to group reasons, varying details (numbers, times, quoted texts) are replaced.

Rules of reading:
1. Only committed records count: pipelines write dead letters in transactions.
2. Counting is incremental. It restarts if records were deleted at the start of the topic or the topic was recreated.
3. Every operation is bounded in records or in time, and reports what it did not read.

Rules of resending:
1. In its source topic a record goes to its source partition, if that exists. Otherwise its key selects the partition,
   as in Kafka's producers; without a key partitions are used in turn. Order within a partition is kept.
2. A batch is written whole or not at all. A batch that is too large is split in halves; a refusal is reported per
   letter, and the other batches are sent.
3. Nothing is sent twice: if a response is lost, the letters count as unsure and are not retried.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from ottla.base.errors import Error
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.operations.messages.offset_ranges import OffsetExtent, OffsetWindow, fetch_range, find_extents, partitions_of
from ottla.operations.messages.pages import PageRequest, read_one, read_page
from ottla.operations.messages.producer import NewMessage, is_outcome_unknown, partition_of_key, produce_batch
from ottla.operations.messages.record_reader import Record, RecordState, UnreadRange, merge_unread, walk
from ottla.operations.range_fetcher import FetchError, FetchSettings, OffsetRange

FETCH_BYTES = 1 << 20
QUIET_TIMEOUT_MS = 5_000
KINDS_MAX = 1_000  # distinct reasons
PAGE_RECORDS = 2_000  # per request
PAGE_TIMEOUT_SECONDS = 2.0  # for one page of letters
SELECT_TIMEOUT_SECONDS = 20.0  # to select the letters to resend
PAGE_BYTES = 16 << 20  # key and value bytes held for one page
SELECTED_BYTES_MAX = 64 << 20  # key and value bytes of one resend
OTHER_REASONS = "other reasons"
UNREAD_MAX = 100
BATCH_RECORDS = 200
BATCH_BYTES = 500_000
TOO_LARGE = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})


# ---- the format of a letter

PREFIX = "ottla."
HEADER_SUFFIXES = ("pipeline", "step", "reason", "topic", "partition", "offset", "timestamp")  # in this order
HEADER_NAMES = tuple(f"{PREFIX}{name}" for name in HEADER_SUFFIXES)
REASON_CHARACTERS_MAX = 200
DETAIL = "…"
# The varying parts of a reason: quoted texts (also truncated ones), times, numbers.
_DETAILS = re.compile(
    r"""
    "(?:[^"\\]|\\.)*(?:"|$) | (?<!\w)'(?:[^'\\]|\\.)*(?:'(?!\w)|$)
    | \d{4}-\d\d-\d\d(?:[T\ ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)? | (?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])
    """,
    re.VERBOSE,
)


class Source(NamedTuple):
    """The position of the source record."""

    topic: str
    partition: int
    offset: int


class Letter(NamedTuple):
    """`record` is the letter as stored in its topic; `source` is None if its headers name none."""

    record: Record
    pipeline: str
    step: str
    reason: str
    source: Source | None

    @property
    def kind(self) -> str:
        return normalize_reason(self.reason)

    @property
    def original(self) -> Record:
        """Key, value and headers of the source record."""
        return self.record._replace(headers=list(self.record.headers)[: -len(HEADER_SUFFIXES)])


def read_letter(record: Record) -> Letter | None:
    """The letter in this record; None if the record is not a letter."""
    headers = list(record.headers)[-len(HEADER_SUFFIXES) :]
    if tuple(name for name, _ in headers) != HEADER_NAMES:
        return None
    told = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    return Letter(record, told["ottla.pipeline"], told["ottla.step"], told["ottla.reason"], _source(told))


def normalize_reason(reason: str) -> str:
    """The reason without the details that differ from record to record."""
    return _DETAILS.sub(DETAIL, reason[:2_000])[:REASON_CHARACTERS_MAX]


def _source(told: Mapping[str, str]) -> Source | None:
    topic, partition, offset = (told[f"{PREFIX}{name}"] for name in ("topic", "partition", "offset"))
    if not topic or not _is_number(partition) or not _is_number(offset):
        return None
    return Source(topic, int(partition), int(offset))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19


# ---- counting and listing


class LetterKind(NamedTuple):
    """Letters grouped by step and reason; None matches any."""

    step: str | None = None
    reason: str | None = None

    def matches(self, letter: Letter) -> bool:
        return self.step in (None, letter.step) and self.reason in (None, letter.kind)


Bounds = Mapping[int, tuple[int, int]]  # by partition: first offset, offset after the last


@dataclass
class LetterCount:
    letters: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    firsts: dict[int, int] = field(default_factory=dict)  # by partition: offset of the first letter
    lasts: dict[int, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Add a record; offsets must ascend."""
        at_ms = record.timestamp_ms
        self.oldest_ms = min(self.oldest_ms, at_ms) if self.letters else at_ms
        self.newest_ms = max(self.newest_ms, at_ms)
        self.letters += 1
        self.firsts.setdefault(record.partition, record.offset)
        self.lasts[record.partition] = record.offset


@dataclass
class DeadLetterCounter:
    """The letters of one pipeline in a topic, counted so far."""

    topic: str
    pipeline: str
    topic_id: UUID | None = None
    kinds: dict[LetterKind, LetterCount] = field(default_factory=dict)
    other_records: int = 0  # records that are not letters of this pipeline
    firsts: dict[int, int] = field(default_factory=dict)  # by partition: offset where counting began
    positions: dict[int, int] = field(default_factory=dict)  # by partition: next offset to count
    remaining_offsets: int = 0  # offsets not read yet
    has_open_transactions: bool = True  # a transaction is open: records beyond the last stable offset are not counted
    damaged: list[UnreadRange] = field(default_factory=list)  # skipped for good
    failed_partitions: list[UnreadRange] = field(default_factory=list)  # failed now, retried by the next call

    @property
    def letters(self) -> int:
        return sum(count.letters for count in self.kinds.values())

    def update(
        self, client: Client, topic_id: UUID | None, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Count new records for at most this long. Raises ClientError if the topic does not exist."""
        deadline = monotonic() + seconds
        extents, unasked = find_extents(client, OffsetWindow(self.topic))
        if topic_id != self.topic_id or any(self._is_truncated(extent) for extent in extents):
            self._reset(topic_id)
        self.remaining_offsets = 0
        self.failed_partitions = unasked
        self.has_open_transactions = any(extent.stable < extent.end for extent in extents)
        for extent in extents:
            partition, end = extent.partition, min(extent.end, extent.stable)
            self.firsts.setdefault(partition, extent.start)
            wanted = OffsetRange(self.topic, partition, self.positions.setdefault(partition, extent.start), end)
            if wanted.size and monotonic() < deadline:
                self._read(client, wanted, lambda: monotonic() >= deadline)
            self.remaining_offsets += max(0, end - self.positions[partition])

    def _read(self, client: Client, wanted: OffsetRange, is_over: Callable[[], bool]) -> None:
        partition = wanted.partition
        try:
            for records, after in records_between(client, wanted, self._add_damaged):
                self._add(records)
                self.positions[partition] = after
                if is_over():
                    return
        except (ClientError, FetchError) as problem:
            self.failed_partitions.append(UnreadRange(partition, self.positions[partition], wanted.end, str(problem)))

    def bounds(self, kind: LetterKind) -> Bounds | None:
        """The offset ranges that hold all letters of a kind; None if not everything was read."""
        if (
            self.remaining_offsets
            or self.has_open_transactions
            or self.failed_partitions
            or len(self.kinds) >= KINDS_MAX
        ):
            return None
        found: dict[int, tuple[int, int]] = {}
        for own, count in self.kinds.items():
            if kind.step in (None, own.step) and kind.reason in (None, own.reason):
                for number, first in count.firsts.items():
                    low, high = found.get(number, (first, 0))
                    found[number] = min(low, first), max(high, count.lasts[number] + 1)
        return found

    def _is_truncated(self, extent: OffsetExtent) -> bool:
        first = self.firsts.get(extent.partition)
        return first is not None and (extent.start > first or extent.end < self.positions[extent.partition])

    def _reset(self, topic_id: UUID | None) -> None:
        self.topic_id = topic_id
        for each in (self.kinds, self.firsts, self.positions, self.damaged):
            each.clear()
        self.other_records = 0

    def _add_damaged(self, unread: UnreadRange) -> None:
        self.damaged = merge_unread([*self.damaged, unread])[-UNREAD_MAX:]

    def _add(self, records: Sequence[Record]) -> None:
        for record in records:
            letter = read_letter(record)
            if letter is None or letter.pipeline != self.pipeline:
                self.other_records += 1
                continue
            kind = LetterKind(letter.step, letter.kind)
            if kind not in self.kinds and len(self.kinds) >= KINDS_MAX:
                kind = LetterKind(letter.step[:0], OTHER_REASONS)
            self.kinds.setdefault(kind, LetterCount()).add(record)


class LetterPage(NamedTuple):
    """`positions` continue at the next page; `has_more` means that older letters exist."""

    letters: list[Letter]
    positions: dict[int, int]
    has_more: bool


def list_letters(
    client: Client,
    topic: str,
    pipeline: str,
    kind: LetterKind,
    limit: int,
    positions: Mapping[int, int] | None = None,
    bounds: Bounds | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> LetterPage:
    """The newest letters of this kind, or those before `positions`, within `bounds` if these are known.

    Raises ClientError.
    """
    deadline = monotonic() + PAGE_TIMEOUT_SECONDS
    found: list[Letter] = []
    held_bytes, records = 0, limit
    at: dict[int, int] = dict(positions or {})
    if not at and bounds is not None:
        at = {number: bounds.get(number, (0, 0))[1] for number in partitions_of(client, topic)}
    while True:
        page = read_page(client, PageRequest(topic, records, positions=at or None, read_bytes=PAGE_BYTES))
        for record in page.records:
            letter = read_letter(record) if record.state is RecordState.COMMITTED else None
            if letter is not None and letter.pipeline == pipeline and kind.matches(letter):
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
    return None if record is None or record.state is not RecordState.COMMITTED else read_letter(record)


class LetterSelection(NamedTuple):
    """The letters selected for resending. `ends` pins the selection; `is_cut` means that more letters match than one
    request may take; `skipped` counts letters that the filter excluded.
    """

    letters: list[Letter]
    ends: dict[int, int]
    is_cut: bool
    unread: list[UnreadRange]
    skipped: int = 0


class LetterFilter(NamedTuple):
    """A selection of letters: up to `ends`, within `bounds` (if known), without those that `is_excluded` matches."""

    kind: LetterKind = LetterKind()
    limit: int = 1_000
    ends: Mapping[int, int] | None = None
    bounds: Bounds | None = None
    is_excluded: Callable[[Letter], bool] = lambda _: False


def select_letters(
    client: Client, topic: str, pipeline: str, choice: LetterFilter, monotonic: Callable[[], float] = time.monotonic
) -> LetterSelection:
    """The oldest matching letters. Raises ClientError."""
    deadline = monotonic() + SELECT_TIMEOUT_SECONDS
    extents, unread = find_extents(client, OffsetWindow(topic))
    found: list[Letter] = []
    ends: dict[int, int] = {}
    held_bytes = skipped = 0
    for wanted in (_wanted(topic, extent, choice) for extent in extents):
        try:
            for records, after in records_between(client, wanted, unread.append) if wanted.size else ():
                for letter in filter(None, map(read_letter, records)):
                    if letter.pipeline != pipeline or not choice.kind.matches(letter):
                        continue
                    if choice.is_excluded(letter):
                        skipped += 1
                        continue
                    found.append(letter)
                    held_bytes += size_of(letter)
                    if len(found) == choice.limit or held_bytes > SELECTED_BYTES_MAX:
                        ends[wanted.partition] = letter.record.offset + 1
                        return LetterSelection(found, ends, True, merge_unread(unread), skipped)
                ends[wanted.partition] = after
                if monotonic() >= deadline:
                    return LetterSelection(found, ends, True, merge_unread(unread), skipped)
        except (ClientError, FetchError) as problem:
            unread.append(UnreadRange(wanted.partition, wanted.start, wanted.end, str(problem)))
        ends[wanted.partition] = wanted.end
    return LetterSelection(found, ends, False, merge_unread(unread), skipped)


def _wanted(topic: str, extent: OffsetExtent, choice: LetterFilter) -> OffsetRange:
    start, end = extent.start, min(extent.end, extent.stable)
    if choice.bounds is not None:
        first, last = choice.bounds.get(extent.partition, (0, 0))
        start, end = max(start, first), min(end, last)
    if choice.ends is not None:
        end = min(end, choice.ends.get(extent.partition, 0))
    return OffsetRange(topic, extent.partition, start, max(start, end))


def size_of(letter: Letter) -> int:
    """The size of key and value in bytes."""
    return len(letter.record.key or b"") + len(letter.record.value or b"")


def records_between(
    client: Client, wanted: OffsetRange, on_unread: Callable[[UnreadRange], None]
) -> Iterator[tuple[list[Record], int]]:
    """Committed records, response by response, each with the offset after it. Damaged ranges are reported and skipped.

    Raises ClientError or FetchError if reading cannot continue.
    """
    answers = fetch_range(client, wanted, FetchSettings(FETCH_BYTES, True, QUIET_TIMEOUT_MS), on_unread)
    try:
        for fetched, after in answers:
            records: list[Record] = []
            for piece in walk(fetched, wanted.partition, wanted.end):
                if isinstance(piece, UnreadRange):
                    on_unread(piece)
                else:
                    records += [
                        piece.record(row) for row in range(piece.rows) if piece.state(row) is RecordState.COMMITTED
                    ]
            yield records, after
    finally:
        answers.close()


# ---- resending


class Outcome(StrEnum):
    SENT = "sent"
    REFUSED = "refused"
    UNSURE = "unsure"


class ResendResult(NamedTuple):
    """The result for one letter; `problem` is a sentence unless it was sent."""

    letter: Letter
    topic: str
    outcome: Outcome
    partition: int = -1
    offset: int = -1
    problem: str = ""


def target_of(letter: Letter, to: str | None) -> str | None:
    """The topic that a letter goes to; None if its headers name none."""
    return to or (None if letter.source is None else letter.source.topic)


def resend_letters(
    client: Client, letters: Sequence[Letter], to: str | None, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[ResendResult]:
    """Resend letters batch by batch, and return the result for each."""
    for topic, chosen in _by_target(letters, to).items():
        try:
            numbers = partitions_of(client, topic)
        except ClientError as problem:
            yield from (ResendResult(letter, topic, Outcome.REFUSED, problem=str(problem)) for letter in chosen)
            continue
        for partition, own in _by_partition(chosen, topic, numbers).items():
            for batch in _batches(own):
                if is_stopped():
                    yield from (
                        ResendResult(each, topic, Outcome.REFUSED, problem="the resend was stopped") for each in batch
                    )
                else:
                    yield from _send(client, topic, partition, batch)


def _send(client: Client, topic: str, partition: int, batch: Sequence[Letter]) -> Iterator[ResendResult]:
    messages = [NewMessage(each.record.key, each.record.value, each.original.headers) for each in batch]
    try:
        written = produce_batch(client, topic, partition, messages)
    except ClientError as problem:
        if problem.error in TOO_LARGE and len(batch) > 1:
            middle = len(batch) // 2
            yield from _send(client, topic, partition, batch[:middle])
            yield from _send(client, topic, partition, batch[middle:])
            return
        outcome = Outcome.UNSURE if is_outcome_unknown(problem) else Outcome.REFUSED
        yield from (ResendResult(each, topic, outcome, partition, problem=str(problem)) for each in batch)
        return
    for place, each in enumerate(batch):
        yield ResendResult(each, topic, Outcome.SENT, partition, written.offset + place)


def _by_target(letters: Sequence[Letter], to: str | None) -> Mapping[str, list[Letter]]:
    found: dict[str, list[Letter]] = {}
    for letter in letters:
        topic = target_of(letter, to)
        if topic is not None:
            found.setdefault(topic, []).append(letter)
    return found


def _by_partition(letters: Sequence[Letter], topic: str, numbers: Sequence[int]) -> Mapping[int, list[Letter]]:
    found: dict[int, list[Letter]] = {}
    for place, letter in enumerate(letters):
        source, key = letter.source, letter.record.key
        if source is not None and source.topic == topic and source.partition in numbers:
            partition = source.partition
        elif key is not None:
            partition = partition_of_key(key, numbers)
        else:
            partition = numbers[place % len(numbers)]
        found.setdefault(partition, []).append(letter)
    return found


def _batches(letters: Sequence[Letter]) -> Iterator[list[Letter]]:
    batch: list[Letter] = []
    size = 0
    for letter in letters:
        own = size_of(letter)
        if batch and (len(batch) >= BATCH_RECORDS or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(letter)
        size += own
    if batch:
        yield batch

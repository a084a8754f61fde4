"""Whether the index of aborted transactions says what the log says, and making it anew if it does not.

The index has no checksum, and a file that is gone looks like one that was never needed. So when bytes of an earlier run
are checked (verification.py), the batches of transactions among them are compared with it: how one of them ended, the
next marker of its producer tells, in these bytes or further on. An aborted one must have an entry that ends at that
marker, a committed one must have none. One that disagrees costs a rebuild of the whole log's transaction indexes.

Everything that this process wrote or recovered itself is in step with its log, and never looked at here.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.file_range import FileRange
from ottla.storage import files
from ottla.storage.producers import Producers
from ottla.storage.replay import aborted_by, note_producer, read_marker
from ottla.storage.scan import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchScan
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTransaction, TransactionIndexError

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.storage.transaction_check")

NOT_SEEN: Final = -1


class TransactionIndexWrongError(Exception):
    """The transaction indexes of a log are not what its markers say: read again when a worker has made them anew."""

    def __init__(self, log: Log) -> None:
        super().__init__(f"the transaction indexes of {log.partition} do not fit the log")
        self.log = log


class Outcome(NamedTuple):
    """The next marker of a producer, seen from an offset on; NOT_SEEN if there is none that could be read."""

    from_offset: int
    marker_offset: int
    is_abort: bool


class Part(NamedTuple):
    """The batches of one transaction that lie in a range, and how it ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    marker_offset: int
    is_abort: bool


class OutcomeScan:
    """Reads a range and as far beyond it as it takes to know how its transactions ended; in any thread."""

    def __init__(self, segments: list[Segment], open_transactions: dict[int, int], known: dict[int, Outcome]) -> None:
        self.parts: list[Part] = []
        self._segments = segments
        self._open = open_transactions  # first offsets, by producer
        self._known = known  # what an earlier look ahead found: a long transaction is read once, not with each range
        self._pending: dict[int, tuple[int, int]] = {}  # first and last batch in the range, by producer

    def run(self, place: int, descriptor: int, start: int, end: int) -> None:
        """Over the bytes from start to end of the segment in this place, then on to the last marker that is missing."""
        scan = BatchScan(descriptor, start, self._segments[place].size, False)
        while scan.next_position < end and scan.advance():
            self._take(scan, is_in_range=True)
        self._settle_known()
        if not self._pending or scan.problem is not None:
            return
        while self._pending and scan.advance():
            self._take(scan, is_in_range=False)
        for segment in self._segments[place + 1 :]:
            if not self._pending or scan.problem is not None:
                break
            with files.opened(segment.path(files.LOG_SUFFIX), files.READ_FLAGS) as other:
                scan = BatchScan(other, 0, segment.size, False)
                while self._pending and scan.advance():
                    self._take(scan, is_in_range=False)
        for producer_id, (first_offset, _) in self._pending.items():
            self._known[producer_id] = Outcome(first_offset, NOT_SEEN, False)

    def _take(self, scan: BatchScan, *, is_in_range: bool) -> None:
        producer_id = scan.producer_id
        if producer_id < 0 or not scan.attributes & TRANSACTIONAL_FLAG:
            return
        if not scan.attributes & CONTROL_FLAG:
            if is_in_range:
                first_offset = self._pending.get(producer_id, (scan.base_offset, 0))[0]
                self._pending[producer_id] = (first_offset, scan.base_offset)
            return
        if producer_id in self._pending:
            marker = read_marker(scan.batch())
            if marker is not None:
                if not is_in_range:
                    first_offset = self._pending[producer_id][0]
                    self._known[producer_id] = Outcome(first_offset, scan.last_offset, marker.is_abort)
                self._settle(producer_id, scan.last_offset, marker.is_abort)

    def _settle(self, producer_id: int, marker_offset: int, is_abort: bool) -> None:
        first_offset, last_offset = self._pending.pop(producer_id)
        self.parts.append(Part(producer_id, first_offset, last_offset, marker_offset, is_abort))

    def _settle_known(self) -> None:
        """Transactions that are under way have no marker, and others may have been looked for before."""
        for producer_id, (first_offset, last_offset) in list(self._pending.items()):
            open_offset = self._open.get(producer_id, NOT_SEEN)
            if 0 <= open_offset <= first_offset:
                del self._pending[producer_id]
                continue
            known = self._known.get(producer_id)
            if known is None or first_offset < known.from_offset:
                continue
            if known.marker_offset == NOT_SEEN:
                del self._pending[producer_id]
            elif last_offset < known.marker_offset:
                self._settle(producer_id, known.marker_offset, known.is_abort)

    def __repr__(self) -> str:
        return f"<OutcomeScan {len(self.parts)} parts, {len(self._pending)} open>"


def has_wrong_outcome(
    segments: list[Segment], file_range: FileRange, open_transactions: dict[int, int], known: dict[int, Outcome]
) -> bool:
    """Whether the transaction indexes say something else about these bytes than the log; in any thread."""
    segment = file_range.owner
    place = next((place for place, each in enumerate(segments) if each is segment), -1)
    if place < 0:
        return False  # it was taken out of the log meanwhile
    scan = OutcomeScan(segments, open_transactions, known)
    with contextlib.suppress(FileNotFoundError):  # a later segment was deleted or moved: nothing to compare with
        scan.run(place, file_range.descriptor, file_range.position, file_range.position + file_range.length)
    if not scan.parts:
        return False
    try:
        aborted = find_aborted(
            segments[place:],
            min(part.first_offset for part in scan.parts),
            max(part.last_offset for part in scan.parts) + 1,
        )
    except TransactionIndexError:
        return True
    return not all(is_right(part, aborted) for part in scan.parts)


def find_aborted(segments: list[Segment], from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """As Log.aborted_transactions() finds them, without a trace in the segments."""
    found: list[AbortedTransaction] = []
    for segment in segments:
        if segment.has_transactions:
            entries, is_complete = segment.known_transactions().find(from_offset, to_offset)
            found += entries
            if is_complete:
                break
    return found


def is_right(part: Part, aborted: list[AbortedTransaction]) -> bool:
    has_entry = False
    for entry in aborted:
        if entry.producer_id != part.producer_id:
            continue
        if entry.last_offset == part.marker_offset and part.is_abort and entry.first_offset <= part.first_offset:
            has_entry = True
        elif entry.first_offset <= part.last_offset and entry.last_offset >= part.first_offset:
            return False
    return has_entry == part.is_abort


class TransactionRebuild:
    """All transaction indexes of a log on their way: read in any thread, installed by the owner of the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._truncations = log.truncation_count
        self._end_offset = log.end_offset
        self._sources = [(segment, segment.size, segment.path(files.LOG_SUFFIX)) for segment in log.segments]
        self._built: dict[Segment, list[AbortedTransaction]] = {}

    def run(self) -> None:
        """In any thread: walk the batch headers of what the log had when this began."""
        producers = Producers(self.log.producer_expiration_ms)
        for segment, size, path in self._sources:
            try:
                with files.opened(path, files.READ_FLAGS) as descriptor:
                    self._built[segment] = aborted_in(BatchScan(descriptor, 0, size, False), producers)
            except FileNotFoundError:
                continue  # deleted meanwhile, or moved: then the next one finds it

    def finish(self) -> None:
        """On the thread that owns the log, whatever became of run()."""
        log = self.log
        log.outcomes.clear()
        if log.truncation_count != self._truncations:
            return
        for segment in log.segments:
            built = self._built.get(segment)
            if built is not None and not segment.is_closing:
                self._install(segment, built)
        log.has_checked_transactions = all(
            segment in self._built for segment in log.segments if segment.base_offset < self._end_offset
        )

    def _install(self, segment: Segment, built: list[AbortedTransaction]) -> None:
        try:
            entries = segment.transactions().entries if segment.has_transactions else []
        except TransactionIndexError:
            entries = []
        right = [*built, *(entry for entry in entries if entry.last_offset >= self._end_offset)]
        if right != entries:
            path = segment.path(files.TRANSACTION_INDEX_SUFFIX)
            logger.warning(
                "Found a corrupted transaction index %s (%d entries), rebuilt it from the log: %d entries",
                path,
                len(entries),
                len(right),
            )
            segment.replace_transactions(right)

    def __repr__(self) -> str:
        return f"<TransactionRebuild of {self.log.partition}>"


def aborted_in(scan: BatchScan, producers: Producers) -> list[AbortedTransaction]:
    """The aborted transactions whose markers a scan meets, with the producers as they were where it begins."""
    found: list[AbortedTransaction] = []
    while scan.advance():
        if scan.producer_id >= 0:
            first_offset = note_producer(producers, scan)
            if first_offset >= 0:
                found.append(aborted_by(producers, scan.producer_id, first_offset, scan.last_offset))
    return found

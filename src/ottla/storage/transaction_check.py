"""Checks the index of aborted transactions against the log, and rebuilds it.

The index has no checksum, and a missing file cannot be distinguished from one that was never needed. When bytes of an
earlier run are checked (range_checks.py), their transactional batches are therefore compared with the index. The next
marker of a producer, in these bytes or later, shows how a transaction ended. An aborted transaction must have an entry
that ends at its marker; a committed one must have none. A mismatch leads to a rebuild of all transaction indexes of the
log.

Transactions that this process wrote or recovered are never checked here.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base.file_range import FileRange
from ottla.storage import files
from ottla.storage.producer_state import ProducerStates
from ottla.storage.replay import aborted_transaction, apply_batch, read_marker
from ottla.storage.scan import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchScan
from ottla.storage.segment import Segment
from ottla.storage.transaction_index import AbortedTxn, TransactionIndexError

if TYPE_CHECKING:
    from ottla.storage.log import Log

logger = logging.getLogger("ottla.storage.transaction_check")

NOT_SEEN: Final = -1


class TransactionIndexWrongError(Exception):
    """The transaction indexes of a log do not match its markers: read again after a worker has rebuilt them."""

    def __init__(self, log: Log) -> None:
        super().__init__(f"the transaction indexes of {log.partition} do not match the log")
        self.log = log


class TxnOutcome(NamedTuple):
    """The next marker of a producer after an offset; NOT_SEEN if there is none that could be read."""

    from_offset: int
    marker_offset: int
    is_abort: bool


class RangeTransaction(NamedTuple):
    """The batches of one transaction in a range, and its outcome."""

    producer_id: int
    first_offset: int
    last_offset: int
    marker_offset: int
    is_abort: bool


class TxnOutcomeScan:
    """Scans a range, and further until the outcome of its transactions is known; in any thread."""

    def __init__(
        self, segments: list[Segment], open_transactions: dict[int, int], known: dict[int, TxnOutcome]
    ) -> None:
        self.transactions: list[RangeTransaction] = []
        self._segments = segments
        self._open = open_transactions  # first offsets, by producer
        self._known = known  # outcomes of earlier scans: a long transaction is scanned once, not for each range
        self._pending: dict[int, tuple[int, int]] = {}  # first and last batch in the range, by producer

    def run(self, segment_index: int, descriptor: int, start: int, end: int) -> None:
        """Scan the bytes from start to end of this segment, then on to the last missing marker."""
        scan = BatchScan(descriptor, start, self._segments[segment_index].size, False)
        while scan.next_position < end and scan.advance():
            self._add_batch(scan, is_in_range=True)
        self._complete_known()
        if not self._pending or scan.problem is not None:
            return
        while self._pending and scan.advance():
            self._add_batch(scan, is_in_range=False)
        for segment in self._segments[segment_index + 1 :]:
            if not self._pending or scan.problem is not None:
                break
            with files.open_descriptor(segment.path(files.LOG_SUFFIX), files.READ_FLAGS) as other:
                scan = BatchScan(other, 0, segment.size, False)
                while self._pending and scan.advance():
                    self._add_batch(scan, is_in_range=False)
        for producer_id, (first_offset, _) in self._pending.items():
            self._known[producer_id] = TxnOutcome(first_offset, NOT_SEEN, False)

    def _add_batch(self, scan: BatchScan, *, is_in_range: bool) -> None:
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
                    self._known[producer_id] = TxnOutcome(first_offset, scan.last_offset, marker.is_abort)
                self._complete(producer_id, scan.last_offset, marker.is_abort)

    def _complete(self, producer_id: int, marker_offset: int, is_abort: bool) -> None:
        first_offset, last_offset = self._pending.pop(producer_id)
        self.transactions.append(RangeTransaction(producer_id, first_offset, last_offset, marker_offset, is_abort))

    def _complete_known(self) -> None:
        """Set the outcomes of open transactions, which have no marker, and of those known from an earlier scan."""
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
                self._complete(producer_id, known.marker_offset, known.is_abort)

    def __repr__(self) -> str:
        return f"<TxnOutcomeScan {len(self.transactions)} parts, {len(self._pending)} open>"


def contradicts_transaction_index(
    segments: list[Segment], file_range: FileRange, open_transactions: dict[int, int], known: dict[int, TxnOutcome]
) -> bool:
    """Return whether the transaction indexes contradict these bytes; in any thread."""
    segment = file_range.owner
    place = next((place for place, each in enumerate(segments) if each is segment), -1)
    if place < 0:
        return False  # it was removed from the log in the meantime
    scan = TxnOutcomeScan(segments, open_transactions, known)
    # A later segment was deleted or moved: there is nothing to compare with.
    with contextlib.suppress(FileNotFoundError):
        scan.run(place, file_range.descriptor, file_range.position, file_range.position + file_range.length)
    if not scan.transactions:
        return False
    try:
        aborted = find_aborted(
            segments[place:],
            min(part.first_offset for part in scan.transactions),
            max(part.last_offset for part in scan.transactions) + 1,
        )
    except TransactionIndexError:
        return True
    return not all(matches_index(part, aborted) for part in scan.transactions)


def find_aborted(segments: list[Segment], from_offset: int, to_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions as Log.aborted_transactions() does, without changing the segments."""
    found: list[AbortedTxn] = []
    for segment in segments:
        if segment.has_transactions:
            entries, is_complete = segment.read_transactions().find(from_offset, to_offset)
            found += entries
            if is_complete:
                break
    return found


def matches_index(part: RangeTransaction, aborted: list[AbortedTxn]) -> bool:
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
    """A rebuild of all transaction indexes of a log: any thread reads, the owner installs the result."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._truncations = log.truncation_count
        self._end_offset = log.end_offset
        self._sources = [(segment, segment.size, segment.path(files.LOG_SUFFIX)) for segment in log.segments]
        self._built: dict[Segment, list[AbortedTxn]] = {}

    def run(self) -> None:
        """Scan, in any thread, the batch headers that existed when the rebuild started."""
        producers = ProducerStates(self.log.producer_state.expiration_ms)
        for segment, size, path in self._sources:
            try:
                with files.open_descriptor(path, files.READ_FLAGS) as descriptor:
                    self._built[segment] = aborted_transactions_of(BatchScan(descriptor, 0, size, False), producers)
            except FileNotFoundError:
                continue  # deleted or moved in the meantime: the next check finds it

    def install(self) -> None:
        """Install the result on the owner's thread. Must be called even if run() has failed."""
        log = self.log
        log.known_txn_outcomes.clear()
        if log.truncation_count != self._truncations:
            return
        for segment in log.segments:
            built = self._built.get(segment)
            if built is not None and not segment.is_closing:
                self._install(segment, built)
        log.has_verified_txn_index = all(
            segment in self._built for segment in log.segments if segment.base_offset < self._end_offset
        )

    def _install(self, segment: Segment, built: list[AbortedTxn]) -> None:
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


def aborted_transactions_of(scan: BatchScan, producers: ProducerStates) -> list[AbortedTxn]:
    """Return the aborted transactions with markers in this scan, given the producers at its start."""
    found: list[AbortedTxn] = []
    while scan.advance():
        if scan.producer_id >= 0:
            first_offset = apply_batch(producers, scan)
            if first_offset >= 0:
                found.append(aborted_transaction(producers, scan.producer_id, first_offset, scan.last_offset))
    return found

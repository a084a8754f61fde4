"""Which batches belong to aborted transactions, and when the markers that end transactions may go. Compiled with mypyc.

The cleaner reads the log from its beginning and tells each batch to an object of this kind. Kafka's rules: records of
aborted transactions go at once. A marker stays as long as records of its transaction were met on the way to it, and
for delete.retention.ms after that.
"""

from __future__ import annotations

from ottla.protocol.batches import BatchHeader
from ottla.storage.replay import read_marker
from ottla.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the present place in the log."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=_first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}  # producer id -> transaction under way
        self._met: set[int] = set()  # producers of whose aborted transaction a batch was there
        self._committing: set[int] = set()
        self.kept: list[AbortedTransaction] = []  # whose markers stay: the index of the cleaned segment

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take in a batch of data; whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._met.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def is_marker_free(self, header: BatchHeader, batch: bytes) -> bool:
        """Take in a control batch; whether nothing in the log needs it any more."""
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            return True  # an earlier cleaning took the marker out
        marker = read_marker(batch)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.is_abort:
            transaction = self._aborting.pop(producer_id, None)
            if transaction is None or producer_id not in self._met:
                return True
            self._met.discard(producer_id)
            self.kept.append(transaction)
            return False
        was_met = producer_id in self._committing
        self._committing.discard(producer_id)
        return not was_met

    def take_kept(self) -> list[AbortedTransaction]:
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            transaction = coming.pop()
            self._aborting.setdefault(transaction.producer_id, transaction)

    def __repr__(self) -> str:
        return f"<CleanedTransactions {len(self._aborting)} aborting, {len(self._committing)} committing>"


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset

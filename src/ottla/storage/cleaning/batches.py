"""Compaction of one batch, and of the transactions around it. Compiled with mypyc.

Kafka's rules (LogCleaner, KIP-534):
* Offsets never change: a batch keeps its first and last offset even if all its records are removed.
* A tombstone stays until its batch's delete horizon. The first cleaning that reads it sets the horizon: now +
  delete.retention.ms, in place of the batch's base timestamp, marked by an attribute bit.
* A batch without records is removed, unless it is the last one of its producer (its header keeps the sequence) or the
  last of the cleaned range (it keeps the offset).
* Records of aborted transactions are removed at once. A marker stays as long as records of its transaction precede it,
  and for delete.retention.ms after that.
"""

from __future__ import annotations

from typing import Final

from ottla.protocol.batches import (
    CODEC_MASK,
    DECOMPRESSED_BYTES_CEILING,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    BatchHeader,
    assemble_batch,
)
from ottla.protocol.compression import compress, decompress
from ottla.protocol.records import INT64_MAX, NO_TIMESTAMP
from ottla.storage.cleaning.records import RecordFilter, shift_timestamps
from ottla.storage.replay import read_marker
from ottla.storage.transaction_index import AbortedTxn

NO_HORIZON: Final = -1


class BatchCleaner:
    """Cleans the batches of a log, in order."""

    def __init__(
        self,
        record_filter: RecordFilter,
        transactions: CleanedTransactionMetadata,
        *,
        last_records: dict[int, tuple[int, int]],
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._filter = record_filter
        self._transactions = transactions
        self._last_records = last_records  # producer id -> (last offset of its data or -1, epoch)
        self._end_offset = end_offset  # of the cleaned range
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.records_read = 0
        self.records_kept = 0

    def clean(self, header: BatchHeader, batch: bytes) -> bytes | bytearray | None:
        """Return the batch itself if all of it stays, a replacement, or None."""
        self.records_read += header.record_count
        result = self._clean_control(header, batch) if header.is_control else self._clean_data(header, batch)
        if result is not None:
            self.records_kept += header.record_count
        return result

    def _clean_control(self, header: BatchHeader, batch: bytes) -> bytes | bytearray | None:
        is_free = self._transactions.can_discard_marker(header, batch)
        if header.record_count == 0:
            return batch if self._must_retain_batch(header) else None
        horizon_ms = delete_horizon(header)
        if is_free and horizon_ms == NO_HORIZON:
            return self._with_horizon(header, batch[HEADER_BYTES:])
        if is_free and horizon_ms <= self._now_ms:
            return self._empty_batch(header)
        return batch

    def _clean_data(self, header: BatchHeader, batch: bytes) -> bytes | bytearray | None:
        if self._transactions.is_aborted(header):
            return self._empty_batch(header)
        if header.record_count == 0:
            return batch if self._must_retain_batch(header) else None
        payload = batch[HEADER_BYTES:]
        codec = header.codec
        if codec:
            payload = decompress(codec, payload, DECOMPRESSED_BYTES_CEILING)
        horizon_ms = delete_horizon(header)
        filtered = self._filter.filter(
            payload,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            horizon_ms == NO_HORIZON or self._now_ms < horizon_ms,
        )
        if filtered.kept == 0:
            return self._empty_batch(header)
        needs_horizon = filtered.has_tombstone and horizon_ms == NO_HORIZON
        if filtered.kept == header.record_count and not needs_horizon:
            return batch
        header.record_count = filtered.kept
        if not header.is_log_append_time:
            header.max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + filtered.newest_delta)
        if needs_horizon:
            return self._with_horizon(header, bytes(filtered.payload))
        return assemble_batch(header, compress(codec, filtered.payload) if codec else filtered.payload)

    def _with_horizon(self, header: BatchHeader, payload: bytes) -> bytearray:
        horizon_ms = min(self._now_ms + self._delete_retention_ms, INT64_MAX)
        shifted = shift_timestamps(payload, header.record_count, header.base_timestamp - horizon_ms)
        header.base_timestamp = horizon_ms
        header.attributes |= DELETE_HORIZON_FLAG
        return assemble_batch(header, compress(header.codec, shifted) if header.codec else shifted)

    def _empty_batch(self, header: BatchHeader) -> bytearray | None:
        header.record_count = 0
        if not self._must_retain_batch(header):
            return None
        header.attributes &= ~(CODEC_MASK | DELETE_HORIZON_FLAG)
        header.base_timestamp = NO_TIMESTAMP
        return assemble_batch(header, b"")

    def _must_retain_batch(self, header: BatchHeader) -> bool:
        """Return whether at least the batch header must stay."""
        if header.next_offset == self._end_offset:
            return True
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def __repr__(self) -> str:
        return f"<BatchCleaner {self.records_kept} of {self.records_read} records kept>"


def delete_horizon(header: BatchHeader) -> int:
    """Return the time from which on tombstones of this batch may be removed; -1 if no cleaning has read them yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else NO_HORIZON


class CleanedTransactionMetadata:
    """The transactions that are open at the current position of the cleaner."""

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._pending_aborted = sorted(aborted, key=_first_offset, reverse=True)
        self._ongoing_aborted: dict[int, AbortedTxn] = {}  # producer id -> open transaction
        self._seen_aborted: set[int] = set()  # producers with batches of their aborted transaction
        self._ongoing_committed: set[int] = set()
        # Transactions with markers that stay: the index of the cleaned segment.
        self.kept: list[AbortedTxn] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Add a data batch; true if its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._ongoing_aborted:
            self._seen_aborted.add(header.producer_id)
            return True
        self._ongoing_committed.add(header.producer_id)
        return False

    def can_discard_marker(self, header: BatchHeader, batch: bytes) -> bool:
        """Add a control batch; true if it is no longer needed in the log."""
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            return True  # an earlier cleaning removed the marker
        marker = read_marker(batch)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.is_abort:
            transaction = self._ongoing_aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._seen_aborted:
                return True
            self._seen_aborted.discard(producer_id)
            self.kept.append(transaction)
            return False
        was_met = producer_id in self._ongoing_committed
        self._ongoing_committed.discard(producer_id)
        return not was_met

    def take_kept(self) -> list[AbortedTxn]:
        kept, self.kept = self.kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        coming = self._pending_aborted
        while coming and coming[-1].first_offset <= offset:
            transaction = coming.pop()
            self._ongoing_aborted.setdefault(transaction.producer_id, transaction)

    def __repr__(self) -> str:
        return (
            f"<CleanedTransactionMetadata {len(self._ongoing_aborted)} aborting, "
            f"{len(self._ongoing_committed)} committing>"
        )


def _first_offset(transaction: AbortedTxn) -> int:
    return transaction.first_offset

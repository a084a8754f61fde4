"""Rejected batches that the producer will retry: later batches must not overtake them, or see a sequence gap.

Producers have several batches in flight. If one is rejected for a transient reason (a new topic, a new leader, a full
disk, a transaction coordinator that has just failed), the reason may not apply to the next ones:
1. A partition accepts an unknown producer at any sequence, because its records may have been deleted. If the second
   batch were accepted, its acknowledgement would tell the producer that the first is also stored, and the first would
   be lost.
2. A partition that knows the producer would find a gap. After OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka begins a new
   epoch, and writes records again that other partitions have stored but not acknowledged yet.
So every batch after a rejected one is rejected with the same error until that one has arrived again.

Kafka guards only verified transactions ("earliest seen sequence", KIP-890), and reports a gap. An entry here ends with
the rejected batch, a new epoch, a marker, or after RETENTION_MS, when no producer still retries. The number of entries
is bounded: the oldest are removed first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.protocol.batches import HEADER_BYTES, BatchHeader, read_batch_header
from ottla.storage.log import Log

RETENTION_MS: Final = 5 * 60_000  # producers give up on a record after two minutes, librdkafka's after five
ENTRIES_MAX: Final = 10_000
RETRIABLE_ERRORS: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NOT_ENOUGH_REPLICAS,
        Error.KAFKA_STORAGE_ERROR,
        Error.CONCURRENT_TRANSACTIONS,
    }
)

Key = tuple[str, int, int]  # topic, partition, producer id


class _RejectedBatch(NamedTuple):
    epoch: int
    sequence: int  # the earliest rejected one
    error: Error
    until_ms: int


class RejectedBatches:
    """The rejected batches of all partitions of a broker."""

    def __init__(self) -> None:
        self._refused: dict[Key, _RejectedBatch] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def add(self, error: Error, topic: str, index: int, records: memoryview | None, now_ms: int) -> None:
        """Record a rejected batch."""
        header = _header_of(records)
        if header is None or error not in RETRIABLE_ERRORS:
            return
        key = (topic, index, header.producer_id)
        sequence = header.base_sequence
        earlier = self._refused.pop(key, None)
        if earlier is not None:
            if earlier.epoch > header.producer_epoch:
                self._refused[key] = earlier
                return
            if earlier.epoch == header.producer_epoch:
                sequence = min(sequence, earlier.sequence)
        self._refused[key] = _RejectedBatch(header.producer_epoch, sequence, error, now_ms + RETENTION_MS)
        if len(self._refused) > ENTRIES_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, topic: str, index: int, log: Log, records: memoryview, now_ms: int) -> None:
        """Check that no rejected batch before this one is still missing. Raises KafkaError."""
        header = _header_of(records)
        if header is None:
            return
        key = (topic, index, header.producer_id)
        refused = self._refused.get(key)
        if refused is None or header.producer_epoch < refused.epoch:
            return
        is_new_epoch = header.producer_epoch > refused.epoch
        has_come = header.base_sequence <= refused.sequence or _is_stored(log, header, refused.sequence)
        if is_new_epoch or has_come or now_ms >= refused.until_ms:
            del self._refused[key]
            return
        raise KafkaError(
            refused.error,
            f"The batch of producer {header.producer_id} with sequence {refused.sequence} was refused in partition "
            f"{topic}-{index} and has to come before {header.base_sequence}",
        )

    def remove(self, topic: str, index: int, producer_id: int) -> None:
        """Remove a producer's rejected batches after a marker has ended its transaction."""
        self._refused.pop((topic, index, producer_id), None)

    def __repr__(self) -> str:
        return f"<RejectedBatches of {len(self._refused)}>"


def _header_of(records: memoryview | None) -> BatchHeader | None:
    if records is None or len(records) < HEADER_BYTES:
        return None
    try:
        header = read_batch_header(records, 0)
    except KafkaError:  # the log's own check of the batch reports the problem
        return None
    return header if header.producer_id >= 0 else None


def _is_stored(log: Log, header: BatchHeader, sequence: int) -> bool:
    """Return whether another leader has accepted the batch, which was then replicated to this broker."""
    producer = log.producers.by_id.get(header.producer_id)
    return producer is not None and producer.epoch == header.producer_epoch and producer.last_sequence >= sequence

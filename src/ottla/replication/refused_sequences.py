"""Batches that were refused and will come again: nothing behind them may be taken in first, or be told of a gap.

Producers have several batches under way. If one is refused for a moment (the topic is new, the leader is, the disk is
full, the transaction's coordinator has just died), the next ones may find that moment over:
1. A partition takes a producer that it does not know at any sequence, since its records may have been deleted. Taken
   in, the second batch would tell the producer that the first is stored as well, and the first would be lost.
2. A partition that knows the producer would find a gap. Told of it (OUT_OF_ORDER_SEQUENCE_NUMBER), librdkafka begins a
   new epoch, and writes once more what other partitions have stored and not acknowledged yet.
So whatever follows a refused batch is refused with the same error until that batch has come again.

Kafka guards verified transactions alone ("earliest seen sequence", KIP-890), and tells of a gap. It ends with the batch
that was refused, a new epoch, a marker, or after REMEMBERED_MS, when no producer still tries; and it is bounded: the
oldest are forgotten first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.protocol.batches import HEADER_BYTES, BatchHeader, read_batch_header
from ottla.storage.log import Log

REMEMBERED_MS: Final = 5 * 60_000  # producers give a record up after two minutes, librdkafka's after five
REMEMBERED_MAX: Final = 10_000
TRIED_AGAIN: Final = frozenset(
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


class _Refused(NamedTuple):
    epoch: int
    sequence: int  # the earliest
    error: Error
    until_ms: int


class RefusedSequences:
    """Of all partitions that a broker was asked for."""

    def __init__(self) -> None:
        self._refused: dict[Key, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, error: Error, topic: str, index: int, records: memoryview | None, now_ms: int) -> None:
        """A batch was refused."""
        header = _header_of(records)
        if header is None or error not in TRIED_AGAIN:
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
        self._refused[key] = _Refused(header.producer_epoch, sequence, error, now_ms + REMEMBERED_MS)
        if len(self._refused) > REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, topic: str, index: int, log: Log, records: memoryview, now_ms: int) -> None:
        """Raises KafkaError if one before this batch is still to come."""
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

    def forget(self, topic: str, index: int, producer_id: int) -> None:
        """A marker has ended what this producer tried."""
        self._refused.pop((topic, index, producer_id), None)

    def __repr__(self) -> str:
        return f"<RefusedSequences of {len(self._refused)}>"


def _header_of(records: memoryview | None) -> BatchHeader | None:
    if records is None or len(records) < HEADER_BYTES:
        return None
    try:
        header = read_batch_header(records, 0)
    except KafkaError:  # whoever checks the batch says what is wrong with it
        return None
    return header if header.producer_id >= 0 else None


def _is_stored(log: Log, header: BatchHeader, sequence: int) -> bool:
    """Another broker has taken the batch in, and it was replicated from there."""
    producer = log.producers.by_id.get(header.producer_id)
    return producer is not None and producer.epoch == header.producer_epoch and producer.last_sequence >= sequence

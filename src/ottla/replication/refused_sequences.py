"""Batches that were refused and will come again: nothing behind them may be taken in first.

A partition takes a producer that it does not know at any sequence, since its records may have been deleted. Sends such
a producer two batches at once, and is the first refused for a moment (the topic is new, the leader is, the
transaction's coordinator has just died), then the second must be refused, too: taken in, it would tell the producer
that the first is stored as well, and the first would be lost.

Rule 1: Kafka knows this for transactions whose verification failed ("earliest seen sequence", KIP-890); here it holds
for every refusal after which a producer tries again, with or without a transaction, wherever the partition was then.
Rule 2: only who is unknown to the log is remembered: for all others sequences are checked against what is stored.
Rule 3: it ends with the batch that was refused, a new epoch, a marker, or after REMEMBERED_MS, when no producer still
tries; and it is bounded: the oldest are forgotten first.
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
    until_ms: int


class RefusedSequences:
    """Of all partitions that a broker was asked for."""

    def __init__(self) -> None:
        self._refused: dict[Key, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(
        self, error: Error, topic: str, index: int, log: Log | None, records: memoryview | None, now_ms: int
    ) -> None:
        """A batch was refused."""
        header = _header_of(records)
        if header is None or error not in TRIED_AGAIN or (log is not None and _is_known(log, header)):
            return
        key = (topic, index, header.producer_id)
        earlier = self._refused.pop(key, None)
        if earlier is not None and earlier.epoch > header.producer_epoch:
            self._refused[key] = earlier
            return
        sequence = header.base_sequence
        if earlier is not None and earlier.epoch == header.producer_epoch:
            sequence = min(sequence, earlier.sequence)
        self._refused[key] = _Refused(header.producer_epoch, sequence, now_ms + REMEMBERED_MS)
        if len(self._refused) > REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, topic: str, index: int, log: Log, records: memoryview, now_ms: int) -> None:
        """Raises KafkaError if one before this batch is still to come."""
        header = _header_of(records)
        if header is None:
            return
        key = (topic, index, header.producer_id)
        refused = self._refused.get(key)
        if refused is None:
            return
        is_over = now_ms >= refused.until_ms or header.producer_epoch > refused.epoch or _is_known(log, header)
        if is_over or (header.producer_epoch == refused.epoch and header.base_sequence <= refused.sequence):
            del self._refused[key]
        elif header.producer_epoch == refused.epoch:
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {header.producer_id} at offset {log.end_offset} in "
                f"partition {topic}-{index}: {header.base_sequence} (incoming seq. number), {refused.sequence} "
                "(earliest seen sequence)",
            )

    def forget(self, topic: str, index: int, producer_id: int) -> None:
        """A marker has ended what this producer tried."""
        self._refused.pop((topic, index, producer_id), None)

    def __repr__(self) -> str:
        return f"<RefusedSequences of {len(self._refused)}>"


def _header_of(records: memoryview | None) -> BatchHeader | None:
    if records is None or len(records) < HEADER_BYTES:
        return None
    header = read_batch_header(records, 0)
    return header if header.producer_id >= 0 else None


def _is_known(log: Log, header: BatchHeader) -> bool:
    return header.producer_id in log.producers.by_id

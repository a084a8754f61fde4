"""What a partition knows about its idempotent producers. Compiled with mypyc where possible.

Kafka's rules: the last five batches of each producer id are remembered. A batch that equals one of them was sent
twice, and is answered with the place of the first. Otherwise its sequence must follow the last one, a new epoch must
start at 0, and an epoch below the known one is refused. A producer that the partition does not know may start
anywhere: its records may have been deleted by retention.

Rule 1: checks change nothing; only append() does, after the batch has been written.
Rule 2: the same batches in the same order make the same state, live and on replay.
"""

from __future__ import annotations

from typing import Final

from ottla.base.errors import Error, KafkaError

BATCHES_REMEMBERED: Final = 5
ENDED_MAX: Final = 1000  # transactions whose markers are not replicated yet
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class ProducerBatch:
    """Where one batch of a producer stands."""

    __slots__ = ("first_offset", "first_sequence", "last_offset", "last_sequence", "timestamp")

    def __init__(
        self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.timestamp = timestamp

    def __repr__(self) -> str:
        return f"<ProducerBatch {self.first_sequence}-{self.last_sequence} at {self.first_offset}-{self.last_offset}>"


class Producer:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1  # of the last transaction marker
        self.last_timestamp = -1
        self.transaction_first_offset = NO_OFFSET  # of the transaction that is under way, if any
        self.batches: list[ProducerBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def __repr__(self) -> str:
        return f"<Producer {self.producer_id}/{self.epoch}, {self.batches}>"


class Producers:
    """All producers of one partition."""

    __slots__ = ("by_id", "ended", "expiration_ms", "open_transactions")

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.by_id: dict[int, Producer] = {}
        self.open_transactions: dict[int, int] = {}  # producer id -> first offset
        self.ended: list[tuple[int, int]] = []  # first offset and marker of transactions whose end may be taken back

    def add(self, producer: Producer) -> None:
        """Take in what a snapshot says about a producer."""
        self.by_id[producer.producer_id] = producer
        if producer.transaction_first_offset != NO_OFFSET:
            self.open_transactions[producer.producer_id] = producer.transaction_first_offset

    def clear(self) -> None:
        self.by_id.clear()
        self.open_transactions.clear()
        self.ended.clear()

    def find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> ProducerBatch | None:
        """The remembered batch that this one repeats."""
        producer = self.by_id.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return None
        for batch in producer.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def check(self, producer_id: int, epoch: int, first_sequence: int, is_transactional: bool, offset: int) -> None:
        """Refuse a batch that may not follow what is there."""
        producer = self.by_id.get(producer_id)
        if producer is None or producer.epoch == NO_EPOCH:
            return
        if epoch < producer.epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {producer_id} at offset {offset} is {epoch}, "
                f"which is smaller than the last seen epoch {producer.epoch}",
            )
        if epoch != producer.epoch:
            if first_sequence != 0:
                raise _out_of_order(producer, first_sequence, offset)
        elif not _follows(producer.last_sequence, first_sequence):
            raise _out_of_order(producer, first_sequence, offset)
        if not is_transactional and producer.transaction_first_offset != NO_OFFSET:
            raise KafkaError(Error.INVALID_TXN_STATE, f"Expected a transactional write from producer {producer_id}")

    def append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """Remember a batch that is in the log now."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        elif len(producer.batches) == BATCHES_REMEMBERED:
            del producer.batches[0]
        producer.batches.append(ProducerBatch(first_sequence, last_sequence, first_offset, last_offset, timestamp))
        producer.last_timestamp = timestamp
        if is_transactional and producer.transaction_first_offset == NO_OFFSET:
            producer.transaction_first_offset = first_offset
            self.open_transactions[producer_id] = first_offset

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int, marker_offset: int = NO_OFFSET
    ) -> int:
        """A marker is in the log now; the first offset of the transaction that it ends, or -1 if there was none.

        With its offset the marker counts for readers only when it is replicated (see first_unstable_below).
        """
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = Producer(producer_id, epoch)
        if producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        first_offset = producer.transaction_first_offset
        producer.transaction_first_offset = NO_OFFSET
        self.open_transactions.pop(producer_id, None)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        if NO_OFFSET not in (first_offset, marker_offset):
            self._note_end(first_offset, marker_offset)
        return first_offset

    def _note_end(self, first_offset: int, marker_offset: int) -> None:
        if len(self.ended) >= ENDED_MAX:  # two become one that is over when the later is: too late, never too early
            oldest_first, _ = self.ended.pop(0)
            next_first, next_marker = self.ended[0]
            self.ended[0] = (min(oldest_first, next_first), next_marker)
        self.ended.append((first_offset, marker_offset))

    def first_unstable_offset(self) -> int:
        """Where the oldest transaction that is under way starts, or -1."""
        return min(self.open_transactions.values()) if self.open_transactions else NO_OFFSET

    def first_unstable_below(self, high_watermark: int) -> int:
        """The same for readers: a transaction whose marker is not replicated has not ended for them."""
        first_offset = self.first_unstable_offset()
        if self.ended:
            self.forget_ended(high_watermark)
            for ended_first, _ in self.ended:
                if first_offset == NO_OFFSET or ended_first < first_offset:
                    first_offset = ended_first
        return first_offset

    def forget_ended(self, high_watermark: int) -> None:
        """Markers below the high watermark stay: their transactions have ended for everybody."""
        if self.ended:
            self.ended = [entry for entry in self.ended if entry[1] >= high_watermark]

    def forget_expired(self, now_ms: int) -> None:
        """Drop who was silent for too long; a transaction under way keeps its producer."""
        expired = [producer_id for producer_id, producer in self.by_id.items() if self._is_expired(producer, now_ms)]
        for producer_id in expired:
            del self.by_id[producer_id]

    def _is_expired(self, producer: Producer, now_ms: int) -> bool:
        is_silent = now_ms - producer.last_timestamp >= self.expiration_ms
        return is_silent and producer.transaction_first_offset == NO_OFFSET

    def __repr__(self) -> str:
        return f"<Producers {list(self.by_id.values())[:3]} of {len(self.by_id)}>"


def _follows(last_sequence: int, first_sequence: int) -> bool:
    return first_sequence == last_sequence + 1 or (first_sequence == 0 and last_sequence == SEQUENCE_MAX)


def _out_of_order(producer: Producer, first_sequence: int, offset: int) -> KafkaError:
    return KafkaError(
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {producer.producer_id} at offset {offset}: {first_sequence} "
        f"(incoming seq. number), {producer.last_sequence} (current end sequence number)",
    )

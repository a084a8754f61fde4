"""Writes records to the topic of the schemas. Blocking: for one thread, one call at a time.

Rules:
1. What belongs together is one batch: all of it is in the topic, or nothing. Only what is too long for one is split.
2. Whoever leads takes over first (`take_over`): the cluster gives him a new epoch of one producer id, and his first
   record shuts out everybody with an older one. A node that was paused and believes that it still leads is refused by
   the broker.
3. A batch has a number in its producer's sequence, so that one that is sent again, or comes late, is written once.
4. When the answer is lost the batch is sent again until the time is up. Then nobody knows: UnsureError, and the next
   one takes over anew before it decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.coordinators import KeyType, ask_coordinator
from ottla.client.errors import ClientError, refusal
from ottla.client.offsets import partitions_by_leader
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records import Record as WireRecord
from ottla.registry.records import Record

ALL_IN_SYNC: Final = -1
NAMES_VERSION: Final = 12  # the last version of Produce that names topics; later ones have ids
BATCH_BYTES_MAX: Final = 500_000
TRANSACTION_TIMEOUT_MS: Final = 60_000
FENCED: Final = frozenset({Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED})
TOO_LARGE: Final = frozenset({Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE})


class FencedError(Exception):
    """Somebody else has taken over."""


class TooLargeError(Exception):
    """The broker does not take so large a record."""


class UnsureError(Exception):
    """Nobody can tell whether the records were written; str() says why."""


class LogWriter:
    """The producer of this node."""

    def __init__(self, client: Client, topic: str, group: str, clock: Clock | None = None) -> None:
        self.client = client
        self.topic = topic
        self.transactional_id = f"{group}-{topic}"
        self.clock = clock or SystemClock()
        self.producer_id = -1
        self.epoch = -1
        self.sequence = 0
        self.leader: int | None = None  # of the partition; None: to be asked for

    def __repr__(self) -> str:
        return f"<LogWriter {self.topic} producer {self.producer_id} epoch {self.epoch}>"

    @property
    def has_taken_over(self) -> bool:
        return self.epoch >= 0

    def take_over(self) -> None:
        """Shut out everybody who wrote before, once the first record is written; raises ClientError."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        def ask(broker: int) -> InitProducerIdResponse:
            answer = self.client.call_broker(broker, request, InitProducerIdResponse)
            if answer.error_code:
                raise refusal(answer.error_code)
            return answer

        answer = ask_coordinator(self.client, KeyType.TRANSACTION, self.transactional_id, ask)
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def step_down(self) -> None:
        self.epoch = -1

    def write(self, records: Sequence[Record]) -> int:
        """The offset of the last record."""
        offset = -1
        for part in _parts(records):
            offset = self._write_batch(part)
        return offset

    def _write_batch(self, records: Sequence[Record]) -> int:
        now = self.clock.now_ms()
        batch = build_batch(
            [WireRecord(-1, now, record.key_bytes, record.value_bytes) for record in records],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )
        data = PartitionProduceData(index=0, records=memoryview(bytes(batch)))
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=self.client.timeout_ms,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        try:
            base = self.client.retry(lambda: self._send(request))
        except ClientError as problem:
            raise self._failure(problem) from None
        self.sequence += len(records)
        return base + len(records) - 1

    def _send(self, request: ProduceRequest) -> int:
        leader, self.leader = self.leader, None
        if leader is None:
            by_leader, failures = partitions_by_leader(self.client, [TopicPartition(self.topic, 0)])
            for problem in failures.values():
                raise problem
            leader = next(iter(by_leader))
        answer = self.client.call_broker(leader, request, ProduceResponse, version_max=NAMES_VERSION)
        item = answer.responses[0].partition_responses[0]
        if item.error_code:
            raise refusal(item.error_code, item.error_message)
        self.leader = leader
        return item.base_offset

    def _failure(self, problem: ClientError) -> Exception:
        if problem.error in FENCED:
            self.step_down()
            return FencedError(str(problem))
        if problem.error in TOO_LARGE:
            return TooLargeError(str(problem))
        self.step_down()
        return UnsureError(str(problem))


def _parts(records: Sequence[Record]) -> Iterator[list[Record]]:
    part: list[Record] = []
    length = 0
    for record in records:
        size = len(record.key_bytes) + len(record.value_bytes or b"")
        if part and length + size > BATCH_BYTES_MAX:
            yield part
            part, length = [], 0
        part.append(record)
        length += size
    if part:
        yield part

"""Producers: idempotent ones that send several batches at a time, and transactional ones."""

from __future__ import annotations

import asyncio
from collections import deque

from tests.simulation.brokers.ledger import Ledger
from tests.simulation.brokers.wire import Client, GoneError

from ottla.base.errors import Error
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.records import Record

PRODUCE_TIMEOUT_MS = 1_500
PRODUCE_VERSION = 9
RETRIABLE = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.KAFKA_STORAGE_ERROR,
        Error.REPLICA_NOT_AVAILABLE,
        Error.BROKER_NOT_AVAILABLE,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_SERVER_ERROR,
    }
)


class Batch:
    """Records that are sent together, again and again until they are acknowledged."""

    def __init__(self, values: list[str], sequence: int) -> None:
        self.values = values
        self.sequence = sequence


def produce_request(
    topic: str, partition: int, batch: bytearray, *, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


class Producer(Client):
    """Idempotent, acks=all, one partition."""

    def __init__(self, cluster: object, name: str, ledger: Ledger, topic: str, partition: int) -> None:
        super().__init__(cluster, name)  # type: ignore[arg-type]
        self.ledger = ledger
        self.topic = topic
        self.partition = partition
        self.window = self.world.random.choice((1, 1, 3))
        self.pause_seconds = self.world.random.choice((0.05, 0.2, 0.4, 0.8))
        self.padding = self.world.random.choice((0, 0, 0, 900, 70_000 if self.world.chance(0.1) else 0))
        self.acked_at = 0.0
        self._number = 0
        self._sequence = 0
        self._id = self._epoch = -1

    async def run(self) -> None:
        waiting: deque[Batch] = deque()
        while not self.is_done or waiting:
            try:
                if self._id < 0:
                    await self._get_id()
                    continue
                while len(waiting) < self.window and not self.is_done:
                    waiting.append(self._make())
                if await self._send_all(waiting):
                    await asyncio.sleep(self.pause_seconds)
                else:
                    await self.pause()
            except GoneError as gone:
                self.world.tell(f"{self.name}: {gone}")
                self.forget_leader(self.topic, self.partition)
                await self.pause()

    async def _get_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
        answer = await self.call(self.any_broker(), request, InitProducerIdResponse, 4)
        if answer.error_code == Error.NONE:
            self._id, self._epoch = answer.producer_id, answer.producer_epoch
        else:
            await self.pause()

    def _make(self) -> Batch:
        count = self.world.random.choice((1, 1, 2, 5))
        values = [f"{self.name}/{self._number + index}" for index in range(count)]
        batch = Batch(values, self._sequence)
        self._number += count
        self._sequence += count
        return batch

    async def _send_all(self, waiting: deque[Batch]) -> bool:
        """All at once, in their order; what was not acknowledged stays. Whether anything went wrong."""
        leader = await self.leader(self.topic, self.partition)
        if leader < 0:
            return False
        connection = await self.connection(leader)
        calls = []
        for batch in list(waiting):
            request = produce_request(self.topic, self.partition, self._encode(batch))
            calls.append((batch, request, connection.send(request, ProduceResponse, PRODUCE_VERSION)))
        is_first = True
        for batch, request, answer in calls:
            response = await self.wait(connection, request, answer)
            told = response.responses[0].partition_responses[0]
            error = told.error_code
            if error in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
                if waiting and waiting[0] is batch:
                    waiting.popleft()
                if error == Error.NONE and told.base_offset >= 0:
                    for index, value in enumerate(batch.values):
                        self.ledger.note_ack((self.topic, self.partition), told.base_offset + index, value)
                self.acked_at = self.world.now
                continue
            self.world.tell(f"{self.name}: {batch.values[0]} is refused by {leader}: {Error(error).name}")
            self.on_refused(Error(error), is_first=is_first)
            is_first = False
            self.forget_leader(self.topic, self.partition)
        return is_first

    def on_refused(self, error: Error, *, is_first: bool) -> None:
        if error not in RETRIABLE and is_first:
            self.world.break_(f"{self.name}: the oldest batch that waits is refused with {error.name}")

    def _encode(self, batch: Batch) -> bytearray:
        padding = b"x" * self.padding if self.padding else None
        now_ms = self.world.wall_ms
        return build_batch(
            [Record(-1, now_ms, padding, value.encode()) for value in batch.values],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=batch.sequence,
        )

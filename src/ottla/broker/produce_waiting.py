"""A produce that is appended, and waits until the in-sync replicas have its records (acks=all) or they are on disk."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error
from ottla.broker.context import Context
from ottla.broker.long_messages import encode_and_free, in_worker, is_long
from ottla.broker.new_leaders import PRODUCE_SINCE, add_addresses_for_producer, name_leader_to_producer
from ottla.broker.responder import Responder
from ottla.broker.slices import Turn, in_slices
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from ottla.replication.partition import Partition
from ottla.replication.waiting import WaitingProduce

ROWS_AT_ONCE: Final = 500


class Unreplicated:
    """A batch that the producer's acks=all still waits for; its answer becomes an error if that takes too long."""

    __slots__ = ("answer", "last_offset", "leading_since", "partition")

    def __init__(self, partition: Partition, last_offset: int, answer: PartitionProduceResponse) -> None:
        self.partition = partition
        self.last_offset = last_offset
        self.answer = answer
        self.leading_since = partition.leading_since


class ReplicationWait:
    """Keeps a produce until its records are where its producer wants them, or its time is up."""

    def __init__(
        self,
        context: Context,
        response: ProduceResponse,
        unreplicated: list[Unreplicated],
        timeout_ms: int,
        is_acks_all: bool,
    ) -> None:
        self._context = context
        self._response = response
        self._unreplicated = unreplicated
        self._is_acks_all = is_acks_all
        self._leaders: set[int] = set()
        self._waiting = WaitingProduce(len(unreplicated), self._on_ready, is_acks_all)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(max(0, timeout_ms) / 1000, self._waiting.wake)

    def begin(self) -> Responder:
        responder = self._context.responder.keep()
        responder.wait(self)
        if len(self._unreplicated) > ROWS_AT_ONCE:
            return responder.run_beside(self._hang_in_slices())
        for item in self._unreplicated:
            self._hang_on(item)
        return responder

    async def _hang_in_slices(self) -> Responder:
        async for item in in_slices(self._unreplicated):
            self._hang_on(item)
        return self._context.responder

    def _hang_on(self, item: Unreplicated) -> None:
        """Between the append and this others may have had their turn, and it is decided already."""
        if self._outcome(item) is Error.REQUEST_TIMED_OUT:
            item.partition.wait_for_replication(item.last_offset, self._waiting)
        else:
            self._waiting.note()

    def _on_ready(self) -> None:
        self._deadline.cancel()
        self._context.responder.stop_waiting(self)
        if len(self._unreplicated) > ROWS_AT_ONCE:
            self._context.responder.run_beside(self._answer_in_slices())
            return
        for item in self._unreplicated:
            self._tell(item)
        self._context.responder.answer(self._told())

    async def _answer_in_slices(self) -> ProduceResponse | EncodedBody:
        async for item in in_slices(self._unreplicated, Turn()):
            self._tell(item)
        response = self._told()
        if not is_long(response):
            return response
        return await in_worker(self._context.broker.workers, encode_and_free, response, self._context.api_version)

    def _tell(self, item: Unreplicated) -> None:
        error = self._outcome(item)
        if error is not Error.NONE:
            item.answer.error_code = error
            elsewhere(item.answer, item.partition.name.topic, self._context, self._leaders)

    def _told(self) -> ProduceResponse:
        if self._leaders:
            add_addresses_for_producer(self._response, self._leaders, self._context)
        return self._response

    def _outcome(self, item: Unreplicated) -> Error:
        """What is known of a batch now; REQUEST_TIMED_OUT: nothing yet."""
        partition = item.partition
        if partition.log.failure is not None:
            return Error.KAFKA_STORAGE_ERROR
        if partition.leading_since != item.leading_since:
            return Error.NOT_LEADER_OR_FOLLOWER  # what stands at its offset now may be somebody else's
        if self._is_acks_all and partition.has_too_few_in_sync:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Error.NONE if partition.is_replicated(item.last_offset) else Error.REQUEST_TIMED_OUT

    def cancel(self) -> None:
        self._deadline.cancel()
        self._waiting.is_done = True

    def __repr__(self) -> str:
        return f"<ReplicationWait {self._waiting!r}>"


def elsewhere(
    answer: PartitionProduceResponse, topic: str, context: Context, leaders: set[int]
) -> PartitionProduceResponse:
    """The same answer; one that sends the producer to another broker says to which."""
    if answer.error_code == Error.NOT_LEADER_OR_FOLLOWER and context.api_version >= PRODUCE_SINCE:
        leaders.add(name_leader_to_producer(answer, topic, context))
    return answer

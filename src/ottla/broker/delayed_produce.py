"""Delayed produce: waits until the in-sync replicas have the appended records (acks=all) or the records are on disk."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.base.errors import Error
from ottla.broker.context import Context
from ottla.broker.current_leaders import PRODUCE_SINCE, add_node_endpoints_for_producer, set_current_leader_for_producer
from ottla.broker.offload import TimeSlice, encode_and_free, in_slices, is_long, run_in_worker
from ottla.broker.responder import Responder
from ottla.protocol.codec import EncodedBody
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from ottla.replication.partition import Partition
from ottla.replication.waiting_requests import WaitingProduce

ROWS_ON_LOOP_MAX: Final = 500


class UnreplicatedBatch:
    """A batch that acks=all still waits for; its response becomes an error after the timeout."""

    __slots__ = ("last_offset", "leading_since", "partition", "partition_response")

    def __init__(self, partition: Partition, last_offset: int, answer: PartitionProduceResponse) -> None:
        self.partition = partition
        self.last_offset = last_offset
        self.partition_response = answer
        self.leading_since = partition.leader_since_epoch


class DelayedProduce:
    """Delays the response of a produce until its records are replicated or flushed, or until the timeout (Kafka's
    DelayedProduce).
    """

    def __init__(
        self,
        context: Context,
        response: ProduceResponse,
        unreplicated: list[UnreplicatedBatch],
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
        self._deadline = loop.call_later(max(0, timeout_ms) / 1000, self._waiting.complete)

    def begin(self) -> Responder:
        responder = self._context.responder.defer()
        responder.cancel_on_disconnect(self)
        if len(self._unreplicated) > ROWS_ON_LOOP_MAX:
            return responder.run_overlapping(self._watch_in_slices())
        for item in self._unreplicated:
            self._watch(item)
        return responder

    async def _watch_in_slices(self) -> Responder:
        async for item in in_slices(self._unreplicated):
            self._watch(item)
        return self._context.responder

    def _watch(self, item: UnreplicatedBatch) -> None:
        """Register with the partition, and check whether the batch has been replicated since the append."""
        if self._result_of(item) is Error.REQUEST_TIMED_OUT:
            item.partition.wait_for_replication(item.last_offset, self._waiting)
        else:
            self._waiting.complete_partition()

    def _on_ready(self) -> None:
        self._deadline.cancel()
        self._context.responder.keep_on_disconnect(self)
        if len(self._unreplicated) > ROWS_ON_LOOP_MAX:
            self._context.responder.run_overlapping(self._answer_in_slices())
            return
        for item in self._unreplicated:
            self._set_result(item)
        self._context.responder.answer(self._build_response())

    async def _answer_in_slices(self) -> ProduceResponse | EncodedBody:
        async for item in in_slices(self._unreplicated, TimeSlice()):
            self._set_result(item)
        response = self._build_response()
        if not is_long(response):
            return response
        return await run_in_worker(self._context.broker.workers, encode_and_free, response, self._context.api_version)

    def _set_result(self, item: UnreplicatedBatch) -> None:
        error = self._result_of(item)
        if error is not Error.NONE:
            item.partition_response.error_code = error
            add_current_leader(item.partition_response, item.partition.name.topic, self._context, self._leaders)

    def _build_response(self) -> ProduceResponse:
        if self._leaders:
            add_node_endpoints_for_producer(self._response, self._leaders, self._context)
        return self._response

    def _result_of(self, item: UnreplicatedBatch) -> Error:
        """Return the current result of a batch; REQUEST_TIMED_OUT: still undecided."""
        partition = item.partition
        if partition.log.offline_reason is not None:
            return Error.KAFKA_STORAGE_ERROR
        if partition.leader_since_epoch != item.leading_since:
            return Error.NOT_LEADER_OR_FOLLOWER  # the offset may now belong to a batch of another leader
        if self._is_acks_all and partition.is_under_min_isr:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Error.NONE if partition.is_replicated(item.last_offset) else Error.REQUEST_TIMED_OUT

    def cancel(self) -> None:
        self._deadline.cancel()
        self._waiting.is_completed = True

    def __repr__(self) -> str:
        return f"<DelayedProduce {self._waiting!r}>"


def add_current_leader(
    answer: PartitionProduceResponse, topic: str, context: Context, leaders: set[int]
) -> PartitionProduceResponse:
    """Return the response; with NOT_LEADER_OR_FOLLOWER it contains the current leader (KIP-951)."""
    if answer.error_code == Error.NOT_LEADER_OR_FOLLOWER and context.api_version >= PRODUCE_SINCE:
        leaders.add(set_current_leader_for_producer(answer, topic, context))
    return answer

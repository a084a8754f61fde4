"""Transactional producers that work as a stream processor does: consume, transform, produce, all or nothing.

What is consumed is a count: the offset that the group has committed. A transaction writes records that name the count,
and commits the next one with them. So however often a producer dies, is fenced or does not know how its transaction
ended, every count has been written by exactly one transaction that read_committed sees.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.simulation.brokers.ledger import Ledger, Place, Transaction
from tests.simulation.brokers.producers import produce_request
from tests.simulation.brokers.wire import GROUP, TRANSACTION, Client, GoneError

from ottla.base.errors import Error
from ottla.protocol.batches import build_batch
from ottla.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.produce import ProduceResponse
from ottla.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.protocol.records import Record

TIMEOUT_MS: Final = 4_000
ATTEMPTS_MAX: Final = 12  # within a transaction; then it is given up
OUT: Final = "outcomes"
IN: Final = "events"
AGAIN: Final = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.CONCURRENT_TRANSACTIONS,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.KAFKA_STORAGE_ERROR,
        Error.LEADER_NOT_AVAILABLE,
        Error.UNSTABLE_OFFSET_COMMIT,
        Error.BROKER_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.UNKNOWN_SERVER_ERROR,
    }
)


class GivenUpError(Exception):
    """This transaction has failed: start again with another epoch."""


class Transactor(Client):
    """One transactional id."""

    def __init__(self, cluster: Any, name: str, ledger: Ledger, partitions: int) -> None:
        super().__init__(cluster, name)
        self.ledger = ledger
        self.group = f"group of {name}"
        self.partitions = partitions
        self.is_new = self.world.chance(0.5)  # transactions of version 2 (KIP-890)
        self.committed_at = 0.0
        self._id = self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._count = 0
        self._attempt = 0

    async def run(self) -> None:
        while not self.is_done:
            try:
                if self._id < 0:
                    await self._begin_anew()
                await self._transact()
                await asyncio.sleep(self.world.random.choice((0.1, 0.6)))
            except (GivenUpError, GoneError) as problem:
                self.world.tell(f"{self.name}: {problem}")
                self._id = -1
                self.coordinators.clear()
                self.leaders.clear()
                await self.pause()

    # ---- a transaction

    async def _begin_anew(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._ask(TRANSACTION, self.name, request, InitProducerIdResponse, 4)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._count = await self._committed()

    async def _transact(self) -> None:
        self._attempt += 1
        name = f"t{self.name}.{self._count}.{self._attempt}"
        transaction = self.ledger.transactions[name] = Transaction(name)
        try:
            places = [(OUT, index) for index in range(self.partitions) if index == 0 or self.world.chance(0.5)]
            number = 0
            for place in places:
                values = [f"{name}/{number + index}" for index in range(self.world.random.choice((1, 2)))]
                number += len(values)
                await self._write(transaction, place, values)
            await self._write_offset()
            if self.cluster.is_in_trouble and self.world.chance(0.05):
                await asyncio.sleep(TIMEOUT_MS / 1000 * self.world.random.choice((0.9, 1.5)))
        except BaseException:
            transaction.outcome = False  # it will never be committed
            raise
        await self._end(transaction, commits=self.world.chance(0.8))

    async def _write(self, transaction: Transaction, place: Place, values: list[str]) -> None:
        if not self.is_new:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self._id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
            )
            await self._ask(TRANSACTION, self.name, request, AddPartitionsToTxnResponse, 3)
        sequence = self._sequences.get(place, 0)
        batch = build_batch(
            [Record(-1, self.world.wall_ms, None, value.encode()) for value in values],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request_ = produce_request(*place, batch, transactional_id=self.name)
        for _ in range(ATTEMPTS_MAX):
            leader = await self.leader(*place)
            if leader < 0:
                await self.pause()
                continue
            try:
                answer = await self.call(leader, request_, ProduceResponse, 12 if self.is_new else 9)
            except GoneError:
                self.forget_leader(*place)
                await self.pause()
                continue
            told = answer.responses[0].partition_responses[0]
            error = Error(told.error_code)
            if error in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[place] = sequence + len(values)
                transaction.written += [(place, value) for value in values]
                if error is Error.NONE and told.base_offset >= 0:
                    for index, value in enumerate(values):
                        self.ledger.note_ack(place, told.base_offset + index, value)
                return
            if error not in AGAIN:
                raise GivenUpError(error.name)
            self.forget_leader(*place)
            await self.pause()
        raise GivenUpError("too many attempts")

    async def _write_offset(self) -> None:
        if not self.is_new:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self._id, producer_epoch=self._epoch, group_id=self.group
            )
            await self._ask(TRANSACTION, self.name, adding, AddOffsetsToTxnResponse, 3)
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._count + 1, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self._id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=IN, partitions=[part])],
        )
        await self._ask(GROUP, self.group, request, TxnOffsetCommitResponse, 5 if self.is_new else 3)

    async def _end(self, transaction: Transaction, *, commits: bool) -> None:
        if not commits:
            transaction.outcome = False
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._id, producer_epoch=self._epoch, committed=commits
        )
        answer = await self._ask(TRANSACTION, self.name, request, EndTxnResponse, 5 if self.is_new else 3)
        if self.is_new:
            if answer.producer_id != self._id or answer.producer_epoch != self._epoch:
                self._sequences.clear()
            self._id, self._epoch = answer.producer_id, answer.producer_epoch
        if commits:
            transaction.outcome = True
            self.committed_at = self.world.now
            self.ledger.note_commit(self.group, (IN, 0), self._count + 1)
            self._count += 1

    # ---- asking

    async def _committed(self) -> int:
        floor = self.ledger.floor(self.group, (IN, 0))
        asked = OffsetFetchRequestGroup(
            group_id=self.group, topics=[OffsetFetchRequestTopics(name=IN, partition_indexes=[0])]
        )
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        answer = await self._ask(GROUP, self.group, request, OffsetFetchResponse, 8)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        self.ledger.note_fetched_offset(self.group, (IN, 0), max(offset, 0), floor)
        return max(offset, 0)

    async def _ask(self, kind: int, key: str, request: Any, response: type[Any], version: int) -> Any:
        """Of the coordinator, again and again while that may help."""
        attempts = 0
        while attempts < ATTEMPTS_MAX or not self.cluster.is_in_trouble:
            attempts += 1
            if self.is_done and attempts > 4 * ATTEMPTS_MAX:
                break
            try:
                coordinator = await self.coordinator(kind, key)
                if coordinator < 0:
                    await self.pause()
                    continue
                answer = await self.call(coordinator, request, response, version)
            except GoneError:
                self.forget_coordinator(kind, key)
                await self.pause()
                continue
            error = error_of(answer)
            if error is Error.NONE:
                return answer
            if error not in AGAIN:
                raise GivenUpError(f"{type(request).__name__}: {error.name}")
            self.forget_coordinator(kind, key)
            await self.pause()
        raise GivenUpError("too many attempts")


class Counter(Transactor):
    """Ends what a producer has left open, as a new one with its id does, and tells how far it has come."""

    def __init__(self, cluster: Any, name: str, ledger: Ledger, other: Transactor) -> None:
        super().__init__(cluster, other.name, ledger, other.partitions)
        self.producer = other.name
        self.found = -1

    async def run(self) -> None:
        while self.found < 0:
            try:
                await self._begin_anew()
                self.found = self._count
            except (GivenUpError, GoneError):
                await self.pause()


def error_of(answer: Any) -> Error:
    """The first error in an answer, wherever its kind has it."""
    match answer:
        case TxnOffsetCommitResponse():
            codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        case AddPartitionsToTxnResponse():
            topics = answer.results_by_topic_v3_and_below
            codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
        case OffsetFetchResponse():
            group = answer.groups[0]
            codes = [group.error_code, *(each.error_code for topic in group.topics for each in topic.partitions)]
        case _:
            codes = [answer.error_code]
    return Error(next((code for code in codes if code), 0))

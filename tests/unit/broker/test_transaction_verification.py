"""Adding and verifying partitions of transactions at local and remote coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base.errors import Error, KafkaError
from ottla.broker.coordinator_service.transaction_channels import (
    WAITING_CALLS_MAX,
    AddPartitionsToTxnManager,
    CallBatcher,
    Errors,
    PartitionName,
    TransactionMarkerChannelManager,
)
from ottla.broker.coordinator_service.transaction_verification import TransactionVerification, await_result
from ottla.broker.coordinator_service.transactional_produce import error_for_version
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.network.peer import PeerError
from ottla.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.transactions.transaction import ProducerIdAndEpoch
from ottla.transactions.transaction_coordinator import TransactionMarkers

ME, OTHER = 1, 2
WHO = ProducerIdAndEpoch(7, 3)
PLACES: list[PartitionName] = [("t", 0), ("t", 1)]
TOPIC = "__transaction_state"


def added(transactional_id: str, *codes: int) -> AddPartitionsToTxnResult:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes)
    ]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)]
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)


class Others:
    """Other brokers: their requests and scripted responses."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.asked: list[tuple[int, str, Any]] = []
        self._answer = answer

    async def call(self, broker: int, purpose: str, request: Any, _: type[Any]) -> Any:
        self.asked.append((broker, purpose, request))
        await asyncio.sleep(0)
        return self._answer(request)


class Machine:
    """A coordinator that is busy for a while."""

    def __init__(self, *answers: Error) -> None:
        self.answers = list(answers)

    def add_partitions(
        self, _: str, __: ProducerIdAndEpoch, ___: object, version: int, reply_to: Any, ____: int
    ) -> Any:
        assert version == 2
        return lambda: reply_to(self.answers.pop(0))

    def verify_partitions(
        self, _: str, __: ProducerIdAndEpoch, places: list[PartitionName]
    ) -> tuple[Error, dict[PartitionName, Error]]:
        return Error.NONE, {places[0]: Error.NONE, places[1]: Error.TRANSACTION_ABORTABLE}


def verification(leader: int, machine: Any, others: Others | None = None, **settings: int) -> TransactionVerification:
    topic = TopicImage(TOPIC, UUID(int=1), (PartitionImage(leader, 0, (1,), (1,)),))
    times = {"add.partitions.to.txn.retry.backoff.ms": "2", "add.partitions.to.txn.retry.backoff.max.ms": "10"}
    times |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    me = node(times, id_=ME, image=MetadataImage(topics={TOPIC: topic}))

    def shard(_: str) -> Any:
        if isinstance(machine, KafkaError):
            raise machine
        return SimpleNamespace(machine=machine)

    runtime = SimpleNamespace(topic=TOPIC, shard=shard, now_ms=lambda: 0, execute=lambda _, decision: decision())
    messengers = AddPartitionsToTxnManager(others.call if others is not None else Others(lambda _: None).call)
    return TransactionVerification(me, runtime, messengers)  # type: ignore[arg-type]


def ask(asked: TransactionVerification, is_verifying: bool) -> dict[PartitionName, Error]:
    async def whole() -> dict[PartitionName, Error]:
        return await await_result(lambda answered: asked.request("id", WHO, PLACES, is_verifying, answered))

    return virtual_time.run(whole())


def test_a_local_coordinator_answers_at_once() -> None:
    expected = {PLACES[0]: Error.NONE, PLACES[1]: Error.TRANSACTION_ABORTABLE}
    assert ask(verification(ME, Machine()), is_verifying=True) == expected
    assert ask(verification(ME, Machine(Error.NONE)), is_verifying=False) == dict.fromkeys(PLACES, Error.NONE)


def test_a_busy_coordinator_is_retried_for_a_moment() -> None:
    machine = Machine(Error.CONCURRENT_TRANSACTIONS, Error.CONCURRENT_TRANSACTIONS, Error.NONE)
    assert ask(verification(ME, machine), is_verifying=False) == dict.fromkeys(PLACES, Error.NONE)
    busy = Machine(*[Error.CONCURRENT_TRANSACTIONS] * 10)
    answer = ask(verification(ME, busy, add_partitions_to_txn_retry_backoff_max_ms=6), is_verifying=False)
    assert set(answer.values()) == {Error.CONCURRENT_TRANSACTIONS}
    assert len(busy.answers) == 6


def test_a_coordinator_is_retried_at_once_when_it_is_done() -> None:
    machine = Machine(Error.CONCURRENT_TRANSACTIONS, Error.NONE)

    async def whole() -> None:
        asked = verification(
            ME, machine, add_partitions_to_txn_retry_backoff_ms=5000, add_partitions_to_txn_retry_backoff_max_ms=9000
        )
        heard: list[Any] = []
        asked.request("id", WHO, PLACES, False, heard.append)
        shard: Any = SimpleNamespace(machine=SimpleNamespace(changed_ids=["another"]))
        asked.on_transactions_completed(shard)
        assert heard == []
        shard.machine.changed_ids = ["another", "id"]
        asked.on_transactions_completed(shard)
        assert heard == [dict.fromkeys(PLACES, Error.NONE)]
        assert shard.machine.changed_ids == []

    virtual_time.run(whole())


@pytest.mark.parametrize("is_verifying", [True, False])
def test_a_missing_coordinator_is_reported(is_verifying: bool) -> None:
    loading = verification(ME, KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS))
    assert set(ask(loading, is_verifying).values()) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
    no_coordinator = verification(-1, Machine())
    assert set(ask(no_coordinator, is_verifying).values()) == {Error.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("is_verifying", [True, False])
def test_a_remote_coordinator_gets_a_request(is_verifying: bool) -> None:
    others = Others(lambda _: AddPartitionsToTxnResponse(results_by_transaction=[added("id", 0, 48)]))
    answer = ask(verification(OTHER, Machine(), others), is_verifying)
    assert answer == {PLACES[0]: Error.NONE, PLACES[1]: Error.INVALID_TXN_STATE}
    ((broker, _, request),) = others.asked
    (row,) = request.transactions
    assert (broker, row.verify_only, row.producer_id, row.producer_epoch) == (OTHER, is_verifying, 7, 3)


def lost(_: Any) -> Any:
    raise PeerError("gone", is_refused=True)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lost, Error.NETWORK_EXCEPTION),
        (lambda _: AddPartitionsToTxnResponse(error_code=31), Error.CLUSTER_AUTHORIZATION_FAILED),
        (lambda _: AddPartitionsToTxnResponse(), Error.NETWORK_EXCEPTION),
        (
            lambda _: AddPartitionsToTxnResponse(results_by_transaction=[added("another", 0, 0)]),
            Error.NETWORK_EXCEPTION,
        ),
        (lambda _: AddPartitionsToTxnResponse(results_by_transaction=[added("id", 999, 999)]), Error(-1)),
    ],
)
def test_a_response_without_a_result_is_no_confirmation(answer: Any, error: Error) -> None:
    assert set(ask(verification(OTHER, Machine(), Others(answer)), is_verifying=True).values()) == {error}


def test_requests_of_the_meantime_are_sent_together() -> None:
    carried: list[list[int]] = []

    async def whole() -> None:
        async def carry(_: int, together: list[int]) -> list[Errors]:
            carried.append(together)
            await asyncio.sleep(0.01)
            return []

        calls: CallBatcher[int] = CallBatcher(carry, lambda *_: None)
        for number in range(3):
            calls.send(OTHER, number)
            await asyncio.sleep(0)
        calls.send(3, 9)
        await asyncio.sleep(0.05)
        calls.send(OTHER, 4)
        await asyncio.sleep(0.05)

    virtual_time.run(whole())
    assert carried == [[0], [9], [1, 2], [4]]


def test_every_call_is_answered_although_its_request_fails() -> None:
    answered: list[tuple[int, Errors]] = []
    result: Errors = {("t", 0): Error.NONE}

    async def whole() -> None:
        async def carry(_: int, together: list[int]) -> list[Errors]:
            await asyncio.sleep(0.01)
            if 1 in together:
                raise ValueError("an unreadable response")
            return [result for _ in together]

        calls: CallBatcher[int] = CallBatcher(carry, lambda *answer: answered.append(answer))
        for number in range(3):
            calls.send(OTHER, number)
            await asyncio.sleep(0)
        await asyncio.sleep(0.015)
        calls.send(OTHER, 3)
        await asyncio.sleep(0.02)

    virtual_time.run(whole())
    assert answered == [(0, result), (1, {}), (2, {}), (3, result)]


def test_calls_to_a_silent_broker_are_refused_when_too_many_wait() -> None:
    answered: list[int] = []

    async def whole() -> None:
        async def carry(_: int, together: list[int]) -> list[Errors]:
            await asyncio.sleep(1)
            return [{} for _ in together]

        calls: CallBatcher[int] = CallBatcher(carry, lambda call, _: answered.append(call))
        for number in range(WAITING_CALLS_MAX + 2):
            calls.send(OTHER, number)
        await asyncio.sleep(0.1)
        assert answered == [WAITING_CALLS_MAX, WAITING_CALLS_MAX + 1]
        await asyncio.sleep(60)
        assert len(answered) == WAITING_CALLS_MAX + 2

    virtual_time.run(whole())


def test_markers_of_many_transactions_share_a_request() -> None:
    def row(producer_id: int, error: Error) -> WritableTxnMarkerResult:
        rows = [WritableTxnMarkerPartitionResult(partition_index=0, error_code=error)]
        return WritableTxnMarkerResult(
            producer_id=producer_id, topics=[WritableTxnMarkerTopicResult(name="t", partitions=rows)]
        )

    others = Others(
        lambda request: WriteTxnMarkersResponse(markers=[row(m.producer_id, Error.NONE) for m in request.markers])
    )
    heard: list[tuple[int, PartitionName, Error]] = []

    async def whole() -> None:
        messengers = TransactionMarkerChannelManager(others.call)
        for producer in range(3):
            order = TransactionMarkers(f"id{producer}", producer, 5, True, frozenset(), 2)
            messengers.send(
                OTHER, order, 4, [("t", 0), ("t", 1)], lambda *said, who=producer: heard.append((who, *said))
            )
        await asyncio.sleep(0.01)

    virtual_time.run(whole())
    assert [len(request.markers) for _, _, request in others.asked] == [3]
    marker = others.asked[0][2].markers[0]
    assert (marker.coordinator_epoch, marker.producer_epoch, marker.transaction_version) == (4, 5, 2)
    assert [(who, error) for who, place, error in heard if place == ("t", 0)] == [(n, Error.NONE) for n in range(3)]
    assert {error for _, place, error in heard if place == ("t", 1)} == {Error.NETWORK_EXCEPTION}


@pytest.mark.parametrize(
    ("error", "version", "expected"),
    [
        (Error.NOT_COORDINATOR, 12, Error.NOT_ENOUGH_REPLICAS),
        (Error.COORDINATOR_LOAD_IN_PROGRESS, 9, Error.NOT_ENOUGH_REPLICAS),
        (Error.NETWORK_EXCEPTION, 12, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, 11, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, 12, Error.CONCURRENT_TRANSACTIONS),
        (Error.PRODUCER_FENCED, 12, Error.INVALID_PRODUCER_EPOCH),
        (Error.TRANSACTION_ABORTABLE, 10, Error.INVALID_TXN_STATE),
        (Error.TRANSACTION_ABORTABLE, 11, Error.TRANSACTION_ABORTABLE),
    ],
)
def test_producers_get_errors_that_they_handle_correctly(error: Error, version: int, expected: Error) -> None:
    assert error_for_version(error, version) is expected

"""Whether partitions take part in transactions: asked of coordinators here and on other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import virtual_time
from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.call_batching import CallBatcher
from ottla.broker.coordinators.transaction_messages import (
    MarkerMessengers,
    PartitionMessengers,
    Place,
)
from ottla.broker.coordinators.transaction_verification import TransactionVerification, answer_to
from ottla.broker.coordinators.transactional_produce import told
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.network.peer import PeerError
from ottla.protocol.messages.transaction_steps import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.transactions.machine import SendMarkers
from ottla.transactions.transaction import Identity
from unit.broker.nodes import node

ME, OTHER = 1, 2
WHO = Identity(7, 3)
PLACES: list[Place] = [("t", 0), ("t", 1)]
TOPIC = "__transaction_state"


def added(transactional_id: str, *codes: int) -> AddPartitionsToTxnResult:
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes)
    ]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=rows)]
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)


class Others:
    """Other brokers: what they were asked, and what they say."""

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

    def add_partitions(self, _: str, __: Identity, ___: object, version: int, reply_to: Any, ____: int) -> Any:
        assert version == 2
        return lambda: reply_to(self.answers.pop(0))

    def verify_partitions(self, _: str, __: Identity, places: list[Place]) -> tuple[Error, dict[Place, Error]]:
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

    runtime = SimpleNamespace(topic=TOPIC, shard=shard, now_ms=lambda: 0, run=lambda _, decision: decision())
    messengers = PartitionMessengers(others.call if others is not None else Others(lambda _: None).call)
    return TransactionVerification(me, runtime, messengers)  # type: ignore[arg-type]


def ask(asked: TransactionVerification, is_verifying: bool) -> dict[Place, Error]:
    async def whole() -> dict[Place, Error]:
        return await answer_to(lambda answered: asked.ask("id", WHO, PLACES, is_verifying, answered))

    return virtual_time.run(whole())


def test_a_coordinator_on_this_broker_is_asked_at_once() -> None:
    expected = {PLACES[0]: Error.NONE, PLACES[1]: Error.TRANSACTION_ABORTABLE}
    assert ask(verification(ME, Machine()), is_verifying=True) == expected
    assert ask(verification(ME, Machine(Error.NONE)), is_verifying=False) == dict.fromkeys(PLACES, Error.NONE)


def test_a_coordinator_that_is_busy_is_asked_again_for_a_moment() -> None:
    machine = Machine(Error.CONCURRENT_TRANSACTIONS, Error.CONCURRENT_TRANSACTIONS, Error.NONE)
    assert ask(verification(ME, machine), is_verifying=False) == dict.fromkeys(PLACES, Error.NONE)
    busy = Machine(*[Error.CONCURRENT_TRANSACTIONS] * 10)
    answer = ask(verification(ME, busy, add_partitions_to_txn_retry_backoff_max_ms=6), is_verifying=False)
    assert set(answer.values()) == {Error.CONCURRENT_TRANSACTIONS}
    assert len(busy.answers) == 6


def test_a_coordinator_that_is_done_is_asked_at_once() -> None:
    machine = Machine(Error.CONCURRENT_TRANSACTIONS, Error.NONE)

    async def whole() -> None:
        asked = verification(
            ME, machine, add_partitions_to_txn_retry_backoff_ms=5000, add_partitions_to_txn_retry_backoff_max_ms=9000
        )
        heard: list[Any] = []
        asked.ask("id", WHO, PLACES, False, heard.append)
        shard: Any = SimpleNamespace(machine=SimpleNamespace(settled=["another"]))
        asked.on_settled(shard)
        assert heard == []
        shard.machine.settled = ["another", "id"]
        asked.on_settled(shard)
        assert heard == [dict.fromkeys(PLACES, Error.NONE)]
        assert shard.machine.settled == []

    virtual_time.run(whole())


@pytest.mark.parametrize("is_verifying", [True, False])
def test_who_cannot_coordinate_says_so(is_verifying: bool) -> None:
    loading = verification(ME, KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS))
    assert set(ask(loading, is_verifying).values()) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
    nobody = verification(-1, Machine())
    assert set(ask(nobody, is_verifying).values()) == {Error.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("is_verifying", [True, False])
def test_a_coordinator_on_another_broker_is_asked_there(is_verifying: bool) -> None:
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
def test_an_answer_that_says_nothing_is_no_yes(answer: Any, error: Error) -> None:
    assert set(ask(verification(OTHER, Machine(), Others(answer)), is_verifying=True).values()) == {error}


def test_what_comes_up_meanwhile_goes_out_together() -> None:
    carried: list[list[int]] = []

    async def whole() -> None:
        async def carry(_: int, together: list[int]) -> None:
            carried.append(together)
            await asyncio.sleep(0.01)

        calls: CallBatcher[int] = CallBatcher(carry)
        for number in range(3):
            calls.send(OTHER, number)
            await asyncio.sleep(0)
        calls.send(3, 9)
        await asyncio.sleep(0.05)
        calls.send(OTHER, 4)
        await asyncio.sleep(0.05)

    virtual_time.run(whole())
    assert carried == [[0], [9], [1, 2], [4]]


def test_markers_of_many_transactions_share_a_request() -> None:
    def row(producer_id: int, error: Error) -> WritableTxnMarkerResult:
        rows = [WritableTxnMarkerPartitionResult(partition_index=0, error_code=error)]
        return WritableTxnMarkerResult(
            producer_id=producer_id, topics=[WritableTxnMarkerTopicResult(name="t", partitions=rows)]
        )

    others = Others(
        lambda request: WriteTxnMarkersResponse(markers=[row(m.producer_id, Error.NONE) for m in request.markers])
    )
    heard: list[tuple[int, Place, Error]] = []

    async def whole() -> None:
        messengers = MarkerMessengers(others.call)
        for producer in range(3):
            order = SendMarkers(f"id{producer}", producer, 5, True, frozenset(), 2)
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
def test_producers_are_told_what_makes_them_do_the_right_thing(error: Error, version: int, expected: Error) -> None:
    assert told(error, version) is expected

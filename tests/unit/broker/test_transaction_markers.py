"""Markers on this and other brokers: retries after every failure, refusals of old epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import virtual_time
from tests.unit.coordination.stand import ME, NOW_MS, OTHER, Replicas, lead, lose, replicate
from tests.virtual_time import LoopClock

from ottla.base.errors import Error
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinator_service.transaction_markers import PartitionName, TxnMarkerWriter
from ottla.broker.coordinator_service.transaction_verification import VerificationGuards
from ottla.groups.coordinator_records import OffsetCommitRecord
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import GroupSettings
from ottla.protocol.batches import Record, build_batch
from ottla.replication.leader_state import PartitionState
from ottla.transactions.transaction import TransactionMetadata, TransactionState
from ottla.transactions.transaction_coordinator import TransactionCoordinator, TransactionMarkers, TransactionSettings

PRODUCER = 77
TWO: frozenset[PartitionName] = frozenset({("t", 0), ("t", 1)})


def order(epoch: int = 3, version: int = 2, partitions: frozenset[PartitionName] = TWO) -> TransactionMarkers:
    return TransactionMarkers("id", PRODUCER, epoch, True, partitions, version)


class Messengers:
    """Other brokers with scripted results."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, list[PartitionName], int]] = []
        self.answered: list[Callable[[PartitionName, Error], None]] = []

    def send(self, broker: int, _: TransactionMarkers, epoch: int, places: list[PartitionName], answered: Any) -> None:
        self.sent.append((broker, places, epoch))
        self.answered.append(answered)


class Stand:
    """A marker writer, with the coordinator of one transaction that is prepared to end."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.leaders: dict[PartitionName, int] = {}
        self.messengers = Messengers()
        self.guards = VerificationGuards()
        self.group = GroupCoordinator(GroupSettings(), lambda _: None, lambda: None)  # type: ignore[arg-type,return-value]
        self.group.offsets.commit_pending(PRODUCER, OffsetCommitRecord("g", "t", 0, 5, -1, "", NOW_MS))
        self.groups: Any = replicas.runtime("__consumer_offsets", lambda: self.group)
        self.transactions: Any = replicas.runtime(
            "__transaction_state", lambda: TransactionCoordinator(TransactionSettings())
        )
        self.home = replicas.make("__transaction_state", 0, (ME,))
        lead(self.home, 4, (ME,))
        self.writer = TxnMarkerWriter(
            replicas.set,
            LoopClock(),
            self.groups,
            self.transactions,
            lambda topic, index: self.leaders.get((topic, index)),
            self.messengers,
            self.guards,
        )
        self.writer.retry_seconds, self.writer.retry_seconds_max = 0.001, 0.01

    @property
    def counts(self) -> bool:
        """Whether the offset committed in the transaction is effective."""
        return self.group.offsets.get("g", "t", 0) is not None

    @property
    def machine(self) -> TransactionCoordinator:
        self.transactions.set_partition_count(1)
        machine: TransactionCoordinator = self.transactions.shard_at(0).machine
        return machine

    def send(self, wanted: TransactionMarkers) -> None:
        transaction = TransactionMetadata(wanted.transactional_id, wanted.producer_id, 1000)
        transaction.producer_epoch = wanted.producer_epoch
        transaction.state = TransactionState.PREPARE_COMMIT
        self.machine.transactions[wanted.transactional_id] = transaction
        self.machine.pending_markers = [wanted]
        self.writer.start_orders(self.transactions.shard_at(0))

    @property
    def is_done(self) -> bool:
        return self.machine.transactions["id"].state is TransactionState.COMPLETE_COMMIT

    def write(self, wanted: TransactionMarkers, epoch: int = 4, topic: str = "t") -> list[Error]:
        self.groups.set_partition_count(1)
        heard: list[Error] = []
        self.writer.write(wanted, topic, 0, epoch, heard.append)
        return heard


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    replicas = Replicas(tmp_path)
    yield Stand(replicas)
    replicas.close()


def play(scene: Callable[[], Awaitable[None]]) -> None:
    virtual_time.run(scene())  # type: ignore[arg-type]


def begin(partition: Any, epoch: int = 2) -> None:
    """Append a record of a transaction."""
    record = Record(0, NOW_MS, None, b"v", ())
    batch = build_batch([record], producer_id=PRODUCER, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    partition.append(memoryview(batch), False, NOW_MS)


def test_markers_are_sent_to_the_leaders_of_their_partitions(stand: Stand) -> None:
    async def scene() -> None:
        here = stand.replicas.make("t", 0, (1,))
        stand.leaders = {("t", 0): 1, ("t", 1): OTHER}
        stand.send(order())
        assert here.log.end_offset == 1
        assert stand.messengers.sent == [(OTHER, [("t", 1)], 4)]
        assert not stand.is_done
        stand.messengers.answered[0](("t", 1), Error.NONE)
        assert stand.is_done

    play(scene)


@pytest.mark.parametrize("error", [Error.NETWORK_EXCEPTION, Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS])
def test_a_refused_marker_is_sent_to_the_current_leader(stand: Stand, error: Error) -> None:
    async def scene() -> None:
        stand.leaders = {("t", 0): OTHER, ("t", 1): OTHER}
        stand.send(order())
        stand.leaders[("t", 1)] = -1
        stand.messengers.answered[0](("t", 0), Error.NONE)
        stand.messengers.answered[0](("t", 1), error)
        await asyncio.sleep(0.01)
        assert len(stand.messengers.sent) == 1  # it has no leader
        stand.leaders[("t", 1)] = 3
        await asyncio.sleep(0.02)
        assert stand.messengers.sent[1:] == [(3, [("t", 1)], 4)]
        stand.messengers.answered[1](("t", 1), Error.NONE)
        assert stand.is_done

    play(scene)


def test_a_deleted_topic_needs_no_marker_and_a_transaction_without_partitions_none_at_all(stand: Stand) -> None:
    async def scene() -> None:
        stand.send(order())
        assert stand.is_done
        stand.send(order(partitions=frozenset()))
        assert stand.is_done

    play(scene)


def test_a_deposed_coordinator_stops(stand: Stand) -> None:
    async def scene() -> None:
        stand.leaders = {("t", 0): OTHER, ("t", 1): OTHER}
        stand.send(order())
        stand.home.apply_state(PartitionState(OTHER, 5, (ME, OTHER), (ME, OTHER)), 0)
        stand.messengers.answered[0](("t", 0), Error.NOT_LEADER_OR_FOLLOWER)
        stand.messengers.answered[0](("t", 1), Error.TRANSACTION_COORDINATOR_FENCED)
        await asyncio.sleep(0.02)
        assert len(stand.messengers.sent) == 1
        assert stand.home.log.end_offset == 0

    play(scene)


def test_a_marker_is_effective_when_it_is_replicated(stand: Stand) -> None:
    async def scene() -> None:
        partition = stand.replicas.make("__consumer_offsets")
        stand.groups.set_partition_count(1)
        begin(partition)
        replicate(partition)
        heard = stand.write(order(), topic="__consumer_offsets")
        assert (heard, stand.counts) == ([], False)
        assert partition.last_stable_offset == 0  # the transaction is still open for consumers
        replicate(partition)
        assert (heard, stand.counts) == ([Error.NONE], True)
        assert partition.last_stable_offset == 2

    play(scene)


def test_a_marker_that_may_be_lost_with_its_leader_is_written_again(stand: Stand) -> None:
    async def scene() -> None:
        partition = stand.replicas.make("__consumer_offsets")
        heard = stand.write(order(), topic="__consumer_offsets")
        lose(partition, 1)
        assert (heard, stand.counts) == ([Error.NOT_LEADER_OR_FOLLOWER], False)
        assert stand.write(order(), topic="__consumer_offsets") == [Error.NOT_LEADER_OR_FOLLOWER]

    play(scene)


def test_an_old_coordinator_is_fenced(stand: Stand) -> None:
    async def scene() -> None:
        partition = stand.replicas.make("t", 0, (1,))
        begin(partition, epoch=0)
        assert stand.write(order(epoch=0, version=0), epoch=5) == [Error.NONE]
        begin_again = build_batch(
            [Record(0, NOW_MS, None, b"v", ())],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=1,
            is_transactional=True,
        )
        partition.append(memoryview(begin_again), False, NOW_MS)
        assert stand.write(order(epoch=0, version=0), epoch=4) == [Error.TRANSACTION_COORDINATOR_FENCED]
        assert partition.log.producers.ongoing_txns == {PRODUCER: 2}

    play(scene)


def test_a_duplicate_marker_does_not_end_the_next_transaction(stand: Stand) -> None:
    async def scene() -> None:
        partition = stand.replicas.make("t", 0, (1,))
        begin(partition, epoch=2)
        assert stand.write(order(epoch=3)) == [Error.NONE]
        begin(partition, epoch=3)
        assert stand.write(order(epoch=3)) == [Error.NONE]
        assert partition.log.producers.ongoing_txns == {PRODUCER: 2}
        assert stand.write(order(epoch=2)) == [Error.INVALID_PRODUCER_EPOCH]

    play(scene)


def test_a_marker_cancels_the_guard_of_its_producer(stand: Stand) -> None:
    async def scene() -> None:
        partition = stand.replicas.make("t", 0, (1,))
        guard, other = stand.guards.begin(partition, PRODUCER), stand.guards.begin(partition, 78)
        stand.write(order())
        assert (guard.is_cancelled, other.is_cancelled) == (True, False)

    play(scene)


def test_a_guard_exists_until_its_last_holder_ends_it(stand: Stand) -> None:
    partition = stand.replicas.make("t")
    first, second = stand.guards.begin(partition, PRODUCER), stand.guards.begin(partition, PRODUCER)
    stand.guards.end(first, PRODUCER)
    stand.guards.cancel(partition, PRODUCER)
    assert second.is_cancelled
    fresh = stand.guards.begin(partition, PRODUCER)
    assert not fresh.is_cancelled
    lose(partition, 1)
    lead(partition, 2)
    assert fresh.has_moved
    assert not stand.guards.begin(partition, PRODUCER).has_moved


def test_the_completion_is_retried_until_it_is_written(stand: Stand) -> None:
    async def scene() -> None:
        assert stand.machine.transactions == {}
        lead(stand.home, 5, (ME, OTHER))
        stand.home.log.settings = TopicSettings(min_insync_replicas=2)
        stand.home.apply_state(PartitionState(ME, 5, (ME,), (ME, OTHER), 1), 0)
        assert stand.home.is_under_min_isr
        stand.send(order())
        assert not stand.is_done
        stand.home.apply_state(PartitionState(ME, 5, (ME, OTHER), (ME, OTHER), 2), 0)
        await asyncio.sleep(0.05)
        assert stand.is_done

    play(scene)

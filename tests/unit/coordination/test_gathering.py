"""Commits that arrive together: one batch, and otherwise the same results as separate commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests import virtual_time
from tests.unit.coordination.stand import ME, OTHER, Replicas, lead, lose, replicate

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinator_service.coordinators import group_settings
from ottla.coordination import runtime
from ottla.coordination.machine import Decision, Reply
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.protocol.batches import HEADER_BYTES, read_batch_header, read_records
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.replication.leader_state import PartitionState

TOPIC = "__consumer_offsets"
GROUP = "g"


class Crowd:
    """The poller's number of waiting requests."""

    def __init__(self) -> None:
        self.pending_sockets = 1


class Stand:
    """One partition of the offsets topic, and clients that commit in one round of the loop."""

    def __init__(self, replicas: Replicas, replica_ids: tuple[int, ...]) -> None:
        self.partition = replicas.make(TOPIC, 0, replica_ids)
        settings = group_settings(BrokerSettings({}))
        self.runtime: CoordinatorRuntime[GroupCoordinator] = replicas.runtime(
            TOPIC,
            lambda: GroupCoordinator(settings, lambda _: None, lambda: None),  # type: ignore[arg-type,return-value]
            5_000,
        )
        self.crowd = self.runtime.pending_requests = Crowd()
        self.heard: list[str] = []
        self.runtime.set_partition_count(1)

    def commit(self, offset: int, generation: int = -1) -> None:
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        shard = self.runtime.shard(GROUP, can_batch=True)
        decision = shard.machine.offset_manager.commit(request, self._hearer(str(offset)), self.runtime.now_ms())
        self.runtime.execute_batched(shard, decision)

    def commit_in_transaction(self, offset: int) -> None:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=GROUP,
            producer_id=7,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        shard = self.runtime.shard(GROUP)
        hearer = self._hearer(str(offset))
        self.runtime.execute(
            shard, shard.machine.offset_manager.commit_transactional(request, {}, hearer, self.runtime.now_ms())
        )

    def _hearer(self, name: str) -> Callable[[object], None]:
        def answered(response: object) -> None:
            error = Error(response.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]
            self.heard.append(f"{name} {error.name}")

        return answered

    @property
    def known(self) -> int | None:
        """The offset that the machine has applied."""
        shard = self.runtime._shards[0]
        found = shard.machine.offsets.get(GROUP, "t", 0)
        return None if found is None else found.offset

    def batches(self) -> list[int]:
        """The number of records in each batch of the log."""
        log = self.partition.log
        found = log.read(0, 1 << 20, log.end_offset, True)
        if found is None:
            return []
        data = Path(f"{log.directory}/00000000000000000000.log").read_bytes()
        found.release()
        counts, position = [], 0
        while position + HEADER_BYTES <= len(data):
            header = read_batch_header(data, position)
            batch = data[position : position + header.batch_bytes]
            assert len(list(read_records(batch))) == header.record_count
            counts.append(header.record_count)
            position += header.batch_bytes
        return counts


def play(replicas: Replicas, scene: Callable[[Stand], Awaitable[None]], replica_ids: tuple[int, ...] = (ME,)) -> None:
    async def whole() -> None:
        stand = Stand(replicas, replica_ids)
        await scene(stand)
        stand.runtime.close()

    virtual_time.run(whole())


async def end_of_round() -> None:
    await asyncio.sleep(0)


def test_commits_of_one_round_are_one_batch_and_answered_in_their_order(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        for offset in (1, 2, 3):
            stand.commit(offset)
        assert (stand.heard, stand.known, stand.batches()) == ([], None, [])
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert stand.heard == ["1 NONE", "2 NONE", "3 NONE"]
        assert (stand.known, stand.batches()) == (3, [3])

    play(replicas, scene)


def test_single_commit_is_written_and_answered_at_once(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.crowd.pending_sockets = 0
        stand.commit(1)
        assert (stand.heard, stand.known, stand.batches()) == (["1 NONE"], 1, [1])

    play(replicas, scene)


def test_last_commit_of_a_round_joins_the_batch(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.crowd.pending_sockets = 0
        stand.commit(2)
        await end_of_round()
        assert (stand.heard, stand.batches()) == (["1 NONE", "2 NONE"], [2])

    play(replicas, scene)


def test_a_round_that_could_not_serve_all_goes_on_in_the_next_one(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        await end_of_round()
        stand.commit(2)
        await end_of_round()
        assert stand.heard == []
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert (stand.heard, stand.batches()) == (["1 NONE", "2 NONE"], [2])

    play(replicas, scene)


def test_linger_time_is_limited_while_requests_keep_arriving(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test clock does not advance while callbacks are ready, so the test changes the limit instead."""

    async def scene(stand: Stand) -> None:
        stand.commit(1)
        await end_of_round()
        assert stand.heard == []
        monkeypatch.setattr(runtime, "LINGER_SECONDS_MAX", 0.0)
        await end_of_round()
        assert (stand.heard, stand.crowd.pending_sockets) == (["1 NONE"], 1)

    play(replicas, scene)


def test_refused_commit_is_answered_at_once_and_in_order(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit(2, generation=4)
        assert stand.heard == ["1 NONE", "2 GROUP_ID_NOT_FOUND"]
        assert stand.batches() == [1]

    play(replicas, scene)


def test_each_is_answered_only_when_the_followers_have_it(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit(2)
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert (stand.heard, stand.known) == ([], 2)
        replicate(stand.partition)
        assert stand.heard == ["1 NONE", "2 NONE"]

    play(replicas, scene, (ME, OTHER))


def test_wait_for_a_delayed_high_watermark_is_limited(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit(2)
        stand.crowd.pending_sockets = 0
        await asyncio.sleep(5.1)
        assert stand.heard == ["1 COORDINATOR_NOT_AVAILABLE", "2 COORDINATOR_NOT_AVAILABLE"]
        replicate(stand.partition)
        assert stand.known == 2

    play(replicas, scene, (ME, OTHER))


def test_failed_append_fails_all_commits_of_the_batch_and_applies_none(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.partition.log.settings = TopicSettings(min_insync_replicas=2)
        stand.commit(1)
        stand.commit(2)
        stand.partition.apply_state(PartitionState(ME, 0, (ME,), (ME, OTHER), 1), 0)
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert stand.heard == ["1 COORDINATOR_NOT_AVAILABLE", "2 COORDINATOR_NOT_AVAILABLE"]
        assert (stand.known, stand.batches()) == (None, [])
        stand.partition.apply_state(PartitionState(ME, 0, (ME, OTHER), (ME, OTHER), 2), 0)
        stand.commit(3)
        replicate(stand.partition)
        assert (stand.heard[2:], stand.known, stand.batches()) == (["3 NONE"], 3, [1])

    play(replicas, scene, (ME, OTHER))


def test_leadership_that_is_lost_before_they_are_written(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit(2)
        lose(stand.partition, 1)
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert stand.heard == ["1 NOT_COORDINATOR", "2 NOT_COORDINATOR"]
        assert stand.batches() == []

    play(replicas, scene, (ME, OTHER))


def test_leadership_that_is_lost_and_won_again_before_they_are_written(replicas: Replicas) -> None:
    """The log may have records that this machine does not know, so the batch is not written."""

    async def scene(stand: Stand) -> None:
        stand.commit(1)
        lose(stand.partition, 1)
        lead(stand.partition, 2)
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert (stand.heard, stand.batches()) == (["1 NOT_COORDINATOR"], [])

    play(replicas, scene, (ME, OTHER))


def test_a_coordinator_that_ends_tells_those_that_it_has_gathered(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.runtime.close()
        assert stand.heard == ["1 NOT_COORDINATOR"]
        await end_of_round()
        assert (stand.heard, stand.batches()) == (["1 NOT_COORDINATOR"], [])

    play(replicas, scene)


def test_other_requests_find_all_batched_commits_applied(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit(2)
        shard = stand.runtime.shard(GROUP)
        assert stand.known == 2
        stand.runtime.execute(shard, Decision(replies=[Reply(stand.heard.append, "read")], is_read=True))
        assert stand.heard == []
        replicate(stand.partition)
        assert stand.heard == ["1 NONE", "2 NONE", "read"]

    play(replicas, scene, (ME, OTHER))


def test_commits_of_transactions_stay_in_their_place(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit_in_transaction(2)
        stand.commit(3)
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert stand.heard == ["1 NONE", "2 NONE", "3 NONE"]
        assert stand.batches() == [1, 1, 1]
        shard = stand.runtime.shard(GROUP)
        shard.machine.offsets.end_transaction(7, True)
        assert stand.known == 3  # it came later

    play(replicas, scene)


def test_a_batch_is_never_too_large_for_the_topic(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.partition.log.settings = TopicSettings(max_message_bytes=400)
        for offset in range(20):
            stand.commit(offset)
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert stand.heard == [f"{offset} NONE" for offset in range(20)]
        counts = stand.batches()
        assert sum(counts) == 20
        assert 1 < max(counts) < 10

    play(replicas, scene)


class Forgetful:
    """A machine that fails to apply written records."""

    def __init__(self, machine: GroupCoordinator) -> None:
        self._machine = machine

    def replay(self, *_: object) -> None:
        raise ValueError("a bug")

    def on_unloaded(self) -> list[Reply]:
        return []

    def next_wakeup_ms(self) -> int | None:
        return None


def test_machine_that_fails_to_apply_a_batch_is_loaded_again(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(1)
        stand.commit(2)
        shard = stand.runtime._shards[0]
        shard.machine = Forgetful(shard.machine)  # type: ignore[assignment]
        stand.crowd.pending_sockets = 0
        await end_of_round()
        assert stand.heard == ["1 NOT_COORDINATOR", "2 NOT_COORDINATOR"]
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            stand.runtime.shard(GROUP)
        await asyncio.sleep(1)
        stand.runtime.shard(GROUP)
        assert stand.known == 2  # it was written

    play(replicas, scene)

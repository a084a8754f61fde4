"""Coordinators that are loaded and unloaded with the leadership of their partition, and delayed high watermarks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from tests import virtual_time
from tests.unit.coordination.stand import ME, OTHER, Replicas, lead, lose, replicate

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error, KafkaError
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinator_service.coordinators import group_settings
from ottla.coordination.machine import Decision, Reply
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.groups.classic_group import RequestClient
from ottla.groups.coordinator_records import offset_tombstone
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.offsets import unpack_offset
from ottla.protocol.batches import read_batch_header
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.replication.leader_state import PartitionState
from ottla.replication.partition import Partition

TOPIC = "__consumer_offsets"
GROUP = "g"


class Stand:
    """One partition of the offsets topic and its coordinator."""

    def __init__(self, replicas: Replicas, wait_ms_max: int) -> None:
        self.partition = replicas.make(TOPIC)
        settings = group_settings(BrokerSettings({}))
        self.runtime: CoordinatorRuntime[GroupCoordinator] = replicas.runtime(
            TOPIC,
            lambda: GroupCoordinator(settings, lambda _: None, lambda: None),  # type: ignore[arg-type,return-value]
            wait_ms_max,
        )
        self.heard: list[object] = []
        self.runtime.set_partition_count(1)

    def commit(self, offset: int) -> None:
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=[row])
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        shard = self.runtime.shard(GROUP)

        def answered(response: object) -> None:
            self.heard.append(Error(response.topics[0].partitions[0].error_code).name)  # type: ignore[attr-defined]

        self.runtime.execute(shard, shard.machine.offset_manager.commit(request, answered, self.runtime.now_ms()))

    def fetch(self) -> None:
        shard = self.runtime.shard(GROUP)
        found = shard.machine.offsets.get(GROUP, "t", 0)
        reply = Reply(self.heard.append, found.offset if found is not None else None)
        self.runtime.execute(shard, Decision(replies=[reply], is_read=True))

    def join(self) -> None:
        shard = self.runtime.shard(GROUP)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client = RequestClient("c", "/h", False, False)

        def answered(response: object) -> None:
            self.heard.append(Error(response.error_code).name)  # type: ignore[attr-defined]

        self.runtime.execute(shard, shard.machine.join(request, client, "m1", answered, self.runtime.now_ms()))

    def problem(self) -> Error:
        try:
            self.runtime.shard(GROUP)
        except KafkaError as refusal:
            return refusal.error
        return Error.NONE


def play(replicas: Replicas, scene: Callable[[Stand], Awaitable[None]], wait_ms_max: int = 60_000) -> None:
    async def whole() -> None:
        stand = Stand(replicas, wait_ms_max)
        await scene(stand)
        stand.runtime.close()

    virtual_time.run(whole())


async def until_ready(stand: Stand) -> None:
    for _ in range(200):
        if stand.problem() is Error.NONE:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(stand.problem())


async def a_moment() -> None:
    await asyncio.sleep(0.1)


def test_a_commit_is_answered_when_its_followers_have_it(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        stand.fetch()
        assert stand.heard == []
        replicate(stand.partition)
        assert stand.heard == ["NONE", 5]

    play(replicas, scene)


def test_a_commit_that_is_not_replicated_when_leadership_is_lost_is_not_acknowledged(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        lose(stand.partition, 1)
        assert stand.heard == ["NOT_COORDINATOR"]
        assert stand.problem() is Error.NOT_COORDINATOR

    play(replicas, scene)


def test_a_high_watermark_of_the_next_leader_acknowledges_nothing(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        lose(stand.partition, 1)
        lead(stand.partition, 2)
        replicate(stand.partition)
        assert stand.heard == ["NOT_COORDINATOR"]

    play(replicas, scene)


def test_waiting_members_are_sent_to_the_next_coordinator(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.join()
        replicate(stand.partition)
        assert stand.heard == []  # waits for other members
        lose(stand.partition, 1)
        stand.runtime.set_partition_count(1)
        assert stand.heard == ["NOT_COORDINATOR"]
        assert stand.runtime.loaded() == []

    play(replicas, scene)


def test_a_new_leader_tells_nothing_before_all_that_it_loaded_is_committed(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        replicate(stand.partition)
        stand.commit(6)
        lose(stand.partition, 1)
        stand.runtime.set_partition_count(1)
        lead(stand.partition, 2)
        stand.runtime.set_partition_count(1)
        await a_moment()
        assert stand.problem() is Error.COORDINATOR_LOAD_IN_PROGRESS
        replicate(stand.partition)
        await until_ready(stand)
        stand.heard.clear()
        stand.fetch()
        assert stand.heard == [6]

    play(replicas, scene)


def test_a_coordinator_that_stays_goes_on_in_the_next_epoch(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        shard = stand.runtime.shard(GROUP)
        lead(stand.partition, 1)
        stand.runtime.set_partition_count(1)
        assert stand.runtime.shard(GROUP) is shard
        replicate(stand.partition)
        assert stand.heard == ["NONE"]

    play(replicas, scene)


def test_leadership_that_changes_while_the_log_is_read(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        replicate(stand.partition)
        lose(stand.partition, 1)
        lead(stand.partition, 2)
        stand.runtime.set_partition_count(1)
        assert stand.problem() is Error.COORDINATOR_LOAD_IN_PROGRESS
        lose(stand.partition, 3)
        stand.runtime.set_partition_count(1)
        assert stand.problem() is Error.NOT_COORDINATOR
        lead(stand.partition, 4)
        replicate(stand.partition)
        await until_ready(stand)
        shard = stand.runtime.shard(GROUP)
        assert shard.is_current_leader
        stand.heard.clear()
        stand.fetch()
        assert stand.heard == [5]

    play(replicas, scene)


def test_without_followers_a_log_is_loaded_at_once(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        partition: Partition = replicas.make(TOPIC, 1, (ME,))
        stand.runtime.set_partition_count(2)
        assert stand.runtime.shard_at(1).partition is partition

    play(replicas, scene)


def test_wait_for_followers_times_out_and_the_records_stay_valid(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        await a_moment()
        assert stand.heard == ["COORDINATOR_NOT_AVAILABLE"]
        stand.commit(6)
        replicate(stand.partition)
        stand.fetch()
        assert stand.heard == ["COORDINATOR_NOT_AVAILABLE", "NONE", 6]

    play(replicas, scene, wait_ms_max=20)


class Alarm:
    """A machine that requests an immediate tick and records it."""

    def __init__(self) -> None:
        self.ticks = 0
        self.heard_again_before_tick: int | None = None

    def on_loaded(self, _: int) -> list[Decision]:
        return []

    def renew_sessions(self, _: int) -> None:
        self.heard_again_before_tick = self.ticks

    def on_unloaded(self) -> list[Reply]:
        return []

    def next_wakeup_ms(self) -> int | None:
        return 0 if self.ticks == 0 else None

    def tick(self, _: int) -> list[Decision]:
        self.ticks += 1
        return []


def test_what_is_due_stays_due_while_too_few_replicas_are_in_sync(replicas: Replicas) -> None:
    async def scene() -> None:
        alarm = Alarm()
        partition = replicas.make(TOPIC)
        partition.log.settings = TopicSettings(min_insync_replicas=2)
        partition.apply_state(PartitionState(ME, 0, (ME,), (ME, OTHER), 1), 0)
        runtime = replicas.runtime(TOPIC, lambda: alarm)
        runtime.set_partition_count(1)
        await a_moment()
        assert alarm.ticks == 0
        partition.apply_state(PartitionState(ME, 0, (ME, OTHER), (ME, OTHER), 2), 0)
        await asyncio.sleep(0.4)
        assert alarm.ticks == 1
        runtime.close()

    virtual_time.run(scene())


def test_no_timer_fires_while_leadership_is_unconfirmed_and_sessions_restart_afterwards(replicas: Replicas) -> None:
    async def scene() -> None:
        alarm = Alarm()
        is_doubtful = True
        partition = replicas.make(TOPIC)
        runtime = replicas.runtime(TOPIC, lambda: alarm)
        runtime.must_check_leadership = lambda: is_doubtful
        runtime.set_partition_count(1)
        replicate(partition)
        await asyncio.sleep(0.4)
        with pytest.raises(KafkaError) as refusal:
            runtime.shard(GROUP)
        assert (refusal.value.error, alarm.ticks) == (Error.COORDINATOR_LOAD_IN_PROGRESS, 0)
        is_doubtful = False
        await asyncio.sleep(0.4)
        assert (alarm.heard_again_before_tick, alarm.ticks) == (0, 1)
        runtime.close()

    virtual_time.run(scene())


class Forgetful:
    """A machine that fails to apply written records."""

    def replay(self, *_: object) -> None:
        raise ValueError("a bug")

    def on_unloaded(self) -> list[Reply]:
        return []

    def next_wakeup_ms(self) -> int | None:
        return None


def test_machine_that_fails_to_apply_written_records_is_loaded_again(replicas: Replicas) -> None:
    """Its state does not match the log: waiting clients retry, and get the written state."""

    async def scene(stand: Stand) -> None:
        stand.commit(5)
        shard = stand.runtime.shard(GROUP)
        shard.machine = Forgetful()  # type: ignore[assignment]
        with pytest.raises(ValueError, match="a bug"):
            stand.runtime.execute(shard, Decision([offset_tombstone(GROUP, "t", 0)]))
        assert stand.heard == ["NOT_COORDINATOR"]
        assert stand.problem() is Error.COORDINATOR_LOAD_IN_PROGRESS
        replicate(stand.partition)
        await until_ready(stand)
        stand.commit(7)
        replicate(stand.partition)
        assert stand.heard == ["NOT_COORDINATOR", "NONE"]

    play(replicas, scene)


@pytest.mark.parametrize("step_seconds", [3600, -3600])
def test_sessions_last_as_long_when_the_system_clock_is_set(replicas: Replicas, step_seconds: int) -> None:
    async def scene(stand: Stand) -> None:
        def members() -> int:
            return len(stand.runtime.loaded()[0].machine.groups[GROUP].members)

        stand.join()
        await asyncio.sleep(4)  # the initial delay of the first rebalance
        replicate(stand.partition)
        assert stand.heard == ["NONE"]
        replicas.clock.epoch_ms += step_seconds * 1000
        await asyncio.sleep(5)
        assert members() == 1
        await asyncio.sleep(6)
        assert members() == 0

    play(replicas, scene)


@pytest.mark.parametrize("step_seconds", [3600, -3600])
def test_waits_for_followers_last_as_long_when_the_system_clock_is_set(replicas: Replicas, step_seconds: int) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit(5)
        await asyncio.sleep(0.01)
        replicas.clock.epoch_ms += step_seconds * 1000
        stand.runtime.now_ms()
        await asyncio.sleep(0.005)
        assert stand.heard == []
        await asyncio.sleep(0.01)
        assert stand.heard == ["COORDINATOR_NOT_AVAILABLE"]

    play(replicas, scene, wait_ms_max=20)


@pytest.mark.parametrize("step_seconds", [3600, -3600])
def test_records_have_the_time_of_the_system_clock_after_it_was_set(replicas: Replicas, step_seconds: int) -> None:
    async def scene(stand: Stand) -> None:
        replicas.clock.epoch_ms += step_seconds * 1000
        stand.commit(5)
        now_ms = replicas.clock.now_ms()
        [record] = stand.runtime.loaded()[0].machine.offsets.topics(GROUP)["t"].values()
        assert unpack_offset(record).commit_ms == now_ms
        chunk = stand.partition.log.read(0, 1 << 20, 1 << 20, True)
        assert chunk is not None
        assert (
            read_batch_header(memoryview(os.pread(chunk.descriptor, chunk.length, chunk.position)), 0).max_timestamp
            == now_ms
        )
        chunk.release()

    play(replicas, scene)

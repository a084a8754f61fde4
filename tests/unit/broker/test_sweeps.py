"""Offsets of deleted topics: removal in slices, and changes between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests import virtual_time
from tests.unit.coordination.stand import ME, OTHER, Replicas, lead, lose

from ottla.base import tasks
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.base.partitioning import partition_for
from ottla.base.topic_settings import TopicSettings
from ottla.broker.coordinator_service import sweeps
from ottla.broker.coordinator_service.coordinators import group_settings
from ottla.broker.coordinator_service.sweeps import DeletedTopicOffsets, Sweeps
from ottla.coordination.batch import RECORDS_MAX
from ottla.coordination.runtime import CoordinatorRuntime
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.protocol.batches import read_batch_header
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
SHARDS = 2
PARTITIONS = 2 * RECORDS_MAX + 50  # each group needs several slices


@pytest.fixture(autouse=True)
def one_decision_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this loop no time passes during work: every slice ends after one decision."""
    monkeypatch.setattr("ottla.broker.offload.SLICE_SECONDS", -1.0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


class Stand:
    """Two partitions of the offsets topic with one group each, and images in which topics are created and deleted."""

    def __init__(self, replicas: Replicas, replica_ids: tuple[int, ...]) -> None:
        self.partitions = [replicas.make(TOPIC, index, replica_ids) for index in range(SHARDS)]
        self.runtime: CoordinatorRuntime[GroupCoordinator] = replicas.runtime(TOPIC, self._make_machine)
        self.sweeps = Sweeps(self.runtime)
        self.deleted = DeletedTopicOffsets(self.runtime, self.sweeps)
        self.runtime.on_shard_loaded = self.deleted.on_shard_loading
        self.groups = [next(f"g{n}" for n in range(99) if partition_for(f"g{n}", SHARDS) == i) for i in range(SHARDS)]
        self.topics: dict[str, Any] = {}
        self.made = 0
        self.create("t", "other")
        self.runtime.set_partition_count(SHARDS)

    def _make_machine(self) -> GroupCoordinator:
        settings = group_settings(BrokerSettings({}))
        machine = GroupCoordinator(settings, lambda _: None, lambda: None)  # type: ignore[arg-type,return-value]
        machine.topic_change_count = self.deleted.count
        return machine

    def create(self, *names: str) -> None:
        self._change({**self.topics, **{name: self._topic() for name in names}})

    def delete(self, *names: str) -> None:
        self._change({name: topic for name, topic in self.topics.items() if name not in names})

    def _topic(self) -> Any:
        self.made += 1
        return SimpleNamespace(topic_id=UUID(int=self.made))

    def _change(self, new: dict[str, Any]) -> None:
        old, self.topics = self.topics, new
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) is not new.get(name))
        self.deleted.on_topics_changed(changed, old, new)

    def commit(self, group: str, topic: str, count: int = PARTITIONS, offset: int = 5) -> None:
        rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=offset) for n in range(count)]
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        shard = self.runtime.shard(group)
        self.runtime.execute(shard, shard.machine.offset_manager.commit(request, lambda _: None, self.runtime.now_ms()))

    def commit_everywhere(self, *topics: str) -> None:
        for group in self.groups:
            for topic in topics:
                self.commit(group, topic)

    def commit_in_transaction(self, group: str, topic: str, count: int) -> None:
        rows = [
            TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=7, committed_metadata="")
            for n in range(count)
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=7,
            producer_epoch=0,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        shard = self.runtime.shard(group)
        decision = shard.machine.offset_manager.commit_transactional(request, {}, lambda _: None, self.runtime.now_ms())
        self.runtime.execute(shard, decision)

    def counts(self, topic: str = "t") -> list[int]:
        """The number of offsets of the topic in each group."""
        shards = [self.runtime.shard(group) for group in self.groups]
        return [
            len(shard.machine.offsets.topics(group).get(topic, {}))
            for shard, group in zip(shards, self.groups, strict=True)
        ]

    def ends(self) -> list[int]:
        return [partition.log.end_offset for partition in self.partitions]

    def void(self) -> list[dict[str, int]]:
        return [shard.machine.offsets.deleted_topics for shard in self.runtime.loaded()]

    def kept(self) -> list[int]:
        """The number of offsets in memory per shard, including void ones."""
        return [
            sum(len(rows) for _, topics in shard.machine.offsets.all_groups() for rows in topics.values())
            for shard in self.runtime.loaded()
        ]

    async def lead_anew(self) -> None:
        """Load everything from the logs, like the next leader."""
        for epoch in (1, 2):
            for partition in self.partitions:
                if epoch == 1:
                    lose(partition, partition.leader_epoch + 1)
                else:
                    lead(partition, partition.leader_epoch + 1, (ME,))
            self.runtime.set_partition_count(SHARDS)
        await self.loaded()

    async def all_forgotten(self) -> None:
        while self.sweeps._task is not None:
            await asyncio.sleep(0.01)

    async def loaded(self) -> None:
        while self.runtime._loading:
            await asyncio.sleep(0.01)


def play(replicas: Replicas, scene: Callable[[Stand], Awaitable[None]], replica_ids: tuple[int, ...] = (ME,)) -> None:
    async def whole() -> None:
        stand = Stand(replicas, replica_ids)
        await scene(stand)
        stand.sweeps.close()
        stand.runtime.close()

    failed = tasks.counts.failed, tasks.counts.restarted
    virtual_time.run(whole())
    assert (tasks.counts.failed, tasks.counts.restarted) == failed


async def one_slice() -> None:
    await asyncio.sleep(0)


def test_offsets_are_removed_in_slices_and_others_are_kept(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t", "other")
        stand.delete("t")
        assert stand.counts() == [PARTITIONS, PARTITIONS]  # a deletion does not wait for the removal
        seen = []
        while any(stand.counts()):
            await one_slice()
            seen.append(sum(stand.counts()))
        steps = [before - after for before, after in zip([2 * PARTITIONS, *seen], seen, strict=False)]
        assert max(steps) == RECORDS_MAX
        await stand.all_forgotten()
        assert stand.counts("other") == [PARTITIONS, PARTITIONS]

    play(replicas, scene)


def test_the_rest_becomes_void_before_a_new_topic_of_that_name_is_visible(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        stand.delete("t")
        await one_slice()
        await one_slice()
        assert 0 < sum(stand.counts()) < 2 * PARTITIONS
        ends = stand.ends()
        stand.create("t")
        assert stand.counts() == [0, 0]
        assert [after - before for before, after in zip(ends, stand.ends(), strict=True)] == [
            1,
            1,
        ]  # one tombstone, whatever is left
        stand.commit_everywhere("t")
        await stand.all_forgotten()
        assert stand.counts() == [PARTITIONS, PARTITIONS]
        assert stand.void() == [{}, {}]

    play(replicas, scene)


def test_a_topic_recreated_between_two_images_has_no_old_offsets(replicas: Replicas) -> None:
    """Both changes may be in one image."""

    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        stand.create("t")  # with another id
        assert stand.counts() == [0, 0]
        stand.commit_everywhere("t")
        await stand.all_forgotten()
        assert stand.counts() == [PARTITIONS, PARTITIONS]

    play(replicas, scene)


def test_other_topic_changes_do_not_affect_the_removal(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t", "other")
        stand.delete("t")
        stand.create("third")
        assert stand.counts() == [PARTITIONS, PARTITIONS]
        await one_slice()
        stand.delete("other")
        await stand.all_forgotten()
        assert stand.counts() == stand.counts("other") == [0, 0]

    play(replicas, scene)


def test_offsets_of_an_open_transaction_are_removed_whenever_it_ends(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        group = stand.groups[0]
        stand.commit_in_transaction(group, "t", PARTITIONS)
        stand.delete("t")
        await one_slice()
        await one_slice()
        machine = stand.runtime.shard(group).machine
        machine.offsets.end_transaction(7, is_commit=True)
        assert 0 < stand.counts()[0] < PARTITIONS  # some have moved beyond the position of the search
        await stand.all_forgotten()
        assert stand.counts() == [0, 0]

    play(replicas, scene)


def test_the_next_leader_removes_the_rest(replicas: Replicas) -> None:
    """The next leader is the same broker here; every other broker has the same information."""

    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t", "other")
        stand.delete("t")
        await one_slice()
        await one_slice()
        assert 0 < stand.counts()[0] < PARTITIONS
        lose(stand.partitions[0], 1)
        stand.runtime.set_partition_count(SHARDS)
        await one_slice()
        lead(stand.partitions[0], 2, (ME,))
        stand.runtime.set_partition_count(SHARDS)
        await stand.loaded()
        await stand.all_forgotten()
        assert stand.counts() == [0, 0]
        assert stand.counts("other") == [PARTITIONS, PARTITIONS]

    play(replicas, scene)


@pytest.mark.parametrize("is_gone_before", [True, False])
def test_a_topic_recreated_while_a_partition_is_loading_loses_old_offsets_only(
    replicas: Replicas, is_gone_before: bool
) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        lose(stand.partitions[0], 1)
        stand.runtime.set_partition_count(SHARDS)
        if is_gone_before:
            stand.delete("t")
        lead(stand.partitions[0], 2, (ME,))
        stand.runtime.set_partition_count(SHARDS)
        assert stand.runtime._loading
        stand.delete("t")
        stand.create("t")
        await stand.loaded()
        assert stand.counts() == [0, 0]
        stand.commit_everywhere("t")
        await stand.all_forgotten()
        assert stand.counts() == [PARTITIONS, PARTITIONS]

    play(replicas, scene)


def test_commits_of_another_coordinator_for_the_new_topic_are_kept(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.delete("t")
        stand.create("t")
        stand.commit_everywhere("t")  # appended by the other coordinator
        lose(stand.partitions[0], 1)
        stand.runtime.set_partition_count(SHARDS)
        lead(stand.partitions[0], 2, (ME,))
        stand.runtime.set_partition_count(SHARDS)
        await stand.loaded()
        await stand.all_forgotten()
        assert stand.counts() == [PARTITIONS, PARTITIONS]

    play(replicas, scene)


def test_the_removal_waits_while_too_few_replicas_are_in_sync(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        for partition in stand.partitions:
            partition.log.settings = TopicSettings(min_insync_replicas=2)
        stand.partitions[0].apply_state(PartitionState(ME, 0, (ME,), (ME, OTHER), 1), 0)
        stand.partitions[1].apply_state(PartitionState(ME, 0, (ME, OTHER), (ME, OTHER), 1), 0)
        stand.delete("t")
        await asyncio.sleep(5.0)
        assert stand.counts() == [PARTITIONS, 0]
        stand.partitions[0].apply_state(PartitionState(ME, 0, (ME, OTHER), (ME, OTHER), 2), 0)
        await stand.all_forgotten()
        assert stand.counts() == [0, 0]

    play(replicas, scene)


def test_a_batch_of_tombstones_never_exceeds_the_topics_limit(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        group = next(f"{n}" * 20_000 for n in range(9) if partition_for(f"{n}" * 20_000, SHARDS) == 0)
        stand.commit(group, "t", 20)
        log = stand.partitions[0].log
        log.settings = TopicSettings(max_message_bytes=50_000)
        start = log.end_offset
        stand.delete("t")
        await stand.all_forgotten()
        assert log.end_offset == start + 20
        counts, offset = [], start
        while offset < log.end_offset:
            piece = log.read(offset, 1, log.end_offset, True)
            assert piece is not None
            header = read_batch_header(Path(f"{log.directory}/00000000000000000000.log").read_bytes(), piece.position)
            piece.release()
            counts.append(header.record_count)
            offset = header.next_offset
        assert counts == [2] * 10

    play(replicas, scene)


def test_a_stopping_broker_leaves_no_task_running(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        stand.delete("t")
        await one_slice()
        task = stand.sweeps._task
        stand.sweeps.close()
        stand.runtime.close()
        end = stand.partitions[0].log.end_offset
        await asyncio.sleep(1.0)
        assert task is not None
        assert task.cancelled()
        assert stand.partitions[0].log.end_offset == end

    play(replicas, scene)


def test_a_failing_shard_does_not_block_the_others(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        stand.delete("t")
        first = stand.sweeps.pending[0].shard
        is_at_work = stand.sweeps.is_sweeping

        def broken(shard: Any) -> bool:
            if shard is first:
                raise ValueError("planted")
            return is_at_work(shard)

        stand.sweeps.is_sweeping = broken  # type: ignore[method-assign]
        stand.create("t")
        assert sorted(stand.counts()) == [0, PARTITIONS]
        monkeypatch.setattr(tasks.counts, "failed", tasks.counts.failed - 1)

    play(replicas, scene)


def test_deleted_names_are_bounded_except_for_running_sweeps(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "NAMES_MAX", 2)

    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        names = [f"n{number}" for number in range(5)]
        stand.create(*names)
        stand.delete("t")
        stand.delete(*names)
        stand.create("t")
        assert stand.counts() == [0, 0]
        await stand.all_forgotten()
        stand.delete("other")
        assert len(stand.deleted._deleted) == 3

    play(replicas, scene)


def test_batched_commits_are_removed_too(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        crowd: Any = SimpleNamespace(pending_sockets=1)
        stand.runtime.pending_requests = crowd
        group = stand.groups[0]
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        heard: list[Any] = []
        shard = stand.runtime.shard(group, can_batch=True)
        stand.runtime.execute_batched(
            shard, shard.machine.offset_manager.commit(request, heard.append, stand.runtime.now_ms())
        )
        assert shard.has_batched
        crowd.pending_sockets = 0
        stand.delete("t")
        await stand.all_forgotten()
        assert [row.error_code for row in heard[0].topics[0].partitions] == [Error.NONE]
        assert stand.counts() == [0, 0]

    play(replicas, scene)


async def begun(stand: Stand) -> None:
    """The topic is deleted, and a part of its offsets is removed."""
    stand.delete("t")
    for _ in range(2 * SHARDS + 1):
        await one_slice()
    assert 0 < sum(stand.kept()) < 2 * PARTITIONS


def test_the_next_leader_after_a_recreated_topic_has_no_old_offsets(replicas: Replicas) -> None:
    """Even though most of them have no tombstone yet."""

    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t", "other")
        stand.delete("t")
        stand.create("t")
        for group in stand.groups:
            stand.commit(group, "t", 3, offset=9)
        kept: dict[Any, int] = {}

        def on_taken(shard: Any) -> None:
            offsets = shard.machine.offsets
            [(group, topics)] = offsets.all_groups()
            kept[shard] = len(topics["t"])
            assert len(offsets.topics(group)["t"]) == 3
            stand.deleted.on_shard_loading(shard)

        stand.runtime.on_shard_loaded = on_taken
        await stand.lead_anew()
        assert list(kept.values()) == [PARTITIONS, PARTITIONS]  # nothing is removed yet
        await stand.all_forgotten()
        assert stand.counts() == [3, 3]
        assert stand.counts("other") == [PARTITIONS, PARTITIONS]
        assert stand.kept() == [PARTITIONS + 3, PARTITIONS + 3]
        await stand.lead_anew()
        await stand.all_forgotten()
        assert stand.counts() == [3, 3]
        assert stand.kept() == [PARTITIONS + 3, PARTITIONS + 3]
        assert stand.void() == [{}, {}]

    play(replicas, scene)


def test_a_topic_may_be_deleted_and_recreated_repeatedly(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        for round_ in range(5):
            await begun(stand)
            stand.create("t")
            assert stand.counts() == [0, 0]
            stand.commit_everywhere("t")
            await one_slice()
            assert stand.counts() == [PARTITIONS, PARTITIONS], round_
        await begun(stand)
        await stand.all_forgotten()
        assert stand.kept() == [0, 0]
        assert stand.void() == [{}, {}]

    play(replicas, scene)


def test_offsets_of_an_old_transaction_do_not_affect_a_new_topic(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        group = stand.groups[0]
        stand.commit_in_transaction(group, "t", PARTITIONS)
        stand.delete("t")
        stand.create("t")
        offsets = stand.runtime.shard(group).machine.offsets
        assert not offsets.is_pending(group, "t", 0)  # consumers of the new topic do not wait for it
        await stand.all_forgotten()
        assert stand.void() == [{}, {}]
        offsets.end_transaction(7, is_commit=True)
        assert stand.counts() == stand.kept() == [0, 0]

    play(replicas, scene)


def test_pending_commits_for_a_new_topic_are_not_removed_with_the_old_ones(replicas: Replicas) -> None:
    """A tombstone also removes an offset from open transactions: the removal must wait for them."""

    async def scene(stand: Stand) -> None:
        group = stand.groups[0]
        stand.commit(group, "t")
        stand.delete("t")
        stand.create("t")
        stand.commit_in_transaction(group, "t", 3)
        await stand.all_forgotten()
        assert stand.counts() == [0, 0]
        assert stand.void()[0] != {}
        offsets = stand.runtime.shard(group).machine.offsets
        assert all(offsets.is_pending(group, "t", index) for index in range(3))
        offsets.end_transaction(7, is_commit=True)
        assert stand.counts() == [3, 0]
        await asyncio.sleep(2 * 600.0)  # the next search for expired offsets
        assert stand.counts() == [3, 0]
        assert stand.void() == [{}, {}]

    play(replicas, scene)


def test_offsets_that_could_not_be_removed_stay_void(replicas: Replicas) -> None:
    async def scene(stand: Stand) -> None:
        stand.commit_everywhere("t")
        stand.delete("t")
        stand.create("t")
        for partition in stand.partitions:  # a tombstone exceeds its limit
            partition.log.settings = TopicSettings(max_message_bytes=70)
        await stand.all_forgotten()
        assert stand.counts() == [0, 0]
        assert stand.kept() == [PARTITIONS, PARTITIONS]
        for partition in stand.partitions:
            partition.log.settings = TopicSettings()
        await asyncio.sleep(2 * 600.0)
        assert stand.counts() == stand.kept() == [0, 0]
        assert stand.void() == [{}, {}]

    play(replicas, scene)

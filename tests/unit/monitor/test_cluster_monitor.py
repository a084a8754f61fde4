"""The cluster monitor in virtual time, with fake threads, brokers and offsets topic."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

from tests.virtual_time import LoopClock, run

from ottla.base.names import TopicPartition
from ottla.client.errors import ClientError
from ottla.client.offsets import READ_UNCOMMITTED
from ottla.monitor.cluster_monitor import ClusterMonitor, ClusterSettings, GroupFilter
from ottla.monitor.group_changes import TOPIC, Change, CommittedOffset
from ottla.monitor.lag_evaluation import Commit, Status
from ottla.monitor.offset_store import ClusterFacts, LogDirFacts, PartitionFacts
from ottla.monitor.offsets_reader import POLL_SECONDS

P0 = TopicPartition("orders", 0)


class Cluster:
    """A cluster of one broker, as its clients see it."""

    def __init__(self) -> None:
        self.is_away = False
        self.topics = {"orders": UUID(int=1), TOPIC: UUID(int=2)}
        self.ends_: dict[TopicPartition, int] = {P0: 100, TopicPartition("quiet", 0): 7}
        self.questions: list[list[TopicPartition]] = []
        self.stable_questions: list[list[TopicPartition]] = []
        self.record_ages_ms: dict[TopicPartition, int] = {}
        self.records: list[Change] = []
        self.read = 0
        self.followed = 0
        self.unread_until = 0
        self.begun = 0
        self.clock = LoopClock()

    # As an Asker

    def describe(self) -> ClusterFacts:
        self._answer()
        partitions = tuple(PartitionFacts(topic, 0, 1, (1,), (1,)) for topic in self.topics)
        return ClusterFacts("id", 1, {1: "a:1"}, dict(self.topics), partitions)

    def end_offsets(
        self, leader: int, partitions: Sequence[TopicPartition], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        self._answer()
        assert leader == 1
        (self.stable_questions if isolation_level else self.questions).append(list(partitions))
        return {partition: self.ends_.get(partition, 0) for partition in partitions}

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self._answer()
        now_ms = self.clock.now_ms()
        return {place: now_ms - self.record_ages_ms[place] for place in offsets if place in self.record_ages_ms}

    def log_dirs(self, brokers: Sequence[int]) -> list[LogDirFacts]:
        return [LogDirFacts(broker, "/data", False, 100, 50) for broker in brokers]

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    # As a CommitReader

    def is_new(self, partitions: int) -> bool:
        return partitions > self.followed

    def follow(self, partitions: int, ends: Mapping[int, int]) -> None:
        self.followed = partitions
        self.begun += 1

    @property
    def has_read_past(self) -> bool:
        return self.read >= self.unread_until

    def take(self) -> list[Change]:
        found = self.records[self.read : self.read + 500]
        self.read += len(found)
        return found

    def close(self) -> None:
        self.followed = self.read = 0

    def _answer(self) -> None:
        if self.is_away:
            raise ClientError("a:1 refuses connections")

    def commit(self, offset: int, group: str = "billing", partition: TopicPartition = P0) -> None:
        now_ms = self.clock.now_ms()
        self.records.append(CommittedOffset(group, partition, Commit(offset, now_ms, None, len(self.records))))


class Reader:
    """The reading side under the names of CommitReader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.is_unauthorized = False
        self.has_new_partitions, self.follow, self.close = cluster.is_new, cluster.follow, cluster.close

    @property
    def has_read_old_commits(self) -> bool:
        return self._cluster.has_read_past

    def read(self) -> list[Change]:
        found = self._cluster.take()
        if not found:  # the real one waits for a moment
            loop: Any = asyncio.get_running_loop()
            loop.now += POLL_SECONDS
        return found


def play(
    scene: Callable[[Cluster, ClusterMonitor], Coroutine[Any, Any, None]],
    cluster: Cluster | None = None,
    **details: Any,
) -> None:
    async def main() -> None:
        played = cluster or Cluster()
        settings = ClusterSettings("default", "a:1", **details)
        made: Any = played
        reader: Any = Reader(played)
        monitor = ClusterMonitor(settings, clock=played.clock, make_asker=lambda: made, reader=reader)
        monitor.start()
        await scene(played, monitor)
        await monitor.stop()

    run(main())


def test_a_group_is_found_and_judged() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        cluster.commit(90)
        assert not monitor.is_ready
        await asyncio.sleep(3)
        assert monitor.is_ready
        assert monitor.groups() == ["billing"]
        found = monitor.verdict("billing")
        assert found is not None
        assert (found.totallag, found.partition_count) == (10, 1)
        assert await monitor.verdict_in_slices("billing") == monitor.verdict("billing")
        assert monitor.verdict("none") is None

    play(scene)


def test_it_starts_without_a_cluster_and_finds_it() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        cluster.commit(90)
        await asyncio.sleep(60)
        assert (monitor.is_ready, monitor.groups(), monitor.age_ms()) == (False, [], None)
        assert monitor.problem == "a:1 refuses connections"
        assert monitor.is_lost
        cluster.is_away = False
        await asyncio.sleep(10)
        assert (monitor.is_ready, monitor.groups(), monitor.problem) == (True, ["billing"], "")

    away = Cluster()
    away.is_away = True
    play(scene, away)


def test_figures_age_while_the_cluster_is_away_and_no_group_stops() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        for second in range(15):
            cluster.commit(80 + second)
            await asyncio.sleep(1)
        before = monitor.verdict("billing")
        assert before is not None
        cluster.is_away = True
        await asyncio.sleep(3_600)
        after = monitor.verdict("billing")
        assert after is not None
        assert after.status is before.status is Status.OK
        age_ms = monitor.age_ms()
        assert age_ms is not None
        assert 3_590_000 <= age_ms <= 3_615_000
        cluster.is_away = False
        await asyncio.sleep(30)
        age_ms = monitor.age_ms()
        assert age_ms is not None
        assert age_ms <= 10_000
        stopped = monitor.verdict("billing")
        assert stopped is not None
        assert stopped.partitions[0].status is Status.STOP

    play(scene)


def test_followed_logs_are_looked_at_often_and_others_seldom() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        cluster.topics["quiet"] = UUID(int=3)
        cluster.commit(90)
        await asyncio.sleep(65)
        followed = sum(question == [P0] for question in cluster.questions)
        assert 6 <= followed <= 9
        others = sum(TopicPartition("quiet", 0) in question for question in cluster.questions)
        assert 1 <= others <= 2
        assert monitor.store.topic_ends("quiet") == [7]

    play(scene)


def test_a_new_group_is_judged_within_seconds() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        await asyncio.sleep(12.5)
        cluster.topics["new"] = UUID(int=4)
        cluster.ends_[TopicPartition("new", 0)] = 5
        cluster.commit(2, "fresh", TopicPartition("new", 0))
        await asyncio.sleep(8)
        found = monitor.verdict("fresh")
        assert found is not None
        assert found.totallag == 3

    play(scene)


def test_old_commits_are_read_before_verdicts_are_given() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        await asyncio.sleep(10)
        assert not monitor.is_ready
        for number in range(2_000):
            cluster.commit(number)
        await asyncio.sleep(5)
        assert monitor.is_ready

    long = Cluster()
    long.unread_until = 2_000
    play(scene, long)


def test_a_recreated_offsets_topic_is_read_from_its_beginning() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        cluster.commit(90)
        await asyncio.sleep(5)
        cluster.topics[TOPIC] = UUID(int=9)
        cluster.records.clear()
        await asyncio.sleep(6)
        assert cluster.begun == 2
        cluster.commit(95)
        await asyncio.sleep(3)
        found = monitor.verdict("billing")
        assert found is not None
        assert found.totallag == 5

    play(scene)


def test_groups_can_be_left_out() -> None:
    class Console:
        def search(self, name: str) -> object:
            return True if name.startswith("console-") else None

    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        cluster.commit(90)
        cluster.commit(90, "console-1")
        await asyncio.sleep(3)
        assert monitor.groups() == ["billing"]

    play(scene, groups=GroupFilter(deny=Console()))


def test_disks_and_settings_are_asked_for_only_if_a_rule_wants_them() -> None:
    async def with_extras(cluster: Cluster, monitor: ClusterMonitor) -> None:
        await asyncio.sleep(15)
        assert monitor.log_dirs == [LogDirFacts(1, "/data", False, 100, 50)]
        assert monitor.min_isr == {"orders": 1, TOPIC: 1}

    async def without(cluster: Cluster, monitor: ClusterMonitor) -> None:
        await asyncio.sleep(15)
        assert (monitor.log_dirs, monitor.min_isr) == ([], {})

    play(with_extras, with_log_dirs=True, with_min_isr=True)
    play(without)


def test_lag_in_time_is_known_at_the_start() -> None:
    """Before, the time lag was only a lower bound, though one fetch at the committed offset yields it."""

    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        cluster.record_ages_ms[P0] = 3_600_000
        cluster.commit(90)
        await asyncio.sleep(5)
        found = monitor.verdict("billing")
        assert found is not None
        partition = found.partitions[0]
        assert partition.lag_ms is not None
        assert 3_600_000 <= partition.lag_ms <= 3_610_000
        assert not partition.is_lag_older

    play(scene)


def test_without_the_right_to_read_a_topic_lag_in_time_is_not_asked_for_again() -> None:
    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        asked = 0

        def refuse(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
            nonlocal asked
            asked += 1
            return {}

        cluster.first_records = refuse  # type: ignore[method-assign]
        cluster.commit(90)
        await asyncio.sleep(120)
        found = monitor.verdict("billing")
        assert found is not None
        assert found.partitions[0].is_lag_older
        assert asked == 1

    play(scene)


def test_directly_after_the_start_a_group_that_is_behind_a_little_is_ok() -> None:
    """Before, the status was WARN, because no lag of earlier commits is known."""

    async def scene(cluster: Cluster, monitor: ClusterMonitor) -> None:
        for number in range(10):
            cluster.records.append(
                CommittedOffset(
                    "billing", P0, Commit(80 + number, cluster.clock.now_ms() - 600_000 + number * 5_000, None, number)
                )
            )
        cluster.commit(95)
        await asyncio.sleep(5)
        found = monitor.verdict("billing")
        assert found is not None
        assert (found.status, found.ottla_status) == (Status.OK, Status.OK)

    play(scene)

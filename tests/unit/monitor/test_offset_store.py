"""The state of a monitor, and the removal of outdated state."""

from uuid import UUID

import pytest

from ottla.base.names import TopicPartition
from ottla.monitor import offset_store as store_module
from ottla.monitor.lag_evaluation import Commit, Status
from ottla.monitor.offset_store import ClassicMember, HistoryLimits, MemberChange, OffsetStore, TopicFacts

NOW_MS = 1_700_000_000_000
ORDERS = UUID(int=1)
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def store() -> OffsetStore:
    made = OffsetStore("default", HistoryLimits(intervals=3))
    made.set_topics({"orders": TopicFacts(ORDERS, 2)})
    return made


def commit(store: OffsetStore, offset: int, at_ms: int, partition: TopicPartition = P0, group: str = "billing") -> None:
    store.add_commit(group, partition, Commit(offset, at_ms, None, at_ms), at_ms)


def test_a_group_from_ok_to_stop_and_back(store: OffsetStore) -> None:
    for second in range(3):
        store.add_end(P0, 100 + second, NOW_MS + second * 1_000)
        commit(store, 90 + second, NOW_MS + second * 1_000)
    for second in range(3, 6):
        store.add_end(P0, 200, NOW_MS + second * 1_000)

    def status(at_ms: int) -> Status:
        found = store.verdict("billing", at_ms)
        assert found is not None
        return found.status

    assert status(NOW_MS + 3_000) is Status.WARN
    assert status(NOW_MS + 60_000) is Status.ERR
    commit(store, 200, NOW_MS + 61_000)
    assert status(NOW_MS + 61_000) is Status.OK


def test_a_sample_from_before_the_group_existed_does_not_count(store: OffsetStore) -> None:
    """Logs without a group are sampled once a minute: an old "no lag" must not hide a group that stalls."""
    for minute in range(3):
        store.add_end(P0, 0, NOW_MS + minute * 60_000)  # nothing was written yet
    later_ms = NOW_MS + 170_000
    commit(store, 7, later_ms)
    assert store.without_recent_end == {P0}  # to be sampled at once
    store.add_end(P0, 1_000, later_ms + 500)
    for second in (1, 2):
        commit(store, 7, later_ms + second * 1_000)
    found = store.verdict("billing", later_ms + 3_000)
    assert found is not None
    partition = found.partitions[0]
    assert (partition.status, partition.start and partition.start.lag, store.without_recent_end) == (
        Status.STALL,
        993,
        set(),
    )
    found = store.verdict("billing", later_ms + 60_000)
    assert found is not None
    assert found.partitions[0].status is Status.STOP  # the end of the empty log is not an end that it had reached


def test_fields_of_a_verdict(store: OffsetStore) -> None:
    store.members.set_classic("billing", [ClassicMember("client-1", "/10.0.0.7", [P0])])
    store.add_end(P0, 100, NOW_MS)
    for second in range(3):
        commit(store, 90 + second, NOW_MS + second * 1_000)
    found = store.verdict("billing", NOW_MS + 2_500)
    assert found is not None
    assert (found.status, found.complete, found.totallag, found.partition_count) == (Status.OK, 0.5, 8, 2)
    first, second_ = found.partitions
    assert (first.owner, first.client_id, first.complete, first.current_lag) == ("/10.0.0.7", "client-1", 1.0, 8)
    assert first.start is not None
    assert (first.start.offset, first.start.lag) == (90, 10)
    assert (second_.owner, second_.start, second_.complete, second_.status) == ("", None, 0.0, Status.OK)
    assert found.maxlag is first


def test_members_of_the_new_protocol_are_named_when_the_topic_is_known(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS)
    store.add_end(P0, 1, NOW_MS)
    store.members.apply(MemberChange("billing", "m", client=("client-2", "/10.0.0.8")))
    store.members.apply(MemberChange("billing", "m", assigned=[(ORDERS, 0), (UUID(int=9), 0)]))
    assert store.owners("billing") == {P0: ("client-2", "/10.0.0.8")}
    store.members.apply(MemberChange("billing", "m", has_left=True))
    assert store.owners("billing") == {}
    assert store.members.count == 0


def test_a_partition_without_a_known_end_shows_no_commits(store: OffsetStore) -> None:
    commit(store, 5, NOW_MS)
    found = store.verdict("billing", NOW_MS)
    assert found is not None
    assert (found.partitions[0].end, found.complete, found.totallag) == (None, 0.0, 0)
    store.add_end(P0, 7, NOW_MS + 100)
    found = store.verdict("billing", NOW_MS)
    assert found is not None
    assert found.partitions[0].end == Commit(5, NOW_MS, 2, NOW_MS, NOW_MS)


def test_what_a_commit_from_before_the_monitor_left_is_not_known(store: OffsetStore) -> None:
    store.add_end(P0, 100, NOW_MS)
    store.add_commit("billing", P0, Commit(90, NOW_MS - 3_600_000, None, 1), NOW_MS)
    found = store.verdict("billing", NOW_MS)
    assert found is not None
    assert found.partitions[0].end == Commit(90, NOW_MS - 3_600_000, None, 1, NOW_MS)
    assert found.totallag == 10


def test_deleted_offsets_are_forgotten_and_the_group_with_the_last_of_them(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS, P0)
    commit(store, 1, NOW_MS, P1)
    store.forget_commit("billing", P0)
    assert store.followed_partitions() == [P1]
    store.forget_commit("billing", P0)
    store.forget_commit("billing", P1)
    assert (store.groups, store.partition_count, store.followers, store.verdict("billing", NOW_MS)) == ({}, 0, {}, None)


def test_a_deleted_group_comes_back_with_its_next_commit(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS)
    assert store.delete_group("billing")
    assert not store.delete_group("billing")
    assert store.group_names() == []
    commit(store, 2, NOW_MS + 1_000)
    assert store.group_names() == ["billing"]


@pytest.mark.parametrize(
    "topics",
    [{}, {"orders": TopicFacts(UUID(int=2), 2)}, {"orders": TopicFacts(ORDERS, 1)}],
    ids=["gone", "id", "less"],
)
def test_a_topic_that_is_gone_or_another_takes_its_commits_along(
    store: OffsetStore, topics: dict[str, TopicFacts]
) -> None:
    commit(store, 1, NOW_MS)
    store.add_end(P0, 5, NOW_MS)
    store.set_topics(topics)
    store.set_topics(topics)
    assert (store.group_names(), store.ends, store.partition_count) == ([], {}, 0)


def test_a_topic_that_is_missing_once_may_be_unknown_to_a_broker_that_just_started(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS)
    store.set_topics({})
    assert store.group_names() == ["billing"]
    store.set_topics({"orders": TopicFacts(ORDERS, 2)})
    store.set_topics({})
    assert store.group_names() == ["billing"]
    store.set_topics({})
    assert store.group_names() == []


def test_logs_with_a_new_group_are_listed(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS, P0)
    commit(store, 1, NOW_MS, P1)
    store.add_end(P0, 5, NOW_MS)
    assert store.without_recent_end == {P1}
    store.delete_group("billing")
    assert store.without_recent_end == set()


def test_a_topic_that_is_not_known_yet_waits(store: OffsetStore) -> None:
    new = TopicPartition("new", 0)
    commit(store, 1, NOW_MS, new)
    store.add_end(new, 5, NOW_MS)
    assert (store.group_names(), store.followed_partitions(), store.verdict("billing", NOW_MS)) == ([], [], None)
    store.set_topics({"orders": TopicFacts(ORDERS, 2), "new": TopicFacts(UUID(int=3), 1)})
    store.add_end(new, 5, NOW_MS)
    found = store.verdict("billing", NOW_MS)
    assert found is not None
    assert found.totallag == 4
    assert store.consumers_of("new") == ["billing"]


def test_new_partitions_of_a_topic_are_shown_at_once(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS)
    store.set_topics({"orders": TopicFacts(ORDERS, 4)})
    found = store.verdict("billing", NOW_MS)
    assert found is not None
    assert found.partition_count == 4


def test_a_group_without_commits_for_a_week_is_removed(store: OffsetStore) -> None:
    commit(store, 1, NOW_MS)
    store.expire(NOW_MS + store.limits.expire_group_ms)
    assert store.group_names() == ["billing"]
    store.expire(NOW_MS + store.limits.expire_group_ms + 1)
    assert store.group_names() == []
    store.add_commit("old", P0, Commit(1, NOW_MS - store.limits.expire_group_ms - 1, None, 1), NOW_MS)
    assert store.group_names() == []


def test_followed_partitions_are_bounded(store: OffsetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "FOLLOWED_MAX", 1)
    commit(store, 1, NOW_MS, P0)
    commit(store, 1, NOW_MS, P1)
    commit(store, 2, NOW_MS + 1_000, P0)
    assert (store.partition_count, store.ignored_commits, store.followed_partitions()) == (1, 1, [P0])


def test_a_large_group_is_judged_in_slices() -> None:
    store = OffsetStore("default")
    store.set_topics({"wide": TopicFacts(ORDERS, 1_000)})
    for number in range(1_000):
        commit(store, 1, NOW_MS, TopicPartition("wide", number))
        store.add_end(TopicPartition("wide", number), 3, NOW_MS)
    steps = list(store.verdict_in_slices("billing", NOW_MS))
    assert steps[:-1] == [None] * 5
    assert steps[-1] == store.verdict("billing", NOW_MS)
    going = store.verdict_in_slices("billing", NOW_MS)
    assert next(going) is None
    store.delete_group("billing")
    assert list(going) == []


def test_ends_of_a_topic(store: OffsetStore) -> None:
    store.add_end(P1, 7, NOW_MS)
    assert store.topic_ends("orders") == [7]  # as Burrow does: what is not known is left out
    assert store.topic_ends("other") is None

"""Members that subscribe to a regular expression: the response to each heartbeat, and the topics that are matched.

The sequences of responses are those of Apache Kafka 4.3.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from bench.hostile_patterns import ACCEPTED, HOSTILE
from tests import virtual_time

from ottla.base.errors import Error
from ottla.broker.coordinator_service import group_topics
from ottla.broker.coordinator_service.group_topics import TopicPatterns
from ottla.groups.classic_group import RequestClient
from ottla.groups.consumer_group import TopicInfo
from ottla.groups.group_coordinator import GroupCoordinator
from ottla.groups.settings import GroupSettings
from ottla.groups.topic_regexes import RegexResolution
from ottla.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

ID_OF = {name: UUID(int=number + 1) for number, name in enumerate("abcdefgh")}
NAME_OF = {topic_id: name for name, topic_id in ID_OF.items()}


class Topics:
    """The topics of a cluster; each change makes a new catalog."""

    def __init__(self, names: str, generation: int = 1, new_topics_generation: int = 1) -> None:
        self.topics = {name: TopicInfo(name, ID_OF[name], 1) for name in names}
        self.generation = generation
        self.new_topics_generation = new_topics_generation

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        return self.topics.get(NAME_OF[topic_id])

    def with_topics(self, names: str) -> Topics:
        return Topics("".join(self.topics) + names, self.generation + 1, self.generation + 1)

    def without_topics(self, names: str) -> Topics:
        left = "".join(name for name in self.topics if name not in names)
        return Topics(left, self.generation + 1, self.new_topics_generation)


class Stage:
    """One group and its driver, which records requested resolutions."""

    def __init__(self, names: str = "ab", settings: GroupSettings | None = None) -> None:
        self.topics = Topics(names)
        self.settings = settings or GroupSettings()
        self.now_ms = 1_000_000
        self.log: list[Any] = []
        self.checked: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.machine = GroupCoordinator(self.settings, self.checked.append, lambda: self.topics)
        for key, value in self.log:
            self.machine.replay(key, value, None)
        self.machine.on_loaded(self.now_ms)

    def write(self, records: list[Any]) -> None:
        for record in records:
            self.log.append((record.key, record.value))
            self.machine.replay(record.key, record.value, None)

    def beat(self, member: str, epoch: int, **what: Any) -> ConsumerGroupHeartbeatResponse:
        if epoch == 0 or what:
            what = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **what}
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **what)
        decision = self.machine.consumer_heartbeat(request, RequestClient(member, "/h"), self.topics, 0, self.now_ms)
        self.write(decision.records)
        (reply,) = decision.replies
        return reply.response  # type: ignore[no-any-return]

    def told(self, member: str, epoch: int, **what: Any) -> tuple[int, str | None]:
        """The epoch and the assigned topics of a response; None: no assignment."""
        answer = self.beat(member, epoch, **what)
        assert answer.error_code == Error.NONE, answer
        if answer.assignment is None:
            return answer.member_epoch, None
        return answer.member_epoch, "".join(sorted(NAME_OF[e.topic_id] for e in answer.assignment.topic_partitions))

    def due(self) -> list[RegexResolution]:
        return self.machine.consumer.regexes.take_due()

    def resolve(self) -> bool:
        """Resolve the pending patterns as sets of letters: [ab] matches a and b."""
        due = self.due()
        for resolution in due:
            found = {each: frozenset(set(each) & set(self.topics.topics)) for each in resolution.patterns}
            self.write(self.machine.consumer.regexes.on_found(resolution, found).records)
            self.machine.consumer.regexes.on_ended(resolution, self.now_ms)
        return bool(due)

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms

    @property
    def group(self) -> Any:
        return self.machine.consumer.groups["g"]


def test_the_first_response_to_a_pattern_has_epoch_1_and_no_partitions() -> None:
    stage = Stage()
    assert stage.told("A", 0, subscribed_topic_regex="[ab]") == (1, "")
    assert stage.resolve()
    assert stage.told("A", 1) == (2, "ab")
    assert stage.told("A", 2) == (2, None)
    assert not stage.due()


def test_a_pattern_without_matches_moves_no_partition() -> None:
    stage = Stage()
    assert stage.told("A", 0, subscribed_topic_regex="[z]") == (1, "")
    stage.resolve()
    assert stage.told("A", 1) == (1, None)
    assert (stage.group.group_epoch, stage.group.assignment_epoch, stage.group.state) == (1, 1, "Stable")


def test_subscribed_names_are_assigned_at_once() -> None:
    stage = Stage()
    assert stage.told("A", 0, subscribed_topic_names=["b"], subscribed_topic_regex="[a]") == (2, "b")
    stage.resolve()
    stage.pass_ms(1_000)
    assert stage.told("A", 2) == (3, "ab")


def test_an_already_resolved_pattern_is_assigned_at_once() -> None:
    stage = Stage()
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    stage.resolve()
    stage.told("A", 1)
    stage.pass_ms(2_000)
    assert stage.told("B", 0, subscribed_topic_regex="[ab]") == (3, "")  # A must revoke a partition first
    assert stage.checked == ["[ab]"]
    assert not stage.due()


def test_a_new_pattern_waits_until_ten_seconds_after_the_last_resolution() -> None:
    stage = Stage()
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    stage.resolve()
    stage.told("A", 1)
    stage.pass_ms(7_000)
    assert stage.told("C", 0, subscribed_topic_regex="[a]") == (2, "")
    assert not stage.due()
    stage.pass_ms(3_000)
    stage.told("A", 2)
    assert not stage.due()
    stage.pass_ms(1)
    stage.told("A", 2)
    (due,) = stage.due()
    assert due.patterns == {"[ab]", "[a]"}


def test_a_member_that_changes_its_pattern_keeps_its_subscribed_names() -> None:
    stage = Stage("abc")
    stage.told("A", 0, subscribed_topic_names=["b"], subscribed_topic_regex="[a]")
    stage.resolve()
    stage.pass_ms(1_000)
    assert stage.told("A", 2) == (3, "ab")
    stage.pass_ms(1_000)
    assert stage.told("A", 3, subscribed_topic_regex="[c]") == (3, "b")
    assert stage.group.members["A"].state.name == "STABLE"
    assert stage.told("A", 3) == (3, None)
    assert stage.resolve()  # at once: no pattern is resolved
    assert set(stage.group.resolved_regexes) == {"[c]"}
    assert stage.told("A", 3) == (4, "bc")


def test_partitions_of_the_old_pattern_are_revoked_first() -> None:
    stage = Stage("abc")
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    stage.resolve()
    stage.told("A", 1)
    held = [HeartbeatTopicPartitions(topic_id=ID_OF[name], partitions=[0]) for name in "ab"]
    assert stage.told("A", 2, subscribed_topic_regex="[bc]", topic_partitions=held) == (2, "")
    assert stage.group.members["A"].state.name == "UNREVOKED_PARTITIONS"
    assert stage.told("A", 2, topic_partitions=[]) == (2, None)  # the old target is not assigned again
    assert stage.group.partition_owners == {}


def test_a_member_that_removes_its_pattern_raises_the_epoch() -> None:
    stage = Stage()
    stage.told("A", 0, subscribed_topic_names=["b"], subscribed_topic_regex="[b]")
    stage.resolve()
    stage.pass_ms(1_000)
    stage.told("A", 2)
    epoch = stage.group.group_epoch
    stage.pass_ms(1_000)
    stage.told("A", epoch, subscribed_topic_regex="")
    assert (stage.group.group_epoch, stage.group.resolved_regexes) == (epoch + 1, {})
    assert dict(stage.group.subscriber_counts) == {"b": 1}


def test_new_topics_trigger_a_resolution_and_deleted_ones_do_not() -> None:
    stage = Stage("ab")
    stage.told("A", 0, subscribed_topic_regex="[abc]")
    stage.resolve()
    stage.told("A", 1)
    stage.topics = stage.topics.with_topics("c")
    stage.pass_ms(9_000)
    stage.told("A", 2)
    assert not stage.due()
    stage.pass_ms(1_001)
    stage.told("A", 2)
    assert stage.resolve()
    assert stage.told("A", 2) == (3, "abc")
    stage.topics = stage.topics.without_topics("a")
    stage.pass_ms(11_000)
    assert stage.told("A", 3, topic_partitions=[])[1] == "bc"
    assert not stage.due()


def test_resolutions_are_repeated_after_the_maximum_interval() -> None:
    stage = Stage(settings=GroupSettings(regex_refresh_interval_ms=20_000))
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    stage.resolve()
    stage.told("A", 1)
    stage.pass_ms(20_000)
    stage.told("A", 2)
    assert not stage.due()
    stage.pass_ms(1)
    stage.told("A", 2)
    assert stage.due()


def test_after_a_restart_patterns_are_resolved_once_more() -> None:
    """The generation of the catalog restarts with the broker: topics may have been created meanwhile."""
    stage = Stage("ab")
    stage.topics.generation = stage.topics.new_topics_generation = 50
    stage.told("A", 0, subscribed_topic_regex="[abc]")
    stage.resolve()
    stage.told("A", 1)
    stage.topics = Topics("abc")
    stage.restart()
    assert stage.group.regex_subscriber_counts == {"[abc]": 1}
    assert dict(stage.group.subscriber_counts) == {"a": 1, "b": 1}
    stage.pass_ms(10_001)
    stage.told("A", 2)
    assert stage.resolve()
    stage.pass_ms(1_000)
    assert stage.told("A", 2) == (3, "abc")
    assert not stage.due()


def test_a_resolution_that_could_not_be_written_is_not_retried_at_every_heartbeat() -> None:
    stage = Stage()
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    (due,) = stage.due()
    stage.machine.consumer.regexes.on_ended(due, stage.now_ms)  # its records were refused
    stage.told("A", 1)
    assert not stage.due()
    stage.pass_ms(10_001)
    stage.told("A", 1)
    assert stage.resolve()


def test_a_result_for_a_deleted_group_or_another_pattern_is_dropped() -> None:
    stage = Stage()
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    (due,) = stage.due()
    stage.told("A", 1, subscribed_topic_regex="[a]")
    found = {"[ab]": frozenset("ab")}
    assert stage.machine.consumer.regexes.on_found(due, found).records == []
    gone = due._replace(group_id="gone")
    assert stage.machine.consumer.regexes.on_found(gone, found).records == []


def test_the_last_member_removes_its_pattern() -> None:
    stage = Stage()
    stage.told("A", 0, subscribed_topic_regex="[ab]")
    stage.told("B", 0, subscribed_topic_regex="[ab]")
    stage.resolve()
    stage.beat("A", -1)
    assert set(stage.group.resolved_regexes) == {"[ab]"}
    stage.beat("B", -1)
    group = stage.group
    assert (group.resolved_regexes, group.regex_subscriber_counts, group.subscriber_counts) == ({}, {}, {})


def test_joining_does_not_visit_all_members_and_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: 1,200 members with one expression each took 9 seconds: each join matched and hashed all previous
    ones.
    """
    looked: list[int] = []

    def fingerprint(_: object, names: Iterable[str]) -> int:
        looked.append(len(list(names)))
        return looked[-1]

    monkeypatch.setattr("ottla.groups.consumer_group.compute_metadata_hash", fingerprint)
    stage = Stage("abcdefgh")
    stage.told("A", 0, subscribed_topic_regex="[abcdefgh]")
    stage.resolve()
    stage.told("A", 1)
    looked.clear()
    for number in range(300):
        stage.told(f"m{number}", 0, subscribed_topic_regex=f"[ab]{number}")
    assert looked == []
    assert not stage.due()


# ---- topic names


class Inline(Executor):
    """A worker thread that runs inline and records the matched names."""

    def __init__(self) -> None:
        self.pieces: list[list[str]] = []

    def submit(self, work: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        if work is group_topics._matching:
            self.pieces.append(list(arguments[1]))
        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future


def images(*names: str) -> dict[str, object]:
    return dict.fromkeys(names)


def test_only_new_topics_are_matched() -> None:
    async def play() -> None:
        workers = Inline()
        patterns = TopicPatterns(workers)
        first = images("one", "two")
        assert await patterns.match_topics("o.*|t.*", first) == {"one", "two"}
        assert await patterns.match_topics("o.*|t.*", first) == {"one", "two"}
        assert workers.pieces == [["one", "two"]]
        assert await patterns.match_topics("o.*|t.*", images("one", "three", "other")) == {"one", "three", "other"}
        assert workers.pieces == [["one", "two"], ["three", "other"]]
        assert await patterns.match_topics("two", images("one", "three", "other")) == frozenset()

    asyncio.run(play())


def test_names_of_deleted_topics_are_dropped_eventually() -> None:
    async def play() -> None:
        patterns = TopicPatterns(Inline())
        for turn in range(20):
            names = [f"t-{turn}-{number}" for number in range(1_000)]
            assert await patterns.match_topics("t-.*", images(*names)) == set(names)
            assert len(patterns._name_log) <= 6_000

    virtual_time.run(play())


def test_cached_matches_and_checks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_topics, "CACHED_BYTES_MAX", 10_000)
    monkeypatch.setattr(group_topics, "CHECKED_CHARACTERS_MAX", 10_000)

    async def play() -> None:
        patterns = TopicPatterns(Inline())
        topics = images("one", "two")
        for number in range(200):
            pattern = f"one|{'x' * 300}{number}"
            await patterns.check(pattern)
            assert await patterns.match_topics(pattern, topics) == {"one"}
        assert (
            sum(group_topics._cached_size(*each) for each in patterns._matches.items())
            == patterns._cached_bytes
            <= 10_000
        )
        assert sum(map(len, patterns._problems)) == patterns._checked_characters <= 10_000
        assert len(patterns._compiled) <= group_topics.COMPILED_MAX

    virtual_time.run(play())


@pytest.mark.parametrize("what", [*HOSTILE, *ACCEPTED])
def test_a_hostile_pattern_is_refused_or_matched_off_the_loop(what: str) -> None:
    pattern = {**HOSTILE, **ACCEPTED}[what]

    async def play() -> None:
        with ThreadPoolExecutor(1) as workers:
            patterns = TopicPatterns(workers)
            assert not patterns.is_checked(pattern) or len(pattern) <= group_topics.SMALL_PATTERN_LIMITS.length
            await patterns.check(pattern)
            problem = patterns.problem_of(pattern)
            assert (problem is None) == (what in ACCEPTED), problem
            if problem is None:
                names = [f"orders.eu-{number:04}.v1" for number in range(200)]
                assert await patterns.match_topics(pattern, images(*names)) <= set(names)

    virtual_time.run(play())

"""The rules of rejoining a classic group: one test for each rule, on the pure decisions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.coordination.machine import Decision
from ottla.groups.classic_group import ClassicGroup, ClassicGroupState, RequestClient
from ottla.groups.classic_rebalance import ClassicGroups
from ottla.groups.group_memory import GroupMemory
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
CLIENT = RequestClient("c", "/h", requires_known_member_id=False)


class Group:
    """A group with committed writes: every decision takes effect at once."""

    def __init__(self) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.rules = ClassicGroups(self.groups, GroupSettings(), GroupMemory())
        self.now_ms = 0
        self.answers: dict[str, list[Any]] = {}
        self.events: list[Any] = []

    @property
    def state(self) -> ClassicGroup:
        return self.groups[GROUP]

    def run(self, decision: Decision) -> None:
        for reply in decision.replies:
            self.answers.setdefault(reply.to, []).append(reply.response)
        if decision.event is not None:
            self.events.append(decision.event)

    def join(self, name: str, metadata: bytes = b"", instance_id: str | None = None, new_id: str = "") -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id="" if new_id or GROUP not in self.groups or name not in self.state.members else name,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        self.run(self.rules.join(request, CLIENT, new_id or name, name, self.now_ms))

    def sync(self, name: str, *, assigns: bool = False) -> None:
        assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"x") for each in self.state.members]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.state.generation,
            member_id=name,
            assignments=assignments if assigns else [],
        )
        self.run(self.rules.sync(request, name, self.now_ms))

    def commit_assignment(self) -> None:
        self.run(self.rules.on_leader_assignment_written(self.events.pop(), Error.NONE, self.now_ms))

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for decision in self.rules.tick(self.now_ms):
            self.run(decision)

    def taken(self, name: str) -> list[Any]:
        return self.answers.pop(name, [])


@pytest.fixture
def group() -> Group:
    """Members a (the leader) and b in a stable first generation."""
    group = Group()
    group.join("a")
    group.join("b")
    group.pass_time(GroupSettings().initial_rebalance_delay_ms)
    group.pass_time(GroupSettings().initial_rebalance_delay_ms)
    group.sync("b")
    group.sync("a", assigns=True)
    group.commit_assignment()
    assert group.state.state is ClassicGroupState.STABLE
    assert (group.state.generation, group.state.leader_id) == (1, "a")
    group.answers.clear()
    return group


def test_a_follower_that_joins_unchanged_gets_the_current_generation_again(group: Group) -> None:
    group.join("b")
    [answer] = group.taken("b")
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert group.state.state is ClassicGroupState.STABLE


def test_a_leader_that_joins_unchanged_starts_a_rebalance(group: Group) -> None:
    """It wants to assign anew: partitions may have been added."""
    group.join("a")
    assert group.taken("a") == []
    assert group.state.state is ClassicGroupState.PREPARING_REBALANCE


def test_a_member_that_joins_with_other_metadata_starts_a_rebalance(group: Group) -> None:
    group.join("b", b"other topics")
    assert group.state.state is ClassicGroupState.PREPARING_REBALANCE


def test_before_the_assignment_a_member_that_joins_unchanged_gets_its_answer_again(group: Group) -> None:
    group.join("a")
    group.join("b")
    assert group.state.state is ClassicGroupState.COMPLETING_REBALANCE
    group.answers.clear()
    for name in ("a", "b"):
        group.join(name)
        [answer] = group.taken(name)
        assert (answer.generation_id, bool(answer.members)) == (2, name == "a")
    group.join("b", b"other topics")
    assert group.state.state is ClassicGroupState.PREPARING_REBALANCE


def test_a_rebalance_ends_when_all_members_have_joined(group: Group) -> None:
    group.join("a")
    assert group.state.generation == 1
    group.join("b")
    assert group.state.generation == 2
    assert [answer.generation_id for answer in (*group.taken("a"), *group.taken("b"))] == [2, 2]


def test_a_member_that_does_not_rejoin_in_time_is_removed_unless_it_is_static(group: Group) -> None:
    group.join("s1", instance_id="s", new_id="s1")
    group.join("a")
    group.join("b")
    group.answers.clear()
    group.state.members["s1"].session_timeout_ms = group.state.members["a"].session_timeout_ms = 10 * REBALANCE_MS
    group.rules.start_sessions(group.state, group.now_ms)
    group.join("a", b"other topics")
    group.pass_time(REBALANCE_MS)
    assert set(group.state.members) == {"a", "s1"}
    assert group.state.generation == 3


def test_a_session_does_not_end_while_a_join_is_pending(group: Group) -> None:
    group.join("b", b"other topics")
    group.rules.renew_session(group.state, "a", group.now_ms)
    group.pass_time(SESSION_MS - 1)
    group.rules.renew_session(group.state, "a", group.now_ms)
    group.pass_time(SESSION_MS - 1)
    assert set(group.state.members) == {"a", "b"}, "b cannot send heartbeats"
    group.pass_time(1)
    assert set(group.state.members) == {"b"}, "a could"


def test_a_first_join_that_is_not_answered_is_limited_in_time(group: Group) -> None:
    """Its client does not know its id yet, and may be gone without notice."""
    for member in group.state.members.values():
        member.rebalance_timeout_ms = 10 * GroupSettings().new_member_join_timeout_ms
    group.join("new")
    for _ in range(GroupSettings().new_member_join_timeout_ms // 5_000):
        for name in ("a", "b"):
            group.rules.renew_session(group.state, name, group.now_ms)
        assert "new" in group.state.members
        group.pass_time(5_000)
    assert set(group.state.members) == {"a", "b"}


def test_an_assignment_of_an_earlier_generation_is_void(group: Group) -> None:
    group.join("a")
    group.join("b")
    group.sync("a", assigns=True)
    late = group.events.pop()
    group.join("b", b"other topics")
    group.join("a", b"other topics")
    assert (group.state.generation, group.state.state) == (3, ClassicGroupState.COMPLETING_REBALANCE)
    group.run(group.rules.on_leader_assignment_written(late, Error.NONE, group.now_ms))
    assert group.state.state is ClassicGroupState.COMPLETING_REBALANCE


def test_members_that_wait_for_the_assignment_rejoin_when_another_rebalance_starts(group: Group) -> None:
    group.join("a")
    group.join("b")
    group.answers.clear()
    group.sync("b")
    assert group.taken("b") == []
    group.join("a", b"other topics")
    [answer] = group.taken("b")
    assert answer.error_code == Error.REBALANCE_IN_PROGRESS


def test_the_old_client_of_a_static_member_is_fenced(group: Group) -> None:
    group.join("s1", instance_id="s", new_id="s1")
    group.answers.clear()
    group.join("s2", instance_id="s", new_id="s2")
    [answer] = group.taken("s1")
    assert answer.error_code == Error.FENCED_INSTANCE_ID
    assert set(group.state.members) == {"a", "b", "s2"}


def test_a_static_member_with_the_same_protocols_rejoins_without_a_rebalance(group: Group) -> None:
    group.join("s1", instance_id="s", new_id="s1")
    group.join("a")
    group.join("b")
    for name in ("b", "s1"):
        group.sync(name)
    group.sync("a", assigns=True)
    group.commit_assignment()
    generation = group.state.generation
    group.join("s2", instance_id="s", new_id="s2")
    [answer] = group.taken("s2")
    assert (answer.error_code, answer.generation_id) == (0, generation)
    assert group.state.state is ClassicGroupState.STABLE


def test_a_member_that_leaves_starts_a_rebalance_of_the_others(group: Group) -> None:
    members = [MemberIdentity(member_id="a", group_instance_id=None)]
    group.run(group.rules.leave(LeaveGroupRequest(group_id=GROUP, members=members), "admin", group.now_ms))
    assert (group.state.leader_id, group.state.state) == ("b", ClassicGroupState.PREPARING_REBALANCE)
    group.join("b")
    assert group.state.generation == 2

"""The rebalance of a classic group: it begins when somebody comes or goes, and ends when all have joined or are late.

What members ask for stands in classic.py, which builds on this. Here is what happens by itself: who is waited for and
how long, when a generation starts, who is taken to be gone, and what all who wait are told.
"""

from __future__ import annotations

from ottla.base.errors import Error
from ottla.base.tasks import tell
from ottla.coordination.deadlines import Deadlines
from ottla.coordination.machine import Decision, Reply
from ottla.groups.classic_answers import joined, refused_join, refused_sync
from ottla.groups.classic_group import CAN_REBALANCE, ClassicGroup, Member, State, Timer
from ottla.groups.records import group_record
from ottla.groups.settings import GroupSettings


class Rebalancing:
    """All classic groups of one partition, as the clock sees them; the machine owns the groups themselves."""

    def __init__(self, groups: dict[str, ClassicGroup], settings: GroupSettings) -> None:
        self.groups = groups
        self.settings = settings
        self.deadlines: Deadlines[Timer] = Deadlines()

    # ---- rebalance

    def _prepare_if_possible(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if group.state not in CAN_REBALANCE:
            return
        if group.state is State.COMPLETING_REBALANCE:
            self._fail_syncs(group, Error.REBALANCE_IN_PROGRESS, decision)
        self.deadlines.cancel(Timer("sync", group.group_id))
        wait_ms = group.rebalance_timeout_ms
        if group.state is State.EMPTY:
            group.delay_left_ms = max(wait_ms - self.settings.initial_rebalance_delay_ms, 0)
            group.has_new_member = False
            wait_ms = self.settings.initial_rebalance_delay_ms
        group.move_to(State.PREPARING_REBALANCE, now_ms)
        self._set(Timer("join", group.group_id), now_ms + wait_ms)

    def _complete_if_all_joined(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if group.has_all_joined:
            self._complete_join(group, decision, now_ms)

    def _on_join_timeout(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if group.state is not State.PREPARING_REBALANCE:
            return
        if group.came_from is State.EMPTY and group.has_new_member and group.delay_left_ms > 0:
            group.has_new_member = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, group.delay_left_ms)
            group.delay_left_ms -= delay_ms
            self._set(Timer("join", group.group_id), now_ms + delay_ms)
        else:
            self._complete_join(group, decision, now_ms)

    def _complete_join(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        self.deadlines.cancel(Timer("join", group.group_id))
        for member in [each for each in group.members.values() if each.join_reply is None and each.instance_id is None]:
            group.remove(member.member_id)
            self.deadlines.cancel(Timer("session", group.group_id, member.member_id))
        if group.members and not group.elect_joined_leader():
            # Only static members, and none has joined: wait until one does or their sessions end.
            self._set(Timer("join", group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.start_generation(now_ms)
        if group.state is State.EMPTY:
            decision.records.append(group_record(group, {}))
            return
        for member in group.members.values():
            self._answer_join(group, member, decision, now_ms)
        assert len(group.unsynced) == len(group.members), f"{group} waits for {group.unsynced}"
        self._set(Timer("sync", group.group_id), now_ms + group.rebalance_timeout_ms)

    def _answer_join(self, group: ClassicGroup, member: Member, decision: Decision, now_ms: int) -> None:
        if member.join_reply is not None:
            is_leader = member.member_id == group.leader_id
            response = joined(group, member.member_id, with_members=is_leader)
            decision.replies.append(Reply(member.join_reply, response))
        member.join_reply = None
        member.is_new = False
        group.unsynced.add(member.member_id)
        self._expect(group, member, now_ms, member.session_timeout_ms)

    def _on_sync_timeout(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        """Whoever never asked for its assignment is taken to be gone."""
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        late = [member_id for member_id in group.members if member_id in group.unsynced]
        for member_id in late:
            self.remove(group, member_id, decision, now_ms)

    def _fail_syncs(self, group: ClassicGroup, error: Error, decision: Decision) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.sync_reply is not None:
                decision.replies.append(Reply(member.sync_reply, refused_sync(error)))
                member.sync_reply = None

    def remove(self, group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
        """Somebody is gone: the others share its work."""
        member = group.remove(member_id)
        if member is None:
            return
        self._answer_waiting(member, Error.UNKNOWN_MEMBER_ID, decision)
        self.deadlines.cancel(Timer("session", group.group_id, member_id))
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare_if_possible(group, decision, now_ms)
        if group.state is State.PREPARING_REBALANCE and group.came_from is not State.EMPTY:
            self._complete_if_all_joined(group, decision, now_ms)

    def _forget_announced(self, group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
        group.announced.discard(member_id)
        self.deadlines.cancel(Timer("announced", group.group_id, member_id))
        if group.state is State.PREPARING_REBALANCE and group.came_from is not State.EMPTY:
            self._complete_if_all_joined(group, decision, now_ms)

    # ---- time

    def tick(self, now_ms: int) -> list[Decision]:
        decisions = []
        for timer in self.deadlines.due(now_ms):
            group = self.groups.get(timer.group_id)
            if group is not None:
                decision = Decision()
                tell(self._on_timer, timer, group, decision, now_ms)  # one bad group must not stop the others
                decisions.append(decision)
        return decisions

    def _on_timer(self, timer: Timer, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if timer.kind == "join":
            self._on_join_timeout(group, decision, now_ms)
        elif timer.kind == "sync":
            self._on_sync_timeout(group, decision, now_ms)
        elif timer.kind == "announced":
            self._forget_announced(group, timer.member_id, decision, now_ms)
        else:
            self._on_session_end(group, timer.member_id, decision, now_ms)

    def _on_session_end(self, group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if member.is_waiting and not member.is_new:
            self._expect(group, member, now_ms, member.session_timeout_ms)
        else:
            self.remove(group, member_id, decision, now_ms)

    def dismissed(self, group: ClassicGroup) -> list[Reply]:
        """The group goes on under the new protocol: whoever waits here joins again there."""
        decision = Decision()
        for member in group.members.values():
            self._answer_waiting(member, Error.REBALANCE_IN_PROGRESS, decision)
        return decision.replies

    def resigned(self) -> list[Reply]:
        """Somebody else coordinates from now on: whoever waits here asks there."""
        decision = Decision()
        for group in self.groups.values():
            for member in group.members.values():
                self._answer_waiting(member, Error.NOT_COORDINATOR, decision)
        return decision.replies

    def resume(self, group_id: str, now_ms: int) -> Decision:
        """A group came back from the new protocol: its members share the work among themselves again."""
        decision = Decision()
        group = self.groups.get(group_id)
        if group is not None:
            self.start_sessions(group, now_ms)
            self._prepare_if_possible(group, decision, now_ms)
        return decision

    def start_sessions(self, group: ClassicGroup, now_ms: int) -> None:
        """The group was loaded, or nobody was listened to: its members get a whole session time to report."""
        for member in group.members.values():
            if not member.is_waiting:
                self._expect(group, member, now_ms, member.session_timeout_ms)

    def _expect(self, group: ClassicGroup, member: Member, now_ms: int, within_ms: int) -> None:
        timer = member.session
        if timer is None:
            timer = member.session = Timer("session", group.group_id, member.member_id)
        self.deadlines.set(timer, now_ms + within_ms)

    def _set(self, timer: Timer, at_ms: int) -> None:
        self.deadlines.set(timer, at_ms)

    def _answer_waiting(self, member: Member, error: Error, decision: Decision) -> None:
        if member.join_reply is not None:
            decision.replies.append(Reply(member.join_reply, refused_join(member.member_id, error)))
        if member.sync_reply is not None:
            decision.replies.append(Reply(member.sync_reply, refused_sync(error)))
        member.join_reply = member.sync_reply = None

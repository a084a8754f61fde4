"""The classic group protocol: join, sync, heartbeat, leave. What happens by itself stands in classic_rebalance.py.

Every method takes the time and new ids as arguments and returns a Decision. A join is answered when all members have
joined (or their time is over), a sync when the leader's assignment is committed: until then the member keeps the
`reply_to` of its request.

Rules that are easy to get wrong:
1. A member whose join or sync waits here is alive: its session cannot end meanwhile. Only a first join is limited,
   because nobody knows whether its client is still there.
2. A member that asks with its current metadata gets the current answer again (its first answer may have been lost).
3. The leader's assignment counts when its record is committed, and only if the generation is still the same then.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import Error
from ottla.coordination.machine import Decision, Reply, ReplyTo
from ottla.groups.classic_answers import (
    Client,
    check_member,
    joined,
    left_response,
    refused_join,
    refused_sync,
    synced,
)
from ottla.groups.classic_group import ClassicGroup, Member, State, Timer
from ottla.groups.classic_rebalance import Rebalancing
from ottla.groups.records import group_record
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)


class Assigned(NamedTuple):
    """The leader's assignment of a generation was written."""

    group_id: str
    generation: int
    assignments: dict[str, bytes]


class ClassicGroups(Rebalancing):
    """Decides for all classic groups of one partition."""

    # ---- join

    def join(
        self, request: JoinGroupRequest, client: Client, fresh_id: str, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        settings = self.settings
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            return _refuse_join(request, Error.INVALID_SESSION_TIMEOUT, reply_to)
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            return _refuse_join(request, Error.UNKNOWN_MEMBER_ID, reply_to)
        group = group or ClassicGroup(request.group_id, now_ms)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            return _refuse_join(request, Error.GROUP_MAX_SIZE_REACHED, reply_to)
        if not group.supports(request.protocol_type, request.protocols):
            return _refuse_join(request, Error.INCONSISTENT_GROUP_PROTOCOL, reply_to)
        decision = Decision()
        if request.group_id not in self.groups:
            self.groups[request.group_id] = group
            decision.records.append(group_record(group, {}))
        if request.member_id:
            self._join_again(group, request, client, reply_to, decision, now_ms)
        else:
            self._join_first(group, request, client, fresh_id, reply_to, decision, now_ms)
        # The first rebalance of a group always waits for its delay, so that members that start together meet.
        if group.state is State.PREPARING_REBALANCE and group.came_from is not State.EMPTY:
            self._complete_if_all_joined(group, decision, now_ms)
        return decision

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self.settings.size_max
        if group.state is State.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.join_reply is not None) or group.joining_count < size_max
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            return member_id in group.members or len(group.members) < size_max
        return True

    def _join_first(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        fresh_id: str,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in group.member_of_instance:
            self._replace_static(group, request, client, fresh_id, reply_to, decision, now_ms)
        elif instance_id is None and client.must_know_id:
            group.announced.add(fresh_id)
            self._set(Timer("announced", group.group_id, fresh_id), now_ms + request.session_timeout_ms)
            response = refused_join(fresh_id, Error.MEMBER_ID_REQUIRED)
            decision.replies.append(Reply(reply_to, response))
        else:
            self._add(group, fresh_id, request, client, reply_to, decision, now_ms)

    def _join_again(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        member_id = request.member_id
        if member_id in group.announced and request.group_instance_id is None:
            self.deadlines.cancel(Timer("announced", group.group_id, member_id))
            self._add(group, member_id, request, client, reply_to, decision, now_ms)
            return
        error = check_member(group, member_id, request.group_instance_id)
        if error is not Error.NONE:
            decision.replies.append(Reply(reply_to, refused_join(member_id, error)))
            return
        member = group.members[member_id]
        is_same = member.has_same(request.protocols)
        is_answered = (group.state is State.COMPLETING_REBALANCE and is_same) or (
            group.state is State.STABLE and is_same and group.leader_id != member_id
        )
        if is_answered:
            is_leader = group.leader_id == member_id
            decision.replies.append(Reply(reply_to, joined(group, member_id, with_members=is_leader)))
            return
        if group.state is State.EMPTY:
            decision.replies.append(Reply(reply_to, refused_join(member_id, Error.UNKNOWN_MEMBER_ID)))
            return
        self._update(group, member, request, client, reply_to, decision)
        self._prepare_if_possible(group, decision, now_ms)

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        client: Client,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            _rebalance_timeout_ms(request),
            request.session_timeout_ms,
            request.protocols,
        )
        member.is_new = True
        member.join_reply = reply_to
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.state is State.PREPARING_REBALANCE and group.came_from is State.EMPTY:
            group.has_new_member = True
        self._expect(group, member, now_ms, self.settings.new_member_join_timeout_ms)
        self._prepare_if_possible(group, decision, now_ms)

    def _update(
        self,
        group: ClassicGroup,
        member: Member,
        request: JoinGroupRequest,
        client: Client,
        reply_to: ReplyTo,
        decision: Decision,
    ) -> None:
        if member.join_reply is not None:  # its earlier join waits on a connection that is gone, or was sent again
            decision.replies.append(Reply(member.join_reply, refused_join(member.member_id, Error.UNKNOWN_MEMBER_ID)))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = client.client_id, client.host
        member.join_reply = reply_to
        group.unsynced.discard(member.member_id)

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        fresh_id: str,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        """A static member is back under a new id; the one with the old id, should it still live, is fenced."""
        assert request.group_instance_id is not None
        was_leader = group.leader_id
        old_id = group.member_of_instance[request.group_instance_id]
        old = group.members[old_id]
        self._answer_waiting(old, Error.FENCED_INSTANCE_ID, decision)
        self.deadlines.cancel(Timer("session", group.group_id, old_id))
        member = group.rename_static(request.group_instance_id, fresh_id)
        self._update(group, member, request, client, None, decision)
        self._expect(group, member, now_ms, member.session_timeout_ms)
        if group.state is not State.STABLE or group.elect_protocol() != group.protocol:
            member.join_reply = reply_to
            self._prepare_if_possible(group, decision, now_ms)
            return
        response = joined(group, fresh_id, with_members=False)
        if was_leader == old_id:
            # It must not assign again: it is told so, or (older clients) that the leader is somebody else.
            if client.can_skip_assignment:
                response.members = group.joined_members()
                response.skip_assignment = True
            else:
                response.leader = old_id
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        decision.records.append(group_record(group, assignments))
        decision.replies.append(Reply(reply_to, response))

    # ---- sync

    def sync(self, request: SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        error = self._sync_problem(group, request)
        if group is None or error is not Error.NONE:
            return Decision(replies=[Reply(reply_to, refused_sync(error))])
        member = group.members[request.member_id]
        if group.state is State.STABLE:
            self._expect(group, member, now_ms, member.session_timeout_ms)
            return Decision(replies=[Reply(reply_to, synced(group, member))])
        decision = Decision()
        if member.sync_reply is not None:
            decision.replies.append(Reply(member.sync_reply, refused_sync(Error.UNKNOWN_MEMBER_ID)))
        member.sync_reply = reply_to
        group.unsynced.discard(member.member_id)
        if group.leader_id == member.member_id:
            given = {each.member_id: each.assignment for each in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            decision.records.append(group_record(group, assignments))
            decision.event = Assigned(group.group_id, group.generation, assignments)
        return decision

    def _sync_problem(self, group: ClassicGroup | None, request: SyncGroupRequest) -> Error:
        if group is None:
            return Error.UNKNOWN_MEMBER_ID
        error = check_member(group, request.member_id, request.group_instance_id)
        if error is not Error.NONE:
            return error
        if request.generation_id != group.generation:
            return Error.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if group.state is State.EMPTY:
            return Error.UNKNOWN_MEMBER_ID
        return Error.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else Error.NONE

    def on_assigned(self, event: Assigned, error: Error, now_ms: int) -> Decision:
        """The leader's assignment is committed, or could not be written."""
        decision = Decision()
        group = self.groups.get(event.group_id)
        if group is None or group.state is not State.COMPLETING_REBALANCE or group.generation != event.generation:
            return decision
        if error is not Error.NONE:
            self._fail_syncs(group, error, decision)
            self._prepare_if_possible(group, decision, now_ms)
            return decision
        for member in group.members.values():
            member.assignment = event.assignments.get(member.member_id, b"")
        group.move_to(State.STABLE, now_ms)
        self.deadlines.cancel(Timer("sync", group.group_id))
        for member in group.members.values():
            if member.sync_reply is not None:
                decision.replies.append(Reply(member.sync_reply, synced(group, member)))
                member.sync_reply = None
                self._expect(group, member, now_ms, member.session_timeout_ms)
        return decision

    # ---- heartbeat

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=Error.UNKNOWN_MEMBER_ID)
        error = check_member(group, request.member_id, request.group_instance_id)
        if error is Error.NONE and request.generation_id != group.generation:
            error = Error.ILLEGAL_GENERATION
        if error is Error.NONE and group.state is State.EMPTY:
            error = Error.UNKNOWN_MEMBER_ID
        if error is not Error.NONE:
            return HeartbeatResponse(error_code=error)
        member = group.members[request.member_id]
        self._expect(group, member, now_ms, member.session_timeout_ms)
        if group.state is State.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def seen(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """A member's offset commit shows that it is alive, too."""
        member = group.members.get(member_id)
        if member is not None:
            self._expect(group, member, now_ms, member.session_timeout_ms)

    # ---- leave

    def leave(self, request: LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        decision = Decision()
        errors = [Error.UNKNOWN_MEMBER_ID] * len(request.members)
        if group is not None:
            errors = [self._leave_one(group, leaver, decision, now_ms) for leaver in request.members]
        decision.replies.append(Reply(reply_to, left_response(request.members, errors)))
        return decision

    def _leave_one(self, group: ClassicGroup, leaver: MemberIdentity, decision: Decision, now_ms: int) -> Error:
        member_id, instance_id = leaver.member_id, leaver.group_instance_id
        if not member_id and instance_id is not None:  # an administrator removes a static member by its name
            member_id = group.member_of_instance.get(instance_id, "")
        error = Error.NONE
        if member_id in group.announced:
            self._forget_announced(group, member_id, decision, now_ms)
        else:
            error = check_member(group, member_id, instance_id)
            if error is Error.NONE:
                self.remove(group, member_id, decision, now_ms)
        return error


def _refuse_join(request: JoinGroupRequest, error: Error, reply_to: ReplyTo) -> Decision:
    return Decision(replies=[Reply(reply_to, refused_join(request.member_id, error))])


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 had one timeout for both."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms

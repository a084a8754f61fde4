"""The classic group protocol: join, sync, heartbeat, leave, and the rebalances that follow from them.

Every method takes the time and new ids as arguments and returns a Decision. A rebalance starts when a member joins or
leaves, and ends when all members have joined or the rebalance timeout expires. A join completes when the rebalance
ends, a sync when the leader's assignment is committed; until then the member keeps the `reply_to` of its request.

Rules that are easy to get wrong:
1. While a join or sync of a member is pending, its session cannot expire. Only a first join is limited in time, because
its client may have disconnected unnoticed.
2. A member that joins again with unchanged metadata gets the current response again: the first one may have been lost.
3. The leader's assignment takes effect when its record is committed, and only if the generation is still the same.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.tasks import notify_safely
from ottla.coordination.deadlines import Deadlines
from ottla.coordination.machine import Decision, Reply, ReplyTo
from ottla.groups.classic_group import (
    CAN_REBALANCE,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    ClassicGroupTimer,
    RequestClient,
    join_error_response,
    join_response,
    leave_response,
    sync_error_response,
    sync_response,
    validate_member,
)
from ottla.groups.coordinator_records import group_record
from ottla.groups.group_memory import GroupMemory, protocols_bytes
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)


class ConsumerGroupDowngraded(NamedTuple):
    """Event: the record that turns a consumer group into a classic group was written."""

    group_id: str
    protocols: dict[str, list[JoinGroupRequestProtocol]]  # all protocols of the members: the record holds only one
    must_rebalance: bool


class LeaderAssignment(NamedTuple):
    """Event: the leader's assignment of a generation was written."""

    group_id: str
    generation: int
    assignments: dict[str, bytes]


class ClassicGroups:
    """All classic groups of one partition. The coordinator owns the mapping of groups."""

    def __init__(self, groups: dict[str, ClassicGroup], settings: GroupSettings, metadata: GroupMemory) -> None:
        self.groups = groups
        self.memory = metadata
        self.settings = settings
        self.deadlines: Deadlines[ClassicGroupTimer] = Deadlines()

    # ---- join

    def join(
        self, request: JoinGroupRequest, client: RequestClient, new_member_id: str, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        settings = self.settings
        if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
            return _join_error(request, Error.INVALID_SESSION_TIMEOUT, reply_to)
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            return _join_error(request, Error.UNKNOWN_MEMBER_ID, reply_to)
        group = group or ClassicGroup(request.group_id, now_ms)
        if not self._accepts_joining_member(group, request.member_id):
            self._delete_member(group, request.member_id)
            return Decision(replies=[Reply(reply_to, join_error_response("", Error.GROUP_MAX_SIZE_REACHED))])
        if not group.supports_protocols(request.protocol_type, request.protocols):
            return _join_error(request, Error.INCONSISTENT_GROUP_PROTOCOL, reply_to)
        decision = Decision()
        if adds_member(group, request) and not self._is_within_memory_limit(request):
            self._remove_pending_member(group, request.member_id, decision, now_ms)
            decision.replies.append(Reply(reply_to, join_error_response("", Error.GROUP_MAX_SIZE_REACHED)))
            return decision
        if request.group_id not in self.groups:
            self.groups[request.group_id] = group
            decision.records.append(group_record(group, {}))
        if request.member_id:
            self._join_existing_member(group, request, client, reply_to, decision, now_ms)
        else:
            self._join_new_member(group, request, client, new_member_id, reply_to, decision, now_ms)
        # The first rebalance of a group always waits for the initial delay, which collects members that start together.
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is not ClassicGroupState.EMPTY:
            self._maybe_complete_join(group, decision, now_ms)
        return decision

    def _accepts_joining_member(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self.settings.size_max
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            member = group.members.get(member_id)
            return (member is not None and member.join_reply is not None) or len(group.awaiting_join) < size_max
        if group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            return member_id in group.members or len(group.members) < size_max
        return True

    def _is_within_memory_limit(self, request: JoinGroupRequest) -> bool:
        size = protocols_bytes(request.protocols)
        return self.memory.has_capacity(request.group_id, size, self.settings.metadata_bytes_max)

    def _join_new_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: RequestClient,
        new_member_id: str,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static_member(group, request, client, new_member_id, reply_to, decision, now_ms)
        elif instance_id is None and client.requires_known_member_id:
            group.pending_join_members.add(new_member_id)
            self._schedule(
                ClassicGroupTimer("announced", group.group_id, new_member_id), now_ms + request.session_timeout_ms
            )
            response = join_error_response(new_member_id, Error.MEMBER_ID_REQUIRED)
            decision.replies.append(Reply(reply_to, response))
        else:
            self._add_member_and_rebalance(group, new_member_id, request, client, reply_to, decision, now_ms)

    def _join_existing_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: RequestClient,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_join_members and request.group_instance_id is None:
            self.deadlines.cancel(ClassicGroupTimer("announced", group.group_id, member_id))
            self._add_member_and_rebalance(group, member_id, request, client, reply_to, decision, now_ms)
            return
        error = validate_member(group, member_id, request.group_instance_id)
        if error is not Error.NONE:
            decision.replies.append(Reply(reply_to, join_error_response(member_id, error)))
            return
        member = group.members[member_id]
        is_same = member.matches(request.protocols)
        is_answered = (group.state is ClassicGroupState.COMPLETING_REBALANCE and is_same) or (
            group.state is ClassicGroupState.STABLE and is_same and group.leader_id != member_id
        )
        if is_answered:
            is_leader = group.leader_id == member_id
            decision.replies.append(Reply(reply_to, join_response(group, member_id, with_members=is_leader)))
            return
        if group.state is ClassicGroupState.EMPTY:
            decision.replies.append(Reply(reply_to, join_error_response(member_id, Error.UNKNOWN_MEMBER_ID)))
            return
        self._update_member(group, member, request, client, reply_to, decision)
        self._maybe_prepare_rebalance(group, decision, now_ms)

    def _add_member_and_rebalance(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        client: RequestClient,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        member = ClassicGroupMember(
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
        self.memory.update(member)
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY:
            group.has_new_member = True
        self._schedule_session_timeout(group, member, now_ms, self.settings.new_member_join_timeout_ms)
        self._maybe_prepare_rebalance(group, decision, now_ms)

    def _update_member(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        request: JoinGroupRequest,
        client: RequestClient,
        reply_to: ReplyTo,
        decision: Decision,
    ) -> None:
        if member.join_reply is not None:  # the earlier join was sent again, or its connection is closed
            decision.replies.append(
                Reply(member.join_reply, join_error_response(member.member_id, Error.UNKNOWN_MEMBER_ID))
            )
        group.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = client.client_id, client.host
        group.set_join_reply(member, reply_to)
        self.memory.update(member)
        group.pending_sync_members.discard(member.member_id)

    def _replace_static_member(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: RequestClient,
        new_member_id: str,
        reply_to: ReplyTo,
        decision: Decision,
        now_ms: int,
    ) -> None:
        """Replace a static member that rejoined with a new member id; a client with the old id is fenced."""
        assert request.group_instance_id is not None
        was_leader = group.leader_id
        old_id = group.static_members[request.group_instance_id]
        old = group.members[old_id]
        self._fail_pending_requests(group, old, Error.FENCED_INSTANCE_ID, decision)
        self.deadlines.cancel(ClassicGroupTimer("session", group.group_id, old_id))
        member = group.replace_static_member(request.group_instance_id, new_member_id)
        self._update_member(group, member, request, client, None, decision)
        self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)
        if group.state is not ClassicGroupState.STABLE or group.select_protocol() != group.protocol_name:
            group.set_join_reply(member, reply_to)
            self._maybe_prepare_rebalance(group, decision, now_ms)
            return
        response = join_response(group, new_member_id, with_members=False)
        if was_leader == old_id:
            # KIP-814: the rejoined leader must not assign again. Older clients get another leader id instead.
            if client.supports_skipping_assignment:
                response.members = group.join_response_members()
                response.skip_assignment = True
            else:
                response.leader = old_id
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        decision.records.append(group_record(group, assignments))
        decision.replies.append(Reply(reply_to, response))

    # ---- sync

    def sync(self, request: SyncGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        error = self._validate_sync(group, request)
        if group is None or error is not Error.NONE:
            return Decision(replies=[Reply(reply_to, sync_error_response(error))])
        member = group.members[request.member_id]
        if group.state is ClassicGroupState.STABLE:
            self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)
            return Decision(replies=[Reply(reply_to, sync_response(group, member))])
        decision = Decision()
        if member.sync_reply is not None:
            decision.replies.append(Reply(member.sync_reply, sync_error_response(Error.UNKNOWN_MEMBER_ID)))
        member.sync_reply = reply_to
        group.pending_sync_members.discard(member.member_id)
        if group.leader_id == member.member_id:
            given = {each.member_id: each.assignment for each in request.assignments}
            assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
            decision.records.append(group_record(group, assignments))
            decision.event = LeaderAssignment(group.group_id, group.generation, assignments)
        return decision

    def _validate_sync(self, group: ClassicGroup | None, request: SyncGroupRequest) -> Error:
        if group is None:
            return Error.UNKNOWN_MEMBER_ID
        error = validate_member(group, request.member_id, request.group_instance_id)
        if error is not Error.NONE:
            return error
        if request.generation_id != group.generation:
            return Error.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if group.state is ClassicGroupState.EMPTY:
            return Error.UNKNOWN_MEMBER_ID
        return Error.REBALANCE_IN_PROGRESS if group.state is ClassicGroupState.PREPARING_REBALANCE else Error.NONE

    def on_leader_assignment_written(self, event: LeaderAssignment, error: Error, now_ms: int) -> Decision:
        """Process the result of writing the leader's assignment."""
        decision = Decision()
        group = self.groups.get(event.group_id)
        if (
            group is None
            or group.state is not ClassicGroupState.COMPLETING_REBALANCE
            or group.generation != event.generation
        ):
            return decision
        if error is not Error.NONE:
            self._fail_pending_syncs(group, error, decision)
            self._maybe_prepare_rebalance(group, decision, now_ms)
            return decision
        for member in group.members.values():
            member.assignment = event.assignments.get(member.member_id, b"")
            self.memory.update(member)
        group.transition_to(ClassicGroupState.STABLE, now_ms)
        self.deadlines.cancel(ClassicGroupTimer("sync", group.group_id))
        for member in group.members.values():
            if member.sync_reply is not None:
                decision.replies.append(Reply(member.sync_reply, sync_response(group, member)))
                member.sync_reply = None
                self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)
        return decision

    # ---- heartbeat

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=Error.UNKNOWN_MEMBER_ID)
        error = validate_member(group, request.member_id, request.group_instance_id)
        if error is Error.NONE and request.generation_id != group.generation:
            error = Error.ILLEGAL_GENERATION
        if error is Error.NONE and group.state is ClassicGroupState.EMPTY:
            error = Error.UNKNOWN_MEMBER_ID
        if error is not Error.NONE:
            return HeartbeatResponse(error_code=error)
        member = group.members[request.member_id]
        self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def renew_session(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """Renew the member's session, after an offset commit."""
        member = group.members.get(member_id)
        if member is not None:
            self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)

    # ---- leave

    def leave(self, request: LeaveGroupRequest, reply_to: ReplyTo, now_ms: int) -> Decision:
        group = self.groups.get(request.group_id)
        decision = Decision()
        errors = [Error.UNKNOWN_MEMBER_ID] * len(request.members)
        if group is not None:
            errors = [self._leave_member(group, leaver, decision, now_ms) for leaver in request.members]
        decision.replies.append(Reply(reply_to, leave_response(request.members, errors)))
        return decision

    def _leave_member(self, group: ClassicGroup, leaver: MemberIdentity, decision: Decision, now_ms: int) -> Error:
        member_id, instance_id = leaver.member_id, leaver.group_instance_id
        if not member_id and instance_id is not None:  # KIP-345: administrators remove static members by instance id
            member_id = group.static_members.get(instance_id, "")
        error = Error.NONE
        if member_id in group.pending_join_members:
            self._remove_pending_member(group, member_id, decision, now_ms)
        else:
            error = validate_member(group, member_id, instance_id)
            if error is Error.NONE:
                self.remove_member(group, member_id, decision, now_ms)
        return error

    # ---- rebalance

    def _maybe_prepare_rebalance(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if group.state not in CAN_REBALANCE:
            return
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._fail_pending_syncs(group, Error.REBALANCE_IN_PROGRESS, decision)
        self.deadlines.cancel(ClassicGroupTimer("sync", group.group_id))
        wait_ms = group.rebalance_timeout_ms
        if group.state is ClassicGroupState.EMPTY:
            group.remaining_delay_ms = max(wait_ms - self.settings.initial_rebalance_delay_ms, 0)
            group.has_new_member = False
            wait_ms = self.settings.initial_rebalance_delay_ms
        group.transition_to(ClassicGroupState.PREPARING_REBALANCE, now_ms)
        self._schedule(ClassicGroupTimer("join", group.group_id), now_ms + wait_ms)

    def _maybe_complete_join(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if group.has_all_joined:
            self._complete_join_phase(group, decision, now_ms)

    def _on_join_timeout(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if group.previous_state is ClassicGroupState.EMPTY and group.has_new_member and group.remaining_delay_ms > 0:
            group.has_new_member = False
            delay_ms = min(self.settings.initial_rebalance_delay_ms, group.remaining_delay_ms)
            group.remaining_delay_ms -= delay_ms
            self._schedule(ClassicGroupTimer("join", group.group_id), now_ms + delay_ms)
        else:
            self._complete_join_phase(group, decision, now_ms)

    def _complete_join_phase(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        self.deadlines.cancel(ClassicGroupTimer("join", group.group_id))
        for member in [each for each in group.members.values() if each.join_reply is None and each.instance_id is None]:
            self._delete_member(group, member.member_id)
            self.deadlines.cancel(ClassicGroupTimer("session", group.group_id, member.member_id))
        if group.members and not group.elect_new_joined_leader():
            # Only static members, and none has joined: wait until one does or their sessions end.
            self._schedule(ClassicGroupTimer("join", group.group_id), now_ms + group.rebalance_timeout_ms)
            return
        group.init_next_generation(now_ms)
        if group.state is ClassicGroupState.EMPTY:
            decision.records.append(group_record(group, {}))
            return
        for member in group.members.values():
            self._respond_to_join(group, member, decision, now_ms)
        assert len(group.pending_sync_members) == len(group.members), f"{group} waits for {group.pending_sync_members}"
        self._schedule(ClassicGroupTimer("sync", group.group_id), now_ms + group.rebalance_timeout_ms)

    def _respond_to_join(
        self, group: ClassicGroup, member: ClassicGroupMember, decision: Decision, now_ms: int
    ) -> None:
        if member.join_reply is not None:
            is_leader = member.member_id == group.leader_id
            response = join_response(group, member.member_id, with_members=is_leader)
            decision.replies.append(Reply(member.join_reply, response))
        group.set_join_reply(member, None)
        member.is_new = False
        group.pending_sync_members.add(member.member_id)
        self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)

    def _on_sync_timeout(self, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        """Remove the members that did not send SyncGroup in time."""
        if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            return
        late = [member_id for member_id in group.members if member_id in group.pending_sync_members]
        for member_id in late:
            self.remove_member(group, member_id, decision, now_ms)

    def _fail_pending_syncs(self, group: ClassicGroup, error: Error, decision: Decision) -> None:
        for member in group.members.values():
            member.assignment = b""
            self.memory.update(member)
            if member.sync_reply is not None:
                decision.replies.append(Reply(member.sync_reply, sync_error_response(error)))
                member.sync_reply = None

    def remove_member(self, group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
        """Remove a member and start a rebalance of the others."""
        member = self._delete_member(group, member_id)
        if member is None:
            return
        self._fail_pending_requests(group, member, Error.UNKNOWN_MEMBER_ID, decision)
        self.deadlines.cancel(ClassicGroupTimer("session", group.group_id, member_id))
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            self._maybe_prepare_rebalance(group, decision, now_ms)
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is not ClassicGroupState.EMPTY:
            self._maybe_complete_join(group, decision, now_ms)

    def _delete_member(self, group: ClassicGroup, member_id: str) -> ClassicGroupMember | None:
        member = group.remove(member_id)
        if member is not None:
            self.memory.remove(member)
        return member

    def _remove_pending_member(self, group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
        group.pending_join_members.discard(member_id)
        self.deadlines.cancel(ClassicGroupTimer("announced", group.group_id, member_id))
        if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is not ClassicGroupState.EMPTY:
            self._maybe_complete_join(group, decision, now_ms)

    # ---- time

    def tick(self, now_ms: int) -> list[Decision]:
        decisions = []
        for timer in self.deadlines.pop_expired(now_ms):
            group = self.groups.get(timer.group_id)
            if group is not None:
                decision = Decision()
                notify_safely(
                    self._on_timer, timer, group, decision, now_ms
                )  # an error in one group must not affect others
                decisions.append(decision)
        return decisions

    def _on_timer(self, timer: ClassicGroupTimer, group: ClassicGroup, decision: Decision, now_ms: int) -> None:
        if timer.kind == "join":
            self._on_join_timeout(group, decision, now_ms)
        elif timer.kind == "sync":
            self._on_sync_timeout(group, decision, now_ms)
        elif timer.kind == "announced":
            self._remove_pending_member(group, timer.member_id, decision, now_ms)
        else:
            self._on_session_timeout(group, timer.member_id, decision, now_ms)

    def _on_session_timeout(self, group: ClassicGroup, member_id: str, decision: Decision, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None:
            return
        if member.is_awaiting_response and not member.is_new:
            self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)
        else:
            self.remove_member(group, member_id, decision, now_ms)

    def fail_requests_for_upgrade(self, group: ClassicGroup) -> list[Reply]:
        """Reject waiting requests with REBALANCE_IN_PROGRESS, because the group becomes a consumer group; members join
        again.
        """
        decision = Decision()
        for member in group.members.values():
            self._fail_pending_requests(group, member, Error.REBALANCE_IN_PROGRESS, decision)
        return decision.replies

    def fail_requests_for_unload(self) -> list[Reply]:
        """Reject waiting requests with NOT_COORDINATOR, because leadership is lost."""
        decision = Decision()
        for group in self.groups.values():
            for member in group.members.values():
                self._fail_pending_requests(group, member, Error.NOT_COORDINATOR, decision)
        return decision.replies

    def on_downgraded(self, event: ConsumerGroupDowngraded, now_ms: int) -> Decision:
        """Start the rebalance of a consumer group that became a classic group."""
        decision = Decision()
        group = self.groups.get(event.group_id)
        if group is not None:
            for member in group.members.values():
                group.set_protocols(member, event.protocols.get(member.member_id, member.protocols))
                self.memory.update(member)
            self.start_sessions(group, now_ms)
            if event.must_rebalance:
                self._maybe_prepare_rebalance(group, decision, now_ms)
        return decision

    def start_sessions(self, group: ClassicGroup, now_ms: int) -> None:
        """Restart the members' sessions, because the group was loaded or requests were rejected for a while."""
        for member in group.members.values():
            if not member.is_awaiting_response:
                self._schedule_session_timeout(group, member, now_ms, member.session_timeout_ms)

    def _schedule_session_timeout(
        self, group: ClassicGroup, member: ClassicGroupMember, now_ms: int, within_ms: int
    ) -> None:
        timer = member.session_timer
        if timer is None:
            timer = member.session_timer = ClassicGroupTimer("session", group.group_id, member.member_id)
        self.deadlines.set(timer, now_ms + within_ms)

    def _schedule(self, timer: ClassicGroupTimer, at_ms: int) -> None:
        self.deadlines.set(timer, at_ms)

    def _fail_pending_requests(
        self, group: ClassicGroup, member: ClassicGroupMember, error: Error, decision: Decision
    ) -> None:
        if member.join_reply is not None:
            decision.replies.append(Reply(member.join_reply, join_error_response(member.member_id, error)))
        if member.sync_reply is not None:
            decision.replies.append(Reply(member.sync_reply, sync_error_response(error)))
        group.set_join_reply(member, None)
        member.sync_reply = None


def adds_member(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Return whether this join adds a member to the group."""
    if request.member_id:
        return request.member_id in group.pending_join_members
    return request.group_instance_id is None or request.group_instance_id not in group.static_members


def _join_error(request: JoinGroupRequest, error: Error, reply_to: ReplyTo) -> Decision:
    return Decision(replies=[Reply(reply_to, join_error_response(request.member_id, error))])


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Return the rebalance timeout; in JoinGroup v0 it is the session timeout."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms

"""One group of the classic protocol: its members, state and assignment, and the responses to its members.

Pure state without time or I/O; classic_rebalance.py decides when it changes. The states and their transitions:

    EMPTY ──join──► PREPARING_REBALANCE ──all joined──► COMPLETING_REBALANCE ──leader's assignment──► STABLE
      ▲                 ▲        │                              │                                      │
      └─no member joined┼────────┘                              │ join, leave, failure                 │
                        └───────────────────────────────────────┴──────────────────────────────────────┘
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.coordination.machine import ReplyTo
from ottla.groups.group_memory import protocols_bytes
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.consumer_groups import CONSUMER, Subscription, read_versioned
from ottla.protocol.messages.groups import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)

NO_GENERATION = -1


class ClassicGroupState(Enum):
    """The value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


VALID_TRANSITIONS = {
    ClassicGroupState.EMPTY: {ClassicGroupState.PREPARING_REBALANCE},
    ClassicGroupState.PREPARING_REBALANCE: {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY},
    ClassicGroupState.COMPLETING_REBALANCE: {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE},
    ClassicGroupState.STABLE: {ClassicGroupState.PREPARING_REBALANCE},
}
CAN_REBALANCE = {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE}


class ClassicGroupTimer(NamedTuple):
    """The key of a deadline. Kinds are "session" and "announced" for a member, "join" and "sync" for a group."""

    kind: str
    group_id: str
    member_id: str = ""


class ClassicGroupMember:
    """One consumer (or worker) of a group."""

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[JoinGroupRequestProtocol],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # its first join is pending: it does not know its id and cannot send heartbeats
        self.join_reply: ReplyTo = None
        self.sync_reply: ReplyTo = None
        self.counted_bytes = 0  # its current share of the memory count
        self.session_timer: ClassicGroupTimer | None = None  # kept, because every heartbeat and every commit needs it

    @property
    def is_awaiting_response(self) -> bool:
        """Whether a join or sync is pending: the member sends no heartbeats meanwhile."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata_bytes(self) -> int:
        return protocols_bytes(self.protocols) + len(self.assignment)

    def protocol_metadata(self, protocol: str) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    def matches(self, protocols: list[JoinGroupRequestProtocol]) -> bool:
        return self.protocols == protocols

    def __repr__(self) -> str:
        waits = "joining" if self.join_reply is not None else "syncing" if self.sync_reply is not None else "idle"
        return f"<ClassicGroupMember {self.member_id} {waits}>"


class ClassicGroup:
    """The members of a group, their protocol, leader and generation."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}  # static members: group.instance.id -> member id
        self.pending_join_members: set[str] = set()  # member ids that were assigned but not used to join yet (KIP-394)
        self.awaiting_join: set[str] = set()  # members whose JoinGroup is not answered yet
        self.pending_sync_members: set[str] = set()  # members of this generation that have not sent SyncGroup
        self._protocol_counts: dict[str, int] = {}  # how many members support each protocol
        self.has_new_member = False  # a member joined during the initial delay, which is then extended
        self.remaining_delay_ms = 0

    # ---- members

    def add(self, member: ClassicGroupMember) -> None:
        assert member.member_id not in self.members, f"{member} is in {self} already"
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.pending_join_members.discard(member.member_id)
        self.set_join_reply(member, member.join_reply)
        self._count_protocols(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        self.awaiting_join.discard(member_id)
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.discard(member_id)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static_member(self, instance_id: str, member_id: str) -> ClassicGroupMember:
        """Return the rejoined static member: it has a new member id and the state of the old member."""
        assert member_id not in self.members, f"{member_id} is in {self} already"
        old_id = self.static_members[instance_id]
        member = self.members.pop(old_id)
        self.awaiting_join.discard(old_id)
        member.member_id, member.session_timer = member_id, None
        self.members[member_id] = member
        self.set_join_reply(member, member.join_reply)
        self.static_members[instance_id] = member_id
        self.pending_sync_members.discard(old_id)
        if self.leader_id == old_id:
            self.leader_id = member_id
        return member

    def set_join_reply(self, member: ClassicGroupMember, reply_to: ReplyTo) -> None:
        """The member waits for the answer of its JoinGroup, or does not (None)."""
        member.join_reply = reply_to
        if reply_to is not None:
            self.awaiting_join.add(member.member_id)
        else:
            self.awaiting_join.discard(member.member_id)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending_join_members and len(self.awaiting_join) == len(self.members)

    def elect_new_joined_leader(self) -> bool:
        """Make a member that has joined the leader; returns False if no member has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- protocols

    def supports_protocols(self, protocol_type: str, protocols: list[JoinGroupRequestProtocol]) -> bool:
        """Return whether a member with these protocols can join the group."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(self._is_common(each.name) for each in protocols)

    def set_protocols(self, member: ClassicGroupMember, protocols: list[JoinGroupRequestProtocol]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        """Every join compares its protocols with those of all members, so they are counted."""
        for name in {each.name for each in member.protocols}:
            count = self._protocol_counts.get(name, 0) + change
            if count:
                self._protocol_counts[name] = count
            else:
                del self._protocol_counts[name]

    def _is_common(self, protocol: str) -> bool:
        """Whether all members support this protocol."""
        return self._protocol_counts.get(protocol) == len(self.members)

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that the members read; None if the members are not consumers or their metadata is
        unreadable.
        """
        if self.protocol_type != CONSUMER or self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(read_versioned(Subscription, member.protocol_metadata(self.protocol_name)).topics)
            except ProtocolError:
                return None
        return topics

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all members support; the most votes win."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(each.name for each in member.protocols if self._is_common(each.name))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def join_response_members(self) -> list[JoinGroupResponseMember]:
        """Return the members with their metadata, for the leader's JoinGroup response."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.protocol_metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # ---- states

    def transition_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert state in VALID_TRANSITIONS[self.state], f"{self} cannot become {state.value}"
        self.previous_state, self.state, self.state_timestamp_ms = self.state, state, now_ms

    def init_next_generation(self, now_ms: int) -> None:
        """End the join phase: start the next generation with the present members."""
        assert (self.leader_id in self.members) == bool(self.members), f"{self} is led by {self.leader_id}"
        self.generation += 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(ClassicGroupState.EMPTY, now_ms)
        self.pending_sync_members.clear()

    def __repr__(self) -> str:
        size = len(self.members)
        return f"<ClassicGroup {self.group_id} {self.state.value} generation {self.generation}, {size} members>"


# ---- requests and responses
NONE: Final = Error.NONE  # a module constant, because the attribute lookup of an enumeration is slow


class RequestClient(NamedTuple):
    """The client of a request."""

    client_id: str
    host: str
    requires_known_member_id: bool = (
        True  # since JoinGroup v4: a new member gets its id first, then joins with it (KIP-394)
    )
    supports_skipping_assignment: bool = True  # since JoinGroup v9 (KIP-814)


def validate_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> Error:
    """Return UNKNOWN_MEMBER_ID for other clients, or FENCED_INSTANCE_ID if another member has the instance id now."""
    if instance_id is not None:
        known = group.static_members.get(instance_id)
        if known is None:
            return Error.UNKNOWN_MEMBER_ID
        return NONE if known == member_id else Error.FENCED_INSTANCE_ID
    return NONE if member_id in group.members else Error.UNKNOWN_MEMBER_ID


def join_response(group: ClassicGroup, member_id: str, *, with_members: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=group.join_response_members() if with_members else [],
    )


def sync_response(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def leave_response(leavers: list[MemberIdentity], errors: list[Error]) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error)
            for each, error in zip(leavers, errors, strict=True)
        ]
    )


def join_error_response(member_id: str, error: Error) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, protocol_name=None, leader="", member_id=member_id
    )


def sync_error_response(error: Error) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")

"""What members of classic groups are answered, and who is one."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.groups.classic_group import ClassicGroup, Member
from ottla.protocol.messages.groups import (
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)

NO_GENERATION = -1
NONE: Final = Error.NONE  # looked up once: an enumeration takes its time to find its members


class Client(NamedTuple):
    """Who asks."""

    client_id: str
    host: str
    must_know_id: bool = True  # since JoinGroup v4 a new member is told its id first (KIP-394)
    can_skip_assignment: bool = True  # since JoinGroup v9 (KIP-814)


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> Error:
    """Whether this is a member, and, for a static one, still the one that has the name."""
    if instance_id is not None:
        known = group.member_of_instance.get(instance_id)
        if known is None:
            return Error.UNKNOWN_MEMBER_ID
        return NONE if known == member_id else Error.FENCED_INSTANCE_ID
    return NONE if member_id in group.members else Error.UNKNOWN_MEMBER_ID


def joined(group: ClassicGroup, member_id: str, *, with_members: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader_id or "",
        member_id=member_id,
        members=group.joined_members() if with_members else [],
    )


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def left_response(leavers: list[MemberIdentity], errors: list[Error]) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error)
            for each, error in zip(leavers, errors, strict=True)
        ]
    )


def refused_join(member_id: str, error: Error) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, protocol_name=None, leader="", member_id=member_id
    )


def refused_sync(error: Error) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")

"""The records of `__consumer_offsets`: from the machine's words to bytes and back. Offsets: see offset_records.py."""

from __future__ import annotations

from struct import Struct
from typing import Any

from ottla.coordination.machine import Record
from ottla.groups.classic_group import ClassicGroup, Member, State
from ottla.protocol.codec import ProtocolError, decode, encode
from ottla.protocol.messages.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.protocol.messages.groups import JoinGroupRequestProtocol

OFFSET_COMMIT = 1
GROUP_METADATA = 2

# What Apache Kafka 4.3 writes with the features of a fresh cluster.
OFFSET_COMMIT_VERSION = 4
GROUP_METADATA_VERSION = 3

_KIND = Struct(">h")


def make_record(kind: int, key: Any, value: Any | None, version: int = 0) -> Record:
    """A record of this kind; without value it says that the key is forgotten."""
    key_bytes = _KIND.pack(kind) + encode(key, 0)
    return Record(key_bytes, None if value is None else _KIND.pack(version) + encode(value, version))


def read_record(key: bytes, value: bytes | None) -> tuple[int, Any, Any | None] | None:
    """Kind, key and value; None for a kind that this release does not know (a newer one wrote it)."""
    kind = read_kind(key)
    known = GROUP_RECORDS.get(kind)
    if known is None:
        return None
    key_message: Any
    value_message: Any
    key_message, _ = decode(known.key, 0, memoryview(key), _KIND.size)
    if value is None:
        return kind, key_message, None
    version = read_kind(value)
    value_message, _ = decode(known.value, version, memoryview(value), _KIND.size)
    return kind, key_message, value_message


def read_kind(data: bytes) -> int:
    if len(data) < _KIND.size:
        raise ProtocolError("a record of __consumer_offsets is too short to say what it is")
    kind: int = _KIND.unpack_from(data)[0]
    return kind


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> Record:
    """The group as it is now, each member with its assignment."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id if group.members else None,
        current_state_timestamp=group.state_since_ms,
        members=[_member_value(group, member, assignments) for member in group.members.values()],
    )
    return make_record(GROUP_METADATA, GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> Record:
    return make_record(GROUP_METADATA, GroupMetadataKey(group=group_id), None)


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group that this record describes: stable with its members, or empty."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    for member in value.members:
        group.add(_restore_member(member, value.protocol or ""))
    group.leader_id = value.leader if value.members else None
    group.state = group.came_from = State.STABLE if value.members else State.EMPTY
    return group


def _member_value(group: ClassicGroup, member: Member, assignments: dict[str, bytes]) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata_of(group.protocol or ""),
        assignment=assignments.get(member.member_id, b""),
    )


def _restore_member(value: MemberMetadata, protocol: str) -> Member:
    timeout_ms = value.rebalance_timeout if value.rebalance_timeout >= 0 else value.session_timeout
    member = Member(
        value.member_id,
        value.group_instance_id,
        value.client_id,
        value.client_host,
        timeout_ms,
        value.session_timeout,
        [JoinGroupRequestProtocol(name=protocol, metadata=value.subscription)],
    )
    member.assignment = value.assignment
    return member

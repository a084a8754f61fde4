"""The records of `__consumer_offsets`: encoding and decoding. Records of consumer groups: consumer_group_records.py.

Offset commits are the most frequent records, and loading a partition reads all of them, so their usual form is packed
and unpacked here with struct. Any other form (an older version, long metadata, tagged fields of a newer release) is
decoded by the message classes. The tests compare both ways. Compiled with mypyc where possible.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final
from uuid import UUID

from ottla.coordination.machine import Record
from ottla.groups.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from ottla.protocol.codec import ProtocolError, decode, encode
from ottla.protocol.messages.coordinator_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.groups import JoinGroupRequestProtocol
from ottla.protocol.schema import ZERO_UUID

OFFSET_COMMIT = 1
GROUP_METADATA = 2

# The versions that Apache Kafka 4.3 writes in a new cluster.
OFFSET_COMMIT_VERSION = 4
GROUP_METADATA_VERSION = 3

_KIND = Struct(">h")
SHORT_METADATA_BYTES_MAX: Final = 126  # of metadata whose length, plus one, takes a single byte
NO_EXPIRY: Final = -1
KEY_HEAD_BYTES: Final = 4
VALUE_HEAD_BYTES: Final = 15
NO_TAGGED_FIELDS: Final = b"\0"
TOPIC_ID_SUFFIX_BYTES: Final = 19  # the count of tagged fields, and the tagged field with the topic id
TOPIC_ID_TAG_HEADER: Final = b"\x01\x00\x10"
ALL_PARTITIONS: Final = -1
CACHED_KEYS_MAX: Final = 10_000


def encode_record(kind: int, key: Any, value: Any | None, version: int = 0) -> Record:
    """Encode a record of this type; without a value it is a tombstone."""
    key_bytes = _KIND.pack(kind) + encode(key, 0)
    return Record(key_bytes, None if value is None else _KIND.pack(version) + encode(value, version))


def decode_record(key: bytes, value: bytes | None) -> tuple[int, Any, Any | None] | None:
    """Return type, key and value; None for a type of newer releases."""
    kind = read_type(key)
    known = GROUP_RECORDS.get(kind)
    if known is None:
        return None
    key_message: Any
    value_message: Any
    key_message, _ = decode(known.key, 0, memoryview(key), _KIND.size)
    if value is None:
        return kind, key_message, None
    version = read_type(value)
    value_message, _ = decode(known.value, version, memoryview(value), _KIND.size)
    return kind, key_message, value_message


def read_type(data: bytes) -> int:
    if len(data) < _KIND.size:
        raise ProtocolError("a record of __consumer_offsets is too short for its type")
    kind: int = _KIND.unpack_from(data)[0]
    return kind


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> Record:
    """Return the record of the group's current state, with these assignments."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id if group.members else None,
        current_state_timestamp=group.state_timestamp_ms,
        members=[_member_value(group, member, assignments) for member in group.members.values()],
    )
    return encode_record(GROUP_METADATA, GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> Record:
    return encode_record(GROUP_METADATA, GroupMetadataKey(group=group_id), None)


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group after replay of this record: stable if it has members, otherwise empty."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for member in value.members:
        group.add(_restore_member(member, value.protocol or ""))
    group.leader_id = value.leader if value.members else None
    group.state = group.previous_state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
    return group


def _member_value(group: ClassicGroup, member: ClassicGroupMember, assignments: dict[str, bytes]) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.protocol_metadata(group.protocol_name or ""),
        assignment=assignments.get(member.member_id, b""),
    )


def _restore_member(value: MemberMetadata, protocol: str) -> ClassicGroupMember:
    timeout_ms = value.rebalance_timeout if value.rebalance_timeout >= 0 else value.session_timeout
    member = ClassicGroupMember(
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


# ---- offset commits


_pack_key_head: Final = Struct(">hh").pack  # kind, length of the group
_pack_length: Final = Struct(">h").pack
_pack_partition: Final = Struct(">i").pack
_pack_value_head: Final = Struct(">hqib").pack  # version, offset, leader epoch, length of the metadata plus one
_pack_time: Final = Struct(">q").pack
_pack_plain_value: Final = Struct(">hqibq").pack  # without metadata the commit time follows directly
_pack_plain_suffix: Final = Struct(">bq").pack  # of such a value: length of the metadata plus one, time
_unpack_key_head: Final = Struct(">hh").unpack_from
_unpack_partition: Final = Struct(">i").unpack_from
_unpack_plain_value: Final = Struct(">hqibq").unpack_from
_unpack_time: Final = Struct(">q").unpack_from

VALUE_VERSION: Final = OFFSET_COMMIT_VERSION.to_bytes(2, "big")  # the start of a value; offset and epoch follow


GroupTopicPartition = tuple[str, str, int]
"""Group, topic, partition."""

_cached_keys: Final[dict[bytes, GroupTopicPartition]] = {}  # decoded keys of offsets that are committed repeatedly
_new_tuple: Final = tuple.__new__  # a NamedTuple's own constructor takes four times as long


class OffsetCommitRecord:
    """The contents of one offset commit record."""

    __slots__ = (
        "commit_ms",
        "expire_ms",
        "group",
        "leader_epoch",
        "metadata",
        "offset",
        "partition",
        "topic",
    )

    def __init__(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_ms: int,
        expire_ms: int = NO_EXPIRY,
    ) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_ms = commit_ms
        self.expire_ms = expire_ms

    def __repr__(self) -> str:
        return f"<OffsetCommitRecord {self.group} {self.topic}-{self.partition}: {self.offset}>"


def commit_record(
    group: str,
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_ms: int,
    topic_id: UUID = ZERO_UUID,
) -> Record:
    """Return the record of a commit. As in Kafka, only ordinary commits have a topic id, which is not used yet."""
    text = metadata.encode()
    if len(text) > SHORT_METADATA_BYTES_MAX:
        message = OffsetCommitValue(
            offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=commit_ms, topic_id=topic_id
        )
        return encode_record(
            OFFSET_COMMIT,
            OffsetCommitKey(group=group, topic=topic, partition=partition),
            message,
            OFFSET_COMMIT_VERSION,
        )
    if text:
        head: bytes = _pack_value_head(OFFSET_COMMIT_VERSION, offset, leader_epoch, len(text) + 1) + text
        head += _pack_time(commit_ms)
    else:
        head = _pack_plain_value(OFFSET_COMMIT_VERSION, offset, leader_epoch, 1, commit_ms)
    record: Record = _new_tuple(Record, (offset_key(group, topic, partition), head + _topic_id_suffix(topic_id)))
    return record


def plain_value_suffix(commit_ms: int, topic_id: UUID) -> bytes:
    """Return the bytes after offset and leader epoch in a value without metadata."""
    head: bytes = _pack_plain_suffix(1, commit_ms)
    return head + _topic_id_suffix(topic_id)


def _topic_id_suffix(topic_id: UUID) -> bytes:
    number: Any = topic_id.int
    end: bytes = NO_TAGGED_FIELDS if number == 0 else TOPIC_ID_TAG_HEADER + number.to_bytes(16, "big")
    return end


def offset_tombstone(group: str, topic: str, partition: int) -> Record:
    """Return the tombstone of this offset."""
    return Record(offset_key(group, topic, partition), None)


def topic_tombstone(topic: str) -> Record:
    """Return the record that voids all earlier commits for this topic, in all groups.

    For Kafka it is a tombstone of an offset that cannot exist.
    """
    return offset_tombstone("", topic, ALL_PARTITIONS)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    group_name, topic_name = group.encode(), topic.encode()
    key: bytes = _pack_key_head(OFFSET_COMMIT, len(group_name)) + group_name + _pack_length(len(topic_name))
    return key + topic_name + _pack_partition(partition)


def cached_offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return offset_key() for an offset that is committed repeatedly: the decoded key is cached."""
    key = offset_key(group, topic, partition)
    if len(_cached_keys) >= CACHED_KEYS_MAX:
        _cached_keys.clear()
    _cached_keys[key] = (group, topic, partition)
    return key


def decode_plain_commit(key: bytes, value: bytes) -> OffsetCommitRecord | None:
    """Return the offset that this record commits; None for other types and forms of records."""
    place = _cached_keys.get(key) or _decode_offset_key(key)
    if place is None or len(value) < VALUE_HEAD_BYTES + 9:
        return None
    version, offset, leader_epoch, length, commit_ms = _unpack_plain_value(value)
    time_at = VALUE_HEAD_BYTES + length - 1
    if version != OFFSET_COMMIT_VERSION or length < 1 or not _has_known_suffix(value, time_at + 8):
        return None
    try:
        return OffsetCommitRecord(
            place[0],
            place[1],
            place[2],
            offset,
            leader_epoch,
            value[VALUE_HEAD_BYTES:time_at].decode() if length > 1 else "",
            commit_ms if length == 1 else _unpack_time(value, time_at)[0],
        )
    except UnicodeDecodeError:
        return None


def _decode_offset_key(key: bytes) -> GroupTopicPartition | None:
    """Decode the key of an offset commit; None for other types of keys."""
    if len(key) < KEY_HEAD_BYTES + 6:
        return None
    kind, group_bytes = _unpack_key_head(key)
    topic_at = KEY_HEAD_BYTES + group_bytes + 2
    topic_end = len(key) - 4
    if kind != OFFSET_COMMIT or group_bytes < 0 or topic_at > topic_end:
        return None
    if key[topic_at - 2] << 8 | key[topic_at - 1] != topic_end - topic_at:
        return None
    try:
        group, topic = key[KEY_HEAD_BYTES : topic_at - 2].decode(), key[topic_at:topic_end].decode()
    except UnicodeDecodeError:
        return None
    return group, topic, _unpack_partition(key, topic_end)[0]


def _has_known_suffix(value: bytes, position: int) -> bool:
    """Return whether the commit time is the last field, or followed by the topic id only."""
    rest = len(value) - position
    if rest == TOPIC_ID_SUFFIX_BYTES:
        return value[position : position + 3] == TOPIC_ID_TAG_HEADER
    return rest == 1 and value[position:] == NO_TAGGED_FIELDS


def to_offset_commit(key: Any, value: Any) -> OffsetCommitRecord:
    """Return the commit from decoded messages, for records of every form."""
    return OffsetCommitRecord(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )

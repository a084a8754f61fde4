"""The record that a coordinator writes most, one committed offset: laid out by hand. Compiled with mypyc if possible.

Every commit is written here and read back by apply(), and a start reads all of them. What does not have the usual form
(an older version, long metadata, tagged fields of a newer release, damage) goes the way of all other records, through
the message classes: they say what is right, and the tests hold both against each other.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final
from uuid import UUID

from ottla.coordination.machine import Record
from ottla.groups.records import OFFSET_COMMIT, OFFSET_COMMIT_VERSION, make_record
from ottla.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.schema import ZERO_UUID

SHORT_BYTES_MAX: Final = 126  # of metadata whose length, plus one, takes a single byte
NO_EXPIRY: Final = -1

_pack_key_head: Final = Struct(">hh").pack  # kind, length of the group
_pack_length: Final = Struct(">h").pack
_pack_partition: Final = Struct(">i").pack
_pack_value_head: Final = Struct(">hqib").pack  # version, offset, leader epoch, length of the metadata plus one
_pack_time: Final = Struct(">q").pack
_pack_bare_value: Final = Struct(">hqibq").pack  # without metadata the time of the commit follows at once
_pack_bare_end: Final = Struct(">bq").pack  # of such a value: length of the metadata plus one, time
_unpack_key_head: Final = Struct(">hh").unpack_from
_unpack_partition: Final = Struct(">i").unpack_from
_unpack_bare_value: Final = Struct(">hqibq").unpack_from
_unpack_time: Final = Struct(">q").unpack_from

KEY_HEAD_BYTES: Final = 4
VALUE_HEAD_BYTES: Final = 15
VALUE_END: Final = b"\0"
VALUE_VERSION: Final = OFFSET_COMMIT_VERSION.to_bytes(2, "big")  # what a value begins with; offset and epoch follow
ID_BYTES: Final = 19  # the number of tagged fields, and the one with the topic id
ID_HEAD: Final = b"\x01\x00\x10"

EVERY_PARTITION: Final = -1

PLACES_MAX: Final = 10_000

Place = tuple[str, str, int]
"""Group, topic, partition."""

_places: Final[dict[bytes, Place]] = {}  # of keys that are written again and again
_new_tuple: Final = tuple.__new__  # a NamedTuple's own way takes four times as long


class OffsetOfRecord:
    """What a record says about one committed offset."""

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
        return f"<OffsetOfRecord {self.group} {self.topic}-{self.partition}: {self.offset}>"


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
    """Kafka writes the topic's id for ordinary commits only, and reads it nowhere yet: neither do we."""
    text = metadata.encode()
    if len(text) > SHORT_BYTES_MAX:
        message = OffsetCommitValue(
            offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=commit_ms, topic_id=topic_id
        )
        return make_record(
            OFFSET_COMMIT,
            OffsetCommitKey(group=group, topic=topic, partition=partition),
            message,
            OFFSET_COMMIT_VERSION,
        )
    if text:
        head: bytes = _pack_value_head(OFFSET_COMMIT_VERSION, offset, leader_epoch, len(text) + 1) + text
        head += _pack_time(commit_ms)
    else:
        head = _pack_bare_value(OFFSET_COMMIT_VERSION, offset, leader_epoch, 1, commit_ms)
    record: Record = _new_tuple(Record, (offset_key(group, topic, partition), head + _id_end(topic_id)))
    return record


def bare_value_end(commit_ms: int, topic_id: UUID) -> bytes:
    """What a value without metadata has behind offset and leader epoch."""
    head: bytes = _pack_bare_end(1, commit_ms)
    return head + _id_end(topic_id)


def _id_end(topic_id: UUID) -> bytes:
    number: Any = topic_id.int
    end: bytes = VALUE_END if number == 0 else ID_HEAD + number.to_bytes(16, "big")
    return end


def offset_tombstone(group: str, topic: str, partition: int) -> Record:
    """The record that says that this offset is forgotten."""
    return Record(offset_key(group, topic, partition), None)


def topic_tombstone(topic: str) -> Record:
    """The record that says that nothing counts of what stands before it for this topic, whatever the group.

    For everybody else it is the tombstone of an offset that cannot be there.
    """
    return offset_tombstone("", topic, EVERY_PARTITION)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    group_name, topic_name = group.encode(), topic.encode()
    key: bytes = _pack_key_head(OFFSET_COMMIT, len(group_name)) + group_name + _pack_length(len(topic_name))
    return key + topic_name + _pack_partition(partition)


def kept_key(group: str, topic: str, partition: int) -> bytes:
    """The same key of an offset that will be committed again and again: what it says is remembered for a while."""
    key = offset_key(group, topic, partition)
    if len(_places) >= PLACES_MAX:
        _places.clear()
    _places[key] = (group, topic, partition)
    return key


def read_usual_commit(key: bytes, value: bytes) -> OffsetOfRecord | None:
    """The offset that this record commits; None if it is another kind of record, or of another form."""
    place = _places.get(key) or _place_of(key)
    if place is None or len(value) < VALUE_HEAD_BYTES + 9:
        return None
    version, offset, leader_epoch, length, commit_ms = _unpack_bare_value(value)
    time_at = VALUE_HEAD_BYTES + length - 1
    if version != OFFSET_COMMIT_VERSION or length < 1 or not _ends_as_usual(value, time_at + 8):
        return None
    try:
        return OffsetOfRecord(
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


def _place_of(key: bytes) -> Place | None:
    """What a key of this kind says; None if it is another one."""
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


def _ends_as_usual(value: bytes, position: int) -> bool:
    """Behind the time stands nothing but the topic id, if that."""
    rest = len(value) - position
    if rest == ID_BYTES:
        return value[position : position + 3] == ID_HEAD
    return rest == 1 and value[position:] == VALUE_END


def offset_of(key: Any, value: Any) -> OffsetOfRecord:
    """The same of messages, for records of every form."""
    return OffsetOfRecord(
        key.group,
        key.topic,
        key.partition,
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
    )

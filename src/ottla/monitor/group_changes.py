"""What one record of `__consumer_offsets` changes in what a monitor knows. Pure.

Groups of both protocols write there: offsets (kinds 0 and 1), classic groups with all members in one record (2),
members of the new protocol (5) and what each of them reads now, by ids of topics (8). All else changes nothing here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.monitor.evaluation import Commit
from ottla.monitor.members import Member, NewMember
from ottla.monitor.store import Store
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.messages import consumer_protocol
from ottla.protocol.messages.group_records import GROUP_RECORDS
from ottla.protocol.schema import layout_of

TOPIC: Final = "__consumer_offsets"
OFFSET_KINDS: Final = (0, 1)
CLASSIC_GROUP, MEMBER, ASSIGNMENT = 2, 5, 8
KEY_VERSION: Final = 0

_NUMBER = struct.Struct(">h")


class Committed(NamedTuple):
    """An offset; None where it was deleted."""

    group: str
    partition: TopicPartition
    commit: Commit | None


class ClassicGroup(NamedTuple):
    """A classic group with all that it has; no members where it is empty or gone."""

    group: str
    members: Sequence[Member]


Change = Committed | ClassicGroup | NewMember


def read_change(key: bytes | None, value: bytes | None, order: int) -> Change | None:
    """None: it changes nothing here, or is damaged, which is no reason to stop reading."""
    try:
        kind = _leading_number(key or b"")
        reader = _READERS.get(kind)
        if reader is None:
            return None
        record = GROUP_RECORDS[kind]
        decoded: Any = decode(record.key, KEY_VERSION, memoryview(key or b""), _NUMBER.size)[0]
        return reader(decoded, _value(record.value, value), order)
    except ValueError:  # a damaged record says nothing
        return None


def apply_change(store: Store, change: Change, now_ms: int) -> None:
    if isinstance(change, Committed):
        if change.commit is None:
            store.forget_commit(change.group, change.partition)
        else:
            store.add_commit(change.group, change.partition, change.commit, now_ms)
    elif isinstance(change, ClassicGroup):
        store.members.set_classic(change.group, change.members)
    else:
        store.members.apply(change)


def _offset(key: Any, value: Any, order: int) -> Change:
    partition = TopicPartition(key.topic, key.partition)
    if value is None:
        return Committed(key.group, partition, None)
    return Committed(key.group, partition, Commit(value.offset, value.commit_timestamp, None, order))


def _classic(key: Any, value: Any, _order: int) -> Change | None:
    if value is None:
        return ClassicGroup(key.group, ())
    if value.protocol_type not in (consumer_protocol.CONSUMER, ""):
        return None
    return ClassicGroup(
        key.group,
        [Member(member.client_id, member.client_host, _assigned(bytes(member.assignment))) for member in value.members],
    )


def _member(key: Any, value: Any, _order: int) -> Change:
    if value is None:
        return NewMember(key.group_id, key.member_id, is_gone=True)
    return NewMember(key.group_id, key.member_id, client=(value.client_id, value.client_host))


def _assignment(key: Any, value: Any, _order: int) -> Change:
    if value is None:
        return NewMember(key.group_id, key.member_id, is_gone=True)
    pairs = [(topic.topic_id, number) for topic in value.assigned_partitions for number in topic.partitions]
    return NewMember(key.group_id, key.member_id, assigned=pairs)


_READERS: Final[dict[int, Callable[[Any, Any, int], Change | None]]] = {
    **dict.fromkeys(OFFSET_KINDS, _offset),
    CLASSIC_GROUP: _classic,
    MEMBER: _member,
    ASSIGNMENT: _assignment,
}


def _assigned(data: bytes) -> list[TopicPartition]:
    """Clients write this themselves: what makes no sense counts as nothing."""
    if not data:
        return []
    try:
        assignment = consumer_protocol.read_versioned(consumer_protocol.Assignment, data)
    except ProtocolError:
        return []
    return [TopicPartition(item.topic, number) for item in assignment.assigned_partitions for number in item.partitions]


def _value(cls: type, value: bytes | None) -> Any:
    if value is None:
        return None
    version = _leading_number(value)
    if not 0 <= version <= layout_of(cls).max_version:
        raise ProtocolError(f"{cls.__name__} with version {version}")
    return decode(cls, version, memoryview(value), _NUMBER.size)[0]


def _leading_number(data: bytes) -> int:
    if len(data) < _NUMBER.size:
        raise ProtocolError("the bytes end inside a version")
    number: int = _NUMBER.unpack_from(data)[0]
    return number

"""Changes of the monitor's state by records of `__consumer_offsets`. Pure.

Relevant records of both protocols: offset commits (types 0 and 1), classic groups with all members (2), members of
consumer groups (5), and their current assignments by topic ID (8). All others are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.groups import assigned_partitions
from ottla.monitor.lag_evaluation import Commit
from ottla.monitor.offset_store import ClassicMember, MemberChange, OffsetStore
from ottla.operations.records.coordinator_records import UnknownRecordError, read_record
from ottla.protocol.messages.consumer_groups import CONSUMER
from ottla.protocol.messages.coordinator_records import GROUP_RECORDS

TOPIC: Final = "__consumer_offsets"
OFFSET_KINDS: Final = (0, 1)
CLASSIC_GROUP, MEMBER, ASSIGNMENT = 2, 5, 8


class CommittedOffset(NamedTuple):
    """A committed offset; `commit` is None if it was deleted."""

    group: str
    partition: TopicPartition
    commit: Commit | None


class ClassicGroup(NamedTuple):
    """A classic group with its members; none if it is empty or deleted."""

    group: str
    members: Sequence[ClassicMember]


Change = CommittedOffset | ClassicGroup | MemberChange


def read_change(key: bytes | None, value: bytes | None, order: int) -> Change | None:
    """The change of one record; None if it is irrelevant or damaged."""
    if key is None or (reader := _READERS.get(int.from_bytes(key[:2], "big"))) is None:
        return None
    try:
        record = read_record(GROUP_RECORDS, key, value)
        return reader(record.key, record.value, order)
    except (UnknownRecordError, ValueError):  # damaged records are ignored
        return None


def apply_change(store: OffsetStore, change: Change, now_ms: int) -> None:
    if isinstance(change, CommittedOffset):
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
        return CommittedOffset(key.group, partition, None)
    return CommittedOffset(key.group, partition, Commit(value.offset, value.commit_timestamp, None, order))


def _classic(key: Any, value: Any, _order: int) -> Change | None:
    if value is None:
        return ClassicGroup(key.group, ())
    if value.protocol_type not in (CONSUMER, ""):
        return None
    return ClassicGroup(
        key.group,
        [
            ClassicMember(member.client_id, member.client_host, assigned_partitions(bytes(member.assignment)))
            for member in value.members
        ],
    )


def _member(key: Any, value: Any, _order: int) -> Change:
    if value is None:
        return MemberChange(key.group_id, key.member_id, has_left=True)
    return MemberChange(key.group_id, key.member_id, client=(value.client_id, value.client_host))


def _assignment(key: Any, value: Any, _order: int) -> Change:
    if value is None:
        return MemberChange(key.group_id, key.member_id, has_left=True)
    pairs = [(topic.topic_id, number) for topic in value.assigned_partitions for number in topic.partitions]
    return MemberChange(key.group_id, key.member_id, assigned=pairs)


_READERS: Final[dict[int, Callable[[Any, Any, int], Change | None]]] = {
    **dict.fromkeys(OFFSET_KINDS, _offset),
    CLASSIC_GROUP: _classic,
    MEMBER: _member,
    ASSIGNMENT: _assignment,
}

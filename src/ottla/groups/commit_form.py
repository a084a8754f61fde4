"""Commits of a member that look like the one before: no message classes. Compiled with mypyc where possible.

A member commits the same partitions of a topic again and again, and its requests differ in nothing but the offsets. The
message classes say what the first of them means, what is written for it and how it is answered; another one that has
the very same bytes around its offsets means the same. Only the offsets themselves are read here, where they stand.

Whatever differs in any other way (another generation, other partitions, metadata, unknown tagged fields) goes the way
of all requests.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.coordination.machine import Record
from ottla.groups.offset_records import VALUE_VERSION, kept_key
from ottla.protocol.codec import encode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

SINCE: Final = 6  # with leader epochs
FLEXIBLE_SINCE: Final = 8
ROW_BYTES: Final = 18  # of a partition without metadata: index, numbers, two bytes more
INDEX_BYTES: Final = 4
NUMBERS_BYTES: Final = 12  # offset and leader epoch, as the value of a record has them, too
TAIL_BYTES: Final = 2  # since version 8: how many tagged fields the topic and the request have
ROWS_MAX: Final = 100
TRIES_APART: Final = 16  # commits

_new_tuple: Final = tuple.__new__  # a NamedTuple's own way takes four times as long


class CommitForm:
    """What the commits of one member have in common."""

    def __init__(
        self, request: OffsetCommitRequest, topic: OffsetCommitRequestTopic, version: int, body: bytes
    ) -> None:
        """`body` is this request, and nothing else. Its topic has its name and its id, its partitions exist."""
        indexes: list[int] = [row.partition_index for row in topic.partitions]
        self.version = version
        self.group_id: str = request.group_id
        self.generation: int = request.generation_id_or_member_epoch
        self.member_id: str = request.member_id
        self.instance_id: str | None = request.group_instance_id
        self.topics: list[OffsetCommitRequestTopic] = request.topics
        self.topic: str = topic.name
        self.topic_id: UUID = topic.topic_id
        self.index_max = max(indexes)
        self.fixed = fixed_parts(body, len(indexes), TAIL_BYTES if version >= FLEXIBLE_SINCE else 0)
        self.body_bytes = len(body)
        self.keys = [kept_key(self.group_id, self.topic, index) for index in indexes]
        self.answer = bytes(encode(all_well(topic), version))

    def numbers_in(self, body: bytes, version: int) -> list[bytes] | None:
        """Offset and leader epoch of each partition, if this is a commit of the same form."""
        if len(body) != self.body_bytes or version != self.version:
            return None
        found: list[bytes] = []
        at = 0
        for part in self.fixed:
            end = at + len(part)
            if body[at:end] != part:
                return None
            at = end + NUMBERS_BYTES
            found.append(body[end:at])
        found.pop()  # there is nothing behind the last part
        return found

    def records(self, numbers: list[bytes], end: bytes) -> list[Record]:
        """`end`: bare_value_end() of this moment and topic."""
        keys = self.keys
        records: list[Record] = []
        for row in range(len(numbers)):
            record: Record = _new_tuple(Record, (keys[row], VALUE_VERSION + numbers[row] + end))
            records.append(record)
        return records

    def __repr__(self) -> str:
        return f"<CommitForm {self.group_id} {self.topic}, {len(self.keys)} partitions>"


class CommitHabit:
    """The form of the commits that come over one connection, as far as they have one."""

    def __init__(self) -> None:
        self.form: CommitForm | None = None
        self.is_used = False  # since it was last looked for
        self._misses = 0

    def is_worth_a_look(self) -> bool:
        """Asked when a commit has not the form: whoever never commits the same twice is seldom looked at in vain."""
        is_worth = self.is_used or self._misses % TRIES_APART == 0
        self._misses += 1
        self.is_used = False
        return is_worth

    def __repr__(self) -> str:
        return f"<CommitHabit {self.form!r}>"


def may_have_form(request: OffsetCommitRequest, version: int, body: bytes) -> bool:
    """Whether this is a member's commit of few partitions of one topic, without metadata, and nothing unknown."""
    if version < SINCE or request.generation_id_or_member_epoch < 0 or len(request.topics) != 1:
        return False
    rows = request.topics[0].partitions
    if not 0 < len(rows) <= ROWS_MAX or any(row.committed_metadata for row in rows):
        return False
    return bytes(encode(request, version)) == body


def fixed_parts(body: bytes, rows: int, tail_bytes: int) -> list[bytes]:
    """What stands before, between and behind the numbers."""
    parts = []
    start = 0
    first = len(body) - tail_bytes - rows * ROW_BYTES + INDEX_BYTES
    for at in range(first, first + rows * ROW_BYTES, ROW_BYTES):
        parts.append(body[start:at])
        start = at + NUMBERS_BYTES
    return [*parts, body[start:]]


def all_well(topic: OffsetCommitRequestTopic) -> OffsetCommitResponse:
    rows = [OffsetCommitResponsePartition(partition_index=row.partition_index) for row in topic.partitions]
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)]
    )

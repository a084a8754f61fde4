"""Fast path for offset commits that repeat the previous one except for the offsets. Compiled with mypyc where possible.

A member commits the same partitions of a topic repeatedly, and its requests differ only in offsets and leader epochs.
The first request is decoded by the message classes and becomes a template. A later request with the same bytes around
its offsets is not decoded: the offsets are copied from their positions into the records.

A request that differs in any other way (generation, partitions, metadata, unknown tagged fields) is decoded.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.coordination.machine import Record
from ottla.groups.coordinator_records import VALUE_VERSION, cached_offset_key
from ottla.protocol.codec import encode
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSION_MIN: Final = 6  # with leader epochs
FLEXIBLE_VERSION_MIN: Final = 8
PARTITION_BYTES: Final = 18  # of a partition without metadata: index, offset and epoch, two more bytes
INDEX_BYTES: Final = 4
OFFSET_FIELDS_BYTES: Final = 12  # offset and leader epoch, in the same form as in the value of a record
TAGGED_FIELDS_BYTES: Final = 2  # since version 8: the counts of tagged fields of the topic and the request
PARTITIONS_MAX: Final = 100
COMMITS_BETWEEN_ATTEMPTS: Final = 16  # commits

_new_tuple: Final = tuple.__new__  # a NamedTuple's own constructor takes four times as long


class CommitTemplate:
    """The constant parts of one member's commits."""

    def __init__(
        self, request: OffsetCommitRequest, topic: OffsetCommitRequestTopic, version: int, body: bytes
    ) -> None:
        """`body` is exactly this request. The topic has both name and id, and its partitions exist."""
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
        self.fixed_parts = split_fixed_parts(
            body, len(indexes), TAGGED_FIELDS_BYTES if version >= FLEXIBLE_VERSION_MIN else 0
        )
        self.body_bytes = len(body)
        self.keys = [cached_offset_key(self.group_id, self.topic, index) for index in indexes]
        self.response_body = bytes(encode(success_response(topic), version))

    def offset_fields_in(self, body: bytes, version: int) -> list[bytes] | None:
        """Return the bytes of offset and leader epoch of each partition; None if the request does not match."""
        if len(body) != self.body_bytes or version != self.version:
            return None
        found: list[bytes] = []
        at = 0
        for part in self.fixed_parts:
            end = at + len(part)
            if body[at:end] != part:
                return None
            at = end + OFFSET_FIELDS_BYTES
            found.append(body[end:at])
        found.pop()  # no offset follows the last part
        return found

    def records(self, offset_fields: list[bytes], value_suffix: bytes) -> list[Record]:
        """Return the records. `end` is the result of bare_value_end() for this commit time and topic."""
        keys = self.keys
        records: list[Record] = []
        for row in range(len(offset_fields)):
            record: Record = _new_tuple(Record, (keys[row], VALUE_VERSION + offset_fields[row] + value_suffix))
            records.append(record)
        return records

    def __repr__(self) -> str:
        return f"<CommitTemplate {self.group_id} {self.topic}, {len(self.keys)} partitions>"


class CommitTemplateCache:
    """The template of the commits of one connection, if there is one."""

    def __init__(self) -> None:
        self.template: CommitTemplate | None = None
        self.is_used = False  # since the last attempt to build one
        self._misses = 0

    def should_build_template(self) -> bool:
        """Return whether to build a template after a commit that does not match.

        Attempts are rare for clients whose commits never repeat.
        """
        is_worth = self.is_used or self._misses % COMMITS_BETWEEN_ATTEMPTS == 0
        self._misses += 1
        self.is_used = False
        return is_worth

    def __repr__(self) -> str:
        return f"<CommitTemplateCache {self.template!r}>"


def can_be_template(request: OffsetCommitRequest, version: int, body: bytes) -> bool:
    """Return whether this is a member's commit of few partitions of one topic, without metadata or unknown fields."""
    if version < VERSION_MIN or request.generation_id_or_member_epoch < 0 or len(request.topics) != 1:
        return False
    rows = request.topics[0].partitions
    if not 0 < len(rows) <= PARTITIONS_MAX or any(row.committed_metadata for row in rows):
        return False
    return bytes(encode(request, version)) == body


def split_fixed_parts(body: bytes, rows: int, tail_bytes: int) -> list[bytes]:
    """Return the bytes before, between and after the offsets."""
    parts = []
    start = 0
    first = len(body) - tail_bytes - rows * PARTITION_BYTES + INDEX_BYTES
    for at in range(first, first + rows * PARTITION_BYTES, PARTITION_BYTES):
        parts.append(body[start:at])
        start = at + OFFSET_FIELDS_BYTES
    return [*parts, body[start:]]


def success_response(topic: OffsetCommitRequestTopic) -> OffsetCommitResponse:
    rows = [OffsetCommitResponsePartition(partition_index=row.partition_index) for row in topic.partitions]
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)]
    )

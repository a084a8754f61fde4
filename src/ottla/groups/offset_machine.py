"""The half of the group coordinator's machine that is about offsets: commits, their deletion, their expiry.

Who may commit: members, in their generation or epoch; anybody else only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from ottla.base.errors import Error
from ottla.coordination.machine import RECORD_BYTES_MORE, Decision, Record, Reply, ReplyTo, Stamp, in_pieces
from ottla.groups.classic import ClassicGroups
from ottla.groups.classic_answers import check_member
from ottla.groups.classic_group import ClassicGroup, State
from ottla.groups.commit_form import CommitForm
from ottla.groups.consumer import MEMBER_EPOCHS_SINCE, ConsumerGroups
from ottla.groups.consumer_group import ConsumerGroup
from ottla.groups.consumer_plan import FindTopics
from ottla.groups.consumer_records import forget_group
from ottla.groups.offset_records import bare_value_end, commit_record, offset_tombstone
from ottla.groups.offsets import Committed, Offsets, committed
from ottla.groups.records import group_tombstone
from ottla.groups.settings import GroupSettings
from ottla.groups.subscription import subscribed_topics
from ottla.protocol.messages.consumer_protocol import CONSUMER
from ottla.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.transaction_steps import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema import ZERO_UUID

NONE: Final = Error.NONE  # looked up once: an enumeration takes its time to find its members
FORGOTTEN_AT_ONCE: Final = 200
LOOKED_AT_AT_ONCE: Final = 1_000  # groups
COMPLETING_REBALANCE: Final = State.COMPLETING_REBALANCE
_new: Final = object.__new__
_new_tuple: Final = tuple.__new__  # a NamedTuple's own way takes four times as long

Refused = dict[tuple[str, int], Error]
"""Partitions (topic, index) of a request that the handler does not let pass."""


class OffsetMachine:
    """Offsets of the groups of one partition; the groups themselves are looked after in machine.py."""

    def __init__(self, settings: GroupSettings, find_topics: FindTopics) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.classic = ClassicGroups(self.groups, settings)
        self.consumer = ConsumerGroups(settings, find_topics)
        self.made_at = 0  # after how many changes to topics; whoever counts them says so
        self._end_ms, self._end_topic_id, self._end = -1, ZERO_UUID, b""  # of the last value that was written

    @property
    def settings(self) -> GroupSettings:
        return self.classic.settings

    # ---- commits

    def commit(
        self, request: OffsetCommitRequest, reply_to: ReplyTo, now_ms: int, version: int = MEMBER_EPOCHS_SINCE
    ) -> Decision:
        """OffsetCommit, by members and by those who assign partitions to themselves. All topics have names and ids."""
        group_id: str = request.group_id
        generation = request.generation_id_or_member_epoch
        error = self._commit_problem(
            group_id, generation, request.member_id, request.group_instance_id, request.topics, version
        )
        records: list[Record] = []
        topics = []
        for topic in request.topics:
            rows = []
            name, topic_id = topic.name, topic.topic_id
            for row in topic.partitions:
                index = row.partition_index
                metadata = row.committed_metadata or ""
                row_error = self._metadata_problem(metadata) if metadata and error is NONE else error
                if row_error is NONE:
                    offset, epoch = row.committed_offset, row.committed_leader_epoch
                    records.append(commit_record(group_id, name, index, offset, epoch, metadata, now_ms, topic_id))
                rows.append(_answered_row(index, row_error))
            topics.append(_answered_topic(name, topic_id, rows))
        group = self.groups.get(group_id)
        if group is not None and error is NONE:
            self.classic.seen(group, request.member_id, now_ms)
        reply: Reply = _new_tuple(Reply, (reply_to, OffsetCommitResponse(topics=topics)))
        return Decision(records, [reply])

    def commit_alike(self, form: CommitForm, numbers: list[bytes], reply_to: ReplyTo, now_ms: int) -> Decision | None:
        """The same for one of a known form; its answer is an error code. None: there is something against it."""
        member_id = form.member_id
        error = self._commit_problem(
            form.group_id, form.generation, member_id, form.instance_id, form.topics, form.version
        )
        if error is not NONE:
            return None
        group = self.groups.get(form.group_id)
        if group is not None:
            self.classic.seen(group, member_id, now_ms)
        if now_ms != self._end_ms or form.topic_id is not self._end_topic_id:
            self._end_ms, self._end_topic_id = now_ms, form.topic_id
            self._end = bare_value_end(now_ms, form.topic_id)
        reply: Reply = _new_tuple(Reply, (reply_to, NONE))
        return Decision(form.records(numbers, self._end), [reply])

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, refused: Refused, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        """TxnOffsetCommit: pending until the marker of the transaction is in the log."""
        error = self._transactional_problem(request)
        decision = Decision(stamp=Stamp(request.producer_id, request.producer_epoch))
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                metadata = row.committed_metadata or ""
                row_error = refused.get((topic.name, row.partition_index)) or error or self._metadata_problem(metadata)
                if row_error is Error.NONE:
                    offset, epoch = row.committed_offset, row.committed_leader_epoch
                    decision.records.append(
                        commit_record(
                            request.group_id, topic.name, row.partition_index, offset, epoch, metadata, now_ms
                        )
                    )
                rows.append(TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=row_error))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        decision.replies.append(Reply(reply_to, TxnOffsetCommitResponse(topics=topics)))
        return decision

    def _metadata_problem(self, metadata: str) -> Error:
        is_long = len(metadata) > self.settings.offset_metadata_bytes_max
        return Error.OFFSET_METADATA_TOO_LARGE if is_long else Error.NONE

    def _commit_problem(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        topics: list[OffsetCommitRequestTopic],
        version: int,
    ) -> Error:
        consumer_group = self.consumer.groups.get(group_id)
        if consumer_group is not None:
            return self.consumer.commit_problem(consumer_group, member_id, generation, _places(topics), version)
        group = self.groups.get(group_id)
        if group is None:
            unknown = Error.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCHS_SINCE else Error.ILLEGAL_GENERATION
            return Error.NONE if generation < 0 else unknown
        if generation < 0 and group.state is State.EMPTY:
            return Error.NONE
        if _claims_nothing(generation, member_id, instance_id):
            return Error.UNKNOWN_MEMBER_ID
        error = _generation_problem(group, member_id, instance_id, generation)
        if error is NONE and group.state is COMPLETING_REBALANCE:
            error = Error.REBALANCE_IN_PROGRESS
        return error

    def _transactional_problem(self, request: TxnOffsetCommitRequest) -> Error:
        """A producer that says which member it commits for must be of the current generation (KIP-447)."""
        generation, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
        group = self.groups.get(request.group_id)
        consumer_group = self.consumer.groups.get(request.group_id)
        if _claims_nothing(generation, member_id, instance_id):
            return Error.NONE
        if consumer_group is not None:
            return self.consumer.commit_problem(consumer_group, member_id, generation, ())
        if group is None:
            return Error.NONE if generation < 0 else Error.ILLEGAL_GENERATION
        if generation < 0 and group.state is State.EMPTY:
            return Error.NONE
        return _generation_problem(group, member_id, instance_id, generation)

    def fetch_problem(self, group_id: str, member_id: str | None, member_epoch: int) -> Error:
        """Whether who asks for offsets may have them (OffsetFetch v9)."""
        group = self.consumer.groups.get(group_id)
        return Error.NONE if group is None else self.consumer.fetch_problem(group, member_id, member_epoch)

    # ---- deletion

    def delete_offsets(self, request: OffsetDeleteRequest, refused: Refused, reply_to: ReplyTo) -> Decision:
        """OffsetDelete: what the group does not read now."""
        group = self.groups.get(request.group_id)
        consumer_group = self.consumer.groups.get(request.group_id)
        if group is None and consumer_group is None:
            return _all_refused(Error.GROUP_ID_NOT_FOUND, reply_to)
        if group is not None and group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            return _all_refused(Error.NON_EMPTY_GROUP, reply_to)
        decision = Decision()
        topics = []
        reads = self._reads(request.group_id)
        for topic in request.topics:
            is_read = reads is None or topic.name in reads
            verdict = Error.GROUP_SUBSCRIBED_TO_TOPIC if is_read else Error.NONE
            errors = {
                row.partition_index: refused.get((topic.name, row.partition_index), verdict) for row in topic.partitions
            }
            allowed = [index for index, error in errors.items() if error is Error.NONE]
            decision.records += self._forgotten(request.group_id, topic.name, allowed)
            rows = [OffsetDeleteResponsePartition(partition_index=row, error_code=errors[row]) for row in errors]
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
        decision.replies.append(Reply(reply_to, OffsetDeleteResponse(topics=topics)))
        return decision

    def _reads(self, group_id: str) -> set[str] | None:
        """The topics that the group's members read; None if nobody knows."""
        consumer_group = self.consumer.groups.get(group_id)
        if consumer_group is not None:
            return consumer_group.subscribed_topics()
        group = self.groups[group_id]
        return set() if group.state is State.EMPTY else subscribed_topics(group)

    def _forgotten(self, group_id: str, topic: str, partitions: Iterable[int]) -> list[Record]:
        return [
            offset_tombstone(group_id, topic, partition)
            for partition in partitions
            if self.offsets.get(group_id, topic, partition) is not None
            or self.offsets.is_pending(group_id, topic, partition)
        ]

    def topics_deleted(self, names: Container[str], bytes_max: int) -> Iterator[Decision]:
        """Offsets of a topic go with it: a new topic of the same name begins at its own beginning.

        There may be a million, so these are decisions to be run one after the other, each of a fraction of a
        millisecond, and with no more records than `bytes_max`: others may have their turn in between. One without
        records has looked at many groups in vain.
        """
        records: list[Record] = []
        size_bytes = 0
        for looked_at, (group_id, topics) in enumerate(self.offsets.all_groups(), 1):
            for topic in [topic for topic in topics if topic in names]:
                for partition in list(topics.get(topic, ())):
                    record = offset_tombstone(group_id, topic, partition)
                    record_bytes = len(record.key) + RECORD_BYTES_MORE
                    if len(records) == FORGOTTEN_AT_ONCE or size_bytes + record_bytes > bytes_max:
                        yield Decision(records)
                        records, size_bytes = [], 0
                    records.append(record)
                    size_bytes += record_bytes
            if looked_at % LOOKED_AT_AT_ONCE == 0:
                yield Decision(records)
                records, size_bytes = [], 0
        yield Decision(records)

    def some_forgotten(self, group_id: str, at_most: int) -> tuple[list[Record], bool]:
        """Of what a group has committed, or is about to; and whether that is all of it."""
        places = list(islice(self.offsets.places_of(group_id), at_most))
        return [offset_tombstone(*place) for place in dict.fromkeys(places)], len(places) < at_most

    # ---- expiry

    def expire(self, now_ms: int) -> list[Decision]:
        """Offsets that nobody uses any more, and groups that have neither members nor offsets left."""
        decisions = []
        for group_id, group in list(self.groups.items()):
            records = self._expired_offsets(group, now_ms)
            kept = sum(map(len, self.offsets.topics(group_id).values())) - len(records)
            has_pending = kept > 0 or (self.offsets.has_any(group_id) and not self.offsets.topics(group_id))
            if group.state is State.EMPTY and not has_pending and not group.announced:
                records.append(group_tombstone(group_id))
            if records:
                decisions += in_pieces(records)
        for consumer_group in list(self.consumer.groups.values()):
            records = self._expired_of_consumers(consumer_group, now_ms)
            if records:
                decisions += in_pieces(records)
        return decisions

    def _expired_of_consumers(self, group: ConsumerGroup, now_ms: int) -> list[Record]:
        """Offsets of topics that nobody of the group reads any more; the group goes with its last offset."""
        subscribed = group.subscribed_topics()
        topics = self.offsets.topics(group.group_id)
        records = [
            offset_tombstone(group.group_id, topic, partition)
            for topic, partitions in topics.items()
            if topic not in subscribed
            for partition, kept in partitions.items()
            if now_ms - committed(kept).commit_ms >= self.settings.offsets_retention_ms
            and not self.offsets.is_pending(group.group_id, topic, partition)
        ]
        if not group.members and len(records) == sum(map(len, topics.values())) and records:
            records += forget_group(group)
        return records

    def _expired_offsets(self, group: ClassicGroup, now_ms: int) -> list[Record]:
        subscribed: set[str] | None = set()
        if group.state is not State.EMPTY:
            subscribed = subscribed_topics(group) if group.state is State.STABLE else None
            if subscribed is None:
                return []
        return [
            offset_tombstone(group.group_id, topic, partition)
            for topic, partitions in self.offsets.topics(group.group_id).items()
            if topic not in (subscribed or ())
            for partition, kept in partitions.items()
            if self._has_expired(group, committed(kept), now_ms)
            and not self.offsets.is_pending(group.group_id, topic, partition)
        ]

    def _has_expired(self, group: ClassicGroup, commit: Committed, now_ms: int) -> bool:
        """A group that had members counts from when the last one left, others from the commit itself (KIP-211)."""
        if commit.expire_ms >= 0:
            return now_ms >= commit.expire_ms
        had_members = group.state is State.EMPTY and group.protocol_type is not None
        since_ms = group.state_since_ms if had_members else commit.commit_ms
        return now_ms - since_ms >= self.settings.offsets_retention_ms


def _places(topics: list[OffsetCommitRequestTopic]) -> Iterator[tuple[UUID, int]]:
    for topic in topics:
        for row in topic.partitions:
            yield topic.topic_id, row.partition_index


def _answered_row(index: int, error: Error) -> OffsetCommitResponsePartition:
    """As its constructor makes it, which takes three times as long with its keywords: every commit needs one."""
    row: OffsetCommitResponsePartition = _new(OffsetCommitResponsePartition)
    row.partition_index, row.error_code = index, error
    return row


def _answered_topic(name: str, topic_id: UUID, rows: list[OffsetCommitResponsePartition]) -> OffsetCommitResponseTopic:
    topic: OffsetCommitResponseTopic = _new(OffsetCommitResponseTopic)
    topic.name, topic.topic_id, topic.partitions = name, topic_id, rows
    return topic


def _claims_nothing(generation: int, member_id: str, instance_id: str | None) -> bool:
    return generation < 0 and not member_id and instance_id is None


def _generation_problem(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Error:
    error = check_member(group, member_id, instance_id)
    if error is NONE and generation != group.generation:
        return Error.ILLEGAL_GENERATION
    return error


def _all_refused(error: Error, reply_to: ReplyTo) -> Decision:
    return Decision(replies=[Reply(reply_to, OffsetDeleteResponse(error_code=error))])

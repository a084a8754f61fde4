"""The half of the group coordinator's machine that is about offsets: who may commit, and delete, which of them.

Who may commit: members, in their generation or epoch; anybody else only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from ottla.base.errors import Error
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo, Stamp
from ottla.groups.classic import ClassicGroups
from ottla.groups.classic_answers import check_member
from ottla.groups.classic_group import ClassicGroup, State
from ottla.groups.commit_form import CommitForm
from ottla.groups.consumer import MEMBER_EPOCHS_SINCE, ConsumerGroups
from ottla.groups.consumer_plan import FindTopics
from ottla.groups.offset_records import bare_value_end, commit_record, offset_tombstone
from ottla.groups.offsets import Offsets
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

    def some_forgotten(self, group_id: str, at_most: int) -> tuple[list[Record], bool]:
        """Of what a group has committed, or is about to; and whether that is all of it."""
        places = list(islice(self.offsets.places_of(group_id), at_most))
        return [offset_tombstone(*place) for place in dict.fromkeys(places)], len(places) < at_most


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

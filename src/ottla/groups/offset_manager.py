"""Offset requests of groups: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

Members commit in their generation or member epoch. A client that is not a member may commit only while the group has
no members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from ottla.base.errors import Error
from ottla.coordination.machine import Decision, Record, Reply, ReplyTo, TransactionalProducer
from ottla.groups.classic_group import ClassicGroup, ClassicGroupState, validate_member
from ottla.groups.classic_rebalance import ClassicGroups
from ottla.groups.commit_template import CommitTemplate
from ottla.groups.consumer_group import MEMBER_EPOCH_VERSION_MIN, ConsumerGroup, TopicCatalog
from ottla.groups.consumer_heartbeat import ConsumerGroups
from ottla.groups.coordinator_records import commit_record, offset_tombstone, plain_value_suffix
from ottla.groups.offsets import Offsets
from ottla.groups.settings import GroupSettings
from ottla.protocol.messages.consumer_groups import CONSUMER
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
from ottla.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.schema import ZERO_UUID

NONE: Final = Error.NONE  # a module constant, because the attribute lookup of an enumeration is slow
COMPLETING_REBALANCE: Final = ClassicGroupState.COMPLETING_REBALANCE
_new: Final = object.__new__
_new_tuple: Final = tuple.__new__  # a NamedTuple's own constructor takes four times as long

RefusedPartitions = dict[tuple[str, int], Error]
"""Partitions (topic, index) of a request that the handler refuses, with the error."""


class OffsetManager:
    """Decides about the offsets of the groups of one partition; the group coordinator owns the groups."""

    def __init__(self, classic: ClassicGroups, consumer: ConsumerGroups, catalog: Callable[[], TopicCatalog]) -> None:
        self.classic = classic
        self.consumer = consumer
        self.groups = classic.groups
        self.offsets = Offsets()
        self._catalog = catalog  # returns the current topics
        self._value_suffix_ms, self._value_suffix_topic_id, self._value_suffix = (
            -1,
            ZERO_UUID,
            b"",
        )  # of the last value that was written

    @property
    def settings(self) -> GroupSettings:
        return self.classic.settings

    # ---- commits

    def commit(
        self, request: OffsetCommitRequest, reply_to: ReplyTo, now_ms: int, version: int = MEMBER_EPOCH_VERSION_MIN
    ) -> Decision:
        """Handle OffsetCommit of members and of clients that assign partitions themselves.

        Topics have names and ids.
        """
        group_id: str = request.group_id
        generation = request.generation_id_or_member_epoch
        error = self._validate_commit(
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
                row_error = self._validate_metadata(metadata) if metadata and error is NONE else error
                if row_error is NONE:
                    offset, epoch = row.committed_offset, row.committed_leader_epoch
                    records.append(commit_record(group_id, name, index, offset, epoch, metadata, now_ms, topic_id))
                rows.append(_partition_response(index, row_error))
            topics.append(_topic_response(name, topic_id, rows))
        group = self.groups.get(group_id)
        if group is not None and error is NONE:
            self.classic.renew_session(group, request.member_id, now_ms)
        reply: Reply = _new_tuple(Reply, (reply_to, OffsetCommitResponse(topics=topics)))
        return Decision(records, [reply])

    def commit_from_template(
        self, template: CommitTemplate, offset_fields: list[bytes], reply_to: ReplyTo, now_ms: int
    ) -> Decision | None:
        """Handle a commit that matches a template; the reply is an error code. None if it is not accepted."""
        member_id = template.member_id
        error = self._validate_commit(
            template.group_id, template.generation, member_id, template.instance_id, template.topics, template.version
        )
        if error is not NONE:
            return None
        group = self.groups.get(template.group_id)
        if group is not None:
            self.classic.renew_session(group, member_id, now_ms)
        if now_ms != self._value_suffix_ms or template.topic_id is not self._value_suffix_topic_id:
            self._value_suffix_ms, self._value_suffix_topic_id = now_ms, template.topic_id
            self._value_suffix = plain_value_suffix(now_ms, template.topic_id)
        reply: Reply = _new_tuple(Reply, (reply_to, NONE))
        return Decision(template.records(offset_fields, self._value_suffix), [reply])

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, refused: RefusedPartitions, reply_to: ReplyTo, now_ms: int
    ) -> Decision:
        """Handle TxnOffsetCommit: the offsets are pending until the marker of the transaction is written."""
        error = self._validate_transactional_commit(request, refused)
        decision = Decision(stamp=TransactionalProducer(request.producer_id, request.producer_epoch))
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                metadata = row.committed_metadata or ""
                row_error = refused.get((topic.name, row.partition_index)) or error or self._validate_metadata(metadata)
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

    def _validate_metadata(self, metadata: str) -> Error:
        is_long = len(metadata) > self.settings.offset_metadata_bytes_max
        return Error.OFFSET_METADATA_TOO_LARGE if is_long else Error.NONE

    def _validate_commit(
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
            member = consumer_group.members.get(member_id)
            if member is not None and member.classic_metadata is None and version < MEMBER_EPOCH_VERSION_MIN:
                return Error.UNSUPPORTED_VERSION
            return consumer_group.validate_offset_commit(member_id, generation, _topic_id_partitions(topics))
        group = self.groups.get(group_id)
        if group is None:
            unknown = Error.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCH_VERSION_MIN else Error.ILLEGAL_GENERATION
            return Error.NONE if generation < 0 else unknown
        if generation < 0 and group.state is ClassicGroupState.EMPTY:
            return Error.NONE
        if _has_no_member_identity(generation, member_id, instance_id):
            return Error.UNKNOWN_MEMBER_ID
        error = _validate_generation(group, member_id, instance_id, generation)
        if error is NONE and group.state is COMPLETING_REBALANCE:
            error = Error.REBALANCE_IN_PROGRESS
        return error

    def _validate_transactional_commit(self, request: TxnOffsetCommitRequest, refused: RefusedPartitions) -> Error:
        """Return the error of a commit:

        a producer that commits for a group member needs the current generation (KIP-447).
        """
        generation, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
        group = self.groups.get(request.group_id)
        consumer_group = self.consumer.groups.get(request.group_id)
        if _has_no_member_identity(generation, member_id, instance_id):
            return Error.NONE
        if consumer_group is not None:
            return self._validate_consumer_group_commit(consumer_group, request, refused)
        if group is None:
            return Error.NONE if generation < 0 else Error.ILLEGAL_GENERATION
        if generation < 0 and group.state is ClassicGroupState.EMPTY:
            return Error.NONE
        return _validate_generation(group, member_id, instance_id, generation)

    def _validate_consumer_group_commit(
        self, group: ConsumerGroup, request: TxnOffsetCommitRequest, refused: RefusedPartitions
    ) -> Error:
        """Return the error of a TxnOffsetCommit, which has a generation instead of a member epoch, and topic names."""
        catalog = self._catalog()
        facts = {topic.name: catalog.topic(topic.name) for topic in request.topics}
        places = [
            (known.topic_id, row.partition_index)
            for topic in request.topics
            if (known := facts[topic.name]) is not None
            for row in topic.partitions
            if (topic.name, row.partition_index) not in refused
        ]
        error = group.validate_offset_commit(request.member_id, request.generation_id, places)
        return Error.ILLEGAL_GENERATION if error is Error.STALE_MEMBER_EPOCH else error

    def validate_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> Error:
        """Return the error of an OffsetFetch (member id and epoch since v9)."""
        group = self.consumer.groups.get(group_id)
        return Error.NONE if group is None else group.validate_offset_fetch(member_id, member_epoch)

    # ---- deletion

    def delete_offsets(self, request: OffsetDeleteRequest, refused: RefusedPartitions, reply_to: ReplyTo) -> Decision:
        """Handle OffsetDelete: delete offsets of topics that the group does not subscribe to."""
        group = self.groups.get(request.group_id)
        consumer_group = self.consumer.groups.get(request.group_id)
        if group is None and consumer_group is None:
            return _error_response(Error.GROUP_ID_NOT_FOUND, reply_to)
        if group is not None and group.state is not ClassicGroupState.EMPTY and group.protocol_type != CONSUMER:
            return _error_response(Error.NON_EMPTY_GROUP, reply_to)
        decision = Decision()
        topics = []
        reads = self._subscribed_topics(request.group_id)
        for topic in request.topics:
            is_read = reads is None or topic.name in reads
            verdict = Error.GROUP_SUBSCRIBED_TO_TOPIC if is_read else Error.NONE
            errors = {
                row.partition_index: refused.get((topic.name, row.partition_index), verdict) for row in topic.partitions
            }
            allowed = [index for index, error in errors.items() if error is Error.NONE]
            decision.records += self._tombstones(request.group_id, topic.name, allowed)
            rows = [OffsetDeleteResponsePartition(partition_index=row, error_code=errors[row]) for row in errors]
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
        decision.replies.append(Reply(reply_to, OffsetDeleteResponse(topics=topics)))
        return decision

    def _subscribed_topics(self, group_id: str) -> set[str] | None:
        """Return the topics that the group's members subscribe to; None if that is unknown."""
        consumer_group = self.consumer.groups.get(group_id)
        if consumer_group is not None:
            return consumer_group.subscribed_topics()
        group = self.groups[group_id]
        return set() if group.state is ClassicGroupState.EMPTY else group.subscribed_topics()

    def _tombstones(self, group_id: str, topic: str, partitions: Iterable[int]) -> list[Record]:
        return [
            offset_tombstone(group_id, topic, partition)
            for partition in partitions
            if self.offsets.get(group_id, topic, partition) is not None
            or self.offsets.is_pending(group_id, topic, partition)
        ]

    def some_tombstones(self, group_id: str, limit: int) -> tuple[list[Record], bool]:
        """Return tombstones for some committed and pending offsets of a group, and whether these are all."""
        places = list(islice(self.offsets.partitions_of(group_id), limit))
        return [offset_tombstone(*place) for place in dict.fromkeys(places)], len(places) < limit


def _topic_id_partitions(topics: list[OffsetCommitRequestTopic]) -> Iterator[tuple[UUID, int]]:
    for topic in topics:
        for row in topic.partitions:
            yield topic.topic_id, row.partition_index


def _partition_response(index: int, error: Error) -> OffsetCommitResponsePartition:
    """Create a response without the constructor, whose keyword arguments take three times as long."""
    row: OffsetCommitResponsePartition = _new(OffsetCommitResponsePartition)
    row.partition_index, row.error_code = index, error
    return row


def _topic_response(name: str, topic_id: UUID, rows: list[OffsetCommitResponsePartition]) -> OffsetCommitResponseTopic:
    topic: OffsetCommitResponseTopic = _new(OffsetCommitResponseTopic)
    topic.name, topic.topic_id, topic.partitions = name, topic_id, rows
    return topic


def _has_no_member_identity(generation: int, member_id: str, instance_id: str | None) -> bool:
    return generation < 0 and not member_id and instance_id is None


def _validate_generation(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> Error:
    error = validate_member(group, member_id, instance_id)
    if error is NONE and generation != group.generation:
        return Error.ILLEGAL_GENERATION
    return error


def _error_response(error: Error, reply_to: ReplyTo) -> Decision:
    return Decision(replies=[Reply(reply_to, OffsetDeleteResponse(error_code=error))])

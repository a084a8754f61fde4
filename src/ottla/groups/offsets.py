"""Committed offsets of groups, and pending ones of open transactions.

A transactional offset is pending until the transaction's marker is in the log. A later ordinary commit of the same
partition overrides an earlier transactional one: the order in the log decides.

A topic may be void up to a position in the log: earlier commits for it are not returned, although they stay in memory
and in the log until their tombstones are written (offset_expiration.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.groups.coordinator_records import NO_EXPIRY, GroupTopicPartition, OffsetCommitRecord

_new_tuple: Final = tuple.__new__  # a NamedTuple's own constructor takes four times as long
_pack: Final = Struct("<qiqqq").pack  # offset, leader epoch, times of the commit and of its expiry, order
_unpack: Final = Struct("<qiqqq").unpack_from
_unpack_sequence: Final = Struct("<q").unpack_from
SEQUENCE_POSITION: Final = 28
PACKED_BYTES_MIN: Final = 36  # without metadata


class OffsetAndMetadata(NamedTuple):
    """One committed offset: that of the next record to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # only set in records of Kafka before 2.1
    sequence: int = 0  # its position among all commits of this partition of the log


PackedOffset = bytes
"""A packed Committed. There may be millions: as objects they would take twice the memory, and the garbage collector
would visit them and pause the broker for 50 ms."""

Topics = dict[str, dict[int, PackedOffset]]


class Offsets:
    """All offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}  # by producer id
        self._sequence = 0
        self.deleted_topics: dict[str, int] = {}  # topic -> position up to which it is void

    # ---- reading

    def get(self, group: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics is not None else None
        kept = partitions.get(partition) if partitions is not None else None
        if kept is None or (self.deleted_topics and self.is_of_deleted_topic(topic, kept)):
            return None
        return unpack_offset(kept)

    def is_of_deleted_topic(self, topic: str, kept: PackedOffset) -> bool:
        place: int = _unpack_sequence(kept, SEQUENCE_POSITION)[0]
        return place <= self.deleted_topics.get(topic, 0)

    def topics(self, group: str) -> Topics:
        topics = self._groups.get(group, {})
        return self._without_deleted_topics(topics) if self.deleted_topics else topics

    def _without_deleted_topics(self, topics: Topics) -> Topics:
        found: Topics = {}
        for topic, partitions in topics.items():
            if topic in self.deleted_topics:
                counting = {
                    index: kept for index, kept in partitions.items() if not self.is_of_deleted_topic(topic, kept)
                }
            else:
                counting = partitions
            if counting:
                found[topic] = counting
        return found

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction may still change this offset."""
        return any(
            partition in groups.get(group, {}).get(topic, {}) for groups in self._pending.values() if group in groups
        )

    def has_offsets(self, group: str) -> bool:
        """Return whether the group has any committed or pending offset, void or not."""
        return bool(self._groups.get(group)) or any(group in groups for groups in self._pending.values())

    def all_groups(self) -> Iterator[tuple[str, Topics]]:
        """Yield all committed and pending offsets by group, void or not. Offsets may change during the iteration.

        Pending offsets come first: the end of a transaction moves them to the committed ones, never the other way.
        """
        for groups in [*self._pending.values(), self._groups]:
            for group in list(groups):
                topics = groups.get(group)
                if topics is not None:
                    yield group, topics

    def partitions_of(self, group: str) -> Iterator[GroupTopicPartition]:
        """Yield the partitions of all committed and pending offsets of a group, void or not; may have duplicates."""
        for groups in [self._groups, *self._pending.values()]:
            for topic, partitions in groups.get(group, {}).items():
                for partition in partitions:
                    yield group, topic, partition

    # ---- writing, in the order of the log

    def commit(self, found: OffsetCommitRecord) -> None:
        self._store(self._groups, found.group, found.topic, found.partition, self._pack_offset(found))

    def commit_pending(self, producer_id: int, found: OffsetCommitRecord) -> None:
        pending = self._pending.setdefault(producer_id, {})
        self._store(pending, found.group, found.topic, found.partition, self._pack_offset(found))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for group, topics in self._pending.pop(producer_id, {}).items():
            if is_commit:
                self._promote_pending(group, topics)

    def remove(self, group: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._groups.pop(group, None)
        for groups in self._pending.values():
            groups.get(group, {}).get(topic, {}).pop(partition, None)

    def mark_topic_deleted(self, topic: str) -> None:
        """Void all offsets of a topic. Pending ones are few and are removed at once: they would be committed later."""
        self.deleted_topics[topic] = self._sequence
        for groups in self._pending.values():
            for topics in groups.values():
                topics.pop(topic, None)

    def clear_deleted_topics(self, deleted_topics: dict[str, int]) -> None:
        """Record that the voided offsets of these topics, up to these positions, are removed."""
        for topic, place in deleted_topics.items():
            if self.deleted_topics.get(topic) == place:
                del self.deleted_topics[topic]

    def _promote_pending(self, group: str, topics: Topics) -> None:
        for topic, partitions in topics.items():
            for partition, kept in partitions.items():
                newest = self.get(group, topic, partition)
                if newest is None or newest.sequence < unpack_offset(kept).sequence:
                    self._store(self._groups, group, topic, partition, kept)

    def _pack_offset(self, found: OffsetCommitRecord) -> PackedOffset:
        self._sequence += 1
        kept: bytes = _pack(found.offset, found.leader_epoch, found.commit_ms, found.expire_ms, self._sequence)
        return kept + found.metadata.encode() if found.metadata else kept

    @staticmethod
    def _store(groups: dict[str, Topics], group: str, topic: str, partition: int, kept: PackedOffset) -> None:
        topics = groups.get(group)
        if topics is None:
            topics = groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = kept

    def __repr__(self) -> str:
        return f"<Offsets of {len(self._groups)} groups, {len(self._pending)} open transactions>"


def unpack_offset(kept: PackedOffset) -> OffsetAndMetadata:
    offset, leader_epoch, commit_ms, expire_ms, order = _unpack(kept)
    metadata = kept[PACKED_BYTES_MIN:].decode() if len(kept) > PACKED_BYTES_MIN else ""
    found: OffsetAndMetadata = _new_tuple(
        OffsetAndMetadata, (offset, leader_epoch, metadata, commit_ms, expire_ms, order)
    )
    return found

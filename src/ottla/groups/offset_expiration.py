"""Sweeps that delete offsets: expired ones and empty groups (KIP-211), and those of deleted topics.

Each sweep visits all groups of one partition, some offsets at a time (`Machine.sweep`). Compiled with mypyc where
possible.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ottla.coordination.batch import SweepBatch
from ottla.coordination.machine import Decision, Record
from ottla.groups.classic_group import ClassicGroup, ClassicGroupState
from ottla.groups.consumer_group_records import consumer_group_tombstones
from ottla.groups.coordinator_records import group_tombstone, offset_key, offset_tombstone
from ottla.groups.offset_manager import OffsetManager
from ottla.groups.offsets import OffsetAndMetadata, Offsets, PackedOffset, Topics


class ExpirationCondition:
    """The condition under which offsets of a group expire, while the group does not change."""

    def __init__(self, reads: set[str], since_ms: int | None) -> None:
        self.subscribed_topics = reads  # topics
        self.base_timestamp_ms = since_ms  # None: the commit time of each offset


class OffsetExpiration:
    """One sweep over all groups."""

    def __init__(self, manager: OffsetManager, now_ms: int, bytes_max: int) -> None:
        self._manager = manager
        self._now_ms = now_ms
        self._batch = SweepBatch(bytes_max)

    def decisions(self) -> Iterator[Decision]:
        manager, batch = self._manager, self._batch
        seen: list[tuple[str, bool]] = []  # groups, and whether they had offsets
        for group_id in [*manager.groups, *manager.consumer.groups]:
            if batch.is_full():
                yield batch.take()
                yield from self._delete_groups(seen)
                seen = []
            seen.append((group_id, manager.offsets.has_offsets(group_id)))
            yield from self._expire_offsets(group_id)
        yield batch.take()
        yield from self._delete_groups(seen)
        yield batch.take()

    def _expire_offsets(self, group_id: str) -> Iterator[Decision]:
        offsets, batch = self._manager.offsets, self._batch
        rule = self._condition(group_id)
        for topic, partitions in list(offsets.topics(group_id).items()):
            if rule is None or topic in rule.subscribed_topics:
                continue
            key_bytes = len(offset_key(group_id, topic, 0))
            for partition in list(partitions):
                if batch.is_full(key_bytes):
                    yield batch.take()
                    rule = self._condition(group_id)
                commit = offsets.get(group_id, topic, partition)
                if (
                    commit is None
                    or rule is None
                    or topic in rule.subscribed_topics
                    or not self._is_expired(commit, rule)
                ):
                    continue
                if not offsets.is_pending(group_id, topic, partition):
                    batch.add(offset_tombstone(group_id, topic, partition))

    def _delete_groups(self, seen: list[tuple[str, bool]]) -> Iterator[Decision]:
        """Delete those of these groups that are empty now; the tombstones of their offsets were yielded before."""
        batch = self._batch
        for group_id, had_offsets in seen:
            records = self._group_tombstones(group_id, had_offsets)
            if records and (batch.is_full() or not batch.fits(records)):
                yield batch.take()
                records = self._group_tombstones(group_id, had_offsets)
            for record in records:
                batch.add(record)

    def _condition(self, group_id: str) -> ExpirationCondition | None:
        """Return the condition; None if no offset of the group expires now."""
        consumer_group = self._manager.consumer.groups.get(group_id)
        if consumer_group is not None:
            return ExpirationCondition(consumer_group.subscribed_topics(), None)
        group = self._manager.groups.get(group_id)
        if group is None:
            return None
        if group.state is ClassicGroupState.EMPTY:
            return ExpirationCondition(set(), group.state_timestamp_ms if group.protocol_type is not None else None)
        reads = group.subscribed_topics() if group.state is ClassicGroupState.STABLE else None
        return ExpirationCondition(reads, None) if reads is not None else None

    def _is_expired(self, commit: OffsetAndMetadata, rule: ExpirationCondition) -> bool:
        """Return whether an offset is expired.

        Its retention starts when the last member left the group, or at the commit if the group never had members.
        """
        if commit.expire_ms >= 0:
            return self._now_ms >= commit.expire_ms
        since_ms = rule.base_timestamp_ms if rule.base_timestamp_ms is not None else commit.commit_ms
        return self._now_ms - since_ms >= self._manager.settings.offsets_retention_ms

    def _group_tombstones(self, group_id: str, had_offsets: bool) -> list[Record]:
        """Return the tombstones of an empty group. A consumer group is deleted only with its last offset."""
        manager = self._manager
        if manager.offsets.has_offsets(group_id):
            return []
        consumer_group = manager.consumer.groups.get(group_id)
        if consumer_group is not None:
            return consumer_group_tombstones(consumer_group) if had_offsets and not consumer_group.members else []
        group = manager.groups.get(group_id)
        return [group_tombstone(group_id)] if group is not None and is_deletable(group) else []


def is_deletable(group: ClassicGroup) -> bool:
    return group.state is ClassicGroupState.EMPTY and not group.pending_join_members


class DeletedTopicCleanup:
    """One sweep over all offsets that writes tombstones for those of deleted topics.

    In a void topic (offsets.py) only voided offsets are removed: a new topic with the same name may have others.
    """

    def __init__(self, offsets: Offsets, names: Container[str], bytes_max: int) -> None:
        """`names` are topics that do not exist. A name may be removed from it after the topic is void."""
        self._offsets = offsets
        self._names = names
        self._batch = SweepBatch(bytes_max)
        self._last: tuple[Topics, str, int, PackedOffset] | None = None  # in the batch
        self._is_complete = True  # whether all offsets that were void at the start are removed

    def decisions(self) -> Iterator[Decision]:
        offsets, batch, names = self._offsets, self._batch, self._names
        void = dict(offsets.deleted_topics)
        for group_id, topics in offsets.all_groups():
            if batch.is_full():
                yield batch.take()
                self._check_last_tombstone()
            for topic in [topic for topic in topics if topic in names or topic in offsets.deleted_topics]:
                key_bytes = len(offset_key(group_id, topic, 0))
                for partition in list(topics.get(topic, ())):
                    if batch.is_full(key_bytes):
                        yield batch.take()
                        self._check_last_tombstone()
                    self._visit(group_id, topics, topic, partition)
        yield batch.take()
        self._check_last_tombstone()
        if self._is_complete:
            offsets.clear_deleted_topics(void)

    def _visit(self, group_id: str, topics: Topics, topic: str, partition: int) -> None:
        kept = topics.get(topic, {}).get(partition)
        if kept is None:
            return
        if topic not in self._names:
            if not self._offsets.is_of_deleted_topic(topic, kept):
                return
            if self._offsets.is_pending(
                group_id, topic, partition
            ):  # the tombstone would also remove the pending offset
                self._is_complete = False
                return
        self._batch.add(offset_tombstone(group_id, topic, partition))
        self._last = topics, topic, partition, kept

    def _check_last_tombstone(self) -> None:
        """Record whether the last offset of the batch still exists: then the append of its tombstone was rejected."""
        if self._last is not None:
            topics, topic, partition, kept = self._last
            self._last = None
            if topics.get(topic, {}).get(partition) is kept:
                self._is_complete = False

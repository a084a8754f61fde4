"""Offsets that groups have committed, and those that wait inside open transactions.

An offset committed in a transaction is only pending until the transaction's marker is in the log. A later ordinary
commit of the same partition wins over an earlier transactional one: what counts is the place in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.groups.offset_records import NO_EXPIRY, OffsetOfRecord, Place

_new_tuple: Final = tuple.__new__  # a NamedTuple's own way takes four times as long


class Committed(NamedTuple):
    """One committed offset: the next to be read, not the last that was."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # only records of Kafka before 2.1 have one
    order: int = 0  # its place among all commits of this partition of the log


Topics = dict[str, dict[int, Committed]]


class Offsets:
    """All offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}  # by producer id, then as above
        self._order = 0

    # ---- reading

    def get(self, group: str, topic: str, partition: int) -> Committed | None:
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics is not None else None
        return partitions.get(partition) if partitions is not None else None

    def topics(self, group: str) -> Topics:
        return self._groups.get(group, {})

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return any(
            partition in groups.get(group, {}).get(topic, {}) for groups in self._pending.values() if group in groups
        )

    def has_any(self, group: str) -> bool:
        return bool(self._groups.get(group)) or any(group in groups for groups in self._pending.values())

    def places_in(self, names: set[str]) -> set[Place]:
        """All that is committed of these topics, or about to be."""
        return {
            (group, name, partition)
            for groups in self._maps()
            for group, topics in groups.items()
            for name in names
            if name in topics
            for partition in topics[name]
        }

    def places_of(self, group: str) -> Iterator[Place]:
        """All that a group has committed, or is about to: then a place may come again."""
        for groups in self._maps():
            for topic, partitions in groups.get(group, {}).items():
                for partition in partitions:
                    yield group, topic, partition

    def _maps(self) -> list[dict[str, Topics]]:
        return [self._groups, *self._pending.values()]

    # ---- writing, in the order of the log

    def commit(self, found: OffsetOfRecord) -> None:
        self._keep(self._groups, found.group, found.topic, found.partition, self._stamped(found))

    def commit_pending(self, producer_id: int, found: OffsetOfRecord) -> None:
        pending = self._pending.setdefault(producer_id, {})
        self._keep(pending, found.group, found.topic, found.partition, self._stamped(found))

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for group, topics in self._pending.pop(producer_id, {}).items():
            if is_commit:
                self._commit_all(group, topics)

    def forget(self, group: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._groups.pop(group, None)
        for groups in self._pending.values():
            groups.get(group, {}).get(topic, {}).pop(partition, None)

    def _commit_all(self, group: str, topics: Topics) -> None:
        for topic, partitions in topics.items():
            for partition, commit in partitions.items():
                newest = self.get(group, topic, partition)
                if newest is None or newest.order < commit.order:
                    self._keep(self._groups, group, topic, partition, commit)

    def _stamped(self, found: OffsetOfRecord) -> Committed:
        self._order += 1
        numbers = (found.offset, found.leader_epoch, found.metadata, found.commit_ms, found.expire_ms, self._order)
        committed: Committed = _new_tuple(Committed, numbers)
        return committed

    @staticmethod
    def _keep(groups: dict[str, Topics], group: str, topic: str, partition: int, commit: Committed) -> None:
        topics = groups.get(group)
        if topics is None:
            topics = groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = commit

    def __repr__(self) -> str:
        return f"<Offsets of {len(self._groups)} groups, {len(self._pending)} open transactions>"

"""Offsets that groups have committed, and those that wait inside open transactions.

An offset committed in a transaction is only pending until the transaction's marker is in the log. A later ordinary
commit of the same partition wins over an earlier transactional one: what counts is the place in the log.

A topic may be void up to a place in the log: what was committed for it before does not count, although it is still here
and in the log until somebody has forgotten it (forgetting.py). Whoever asks is not told of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.groups.offset_records import NO_EXPIRY, OffsetOfRecord, Place

_new_tuple: Final = tuple.__new__  # a NamedTuple's own way takes four times as long
_pack: Final = Struct("<qiqqq").pack  # offset, leader epoch, times of the commit and of its expiry, order
_unpack: Final = Struct("<qiqqq").unpack_from
_unpack_order: Final = Struct("<q").unpack_from
ORDER_AT: Final = 28
KEPT_BYTES: Final = 36  # without metadata


class Committed(NamedTuple):
    """One committed offset: the next to be read, not the last that was."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY  # only records of Kafka before 2.1 have one
    order: int = 0  # its place among all commits of this partition of the log


Kept = bytes
"""A Committed as it is kept. There may be millions: objects that the garbage collector has to look at, again and again,
would have it stop everybody for 50 ms; and these take half of the memory."""

Topics = dict[str, dict[int, Kept]]


class Offsets:
    """All offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._pending: dict[int, dict[str, Topics]] = {}  # by producer id, then as above
        self._order = 0
        self.void: dict[str, int] = {}  # by topic: up to which place

    # ---- reading

    def get(self, group: str, topic: str, partition: int) -> Committed | None:
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics is not None else None
        kept = partitions.get(partition) if partitions is not None else None
        if kept is None or (self.void and self.is_void(topic, kept)):
            return None
        return committed(kept)

    def is_void(self, topic: str, kept: Kept) -> bool:
        place: int = _unpack_order(kept, ORDER_AT)[0]
        return place <= self.void.get(topic, 0)

    def topics(self, group: str) -> Topics:
        topics = self._groups.get(group, {})
        return self._without_void(topics) if self.void else topics

    def _without_void(self, topics: Topics) -> Topics:
        found: Topics = {}
        for topic, partitions in topics.items():
            if topic in self.void:
                counting = {index: kept for index, kept in partitions.items() if not self.is_void(topic, kept)}
            else:
                counting = partitions
            if counting:
                found[topic] = counting
        return found

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return any(
            partition in groups.get(group, {}).get(topic, {}) for groups in self._pending.values() if group in groups
        )

    def has_any(self, group: str) -> bool:
        """Whether there is anything of it here, void or not."""
        return bool(self._groups.get(group)) or any(group in groups for groups in self._pending.values())

    def all_groups(self) -> Iterator[tuple[str, Topics]]:
        """All that is committed, or about to be, by group, void or not. Others may forget or commit meanwhile.

        What is about to be comes first: when its transaction ends it may move to where nobody has looked yet, but not
        the other way.
        """
        for groups in [*self._pending.values(), self._groups]:
            for group in list(groups):
                topics = groups.get(group)
                if topics is not None:
                    yield group, topics

    def places_of(self, group: str) -> Iterator[Place]:
        """All that a group has committed, or is about to, void or not: a place may come again."""
        for groups in [self._groups, *self._pending.values()]:
            for topic, partitions in groups.get(group, {}).items():
                for partition in partitions:
                    yield group, topic, partition

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

    def make_void(self, topic: str) -> None:
        """What is in an open transaction is forgotten at once: it is little, and would be committed later."""
        self.void[topic] = self._order
        for groups in self._pending.values():
            for topics in groups.values():
                topics.pop(topic, None)

    def end_void(self, void: dict[str, int]) -> None:
        """Nothing is left here of what these topics had before these places."""
        for topic, place in void.items():
            if self.void.get(topic) == place:
                del self.void[topic]

    def _commit_all(self, group: str, topics: Topics) -> None:
        for topic, partitions in topics.items():
            for partition, kept in partitions.items():
                newest = self.get(group, topic, partition)
                if newest is None or newest.order < committed(kept).order:
                    self._keep(self._groups, group, topic, partition, kept)

    def _stamped(self, found: OffsetOfRecord) -> Kept:
        self._order += 1
        kept: bytes = _pack(found.offset, found.leader_epoch, found.commit_ms, found.expire_ms, self._order)
        return kept + found.metadata.encode() if found.metadata else kept

    @staticmethod
    def _keep(groups: dict[str, Topics], group: str, topic: str, partition: int, kept: Kept) -> None:
        topics = groups.get(group)
        if topics is None:
            topics = groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = kept

    def __repr__(self) -> str:
        return f"<Offsets of {len(self._groups)} groups, {len(self._pending)} open transactions>"


def committed(kept: Kept) -> Committed:
    offset, leader_epoch, commit_ms, expire_ms, order = _unpack(kept)
    metadata = kept[KEPT_BYTES:].decode() if len(kept) > KEPT_BYTES else ""
    found: Committed = _new_tuple(Committed, (offset, leader_epoch, metadata, commit_ms, expire_ms, order))
    return found

"""Offsets that nobody uses any more, and groups that have neither members nor offsets left (KIP-211).

A way through all groups of one partition, some offsets at a time (`Machine.sweep`). Compiled with mypyc if possible.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.coordination.batch import Batch
from ottla.coordination.machine import Decision, Record
from ottla.groups.classic_group import ClassicGroup, State
from ottla.groups.consumer_records import forget_group
from ottla.groups.offset_machine import OffsetMachine
from ottla.groups.offset_records import offset_key, offset_tombstone
from ottla.groups.offsets import Committed
from ottla.groups.records import group_tombstone
from ottla.groups.subscription import subscribed_topics


class Rule:
    """Which offsets of a group expire, as long as nothing happens to it."""

    def __init__(self, reads: set[str], since_ms: int | None) -> None:
        self.reads = reads  # topics
        self.since_ms = since_ms  # None: since each of them was committed


class Expiry:
    """One way through all groups."""

    def __init__(self, machine: OffsetMachine, now_ms: int, bytes_max: int) -> None:
        self._machine = machine
        self._now_ms = now_ms
        self._batch = Batch(bytes_max)

    def decisions(self) -> Iterator[Decision]:
        machine, batch = self._machine, self._batch
        seen: list[tuple[str, bool]] = []  # groups, and whether they had offsets
        for group_id in [*machine.groups, *machine.consumer.groups]:
            if batch.is_full():
                yield batch.taken()
                yield from self._ends(seen)
                seen = []
            seen.append((group_id, machine.offsets.has_any(group_id)))
            yield from self._offsets(group_id)
        yield batch.taken()
        yield from self._ends(seen)
        yield batch.taken()

    def _offsets(self, group_id: str) -> Iterator[Decision]:
        offsets, batch = self._machine.offsets, self._batch
        rule = self._rule(group_id)
        for topic, partitions in list(offsets.topics(group_id).items()):
            if rule is None or topic in rule.reads:
                continue
            key_bytes = len(offset_key(group_id, topic, 0))
            for partition in list(partitions):
                if batch.is_full(key_bytes):
                    yield batch.taken()
                    rule = self._rule(group_id)
                commit = offsets.get(group_id, topic, partition)
                if commit is None or rule is None or topic in rule.reads or not self._is_old(commit, rule):
                    continue
                if not offsets.is_pending(group_id, topic, partition):
                    batch.add(offset_tombstone(group_id, topic, partition))

    def _ends(self, seen: list[tuple[str, bool]]) -> Iterator[Decision]:
        """Those of these groups that have nothing left: what was found of their offsets has been handed over."""
        batch = self._batch
        for group_id, had_offsets in seen:
            records = self._end(group_id, had_offsets)
            if records and (batch.is_full() or not batch.has_room_for(records)):
                yield batch.taken()
                records = self._end(group_id, had_offsets)
            for record in records:
                batch.add(record)

    def _rule(self, group_id: str) -> Rule | None:
        """None: nothing of it expires now."""
        consumer_group = self._machine.consumer.groups.get(group_id)
        if consumer_group is not None:
            return Rule(consumer_group.subscribed_topics(), None)
        group = self._machine.groups.get(group_id)
        if group is None:
            return None
        if group.state is State.EMPTY:
            return Rule(set(), group.state_since_ms if group.protocol_type is not None else None)
        reads = subscribed_topics(group) if group.state is State.STABLE else None
        return Rule(reads, None) if reads is not None else None

    def _is_old(self, commit: Committed, rule: Rule) -> bool:
        """A group that had members counts from when the last one left, others from the commit itself."""
        if commit.expire_ms >= 0:
            return self._now_ms >= commit.expire_ms
        since_ms = rule.since_ms if rule.since_ms is not None else commit.commit_ms
        return self._now_ms - since_ms >= self._machine.settings.offsets_retention_ms

    def _end(self, group_id: str, had_offsets: bool) -> list[Record]:
        """What ends a group that has nothing left; one of the new protocol goes with its last offset only."""
        machine = self._machine
        if machine.offsets.has_any(group_id):
            return []
        consumer_group = machine.consumer.groups.get(group_id)
        if consumer_group is not None:
            return forget_group(consumer_group) if had_offsets and not consumer_group.members else []
        group = machine.groups.get(group_id)
        return [group_tombstone(group_id)] if group is not None and is_over(group) else []


def is_over(group: ClassicGroup) -> bool:
    return group.state is State.EMPTY and not group.announced

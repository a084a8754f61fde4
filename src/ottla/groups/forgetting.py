"""Offsets of topics that are gone are forgotten, some at a time: there may be a million. Compiled if possible.

A tombstone is written for each of them. Of a topic that is void (offsets.py) it is those that do not count; there may
be others of the same topic by now, and nothing may happen to them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from ottla.coordination.batch import Batch
from ottla.coordination.machine import Decision
from ottla.groups.offset_records import offset_key, offset_tombstone
from ottla.groups.offsets import Kept, Offsets, Topics


class Forgetting:
    """One way through all offsets (see `Machine.sweep`)."""

    def __init__(self, offsets: Offsets, names: Container[str], bytes_max: int) -> None:
        """`names`: of topics that are not there. One may be taken out when it is void."""
        self._offsets = offsets
        self._names = names
        self._batch = Batch(bytes_max)
        self._last: tuple[Topics, str, int, Kept] | None = None  # in the batch
        self._is_all = True  # that was void when it began

    def decisions(self) -> Iterator[Decision]:
        offsets, batch, names = self._offsets, self._batch, self._names
        void = dict(offsets.void)
        for group_id, topics in offsets.all_groups():
            if batch.is_full():
                yield batch.taken()
                self._check()
            for topic in [topic for topic in topics if topic in names or topic in offsets.void]:
                key_bytes = len(offset_key(group_id, topic, 0))
                for partition in list(topics.get(topic, ())):
                    if batch.is_full(key_bytes):
                        yield batch.taken()
                        self._check()
                    self._look_at(group_id, topics, topic, partition)
        yield batch.taken()
        self._check()
        if self._is_all:
            offsets.end_void(void)

    def _look_at(self, group_id: str, topics: Topics, topic: str, partition: int) -> None:
        kept = topics.get(topic, {}).get(partition)
        if kept is None:
            return
        if topic not in self._names:
            if not self._offsets.is_void(topic, kept):
                return
            if self._offsets.is_pending(group_id, topic, partition):  # the tombstone would be for that, too
                self._is_all = False
                return
        self._batch.add(offset_tombstone(group_id, topic, partition))
        self._last = topics, topic, partition, kept

    def _check(self) -> None:
        """What was to be forgotten may be there as before: then it could not be written."""
        if self._last is not None:
            topics, topic, partition, kept = self._last
            self._last = None
            if topics.get(topic, {}).get(partition) is kept:
                self._is_all = False

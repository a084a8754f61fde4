"""Committed offsets of deleted topics are forgotten, for a few milliseconds at a time: there may be a million of them.

Rules:
1. As with Kafka it happens after the topic is gone, so such an offset may still be seen for a moment. Nobody can commit
   one meanwhile: commits are for topics that exist.
2. When a topic of the same name comes while that is under way, the rest is void before anybody hears of the new topic:
   one record says so in each partition of the log (`topic_tombstone`). Then nobody is told of it any more, whoever
   leads, and it is forgotten as before; what is committed for the new topic stands behind that record.
3. Whoever stops leading in the middle leaves the rest to the next coordinator. Every broker has seen the topic go, and
   a broker that loads a partition forgets what it finds there of such topics, and what is void.
4. What was committed before a partition became ours may be of a new topic of that name, if that came before. So only
   those count that came since its loading began: until it is loaded nobody commits anything there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from ottla.base import tasks
from ottla.broker.coordinators.sweeps import Sweep, Sweeps
from ottla.controller.image import TopicImage
from ottla.coordination.batch import in_batches
from ottla.coordination.runtime import Runtime
from ottla.coordination.shard import Shard
from ottla.groups.machine import GroupMachine
from ottla.groups.offset_records import topic_tombstone

NAMES_KEPT: Final = 10_000


class ForgettingSweep(Sweep):
    """What one shard still has of some topics, and what is void there."""

    def __init__(self, shard: Shard[GroupMachine], names: set[str]) -> None:
        super().__init__(shard, shard.machine.deleted_topics(names, shard.batch_bytes_max))
        self.names = names


class DeletedTopics:
    """Has the shards of the group coordinator forget what was committed of deleted topics."""

    def __init__(self, groups: Runtime[GroupMachine], sweeps: Sweeps) -> None:
        self._groups = groups
        self._sweeps = sweeps
        self.count = 0  # of changes that were noted here
        self._gone: dict[str, None] = {}  # not there now; who went last is at the end
        self._anew: dict[str, int] = {}  # went and came again: when (by `count`)

    def on_topics_changed(
        self, changed: Iterable[str], old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]
    ) -> None:
        """To be called before anybody looks whether new shards are ours, so that `count` tells what came first."""
        deleted = set()
        for name in changed:
            if name in old and (name not in new or new[name].topic_id != old[name].topic_id):
                deleted.add(name)
        if deleted:
            self.count += 1
            if not self._under_way():  # of those that are being forgotten it must be noticed when they come again
                _keep_newest(self._gone)
                _keep_newest(self._anew)
            self._gone |= dict.fromkeys(deleted)
            for shard in self._groups.loaded():
                self._begin(shard, set(deleted))
        if self._gone:
            self._make_room({name for name in changed if name in new and name in self._gone})

    def _make_room(self, names: set[str]) -> None:
        """Topics with these names are there again."""
        if not names:
            return
        self.count += 1
        for name in names:
            del self._gone[name]
            self._anew.pop(name, None)
            self._anew[name] = self.count
        rest: dict[Shard[GroupMachine], set[str]] = {}
        for sweep in self._under_way():
            found = names & sweep.names
            if found:
                sweep.names -= found
                rest[sweep.shard] = rest.get(sweep.shard, set()) | found
        for shard, found in rest.items():
            tasks.tell(self._make_void, shard, found)

    def on_taken(self, shard: Shard[GroupMachine]) -> None:
        """The log of this shard may hold offsets that nobody had the time to forget."""
        if self._gone or shard.machine.offsets.void:
            self._begin(shard, set(self._gone))
        late = {name for name, count in self._anew.items() if count > shard.machine.made_at}
        if late:
            tasks.tell(self._make_void, shard, late)

    def _make_void(self, shard: Shard[GroupMachine], names: set[str]) -> None:
        """All that is there of these topics now. Who looks through it for what is void begins anew."""
        if not self._sweeps.is_at_work(shard):
            return
        for decision in in_batches(map(topic_tombstone, sorted(names)), shard.batch_bytes_max):
            self._groups.run(shard, decision)
        for sweep in self._under_way():
            if sweep.shard is shard and not sweep.names:
                self._sweeps.under_way.remove(sweep)
        self._begin(shard, set())

    def _begin(self, shard: Shard[GroupMachine], names: set[str]) -> None:
        self._sweeps.begin(ForgettingSweep(shard, names))

    def _under_way(self) -> list[ForgettingSweep]:
        return [sweep for sweep in self._sweeps.under_way if isinstance(sweep, ForgettingSweep)]

    def __repr__(self) -> str:
        return f"<DeletedTopics {len(self._gone)} gone, {len(self._under_way())} shards to forget them>"


def _keep_newest(names: dict[str, Any]) -> None:
    for name in list(islice(names, max(0, len(names) - NAMES_KEPT))):
        del names[name]

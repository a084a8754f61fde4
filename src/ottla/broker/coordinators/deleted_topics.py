"""Committed offsets of deleted topics are forgotten, for a few milliseconds at a time: there may be a million of them.

Rules:
1. As with Kafka it happens after the topic is gone, so such an offset may still be seen for a moment. Nobody can commit
   one meanwhile: commits are for topics that exist.
2. When a topic of the same name comes while that is under way, the rest is forgotten before anybody hears of the new
   topic. Else old places would be seen by those who read it, or their commits would be forgotten with the old ones.
3. Whoever stops leading in the middle leaves the rest to the next coordinator. Every broker has seen the topic go, and
   a broker that loads a partition forgets what it finds there of such topics.
4. What was committed before a partition became ours may be of a new topic of that name, if that came before. So only
   those count that came since its loading began: until it is loaded nobody commits anything there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ottla.base import tasks
from ottla.broker.slices import Turn
from ottla.controller.image import TopicImage
from ottla.coordination.machine import Decision
from ottla.coordination.runtime import PAUSE_MS, Runtime
from ottla.coordination.shard import Shard
from ottla.groups.machine import GroupMachine

NAMES_KEPT: Final = 10_000


class Forgetting:
    """What one shard still has of some topics."""

    __slots__ = ("decisions", "names", "shard")

    def __init__(self, shard: Shard[GroupMachine], names: Collection[str]) -> None:
        self.shard = shard
        self.names = names
        self.decisions: Iterator[Decision] = shard.machine.topics_deleted(names, shard.batch_bytes_max)

    def __repr__(self) -> str:
        return f"<Forgetting of {len(self.names)} topics in {self.shard!r}>"


class DeletedTopics:
    """Has the shards of the group coordinator forget what was committed of deleted topics."""

    def __init__(self, groups: Runtime[GroupMachine]) -> None:
        self._groups = groups
        self.count = 0  # of changes that were noted here
        self._gone: dict[str, None] = {}  # not there now; who went last is at the end
        self._anew: dict[str, int] = {}  # went and came again: when (by `count`)
        self._under_way: deque[Forgetting] = deque()
        self._task: asyncio.Task[None] | None = None

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
            if not self._under_way:  # of those that are being forgotten it must be noticed when they come again
                _keep_newest(self._gone)
                _keep_newest(self._anew)
            self._gone |= dict.fromkeys(deleted)
            for shard in self._groups.loaded():
                self._begin(shard, deleted)
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
        for forgetting in list(self._under_way):
            if not names.isdisjoint(forgetting.names):
                tasks.tell(self._finish, forgetting)

    def on_taken(self, shard: Shard[GroupMachine]) -> None:
        """The log of this shard may hold offsets that nobody had the time to forget."""
        if self._gone:
            self._begin(shard, set(self._gone))
        late = {name for name, count in self._anew.items() if count > shard.machine.made_at}
        if late:
            tasks.tell(self._finish, self._begin(shard, late))

    def _begin(self, shard: Shard[GroupMachine], names: set[str]) -> Forgetting:
        forgetting = Forgetting(shard, names)
        self._under_way.append(forgetting)
        if self._task is None:
            self._task = tasks.keep_running(self._go_on, "forgetting offsets of deleted topics")
        return forgetting

    def _finish(self, forgetting: Forgetting) -> None:
        """At once, however long it takes."""
        while self._step(forgetting):
            pass
        self._under_way.remove(forgetting)

    async def _go_on(self) -> None:
        turn = Turn()
        while self._under_way:
            forgetting = self._under_way[0]
            if forgetting.shard.is_ours and forgetting.shard.must_pause:  # nothing can be written there for now
                self._under_way.rotate(-1)
                await asyncio.sleep(PAUSE_MS / 1000)
            elif not self._step(forgetting):
                self._under_way.remove(forgetting)
            if turn.is_over:
                await turn.give_way()
        self._task = None

    def _step(self, forgetting: Forgetting) -> bool:
        """Whether there is more to be done."""
        shard = forgetting.shard
        index = shard.partition.name.partition
        if self._groups.loaded_at(index) is not shard or not shard.is_ours:
            return False
        decision = next(forgetting.decisions, None)
        if decision is None:
            return False
        self._groups.run(shard, decision)
        return True

    def close(self) -> None:
        self._under_way.clear()
        if self._task is not None:
            self._task.cancel()

    def __repr__(self) -> str:
        return f"<DeletedTopics {len(self._gone)} gone, {len(self._under_way)} shards to forget them>"


def _keep_newest(names: dict[str, Any]) -> None:
    for name in list(islice(names, max(0, len(names) - NAMES_KEPT))):
        del names[name]

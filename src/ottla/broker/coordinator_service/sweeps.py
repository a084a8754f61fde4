"""Sweeps: long work of coordinators in small steps, and the removal of committed offsets of deleted topics.

A shard may hold a million offsets, a broker 50 shards. A sweep is a sequence of decisions (`Machine.sweep`); each is
made after the previous one was written. Sweeps of all shards run one after the other: iterations of the event loop do
not get longer with their number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from ottla.base import tasks
from ottla.broker.offload import TimeSlice
from ottla.controller.image import TopicImage
from ottla.coordination.batch import batch_records
from ottla.coordination.machine import Decision
from ottla.coordination.runtime import RETRY_INTERVAL_MS, CoordinatorRuntime
from ottla.coordination.shard import CoordinatorContext
from ottla.groups.coordinator_records import topic_tombstone
from ottla.groups.group_coordinator import GroupCoordinator

NAMES_MAX: Final = 10_000


class Sweep:
    """The remaining work in one shard."""

    def __init__(self, shard: CoordinatorContext[Any], decisions: Iterator[Decision]) -> None:
        self.shard = shard
        self.decisions = decisions

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.shard!r}>"


class Sweeps:
    """All sweeps of one kind of coordinator."""

    def __init__(self, runtime: CoordinatorRuntime[Any]) -> None:
        self._runtime = runtime
        self.pending: deque[Sweep] = deque()
        self._task: asyncio.Task[None] | None = None
        runtime.on_sweep = lambda shard, decisions: self.begin(Sweep(shard, decisions))

    def begin(self, sweep: Sweep) -> None:
        self.pending.append(sweep)
        if self._task is None:
            self._task = tasks.spawn_restarting(self._run, f"sweeping {self._runtime.topic}")

    async def _run(self) -> None:
        turn = TimeSlice()
        while self.pending:
            sweep = self.pending[0]
            # its partition accepts no writes for now
            if sweep.shard.is_current_leader and sweep.shard.is_under_min_isr:
                self.pending.rotate(-1)
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
            elif not self._step(sweep):
                self.pending.remove(sweep)
            if turn.is_used_up:
                await turn.yield_to_loop()
        self._task = None

    def _step(self, sweep: Sweep) -> bool:
        """Make the next decision; returns whether there are more."""
        if not self.is_sweeping(sweep.shard):
            return False
        decision = next(sweep.decisions, None)
        if decision is None:
            return False
        if decision.records:
            self._runtime.execute(sweep.shard, decision)
        return True

    def is_sweeping(self, shard: CoordinatorContext[Any]) -> bool:
        """Return whether a sweep uses this shard. Then its pending records are written before other decisions read its
        state.
        """
        return self._runtime.loaded_at(shard.partition.name.partition) is shard and shard.is_current_leader

    def close(self) -> None:
        self.pending.clear()
        if self._task is not None:
            self._task.cancel()

    def __repr__(self) -> str:
        return f"<Sweeps of {self._runtime.topic}, {len(self.pending)} under way>"


class OffsetRemovalSweep(Sweep):
    """Removes the offsets of some topics, and void offsets, from one shard."""

    def __init__(self, shard: CoordinatorContext[GroupCoordinator], names: set[str]) -> None:
        super().__init__(shard, shard.machine.delete_topic_offsets(names, shard.batch_bytes_max))
        self.names = names


class DeletedTopicOffsets:
    """Removes committed offsets of deleted topics from the shards of the group coordinator.

    Rules:
    1. As in Kafka the removal happens after the deletion; such an offset may be returned for a moment. New commits are
       impossible: the topic must exist.
    2. If a topic of the same name is created meanwhile, the remaining offsets become void before the new topic is
       visible: a `topic_tombstone` record in each partition of the log records this. Void offsets are never returned,
       by any leader, and are removed as before. Commits for the new topic follow that record.
    3. If leadership moves meanwhile, the next coordinator removes the rest. Every broker has seen the deletion, and a
       broker that loads a partition removes its offsets of such topics and its void offsets.
    4. Offsets committed before this broker took over a partition may belong to a new topic of that name. Therefore only
       topics that were created after the loading began make offsets void: nothing is committed while a partition is
       loading.
    """

    def __init__(self, groups: CoordinatorRuntime[GroupCoordinator], sweeps: Sweeps) -> None:
        self._groups = groups
        self._sweeps = sweeps
        self.count = 0  # of recorded changes
        self._deleted: dict[str, None] = {}  # deleted topics, the latest at the end
        self._recreated: dict[str, int] = {}  # deleted and created again: when (by `count`)

    def on_topics_changed(
        self, changed: Iterable[str], old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]
    ) -> None:
        """Record deleted and created topics.

        Must be called before new shards are loaded, so that `count` gives the order.
        """
        deleted = set()
        for name in changed:
            if name in old and (name not in new or new[name].topic_id != old[name].topic_id):
                deleted.add(name)
        if deleted:
            self.count += 1
            if not self._running_sweeps():  # while offsets are removed, a new creation must be detected
                _drop_oldest(self._deleted)
                _drop_oldest(self._recreated)
            self._deleted |= dict.fromkeys(deleted)
            for shard in self._groups.loaded():
                self._begin(shard, set(deleted))
        if self._deleted:
            self._on_recreated({name for name in changed if name in new and name in self._deleted})

    def _on_recreated(self, names: set[str]) -> None:
        """Handle topics that were created again."""
        if not names:
            return
        self.count += 1
        for name in names:
            del self._deleted[name]
            self._recreated.pop(name, None)
            self._recreated[name] = self.count
        rest: dict[CoordinatorContext[GroupCoordinator], set[str]] = {}
        for sweep in self._running_sweeps():
            found = names & sweep.names
            if found:
                sweep.names -= found
                rest[sweep.shard] = rest.get(sweep.shard, set()) | found
        for shard, found in rest.items():
            tasks.notify_safely(self._void_offsets, shard, found)

    def on_shard_loading(self, shard: CoordinatorContext[GroupCoordinator]) -> None:
        """Prepare the removal of offsets that no previous coordinator has removed."""
        if self._deleted or shard.machine.offsets.deleted_topics:
            self._begin(shard, set(self._deleted))
        late = {name for name, count in self._recreated.items() if count > shard.machine.topic_change_count}
        if late:
            tasks.notify_safely(self._void_offsets, shard, late)

    def _void_offsets(self, shard: CoordinatorContext[GroupCoordinator], names: set[str]) -> None:
        """Make all current offsets of these topics void. A running search for void offsets starts again."""
        if not self._sweeps.is_sweeping(shard):
            return
        for decision in batch_records(map(topic_tombstone, sorted(names)), shard.batch_bytes_max):
            self._groups.execute(shard, decision)
        for sweep in self._running_sweeps():
            if sweep.shard is shard and not sweep.names:
                self._sweeps.pending.remove(sweep)
        self._begin(shard, set())

    def _begin(self, shard: CoordinatorContext[GroupCoordinator], names: set[str]) -> None:
        self._sweeps.begin(OffsetRemovalSweep(shard, names))

    def _running_sweeps(self) -> list[OffsetRemovalSweep]:
        return [sweep for sweep in self._sweeps.pending if isinstance(sweep, OffsetRemovalSweep)]

    def __repr__(self) -> str:
        return f"<DeletedTopicOffsets {len(self._deleted)} gone, {len(self._running_sweeps())} shards to forget them>"


def _drop_oldest(names: dict[str, Any]) -> None:
    for name in list(islice(names, max(0, len(names) - NAMES_MAX))):
        del names[name]

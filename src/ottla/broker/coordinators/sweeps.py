"""Long work of coordinators, for a few milliseconds at a time: a shard may hold a million offsets, a broker 50 shards.

A sweep is a row of decisions (`Machine.sweep`), each of which is made when the one before has happened. Sweeps of all
shards are done one after the other: so a round of the event loop does not get longer with their number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from ottla.base import tasks
from ottla.broker.slices import Turn
from ottla.coordination.machine import Decision
from ottla.coordination.runtime import PAUSE_MS, Runtime
from ottla.coordination.shard import Shard


class Sweep:
    """What is still to be done in one shard."""

    def __init__(self, shard: Shard[Any], decisions: Iterator[Decision]) -> None:
        self.shard = shard
        self.decisions = decisions

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.shard!r}>"


class Sweeps:
    """All that are under way in one kind of coordinator."""

    def __init__(self, runtime: Runtime[Any]) -> None:
        self._runtime = runtime
        self.under_way: deque[Sweep] = deque()
        self._task: asyncio.Task[None] | None = None
        runtime.on_sweep = lambda shard, decisions: self.begin(Sweep(shard, decisions))

    def begin(self, sweep: Sweep) -> None:
        self.under_way.append(sweep)
        if self._task is None:
            self._task = tasks.keep_running(self._go_on, f"sweeping {self._runtime.topic}")

    async def _go_on(self) -> None:
        turn = Turn()
        while self.under_way:
            sweep = self.under_way[0]
            if sweep.shard.is_ours and sweep.shard.must_pause:  # nothing can be written there for now
                self.under_way.rotate(-1)
                await asyncio.sleep(PAUSE_MS / 1000)
            elif not self._step(sweep):
                self.under_way.remove(sweep)
            if turn.is_over:
                await turn.give_way()
        self._task = None

    def _step(self, sweep: Sweep) -> bool:
        """Whether there is more to be done."""
        if not self.is_at_work(sweep.shard):
            return False
        decision = next(sweep.decisions, None)
        if decision is None:
            return False
        if decision.records:
            self._runtime.run(sweep.shard, decision)
        return True

    def is_at_work(self, shard: Shard[Any]) -> bool:
        """Whether it is one of ours. What it has gathered is written before anybody decides on what it holds."""
        return self._runtime.loaded_at(shard.partition.name.partition) is shard and shard.is_ours

    def close(self) -> None:
        self.under_way.clear()
        if self._task is not None:
            self._task.cancel()

    def __repr__(self) -> str:
        return f"<Sweeps of {self._runtime.topic}, {len(self.under_way)} under way>"

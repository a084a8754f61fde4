"""Writes down what clusters and groups do, every half minute, and gives it back after a restart.

Rules:
1. Reckoning and writing happen in one thread, from snapshots that never change; the event loop only hands over.
2. What a reader keeps in memory (its History) is filled once from the file, and from then on written behind it.
3. A disk that does not take anything is told in the log, once; pages go on with what is in memory.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.console.clusters.rates import History, Point
from ottla.console.clusters.snapshot import Part, Snapshot
from ottla.console.history.archive import COARSE_MS, DAY_MS, FINE_MS, HOUR_MS, KEPT_MS, Archive
from ottla.console.history.lags import GroupLags, LagPoint, Round, coarser

if TYPE_CHECKING:
    from ottla.console.clusters.cluster import Cluster

logger = logging.getLogger(__name__)

FIRST_MS: Final = 6_000  # after the start: by then a small cluster was read
LOOK_SECONDS: Final = 1.0  # how soon a new cluster gets its past back
Row = dict[str, float]


class Recorder:
    """The history of all clusters of a console."""

    def __init__(self, path: Path, clock: Clock, clusters: Mapping[str, Cluster], on_news: Callable[[], None]) -> None:
        self.path = path
        self.clock = clock
        self.clusters = clusters
        self.on_news = on_news
        self.rounds = 0  # that were written: what changes when there is something new to draw
        self.problem = ""
        self._written: dict[str, tuple[History, float]] = {}  # by cluster: what was filled, and written until when
        self._thread = ThreadPoolExecutor(1, "console-history")
        self._desk = Desk(path)
        self._due_ms = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Recorder {self.rounds} rounds, {self.problem or 'all is well'}>"

    def start(self) -> None:
        """Needs a running event loop."""
        self._due_ms = self.clock.monotonic_ms() + FIRST_MS
        self._task = tasks.keep_running(self._run, "history of the console")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.record()  # the last half minute
        await self._on_disk(self._desk.close)
        self._thread.shutdown(wait=False)

    async def group(self, cluster: str, group: str, hours: int) -> list[tuple[int, LagPoint]]:
        """The last hours of a group, oldest first: fine ones if it is one, else coarse ones."""
        span_ms = FINE_MS if hours <= 1 else COARSE_MS
        since_ms = self.clock.now_ms() - min(hours * HOUR_MS, KEPT_MS[span_ms])
        found = await self._on_disk(self._desk.group, cluster, group, span_ms, since_ms)
        return found or []

    async def _run(self) -> None:
        while True:
            for name, cluster in list(self.clusters.items()):
                history = cluster.reader.history
                if self._written.get(name, (None,))[0] is not history:
                    await self._restore(name, history)
            for name in self._written.keys() - self.clusters.keys():
                del self._written[name]
                await self._on_disk(self._desk.forget, name)
            if self.clock.monotonic_ms() >= self._due_ms:
                self._due_ms = self.clock.monotonic_ms() + FINE_MS
                await self.record()
            await asyncio.sleep(LOOK_SECONDS)

    async def record(self) -> None:
        """One round of all clusters."""
        now_ms = self.clock.now_ms()
        work: list[tuple[str, Snapshot, list[Row]]] = []
        for name, (history, until_ms) in self._written.items():
            if name in self.clusters:
                rows = rows_after(history, until_ms)
                work.append((name, self.clusters[name].snapshot, rows))
                self._written[name] = history, rows[-1]["at_ms"] if rows else until_ms
        await self._on_disk(self._desk.record, work, now_ms)
        self.rounds += 1
        self.on_news()

    async def _restore(self, name: str, history: History) -> None:
        rows = await self._on_disk(self._desk.points, name, self.clock.now_ms() - DAY_MS) or []
        until_ms = restore(history, rows)
        self._written[name] = history, until_ms

    async def _on_disk(self, work: Callable[..., Any], *arguments: object) -> Any:
        """None if the disk does not take it."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments))
        except (OSError, sqlite3.Error) as problem:
            if str(problem) != self.problem:
                self.problem = str(problem)
                logger.warning("the history cannot be kept: %s: %s", self.path, problem)
            return None
        self.problem = ""
        return found


class Desk:
    """What the thread does: the file, and the groups of each cluster."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive: Archive | None = None
        self._lags: dict[str, GroupLags] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self._fine: dict[str, list[Round]] = {}  # of the coarse round that is under way
        self._coarse_due_ms = 0

    @property
    def archive(self) -> Archive:
        if self._archive is None:
            self._archive = Archive(self._path)
        return self._archive

    def points(self, name: str, since_ms: int) -> list[Row]:
        return self.archive.points(name, since_ms)

    def group(self, cluster: str, group: str, span_ms: int, since_ms: int) -> list[tuple[int, LagPoint]]:
        return self.archive.group(cluster, group, span_ms, since_ms)

    def record(self, work: list[tuple[str, Snapshot, list[Row]]], now_ms: int) -> None:
        """All of it, or nothing."""
        archive = self.archive
        is_coarse = now_ms >= self._coarse_due_ms
        archive.begin()
        try:
            for name, snapshot, rows in work:
                archive.add_points(name, rows)
                if snapshot.state(Part.COMMITS).read_ms and snapshot.state(Part.ENDS).read_ms:
                    self._add_rounds(name, snapshot, now_ms, is_coarse=is_coarse)
            if is_coarse:
                archive.prune(now_ms)
                self._numbers.clear()  # some may be gone
            archive.commit()
        except BaseException:
            self._numbers.clear()  # some of them may be of what was not written
            archive.abandon()
            raise
        if is_coarse:
            self._coarse_due_ms = now_ms + COARSE_MS

    def forget(self, name: str) -> None:
        """A cluster that is not there any more: another one may have its name one day."""
        for kept in (self._lags, self._numbers, self._fine):
            kept.pop(name, None)
        self.archive.forget(name)

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def _add_rounds(self, name: str, snapshot: Snapshot, now_ms: int, *, is_coarse: bool) -> None:
        numbers = self._numbers.get(name)
        if numbers is None:
            numbers = self._numbers[name] = self.archive.numbers(name)

        def number_of(group: str) -> int:
            assert numbers is not None
            if group not in numbers:
                numbers[group] = self.archive.new_number(name, group, now_ms)
            return numbers[group]

        fine = self._fine.setdefault(name, [])
        fine.append(self._lags.setdefault(name, GroupLags()).look(snapshot, number_of, now_ms))
        self.archive.add_round(name, FINE_MS, now_ms, fine[-1])
        if is_coarse:
            worst = coarser(fine)
            self.archive.add_round(name, COARSE_MS, now_ms, worst)
            self.archive.still_seen(list(worst), now_ms)
            fine.clear()


def rows_after(history: History, at_ms: float) -> list[Row]:
    """What a reader has noted since then, by name."""
    times = history.columns[0]
    first = len(times)
    while first and times[first - 1] > at_ms:
        first -= 1
    columns = [column[first:] for column in history.columns]
    return [dict(zip(Point._fields, values, strict=True)) for values in zip(*columns, strict=True)]


def restore(history: History, rows: list[Row]) -> float:
    """Put the past before what was noted already; returns until when the file knows it. What a row does not have
    (it may be of another version) is 0.
    """
    first_ms = history.columns[0][0] if history.columns[0] else float("inf")
    past = [row for row in rows if row["at_ms"] < first_ms]
    for name, column in zip(Point._fields, history.columns, strict=True):
        column[0:0] = type(column)("d", [row.get(name, 0.0) for row in past])
    return past[-1]["at_ms"] if past else 0.0

"""Records the activity of clusters and groups every half minute, and restores it after a restart.

Rules:
1. One thread computes and writes, from immutable snapshots; the event loop only passes them.
2. The History of a reader is restored once from the file; from then on its new points are appended to the file.
3. A failing disk is logged once; pages keep working with the data in memory.
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
from ottla.console.clusters.snapshot import Part, Snapshot
from ottla.console.clusters.time_series import ClusterHistory, Point
from ottla.console.history.archive import COARSE_MS, DAY_MS, FINE_MS, HOUR_MS, RETENTION_MS, Archive
from ottla.console.history.group_lags import GroupLags, LagPoint, Round, merge_rounds

if TYPE_CHECKING:
    from ottla.console.clusters.cluster import Cluster

logger = logging.getLogger(__name__)

FIRST_MS: Final = 6_000  # after the start: a small cluster has been read by then
POLL_SECONDS: Final = 1.0  # between checks for new and removed clusters
Row = dict[str, float]


class Recorder:
    """The history of all clusters of a console."""

    def __init__(self, path: Path, clock: Clock, clusters: Mapping[str, Cluster], on_news: Callable[[], None]) -> None:
        self.path = path
        self.clock = clock
        self.clusters = clusters
        self.on_news = on_news
        self.rounds = 0  # written so far: a version for pages
        self.problem = ""
        self._progress: dict[
            str, tuple[ClusterHistory, float]
        ] = {}  # by cluster: the restored history, and the time of the last written point
        self._thread = ThreadPoolExecutor(1, "console-history")
        self._writer = HistoryWriter(path)
        self._due_ms = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Recorder {self.rounds} rounds, {self.problem or 'all is well'}>"

    def start(self) -> None:
        """Needs a running event loop."""
        self._due_ms = self.clock.monotonic_ms() + FIRST_MS
        self._task = tasks.spawn_restarting(self._run, "history of the console")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.record()  # the last half minute
        await self._run_in_thread(self._writer.close)
        self._thread.shutdown(wait=False)

    async def group(self, cluster: str, group: str, hours: int) -> list[tuple[int, LagPoint]]:
        """The last hours of a group, oldest first: fine rounds for one hour, else coarse ones."""
        span_ms = FINE_MS if hours <= 1 else COARSE_MS
        since_ms = self.clock.now_ms() - min(hours * HOUR_MS, RETENTION_MS[span_ms])
        found = await self._run_in_thread(self._writer.group, cluster, group, span_ms, since_ms)
        return found or []

    async def _run(self) -> None:
        while True:
            for name, cluster in list(self.clusters.items()):
                history = cluster.reader.history
                if self._progress.get(name, (None,))[0] is not history:
                    await self._restore(name, history)
            for name in self._progress.keys() - self.clusters.keys():
                del self._progress[name]
                await self._run_in_thread(self._writer.delete_cluster, name)
            if self.clock.monotonic_ms() >= self._due_ms:
                self._due_ms = self.clock.monotonic_ms() + FINE_MS
                await self.record()
            await asyncio.sleep(POLL_SECONDS)

    async def record(self) -> None:
        """Record one round of all clusters."""
        now_ms = self.clock.now_ms()
        work: list[tuple[str, Snapshot, list[Row]]] = []
        for name, (history, until_ms) in self._progress.items():
            if name in self.clusters:
                rows = rows_after(history, until_ms)
                work.append((name, self.clusters[name].snapshot, rows))
                self._progress[name] = history, rows[-1]["at_ms"] if rows else until_ms
        await self._run_in_thread(self._writer.record, work, now_ms)
        self.rounds += 1
        self.on_news()

    async def _restore(self, name: str, history: ClusterHistory) -> None:
        rows = await self._run_in_thread(self._writer.points, name, self.clock.now_ms() - DAY_MS) or []
        until_ms = restore_history(history, rows)
        self._progress[name] = history, until_ms

    async def _run_in_thread(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Run in the writer thread; None if the disk fails."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments))
        except (OSError, sqlite3.Error) as problem:
            if str(problem) != self.problem:
                self.problem = str(problem)
                logger.warning("the history cannot be written: %s: %s", self.path, problem)
            return None
        self.problem = ""
        return found


class HistoryWriter:
    """The state of the writer thread: the file, and the groups of each cluster."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive: Archive | None = None
        self._lags: dict[str, GroupLags] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self._fine_rounds: dict[str, list[Round]] = {}  # of the current coarse round
        self._coarse_due_ms = 0

    @property
    def archive(self) -> Archive:
        if self._archive is None:
            self._archive = Archive(self._path)
        return self._archive

    def points(self, name: str, since_ms: int) -> list[Row]:
        return self.archive.points(name, since_ms)

    def group(self, cluster: str, group: str, span_ms: int, since_ms: int) -> list[tuple[int, LagPoint]]:
        return self.archive.group_points(cluster, group, span_ms, since_ms)

    def record(self, work: list[tuple[str, Snapshot, list[Row]]], now_ms: int) -> None:
        """Write all clusters in one transaction."""
        archive = self.archive
        is_coarse = now_ms >= self._coarse_due_ms
        archive.begin()
        try:
            for name, snapshot, rows in work:
                archive.add_points(name, rows)
                commits = snapshot.state(Part.COMMITS)
                if snapshot.is_current and commits.read_ms and not commits.problem:  # otherwise the plot has a gap
                    self._add_rounds(name, snapshot, now_ms, is_coarse=is_coarse)
            if is_coarse:
                archive.prune(now_ms)
                self._numbers.clear()  # prune may have deleted some
            archive.commit()
        except BaseException:
            self._numbers.clear()  # some may belong to the failed transaction
            archive.rollback()
            raise
        if is_coarse:
            self._coarse_due_ms = now_ms + COARSE_MS

    def delete_cluster(self, name: str) -> None:
        """Delete the data of a removed cluster; its name may be used again."""
        for kept in (self._lags, self._numbers, self._fine_rounds):
            kept.pop(name, None)
        self.archive.delete_cluster(name)

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

    def _add_rounds(self, name: str, snapshot: Snapshot, now_ms: int, *, is_coarse: bool) -> None:
        numbers = self._numbers.get(name)
        if numbers is None:
            numbers = self._numbers[name] = self.archive.group_ids(name)

        def number_of(group: str) -> int:
            assert numbers is not None
            if group not in numbers:
                numbers[group] = self.archive.add_group(name, group, now_ms)
            return numbers[group]

        fine = self._fine_rounds.setdefault(name, [])
        fine.append(self._lags.setdefault(name, GroupLags()).measure(snapshot, number_of, now_ms))
        self.archive.add_round(name, FINE_MS, now_ms, fine[-1])
        if is_coarse:
            worst = merge_rounds(fine)
            self.archive.add_round(name, COARSE_MS, now_ms, worst)
            self.archive.mark_seen(list(worst), now_ms)
            fine.clear()


def rows_after(history: ClusterHistory, at_ms: float) -> list[Row]:
    """The points of a history after a time, as rows."""
    times = history.columns[0]
    first = len(times)
    while first and times[first - 1] > at_ms:
        first -= 1
    columns = [column[first:] for column in history.columns]
    return [dict(zip(Point._fields, values, strict=True)) for values in zip(*columns, strict=True)]


def restore_history(history: ClusterHistory, rows: list[Row]) -> float:
    """Insert rows before the existing points; returns the time of the last row.

    Fields that a row lacks (of another version) become 0.
    """
    first_ms = history.columns[0][0] if history.columns[0] else float("inf")
    past = [row for row in rows if row["at_ms"] < first_ms]
    for name, column in zip(Point._fields, history.columns, strict=True):
        column[0:0] = type(column)("d", [row.get(name, 0.0) for row in past])
    return past[-1]["at_ms"] if past else 0.0

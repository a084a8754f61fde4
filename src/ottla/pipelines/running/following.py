"""Polls a runner: reports of its queries become snapshots, in memory and in the files of the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.operations.pipeline_runs.snapshots import Snapshot
from ottla.operations.pipeline_runs.statuses import now_ms
from ottla.pipelines.running.dead_limit import DeadLimit
from ottla.pipelines.running.progress import Tracker
from ottla.pipelines.running.status import RunFolder

if TYPE_CHECKING:
    from ottla.pipelines.running.query_state import QueryState

WRITE_EVERY_MS = 1_000
WARNINGS_MAX = 100


class Pollable(Protocol):
    """The interface of a runner."""

    def poll(self) -> list[QueryState]: ...


class Following:
    """Call `poll` until `is_active` is false."""

    def __init__(
        self,
        runner: Pollable,
        queries: Iterable[str],
        folder: RunFolder | None = None,
        limit: DeadLimit | None = None,
        before: Iterable[Snapshot] = (),
    ) -> None:
        """`before`: the counts of the queries before their restart."""
        self.runner = runner
        self.folder = folder
        self.limit = limit or DeadLimit()
        self._unusual: set[str] = set()  # queries with a warning about dead rows
        earlier = {snapshot.query: snapshot for snapshot in before}
        self.trackers = {name: Tracker(name, earlier.get(name)) for name in queries}
        self.warnings: list[str] = []
        self.is_active = True
        self._written_ms = 0

    def __repr__(self) -> str:
        return f"Following({'active' if self.is_active else 'ended'}, {list(self.trackers.values())})"

    @property
    def snapshots(self) -> list[Snapshot]:
        return [tracker.snapshot for tracker in self.trackers.values()]

    @property
    def errors(self) -> list[str]:
        """Errors of queries that have failed."""
        return [f"{each.query}: {each.error}" for each in self.snapshots if each.error]

    @property
    def failures(self) -> list[str]:
        dead = self.too_many_dead
        return [*self.errors, *([dead] if dead else [])]

    @property
    def too_many_dead(self) -> str | None:
        return self.limit.problem(self.snapshots, is_over=not self.is_active)

    def poll(self) -> list[Snapshot]:
        """One snapshot for every batch that was completed since the last call."""
        news: list[Snapshot] = []
        states = self.runner.poll()
        for state in states:
            news += self._added(state)
        self.is_active = any(state.is_active for state in states)
        for query, words in self.limit.warnings(self.snapshots, is_over=not self.is_active):
            if query not in self._unusual and not self.too_many_dead:
                self._unusual.add(query)
                self._warn(words)
        try:
            self._write(news)
        except OSError as problem:  # the disk is full: the pipeline continues
            self._warn(f"status not written: {problem.strerror}")
        return news

    def _added(self, state: QueryState) -> list[Snapshot]:
        tracker = self.trackers.setdefault(state.name, Tracker(state.name))
        found = [snapshot for report in state.progress if (snapshot := tracker.add(report)) is not None]
        settled = tracker.settle(state)
        for warning in state.warnings:
            self._warn(warning)
        return [*found[:-1], settled] if found else []

    def _warn(self, words: str) -> None:
        """Once per problem: otherwise an unavailable broker would be reported after every batch."""
        if words not in self.warnings and len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(words)

    def _write(self, news: list[Snapshot]) -> None:
        if self.folder is None:
            return
        for snapshot in news:
            self.folder.add(snapshot)
        if news or now_ms() - self._written_ms >= WRITE_EVERY_MS:
            self._written_ms = now_ms()
            self.folder.look()
            self.folder.change(self.folder.status.state, self.folder.status.reason, self.snapshots)

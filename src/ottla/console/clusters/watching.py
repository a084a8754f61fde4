"""Verdicts on the groups of a cluster, by the monitor: begun when somebody looks at groups for the first time.

Rules:
1. Nobody pays for what nobody looks at: the monitor and the library that it reads commits with are loaded at the first
   question, in a thread. Groups are judged while somebody looks; commits are read on, so that a verdict knows its past.
2. Only where `__consumer_offsets` may be read. Otherwise `problem` says so, and it is tried again.
3. What is published is immutable, and only what pages show: handlers read it in their threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import Operation
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.console.clusters.shared_monitor import SharedMonitor

if TYPE_CHECKING:
    from ottla.monitor.cluster_monitor import ClusterMonitor
    from ottla.monitor.evaluation import GroupVerdict

COMMITS: Final = "__consumer_offsets"
NOT_ALLOWED: Final = f"verdicts and lag in time need the right to read {COMMITS}, which this login does not have"
RETRY_SECONDS: Final = 15.0
LOOK_SECONDS: Final = 0.5  # until the past has been read
JUDGE_SECONDS: Final = 4.0
SHARE: Final = 10  # judging takes at most one part in so many of the time
PAUSE_SECONDS_MAX: Final = 60.0
CHECK_MS: Final = 30_000  # between looks at whether commits may still be read
WANTED_MS: Final = 60_000  # somebody who looks asks more often than that
AT_ONCE: Final = 20  # groups judged before others get a turn


class PartitionVerdict(NamedTuple):
    """One partition of a group; `is_lag_older`: it is behind by at least `lag_ms`."""

    verdict: str
    lag_ms: int | None = None
    is_lag_older: bool = False


class Verdict(NamedTuple):
    """A group, as bad as its worst partition, and as late as its latest."""

    verdict: str
    lag_ms: int | None
    is_lag_older: bool
    partitions: Mapping[TopicPartition, PartitionVerdict]


class Watched(NamedTuple):
    """What is known at a moment; `is_ready` False: nothing yet. `problem` says why, or why it is old."""

    version: int = 0
    at_ms: int = 0  # when the numbers were true
    is_ready: bool = False
    problem: str = ""
    groups: Mapping[str, Verdict] = {}


class Watch:
    """The watch over one cluster: `want` on the event loop, `seen` from everywhere."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        ask: Callable[[Callable[[Client], str]], Awaitable[str]],
        monitor: SharedMonitor,
        on_news: Callable[[], None],
    ) -> None:
        self.name = name
        self.clock = clock
        self.seen = Watched()
        self._ask = ask
        self._monitor = monitor
        self._on_news = on_news
        self._wanted_ms = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Watch {self.name}: {len(self.seen.groups)} groups, {self.seen.problem or 'all is well'}>"

    def want(self) -> None:
        """Somebody looks at groups."""
        self._wanted_ms = self.clock.monotonic_ms()
        if self._task is None:
            self._task = tasks.keep_running(self._run, f"watch over cluster {self.name}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def stopped(self) -> None:
        """Returns when nothing of it runs any more."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        is_possible = True
        while is_possible:
            while problem := await self._problem():
                self._publish(Watched(problem=problem))
                await asyncio.sleep(RETRY_SECONDS)
            is_possible = await self._follow()

    async def _follow(self) -> bool:
        """Returns when commits may not be read any more, or, False, if they cannot be read at all."""
        try:
            monitor = await self._monitor.open()
        except ClientError as refused:  # a package or a login that the library lacks: nothing will change that
            self._publish(Watched(problem=str(refused)))
            return False
        checked_ms = self.clock.monotonic_ms()
        try:
            while True:
                began_ms = self.clock.monotonic_ms()
                if began_ms - checked_ms >= CHECK_MS:  # without the right its last numbers would be judged for ever
                    checked_ms = began_ms
                    if await self._problem() == NOT_ALLOWED:
                        return True
                if began_ms - self._wanted_ms < WANTED_MS:
                    await self._judge(monitor)
                took = (self.clock.monotonic_ms() - began_ms) / 1000
                pause = JUDGE_SECONDS if self.seen.is_ready else LOOK_SECONDS
                await asyncio.sleep(min(max(pause, took * SHARE), PAUSE_SECONDS_MAX))
        finally:
            await self._monitor.close()

    async def _problem(self) -> str:
        """Why commits cannot be read; empty if they can."""
        try:
            return await self._ask(reading_problem)
        except ClientError as problem:
            return str(problem)

    async def _judge(self, monitor: ClusterMonitor) -> None:
        if not monitor.is_ready:
            if monitor.problem != self.seen.problem:
                self._publish(Watched(problem=monitor.problem))
            return
        groups = {}
        for number, group in enumerate(monitor.groups()):
            found = await monitor.verdict_in_slices(group)
            if found is not None:
                groups[group] = shown(found)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        at_ms = self.clock.now_ms() - (monitor.age_ms() or 0)
        self._publish(Watched(at_ms=at_ms, is_ready=True, problem=monitor.problem, groups=groups))

    def _publish(self, seen: Watched) -> None:
        self.seen = seen._replace(version=self.seen.version + 1)
        self._on_news()


def shown(found: GroupVerdict) -> Verdict:
    """What pages show of a verdict."""
    partitions = {
        TopicPartition(item.topic, item.partition): PartitionVerdict(item.status.name, item.lag_ms, item.is_lag_older)
        for item in found.partitions
    }
    lag_ms = found.lag_ms
    is_lag_older = any(item.is_lag_older for item in found.partitions if item.lag_ms == lag_ms)
    return Verdict(found.status.name, lag_ms, is_lag_older, partitions)


def reading_problem(client: Client) -> str:
    """Asked of the cluster: why its commits may not be read. A cluster without commits yet is no problem."""
    from ottla.operations.doctor.rights import ask_topic_rights  # noqa: PLC0415 (only where somebody looks)

    for topic in ask_topic_rights(client, [COMMITS]):
        is_told = topic.error is Error.NONE and not topic.may(Operation.READ)
        if topic.error is Error.TOPIC_AUTHORIZATION_FAILED or is_told:
            return NOT_ALLOWED
    return ""

"""Verdicts on the groups of a cluster, computed by the monitor on demand.

Rules:
1. The monitor and its Kafka library are loaded at the first request, in a thread. Groups are evaluated only while pages
   request them; commits are read continuously, because a verdict needs their history.
2. READ on `__consumer_offsets` is required. Without it `problem` has the reason, and reading is retried.
3. Published data is immutable and contains only what pages show: handlers read it in their threads.
4. Verdicts and alerts share one monitor for each cluster, so commits are read once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.security import Operation
from ottla.client.client import Client
from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.monitor.cluster_monitor import ClusterMonitor
    from ottla.monitor.lag_evaluation import GroupVerdict

OFFSETS_TOPIC: Final = "__consumer_offsets"
NOT_ALLOWED: Final = f"verdicts and lag in time need READ on {OFFSETS_TOPIC}, which this login does not have"
RETRY_SECONDS: Final = 15.0
LOADING_POLL_SECONDS: Final = 0.5  # while past commits are being read
EVALUATE_SECONDS: Final = 4.0
TIME_SHARE: Final = 10  # evaluation takes at most 1/SHARE of the time
PAUSE_SECONDS_MAX: Final = 60.0
CHECK_MS: Final = 30_000  # between checks of the right to read commits
REQUEST_LIFETIME_MS: Final = 60_000  # evaluation stops so long after the last request
GROUPS_PER_TURN: Final = 20  # groups evaluated before yielding to the event loop


class PartitionVerdict(NamedTuple):
    """One partition of a group; `is_lag_older`: `lag_ms` is a lower bound."""

    verdict: str
    lag_ms: int | None = None
    is_lag_older: bool = False


class Verdict(NamedTuple):
    """A group: the worst verdict and the largest lag of its partitions."""

    verdict: str
    lag_ms: int | None
    is_lag_older: bool
    partitions: Mapping[TopicPartition, PartitionVerdict]


class VerdictState(NamedTuple):
    """All verdicts of a cluster. `is_ready` False: none yet; `problem` is why there are none, or why they are old."""

    version: int = 0
    at_ms: int = 0  # the time of the data
    is_ready: bool = False
    problem: str = ""
    groups: Mapping[str, Verdict] = {}


class VerdictWatch:
    """Evaluates the groups of one cluster. `request` belongs to the event loop; `seen` may be read in any thread."""

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
        self.state = VerdictState()
        self._query = ask
        self._monitor = monitor
        self._on_news = on_news
        self._requested_ms = 0
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<VerdictWatch {self.name}: {len(self.state.groups)} groups, {self.state.problem or 'all is well'}>"

    def request(self) -> None:
        """Request verdicts. After a pause they are unknown until the next evaluation, which starts at once."""
        now_ms = self.clock.monotonic_ms()
        if self.state.is_ready and now_ms - self._requested_ms >= REQUEST_LIFETIME_MS:
            self._publish(VerdictState())
            self._wake_up.set()
        self._requested_ms = now_ms
        if self._task is None:
            self._task = tasks.spawn_restarting(self._run, f"watch over cluster {self.name}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def wait_stopped(self) -> None:
        """Stop, and wait for the task to end."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        is_possible = True
        while is_possible:
            while problem := await self._read_problem():
                self._publish(VerdictState(problem=problem))
                await asyncio.sleep(RETRY_SECONDS)
            is_possible = await self._evaluate_while_allowed()

    async def _evaluate_while_allowed(self) -> bool:
        """Evaluate until the right to read commits is lost (True), or at once if they can never be read (False)."""
        try:
            monitor = await self._monitor.open()
        except ClientError as refused:  # permanent: the library lacks a package or this kind of login
            self._publish(VerdictState(problem=str(refused)))
            return False
        checked_ms = self.clock.monotonic_ms()
        try:
            while True:
                began_ms = self.clock.monotonic_ms()
                if began_ms - checked_ms >= CHECK_MS:  # without the right, old commits would be evaluated for ever
                    checked_ms = began_ms
                    if await self._read_problem() == NOT_ALLOWED:
                        return True
                if began_ms - self._requested_ms < REQUEST_LIFETIME_MS:
                    await self._evaluate(monitor)
                took = (self.clock.monotonic_ms() - began_ms) / 1000
                pause = EVALUATE_SECONDS if self.state.is_ready else LOADING_POLL_SECONDS
                await self._pause(min(max(pause, took * TIME_SHARE), PAUSE_SECONDS_MAX))
        finally:
            await self._monitor.close()

    async def _pause(self, seconds: float) -> None:
        """Sleep; ends early when verdicts are requested again."""
        self._wake_up.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake_up.wait(), seconds)

    async def _read_problem(self) -> str:
        """Why commits cannot be read; empty if they can."""
        try:
            return await self._query(offsets_topic_problem)
        except ClientError as problem:
            return str(problem)

    async def _evaluate(self, monitor: ClusterMonitor) -> None:
        if not monitor.is_ready:
            if monitor.problem != self.state.problem:
                self._publish(VerdictState(problem=monitor.problem))
            return
        groups = {}
        for number, group in enumerate(monitor.groups()):
            found = await monitor.verdict_in_slices(group)
            if found is not None:
                groups[group] = to_verdict(found)
            if number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        at_ms = self.clock.now_ms() - (monitor.age_ms() or 0)
        self._publish(VerdictState(at_ms=at_ms, is_ready=True, problem=monitor.problem, groups=groups))

    def _publish(self, seen: VerdictState) -> None:
        self.state = seen._replace(version=self.state.version + 1)
        self._on_news()


def to_verdict(found: GroupVerdict) -> Verdict:
    """The part of a verdict that pages show."""
    partitions = {
        TopicPartition(item.topic, item.partition): PartitionVerdict(
            item.ottla_status.name, item.lag_ms, item.is_lag_older
        )
        for item in found.partitions
    }
    lag_ms = found.lag_ms
    is_lag_older = any(item.is_lag_older for item in found.partitions if item.lag_ms == lag_ms)
    return Verdict(found.ottla_status.name, lag_ms, is_lag_older, partitions)


def offsets_topic_problem(client: Client) -> str:
    """Why the commits of a cluster may not be read; empty if they may, or if there are none yet."""
    from ottla.operations.doctor.authorized_operations import describe_topic_rights  # noqa: PLC0415 (loaded on first use)

    for topic in describe_topic_rights(client, [OFFSETS_TOPIC]):
        is_denied = topic.error is Error.NONE and not topic.is_allowed(Operation.READ)
        if topic.error is Error.TOPIC_AUTHORIZATION_FAILED or is_denied:
            return NOT_ALLOWED
    return ""


class SharedMonitor:
    """The monitor of one cluster with a reference count: the first `open` starts it, the last `close` stops it.

    Both belong to the event loop.
    """

    def __init__(self, make: Callable[[], ClusterMonitor]) -> None:
        self._create = make  # blocking; raises ClientError
        self._monitor: ClusterMonitor | None = None
        self._references = 0
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<SharedMonitor {self._references} users, {self._monitor}>"

    async def open(self) -> ClusterMonitor:
        """Raises ClientError if no monitor can be created."""
        async with self._lock:
            if self._monitor is None:
                self._monitor = await asyncio.to_thread(self._create)
                self._monitor.start()
            self._references += 1
            return self._monitor

    async def close(self) -> None:
        async with self._lock:
            self._references -= 1
            if self._references == 0 and self._monitor is not None:
                monitor, self._monitor = self._monitor, None
                await monitor.stop()

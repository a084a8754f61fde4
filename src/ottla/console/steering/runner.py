"""Carries runs out: one task for each run asks its cluster every second what is to be done next, and has it done.

The run stands in the store before anything is asked of the cluster, and the task belongs to the console and not to a
page: whoever closes his page, or starts the console anew, leaves neither half a plan nor a throttle behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.elections import Election, elect_leaders
from ottla.client.errors import ClientError, RefusedError
from ottla.client.reassignments import list_reassignments
from ottla.console.clusters.cluster import Cluster
from ottla.console.clusters.snapshot import Part
from ottla.console.steering.runs import Next, Place, Refused, Run, moved, next_step
from ottla.console.store import Entry, Store, Tables
from ottla.operations.reassignment.plan import Plan
from ottla.operations.reassignment.steps import Start, begin, replicas_of
from ottla.operations.reassignment.throttles import clear_broker_throttles, clear_throttles, throttles

logger = logging.getLogger(__name__)
ROUND_SECONDS = 1.0
LATE_SECONDS = 5.0  # between two looks for a broker that was gone when the throttle was taken away
ACTION = "end of Run Partition Assignments"


class Round(NamedTuple):
    """What became of a run in one round."""

    run: Run
    is_over: bool = False


class Runner:
    """The runs of all clusters, at most one each."""

    def __init__(self, store: Store, clock: Clock, clusters: dict[str, Cluster]) -> None:
        self.store = store
        self.clock = clock
        self.clusters = clusters
        self.runs: dict[str, Run] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<Runner {len(self.tasks)} runs>"

    def resume(self) -> None:
        """Go on with what the console of before has begun."""
        self.runs = self.store.now(Tables.runs)
        for name, run in self.runs.items():
            if run.ended_ms is None or run.still_throttled:
                self._start(name)

    def current(self, cluster: str) -> Run | None:
        """The run that is under way."""
        run = self.runs.get(cluster)
        return run if run is not None and run.ended_ms is None else None

    async def begin(self, cluster: str, run: Run) -> None:
        before = self.runs.get(cluster)
        if before is not None:  # what the last one could not take away falls to this one
            run = replace(run, throttled=before.still_throttled)
        try:
            await self._keep(cluster, run)  # of two at the same time the second one sees it at once
        except BaseException:
            self.runs.pop(cluster, None)
            raise
        if cluster not in self.tasks:
            self._start(cluster)

    async def cancel(self, cluster: str) -> None:
        """Begin no further wave; what moves is ended by whoever calls this."""
        run = self.current(cluster)
        if run is not None:
            await self._keep(cluster, replace(run, is_cancelled=True))

    def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()

    def _start(self, cluster: str) -> None:
        self.tasks[cluster] = tasks.keep_running(partial(self._drive, cluster), f"run of assignments of {cluster}")

    async def _drive(self, name: str) -> None:
        while True:
            run = self.runs.get(name)
            if run is None or (run.ended_ms is not None and not run.still_throttled):
                break
            if run.ended_ms is None:
                await self._round(name)
                await asyncio.sleep(ROUND_SECONDS)
            else:
                await self._clear_late(name, run)
                await asyncio.sleep(LATE_SECONDS)
        self.tasks.pop(name, None)

    async def _clear_late(self, name: str, run: Run) -> None:
        """Take the throttle from brokers that have come back since the run ended."""
        cluster = self.clusters.get(name)
        back = [broker for broker in run.still_throttled if cluster is not None and broker in cluster.snapshot.brokers]
        if cluster is None or not back:
            return
        try:
            await cluster.ask(clear_late, back)
        except ClientError as problem:
            logger.warning("the throttle of brokers %s of %s stays for now: %s", back, name, problem)
            return
        if self.runs.get(name) == run:
            await self._keep(name, replace(run, still_throttled=sorted(set(run.still_throttled) - set(back))))
            cluster.changes += 1

    async def _round(self, name: str) -> None:
        cluster, run = self.clusters.get(name), self.current(name)
        if cluster is None or run is None:
            return
        try:
            done = await cluster.ask(do_round, lambda: self.current(name))
        except ClientError as problem:
            await self._note_problem(name, problem)
            return
        if done is None:
            return
        latest = self.current(name) or run
        kept = replace(
            done.run, is_cancelled=latest.is_cancelled, problem=latest.problem if latest.is_cancelled else None
        )
        if done.is_over:
            kept = await self._ended(name, kept)
        if kept != latest:
            await self._keep(name, kept)
            cluster.changes += 1
            cluster.kept.clear()
            cluster.reader.hurry(Part.METADATA)

    async def _note_problem(self, name: str, problem: ClientError) -> None:
        """Who cannot be reached is asked again. What is refused for good ends the run: first as if cancelled, so
        that the throttle goes; if that is refused, too, then all the same, and the brokers are named.
        """
        run = self.current(name)
        if run is None:
            return
        is_final = isinstance(problem, RefusedError) and not problem.is_retriable
        noted = replace(run, problem=str(problem), is_cancelled=run.is_cancelled or is_final)
        if is_final and run.is_cancelled:
            noted = await self._ended(name, replace(noted, still_throttled=run.throttled))
        if noted != run:
            logger.warning("run of assignments of %s: %s", name, problem)
            await self._keep(name, noted)

    async def _ended(self, name: str, run: Run) -> Run:
        ended = replace(run, ended_ms=self.clock.now_ms())
        await self.store.run(Tables.note, entry(name, ended))
        return ended

    async def _keep(self, cluster: str, run: Run) -> None:
        self.runs[cluster] = run
        await self.store.run(Tables.put_run, cluster, run)


def do_round(client: Client, current: Callable[[], Run | None]) -> Round | None:
    """Look, and do what comes next. Runs in the cluster's thread: `current` is asked for there, so that a cancellation
    which came meanwhile counts.
    """
    run = current()
    if run is None:
        return None
    client.metadata = None  # who is alive now, not when it was asked last
    under_way = list_reassignments(client)
    known = {topic.name: topic for topic in Admin(client).topics()}
    topics = [known[name] for name in run.topics if name in known]
    now = replicas_of(topics)
    step = next_step(run, under_way, now)
    if step.what is Next.WAIT:
        return Round(run)
    if step.what is Next.FINISH:
        return Round(finish(client, run, topics), is_over=True)
    start = Start(under_way, {place: now[place] for place in step.rows})
    refused = begin(client, Plan(step.rows, {}), start, run.throttle)
    slowed: set[int] = set()
    if run.throttle is not None:
        slowed = set(throttles(under_way, step.rows, start.now).brokers) & set(Admin(client).live_brokers())
    return Round(
        replace(
            run,
            begun=[*run.begun, *(Place(*place) for place in step.rows if place not in refused)],
            refused=[*run.refused, *(Refused(*place, str(problem)) for place, problem in refused.items())],
            throttled=sorted({*run.throttled, *slowed}),
        )
    )


def clear_late(client: Client, brokers: list[int]) -> None:
    client.metadata = None  # they may have come back at another address
    clear_broker_throttles(client, brokers)


def finish(client: Client, run: Run, topics: list[Topic]) -> Run:
    """Take the throttle away, then give the preferred leaders back what they shall lead."""
    still: list[int] = []
    if run.throttle is not None or run.throttled:
        still = sorted(set(run.throttled) - set(Admin(client).live_brokers()))
        clear_throttles(client, [topic.name for topic in topics])
    wanted = run.wanted
    waiting = [] if run.is_cancelled else [place for place in not_preferred(topics) if place in wanted]
    results = elect_leaders(client, Election.PREFERRED, waiting) if waiting else {}
    return replace(
        run,
        moved=moved(run, replicas_of(topics)),
        elected=sum(problem is None for problem in results.values()),
        refused=[
            *run.refused,
            *(
                Refused(*place, str(problem))
                for place, problem in results.items()
                if problem is not None and problem.error is not Error.ELECTION_NOT_NEEDED
            ),
        ],
        still_throttled=still,
    )


def not_preferred(topics: list[Topic]) -> list[TopicPartition]:
    """Partitions that are led by another than their first replica."""
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if partition.leader >= 0 and partition.replicas[:1] != [partition.leader]
    ]


def entry(cluster: str, run: Run) -> Entry:
    """For the audit trail: the beginning stands there already."""
    ended_ms = run.ended_ms or run.started_ms
    words = (
        f"{'cancelled, ' if run.is_cancelled else ''}{run.moved} of {len(run.rows)} partitions are where they should be"
    )
    target = ", ".join(run.topics)[:1000]
    return Entry(ended_ms, run.person, run.address, cluster, ACTION, target, None, None, words)

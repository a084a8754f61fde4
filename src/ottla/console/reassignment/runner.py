"""Executes reassignment runs: one task for each run performs its next step every second.

The run is stored before the first request to the cluster, and the task belongs to the console, not to a page. Closing
the page or restarting the console therefore leaves neither half a plan nor a throttle behind.
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
from ottla.base.names import TopicPartition
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.console.clusters.cluster import Cluster
from ottla.console.clusters.snapshot import Part
from ottla.console.reassignment.runs import Place, Refused, Run, count_moved
from ottla.console.store import CANCELLED, DONE, AuditEntry, Store, Tables
from ottla.operations.reassignment.executor import elect_preferred, remove_throttles, start_round
from ottla.operations.reassignment.moves import replicas_of
from ottla.operations.reassignment.throttles import clear_broker_throttles

logger = logging.getLogger(__name__)
ROUND_SECONDS = 1.0
THROTTLE_RETRY_SECONDS = 5.0  # between attempts to remove the throttle from brokers that were down
AUDIT_ACTION = "end of Run Partition Assignments"
INCOMPLETE = "INCOMPLETE"


class RoundResult(NamedTuple):
    """A run after one round."""

    run: Run
    is_over: bool = False


class ReassignmentRunner:
    """The runs of all clusters, at most one for each."""

    def __init__(self, store: Store, clock: Clock, clusters: dict[str, Cluster]) -> None:
        self.store = store
        self.clock = clock
        self.clusters = clusters
        self.runs: dict[str, Run] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<ReassignmentRunner {len(self.tasks)} runs>"

    def resume(self) -> None:
        """Resume the stored runs after a restart."""
        self.runs = self.store.run_sync(Tables.runs)
        for name, run in self.runs.items():
            if run.ended_ms is None or run.still_throttled:
                self._start(name)

    def current(self, cluster: str) -> Run | None:
        """The run in progress."""
        run = self.runs.get(cluster)
        return run if run is not None and run.ended_ms is None else None

    async def start(self, cluster: str, run: Run) -> None:
        before = self.runs.get(cluster)
        if before is not None:  # this run also removes throttles that the last one could not
            run = replace(run, throttled=before.still_throttled)
        try:
            await self._save(cluster, run)  # sets self.runs before it awaits, so a concurrent request sees it
        except BaseException:
            self.runs.pop(cluster, None)
            raise
        if cluster not in self.tasks:
            self._start(cluster)

    async def cancel(self, cluster: str) -> None:
        """Start no further wave; the caller cancels the moves in progress."""
        run = self.current(cluster)
        if run is not None:
            await self._save(cluster, replace(run, is_cancelled=True))

    def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()

    def _start(self, cluster: str) -> None:
        self.tasks[cluster] = tasks.spawn_restarting(partial(self._run, cluster), f"run of assignments of {cluster}")

    async def _run(self, name: str) -> None:
        while True:
            run = self.runs.get(name)
            if run is None or (run.ended_ms is not None and not run.still_throttled):
                break
            if run.ended_ms is None:
                await self._run_round(name)
                await asyncio.sleep(ROUND_SECONDS)
            else:
                await self._clear_remaining_throttles(name, run)
                await asyncio.sleep(THROTTLE_RETRY_SECONDS)
        self.tasks.pop(name, None)

    async def _clear_remaining_throttles(self, name: str, run: Run) -> None:
        """Remove the throttle from brokers that have come back since the run ended."""
        cluster = self.clusters.get(name)
        back = [broker for broker in run.still_throttled if cluster is not None and broker in cluster.snapshot.brokers]
        if cluster is None or not back:
            return
        try:
            await cluster.query(clear_remaining_throttles, back)
        except ClientError as problem:
            logger.warning("the throttle of brokers %s of %s remains for now: %s", back, name, problem)
            return
        if self.runs.get(name) == run:
            await self._save(name, replace(run, still_throttled=sorted(set(run.still_throttled) - set(back))))
            cluster.changes += 1

    async def _run_round(self, name: str) -> None:
        cluster, run = self.clusters.get(name), self.current(name)
        if cluster is None or run is None:
            return
        try:
            done = await cluster.query(execute_round, lambda: self.current(name))
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
            kept = await self._end_run(name, kept)
        if kept != latest:
            await self._save(name, kept)
            cluster.changes += 1
            cluster.cached_answers.clear()
            cluster.reader.refresh(Part.METADATA)

    async def _note_problem(self, name: str, problem: ClientError) -> None:
        """Retry after connection problems; end the run after a permanent error.

        The run is first cancelled, so that the throttle is removed. If that is refused, too, the run ends, and the
        throttled brokers are reported.
        """
        run = self.current(name)
        if run is None:
            return
        is_final = isinstance(problem, BrokerError) and not problem.is_retriable
        noted = replace(run, problem=str(problem), is_cancelled=run.is_cancelled or is_final)
        if is_final and run.is_cancelled:
            noted = await self._end_run(name, replace(noted, still_throttled=run.throttled))
        if noted != run:
            logger.warning("run of assignments of %s: %s", name, problem)
            await self._save(name, noted)

    async def _end_run(self, name: str, run: Run) -> Run:
        ended = replace(run, ended_ms=self.clock.now_ms())
        await self.store.run(Tables.add_audit, audit_entry(name, ended))
        return ended

    async def _save(self, cluster: str, run: Run) -> None:
        self.runs[cluster] = run
        await self.store.run(Tables.put_run, cluster, run)


def execute_round(client: Client, current: Callable[[], Run | None]) -> RoundResult | None:
    """Perform the next step, in the thread of the cluster; `current` is called there to see a cancellation in time."""
    run = current()
    if run is None:
        return None
    slowed = set(run.throttled)
    done = start_round(client, run.task, run.requested, slowed.update)
    if done.is_last:
        return RoundResult(finish(client, run, list(done.topics)), is_over=True)
    return RoundResult(
        replace(
            run,
            begun=[*run.begun, *(Place(*place) for place in done.started if place not in done.refused)],
            refused=[*run.refused, *(Refused(*place, str(problem)) for place, problem in done.refused.items())],
            throttled=sorted(slowed),
        )
    )


def clear_remaining_throttles(client: Client, brokers: list[int]) -> None:
    client.metadata = None  # they may have another address now
    clear_broker_throttles(client, brokers)


def finish(client: Client, run: Run, topics: list[Topic]) -> Run:
    """Remove the throttle, then elect the preferred leaders."""
    still: list[int] = []
    if run.throttle is not None or run.throttled:
        # A killed console may have throttled brokers that the run does not name.
        brokers = {*run.throttled, *Admin(client).live_brokers()}
        still = remove_throttles(client, brokers, [topic.name for topic in topics])
    wanted = run.wanted
    waiting = [] if run.is_cancelled else [place for place in not_led_by_preferred_replica(topics) if place in wanted]
    elected, problems = elect_preferred(client, waiting)
    return replace(
        run,
        moved=count_moved(run, replicas_of(topics)),
        elected=elected,
        refused=[*run.refused, *(Refused(*place, str(problem)) for place, problem in problems.items())],
        still_throttled=still,
    )


def not_led_by_preferred_replica(topics: list[Topic]) -> list[TopicPartition]:
    """Partitions that are not led by their preferred (first) replica."""
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if partition.leader >= 0 and partition.replicas[:1] != [partition.leader]
    ]


def audit_entry(cluster: str, run: Run) -> AuditEntry:
    """The audit entry of the end; the start has one already."""
    ended_ms = run.ended_ms or run.started_ms
    ended = CANCELLED if run.is_cancelled else DONE if run.moved == len(run.rows) else INCOMPLETE
    words = f"{ended}: {run.moved} of {len(run.rows)} partitions are where they should be"
    target = ", ".join(run.topics)[:1000]
    return AuditEntry(ended_ms, run.person, run.address, cluster, AUDIT_ACTION, target, None, None, words)

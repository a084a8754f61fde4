"""Reads one cluster in the background and keeps the newest snapshot of it.

Rules:
1. One thread with one client asks; everything else, the snapshot among it, belongs to the event loop.
2. A part is read in bounded pieces, and the bucket says when the next request may go: a broker never has a long round
   because of us, and how many people look does not matter. Only whoever has just changed something is not made to wait.
3. A part that fails keeps what was read before, with the reason. The others go on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from ottla.base.clock import Clock
from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.offsets import EARLIEST, LATEST
from ottla.console.clusters import gathering
from ottla.console.clusters.rates import History, Point, Rates
from ottla.console.clusters.schedule import Bucket, Schedule
from ottla.console.clusters.snapshot import Group, Part, PartState, Snapshot, lag

T = TypeVar("T")


class Reader:
    """The background reader of one cluster; `on_news` is told of every new snapshot."""

    def __init__(self, client: Client, clock: Clock, on_news: Callable[[], None]) -> None:
        self.client = client
        self.bootstrap = list(client.bootstrap)
        self.clock = clock
        self.on_news = on_news
        self.snapshot = Snapshot()
        self.schedule = Schedule()
        self.bucket = Bucket(clock.monotonic_ms())
        self.wished: set[Part] = set()  # somebody waits to see a change there: until it is read nothing waits
        self.woken = asyncio.Event()
        self.published = asyncio.Event()
        self.rates: Rates[TopicPartition] = Rates()
        self.consume_rates: Rates[tuple[str, TopicPartition]] = Rates()
        self.history = History()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="console-reader")
        self.readings = {
            Part.METADATA: self._read_metadata,
            Part.ENDS: self._read_ends,
            Part.STARTS: self._read_starts,
            Part.GROUPS: self._read_groups,
            Part.COMMITS: self._read_commits,
            Part.SIZES: self._read_sizes,
        }

    def __repr__(self) -> str:
        return f"<Reader {self.client} {self.snapshot}>"

    async def run(self) -> None:
        while True:
            part, due_ms = self.schedule.next()
            wait_ms = due_ms - self.clock.monotonic_ms()
            if wait_ms > 0:
                await self._sleep(wait_ms)
                continue
            await self._read(part)

    def hurry(self, *parts: Part) -> None:
        """Somebody has changed something: look at once."""
        self.schedule.hurry(parts)
        self.wished.update(parts)
        self.woken.set()

    async def has_seen(self, parts: Collection[Part], since_ms: int) -> None:
        """Wait until these parts were read after a (wall) time, or have failed to be."""
        while not all(state.read_ms >= since_ms or state.problem for state in map(self.snapshot.state, parts)):
            await self.published.wait()

    def close(self) -> None:
        self.thread.submit(self.client.close)
        self.thread.shutdown(wait=False)

    async def _sleep(self, wait_ms: int) -> None:
        self.woken.clear()
        try:
            await asyncio.wait_for(self.woken.wait(), wait_ms / 1000)
        except TimeoutError:
            return

    async def _read(self, part: Part) -> None:
        state = self.snapshot.state(part)
        if part is not Part.METADATA and not self.snapshot.state(Part.METADATA).read_ms:
            self.schedule.wait(part, self.clock.monotonic_ms())  # nobody to ask yet
            return
        self.schedule.begin(part)
        began_ms = self.clock.now_ms()
        requests = self.client.requests
        try:
            changes = await self.readings[part]()
        except ClientError as problem:
            if state.problem != str(problem):
                self._publish(part, state._replace(version=state.version + 1, problem=str(problem)), {})
            self.schedule.read(part, self.clock.monotonic_ms(), failed=True)
        else:
            self._publish(part, PartState(state.version + 1, began_ms), changes)
            self.schedule.read(part, self.clock.monotonic_ms(), self.client.requests - requests)
        if part not in self.schedule.hurried:
            self.wished.discard(part)

    def _publish(self, part: Part, state: PartState, changes: dict[str, Any]) -> None:
        states = {**self.snapshot.states, part: state}
        self.snapshot = replace(self.snapshot, version=self.snapshot.version + 1, states=states, **changes)
        self.published.set()
        self.published = asyncio.Event()
        self.on_news()

    async def _ask(self, question: Callable[..., T], *arguments: Any) -> T:
        now_ms = self.clock.monotonic_ms()
        due_ms = now_ms + self.bucket.wait_ms(now_ms)
        while not self.wished and (wait_ms := due_ms - self.clock.monotonic_ms()) > 0:
            await self._sleep(wait_ms)
        before = self.client.requests
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, question, self.client, *arguments)
        finally:
            self.bucket.spend(max(0, self.client.requests - before - 1))  # what one question needed besides the first

    async def _read_metadata(self) -> dict[str, Any]:
        found = await self._ask(gathering.ask_metadata, self.bootstrap)
        before = {name: len(topic.partitions) for name, topic in self.snapshot.topics.items()}
        if before != {name: len(topic.partitions) for name, topic in found.topics.items()}:
            self.schedule.hurry((Part.ENDS, Part.STARTS, Part.SIZES))  # of new partitions nothing is known yet
        return found._asdict()

    async def _read_offsets(self, time: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, led in gathering.led_pieces(self.snapshot.topics, self.snapshot.brokers):
            found |= await self._ask(gathering.ask_ends, leader, led, time)
        return found

    async def _read_ends(self) -> dict[str, Any]:
        began_ms = self.clock.monotonic_ms()
        ends = await self._read_offsets(LATEST)
        return {"ends": ends, "rates": self.rates.add(began_ms, ends)}

    async def _read_starts(self) -> dict[str, Any]:
        return {"starts": await self._read_offsets(EARLIEST)}

    async def _read_groups(self) -> dict[str, Any]:
        listed = await self._ask(gathering.ask_groups)
        groups = {item.group_id: Group(item.group_id, item.protocol_type, item.state, item.type) for item in listed}
        busy = [item for item in listed if item.state not in gathering.WITHOUT_MEMBERS]
        for piece in gathering.pieces(busy, gathering.GROUPS_PER_REQUEST):
            groups |= await self._ask(gathering.ask_members, piece)
        return {"groups": groups}

    async def _read_commits(self) -> dict[str, Any]:
        began_ms = self.clock.monotonic_ms()
        commits: dict[str, Any] = {}
        per_request = gathering.groups_per_request(self.snapshot.commits)
        for piece in gathering.pieces(self.snapshot.groups, gathering.GROUPS_PER_PIECE):
            commits |= await self._ask(gathering.ask_commits, piece, per_request)
        # By partition: one that is committed for the first time has not been read in a second.
        each = {(group, place): offset for group, offsets in commits.items() for place, offset in offsets.items()}
        rates: defaultdict[str, float] = defaultdict(float)
        for (group, _), rate in self.consume_rates.add(began_ms, each).items():
            rates[group] += rate
        ends = self.snapshot.ends
        backlog = sum(lag(ends.get(at), it) or 0 for offsets in commits.values() for at, it in offsets.items())
        if self.snapshot.state(Part.ENDS).read_ms:
            produced = sum(self.snapshot.rates.values())
            self.history.add(Point(self.clock.now_ms(), produced, sum(rates.values()), backlog))
        return {"commits": commits, "consume_rates": rates}

    async def _read_sizes(self) -> dict[str, Any]:
        sizes: dict[TopicPartition, int] = {}
        broker_bytes: dict[int, int] = {}
        folders = {}
        topics = self.snapshot.topics
        leaders = {
            TopicPartition(topic.name, partition.number): partition.leader
            for topic in topics.values()
            for partition in topic.partitions
        }
        for broker in self.snapshot.brokers:
            answers = []
            held = gathering.replicas_of(topics, broker)
            for piece in gathering.pieces(held, gathering.PARTITIONS_PER_REQUEST) if held else [[]]:
                answers += [await self._ask(gathering.ask_sizes, broker, piece)]
            folders[broker] = gathering.folders_of(answers)
            broker_bytes[broker] = sum(folder.size_bytes for folder in folders[broker])
            for answer in answers:
                for _, place, size_bytes in answer.replicas:
                    if place not in sizes or leaders.get(place) == broker:
                        sizes[place] = size_bytes
        return {"sizes": sizes, "broker_bytes": broker_bytes, "folders": folders}

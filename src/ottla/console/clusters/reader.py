"""The background reader of one cluster, which publishes immutable snapshots.

Rules:
1. One thread with one client sends the requests; everything else, including the snapshot, belongs to the event loop.
2. Each part has a period, counted from the end of its last reading. Parts that change slowly and are expensive to read
   have longer periods. After a change, the affected parts are read at once.
3. Requests are bounded in size, and a token bucket limits their rate: a small cluster is read at once, a large one at
   PER_SECOND. Together with the monitor, a single broker gets at most five requests a second, however many users look.
   Only the reading after a change does not wait for the bucket.
4. A part that fails keeps its last data, with the reason. The other parts are still read.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ottla.base.clock import Clock
from ottla.base.names import TopicPartition
from ottla.client.addresses import Address
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.client.groups import GroupListing, committed_offsets_of, describe_groups, list_groups
from ottla.client.log_dirs import describe_log_dirs
from ottla.client.offsets import EARLIEST, LATEST, list_offsets_of_leader
from ottla.console.clusters.snapshot import WITHOUT_MEMBERS, Broker, Group, LogDir, Part, PartState, Snapshot, lag
from ottla.console.clusters.time_series import ClusterHistory, Point, Rates

PARTITIONS_PER_REQUEST = 1_000
GROUPS_PER_REQUEST = 200
GROUPS_PER_LOOKUP = 1_000  # whose coordinators one request finds
COMMITS_PER_REQUEST = 2_000
PERIODS_MS = {
    Part.METADATA: 2_500,
    Part.ENDS: 4_000,
    Part.GROUPS: 4_000,
    Part.COMMITS: 4_000,
    Part.STARTS: 20_000,
    Part.SIZES: 20_000,
}
RETRY_MS = 1_000  # before a failed part is retried
BURST = 40
PER_SECOND = 3.0
TOKEN_DEBT_MAX = 10.0  # requests sent without waiting delay later ones, but not so long that a failure is seen late
SLOW_PARTS = (Part.STARTS, Part.SIZES)
SLOW_PART_MS_PER_REQUEST = 6_000
T = TypeVar("T")


class Reader:
    """The background reader of one cluster; calls `on_news` after each new snapshot."""

    def __init__(self, client: Client, clock: Clock, on_news: Callable[[], None]) -> None:
        self.client = client
        self.bootstrap = list(client.bootstrap)
        self.clock = clock
        self.on_news = on_news
        self.snapshot = Snapshot()
        self.schedule = Schedule()
        self.bucket = TokenBucket(clock.monotonic_ms())
        self.urgent: set[Part] = set()  # a caller waits for these parts: requests skip the bucket
        self.wake_up = asyncio.Event()
        self.published = asyncio.Event()
        self.rates: Rates[TopicPartition] = Rates()
        self.consume_rates: Rates[tuple[str, TopicPartition]] = Rates()
        self.history = ClusterHistory()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="console-reader")
        self.part_readers = {
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

    def refresh(self, *parts: Part) -> None:
        """Read these parts at once, after a change."""
        self.schedule.request(parts)
        self.urgent.update(parts)
        self.wake_up.set()

    async def wait_until_read(self, parts: Collection[Part], since_ms: int) -> None:
        """Wait until these parts were read after a wall time, or have failed."""
        while not all(state.read_ms >= since_ms or state.problem for state in map(self.snapshot.state, parts)):
            await self.published.wait()

    def close(self) -> None:
        self.thread.submit(self.client.close)
        self.thread.shutdown(wait=False)

    async def _sleep(self, wait_ms: int) -> None:
        self.wake_up.clear()
        try:
            await asyncio.wait_for(self.wake_up.wait(), wait_ms / 1000)
        except TimeoutError:
            return

    async def _read(self, part: Part) -> None:
        state = self.snapshot.state(part)
        if part is not Part.METADATA and not self.snapshot.state(Part.METADATA).read_ms:
            self.schedule.postpone(part, self.clock.monotonic_ms())  # no brokers are known yet
            return
        self.schedule.begin(part)
        began_ms = self.clock.now_ms()
        requests = self.client.requests
        try:
            changes = await self.part_readers[part]()
        except ClientError as problem:
            if state.problem != str(problem):
                self._publish(part, state._replace(version=state.version + 1, problem=str(problem)), {})
            self.schedule.finish(part, self.clock.monotonic_ms(), failed=True)
        else:
            self._publish(part, PartState(state.version + 1, began_ms), changes)
            self.schedule.finish(part, self.clock.monotonic_ms(), self.client.requests - requests)
        if part not in self.schedule.requested:
            self.urgent.discard(part)

    def _publish(self, part: Part, state: PartState, changes: dict[str, Any]) -> None:
        states = {**self.snapshot.states, part: state}
        self.snapshot = replace(self.snapshot, version=self.snapshot.version + 1, states=states, **changes)
        self.published.set()
        self.published = asyncio.Event()
        self.on_news()

    async def _run_in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        now_ms = self.clock.monotonic_ms()
        due_ms = now_ms + self.bucket.take(now_ms)
        while not self.urgent and (wait_ms := due_ms - self.clock.monotonic_ms()) > 0:
            await self._sleep(wait_ms)
        before = self.client.requests
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, function, self.client, *arguments)
        finally:
            self.bucket.take_extra(max(0, self.client.requests - before - 1))  # those after the first one

    async def _read_metadata(self) -> dict[str, Any]:
        found = await self._run_in_thread(fetch_metadata, self.bootstrap)
        before = {name: len(topic.partitions) for name, topic in self.snapshot.topics.items()}
        if before != {name: len(topic.partitions) for name, topic in found.topics.items()}:
            self.schedule.request((Part.ENDS, Part.STARTS, Part.SIZES))  # new partitions have no offsets yet
        return found._asdict()

    async def _read_offsets(self, time: int) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, led in partitions_by_leader(self.snapshot.topics, self.snapshot.brokers):
            found |= await self._run_in_thread(fetch_log_offsets, leader, led, time)
        return found

    async def _read_ends(self) -> dict[str, Any]:
        began_ms = self.clock.monotonic_ms()
        ends = await self._read_offsets(LATEST)
        if not ends and any(topic.partitions for topic in self.snapshot.topics.values()):
            raise ClientError("no partition leader reports its log end offset")
        return {"ends": ends, "rates": self.rates.add(began_ms, ends)}

    async def _read_starts(self) -> dict[str, Any]:
        return {"starts": await self._read_offsets(EARLIEST)}

    async def _read_groups(self) -> dict[str, Any]:
        listed = await self._run_in_thread(list_groups)
        groups = {item.group_id: Group(item.group_id, item.protocol_type, item.state, item.type) for item in listed}
        busy = [item for item in listed if item.state not in WITHOUT_MEMBERS]
        for piece in chunked(busy, GROUPS_PER_REQUEST):
            groups |= await self._run_in_thread(fetch_group_members, piece)
        return {"groups": groups}

    async def _read_commits(self) -> dict[str, Any]:
        began_ms = self.clock.monotonic_ms()
        commits: dict[str, Any] = {}
        per_request = groups_per_request(self.snapshot.commits)
        for piece in chunked(self.snapshot.groups, GROUPS_PER_LOOKUP):
            commits |= await self._run_in_thread(fetch_committed_offsets, piece, per_request)
        # By partition, because the first commit of a partition is not a rate.
        each = {(group, place): offset for group, offsets in commits.items() for place, offset in offsets.items()}
        rates: defaultdict[str, float] = defaultdict(float)
        for (group, _), rate in self.consume_rates.add(began_ms, each).items():
            rates[group] += rate
        ends = self.snapshot.ends
        backlog = sum(lag(ends.get(at), it) or 0 for offsets in commits.values() for at, it in offsets.items())
        if self.snapshot.is_current and self.rates.is_known:
            is_known = bool(commits) or not self.snapshot.groups  # otherwise no coordinator answered
            consumed = (sum(rates.values()), backlog) if is_known else (math.nan, math.nan)
            self.history.add(Point(self.clock.now_ms(), self._produce_rate(), *consumed))
        return {"commits": commits, "consume_rates": rates}

    def _produce_rate(self) -> float:
        """Records per second written by clients; internal topics are not counted."""
        topics = self.snapshot.topics
        internal = {name for name, topic in topics.items() if topic.is_internal}
        return sum(rate for place, rate in self.snapshot.rates.items() if place.topic not in internal)

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
            held = replicas_on_broker(topics, broker)
            for piece in chunked(held, PARTITIONS_PER_REQUEST) if held else [[]]:
                answers += [await self._run_in_thread(fetch_log_dirs, broker, piece)]
            folders[broker] = sum_log_dirs(answers)
            broker_bytes[broker] = sum(folder.size_bytes for folder in folders[broker])
            for answer in answers:
                for _, place, size_bytes in answer.replicas:
                    if place not in sizes or leaders.get(place) == broker:
                        sizes[place] = size_bytes
        return {"sizes": sizes, "broker_bytes": broker_bytes, "folders": folders}


class Schedule:
    """When each part is due. Pure: the caller passes times."""

    def __init__(self) -> None:
        self.due_ms = dict.fromkeys(PERIODS_MS, 0)
        self.requested: set[Part] = set()  # requested since their last reading began

    def next(self) -> tuple[Part, int]:
        """The part that is due first, and its time."""
        part = min(self.due_ms, key=lambda each: self.due_ms[each])  # ties: in the order of PERIODS_MS, metadata first
        return part, self.due_ms[part]

    def postpone(self, part: Part, now_ms: int) -> None:
        self.due_ms[part] = now_ms + RETRY_MS

    def begin(self, part: Part) -> None:
        self.requested.discard(part)

    def finish(self, part: Part, now_ms: int, requests: int = 1, *, failed: bool = False) -> None:
        """Schedule the next reading; `requests` is the cost of this one."""
        period_ms = max(PERIODS_MS[part], requests * SLOW_PART_MS_PER_REQUEST if part in SLOW_PARTS else 0)
        is_hurried = part in self.requested and not failed  # the data may be older than the change
        self.due_ms[part] = 0 if is_hurried else now_ms + (RETRY_MS if failed else period_ms)
        if failed and part is not Part.METADATA:
            self.due_ms[Part.METADATA] = now_ms  # a broker may be down: find the new leaders

    def request(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self.due_ms[part] = 0
            self.requested.add(part)

    def __repr__(self) -> str:
        return f"<Schedule {self.due_ms}>"


class TokenBucket:
    """A token bucket for requests."""

    def __init__(self, now_ms: int) -> None:
        self.tokens = float(BURST)
        self.filled_ms = now_ms

    def take(self, now_ms: int) -> int:
        """Take one token; returns the time to wait before using it."""
        self.tokens = min(float(BURST), self.tokens + (now_ms - self.filled_ms) / 1000 * PER_SECOND)
        self.filled_ms = now_ms
        self.tokens = max(-TOKEN_DEBT_MAX, self.tokens - 1)
        return 0 if self.tokens >= 0 else round(-self.tokens / PER_SECOND * 1000)

    def take_extra(self, count: int) -> None:
        """Take further tokens for requests that were already sent; later requests wait longer."""
        self.tokens = max(-TOKEN_DEBT_MAX, self.tokens - count)

    def __repr__(self) -> str:
        return f"<TokenBucket {self.tokens:.1f}>"


# ---- requests, in the thread of the reader


class Metadata(NamedTuple):
    """Brokers and topics of a cluster; the fields are those of Snapshot."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]


class LogDirSizes(NamedTuple):
    """The log directories of one broker, for some partitions."""

    folders: list[tuple[str, str | None, int, int]]  # path, problem, total, usable
    replicas: list[tuple[str, TopicPartition, int]]  # path, partition, bytes


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    piece: list[T] = []
    for item in items:
        piece.append(item)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece


def fetch_metadata(client: Client, bootstrap: Sequence[Address]) -> Metadata:
    """All topics and brokers. The brokers found become bootstrap servers, in case the configured ones go down."""
    client.metadata = None
    found = client.cluster()
    learned = [Address(broker.host, broker.port) for broker in found.brokers]
    client.bootstrap = list(dict.fromkeys([*bootstrap, *learned]))
    topics = {topic.name: topic for topic in Admin(client).topics()}
    brokers = {item.node_id: Broker(item.node_id, item.host, item.port, item.rack) for item in found.brokers}
    return Metadata(found.cluster_id, found.controller_id, brokers, topics)


def partitions_by_leader(topics: Mapping[str, Topic], live: Iterable[int]) -> list[tuple[int, list[TopicPartition]]]:
    """The partitions of each live leader, in chunks."""
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic in topics.values():
        for partition in topic.partitions:
            by_leader[partition.leader].append(TopicPartition(topic.name, partition.number))
    there = set(live)
    return [
        (leader, piece)
        for leader, led in by_leader.items()
        if leader in there
        for piece in chunked(led, PARTITIONS_PER_REQUEST)
    ]


def fetch_log_offsets(
    client: Client, leader: int, led: Sequence[TopicPartition], time: int
) -> dict[TopicPartition, int]:
    """Earliest or latest offsets; partitions that have just moved are missing until the next round."""
    return {
        place: answer.offset
        for place, answer in list_offsets_of_leader(client, leader, led, time)
        if not isinstance(answer, BrokerError)
    }


def fetch_group_members(client: Client, listed: Sequence[GroupListing]) -> dict[str, Group]:
    """Groups with their members; deleted groups and groups of other protocols have none."""
    found = {item.group_id: Group(item.group_id, item.protocol_type, item.state, item.type) for item in listed}
    for group_id, answer in describe_groups(client, found).items():
        if not isinstance(answer, BrokerError):
            found[group_id] = found[group_id]._replace(
                state=answer.state,
                assignor=answer.assignor,
                coordinator=answer.coordinator,
                members=tuple(answer.members),
            )
    return found


def groups_per_request(commits: Mapping[str, Mapping[TopicPartition, int]]) -> int:
    """A number of groups whose offsets fit into a short response, estimated from the last commits."""
    each = sum(map(len, commits.values())) / len(commits) if commits else 0.0
    return max(1, min(GROUPS_PER_REQUEST, int(COMMITS_PER_REQUEST / max(1.0, each))))


def fetch_committed_offsets(
    client: Client, group_ids: Sequence[str], per_request: int
) -> dict[str, dict[TopicPartition, int]]:
    return {
        group_id: {place: item.offset for place, item in answer.items()}
        for group_id, answer in committed_offsets_of(client, group_ids, per_request).items()
        if not isinstance(answer, BrokerError)
    }


def fetch_log_dirs(client: Client, broker: int, partitions: Sequence[TopicPartition]) -> LogDirSizes:
    found = LogDirSizes([], [])
    for folder in describe_log_dirs(client, [broker], partitions)[broker]:
        problem = folder.error.name if folder.error else None
        found.folders.append((folder.path, problem, folder.total_bytes, folder.usable_bytes))
        found.replicas.extend((folder.path, replica.partition, replica.size_bytes) for replica in folder.replicas)
    return found


def replicas_on_broker(topics: Mapping[str, Topic], broker: int) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.number)
        for topic in topics.values()
        for partition in topic.partitions
        if broker in partition.replicas
    ]


def sum_log_dirs(answers: Iterable[LogDirSizes]) -> tuple[LogDir, ...]:
    """The log directories of one broker, summed over all responses."""
    folders: dict[str, LogDir] = {}
    for answer in answers:
        for path, problem, total, usable in answer.folders:
            folders.setdefault(path, LogDir(path, problem, 0, 0, total, usable))
        for path, _, size_bytes in answer.replicas:
            folder = folders[path]
            folders[path] = folder._replace(replicas=folder.replicas + 1, size_bytes=folder.size_bytes + size_bytes)
    return tuple(folders.values())

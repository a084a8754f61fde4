"""Monitors one cluster: reads commits, samples log end offsets, and evaluates groups.

    monitor = ClusterMonitor(ClusterSettings("default", "127.0.0.1:9092"))
    monitor.start()                      # on a running event loop
    monitor.groups(); monitor.verdict("billing")
    await monitor.stop()

Rules:
1. The event loop owns all state. Threads do blocking I/O; their results are applied in slices.
2. Calls never wait for a broker. While brokers are down the last figures stay, `age_ms` is their age, and groups are
   evaluated at the time of these figures: a lost connection does not make a consumer stop.
3. The monitor starts without a cluster, and connects when it appears.
4. A request waits at most TIMEOUT_MS for a broker.
5. Once the cluster is known any of its brokers is used, since the bootstrap broker may be down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.base.clock import Clock, SystemClock
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.base.tasks import spawn_restarting
from ottla.client.addresses import Address
from ottla.client.client import Client, open_client
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError, error_from_code
from ottla.client.log_dirs import describe_log_dirs
from ottla.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, OffsetAndTimestamp, list_offsets_of_leader
from ottla.monitor.group_changes import TOPIC, Change, CommittedOffset, apply_change
from ottla.monitor.lag_evaluation import GroupVerdict
from ottla.monitor.offset_store import ClusterFacts, HistoryLimits, LogDirFacts, OffsetStore, PartitionFacts, TopicFacts
from ottla.monitor.offsets_reader import OffsetsReader, open_consumer
from ottla.operations.record_times import record_times
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-monitor"
POLL_SECONDS: Final = 0.5  # polling interval for new topics and for first commits of groups
UNREAD_PER_POLL: Final = 200
UNFOLLOWED_POLL_MS: Final = 60_000  # between samples of logs without a group
NEW_GROUP_POLL_MS: Final = 2_000  # between samples of logs that a group has just started to read
RULE_INPUTS_POLL_MS: Final = 10_000  # between reads of log directories
MIN_ISR_ROUNDS: Final = 6  # topic settings are read in every sixth of these rounds
CHANGES_PER_SLICE: Final = 300  # changes applied at once, about 2 ms
STALE_EXTRA_MS: Final = 10_000

STOP_SECONDS_MAX: Final = 10.0  # for a thread that waits for a broker

T = TypeVar("T")


class GroupFilter(NamedTuple):
    """A filter of groups: RE2 patterns, searched as in Burrow; None: no filter."""

    allow: Any = None
    deny: Any = None

    def accepts(self, group: str) -> bool:
        if self.allow is not None and self.allow.search(group) is None:
            return False
        return self.deny is None or self.deny.search(group) is None


class ClusterSettings(NamedTuple):
    """The connection to a cluster, and the intervals."""

    name: str
    bootstrap: str
    properties: Mapping[str, str] = {}
    limits: HistoryLimits = HistoryLimits()
    offset_refresh_ms: int = 10_000
    topic_refresh_ms: int = 5_000
    groups: GroupFilter = GroupFilter()
    watched_topics: tuple[str, ...] = ()  # topic patterns that are sampled as often as those with groups
    with_log_dirs: bool = False
    with_min_isr: bool = False

    def make_client(self) -> Client:
        return open_client(self.bootstrap, self.properties, CLIENT_ID)

    def make_consumer(self) -> Any:
        return open_consumer(self.bootstrap, {"client.id": CLIENT_ID, **self.properties})

    def check_properties(self) -> None:
        """Raises ClientError if the properties are invalid; does not connect."""
        self.make_client().close()
        self.make_consumer().close()


class ClusterMonitor:
    """See the module docstring."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        clock: Clock | None = None,
        make_asker: Callable[[], BrokerRequests] | None = None,
        reader: OffsetsReader | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.clock = clock or SystemClock()
        self.store = OffsetStore(settings.name, settings.limits)
        self.facts: ClusterFacts | None = None
        self.log_dirs: list[LogDirFacts] = []
        self.min_isr: dict[str, int] = {}
        self.brokers_seen_ms: dict[int, int] = {}
        self.facts_ms: int | None = None  # when they were valid
        self.ends_ms: int | None = None
        self._started_ms = self.clock.now_ms()
        self.problem = ""  # why the cluster cannot be reached; "" if it can
        self.has_read_old_commits = False
        make_asker = make_asker or (lambda: BrokerRequests(settings.make_client))
        self._asker, self._ends_asker = make_asker(), make_asker()
        self._reader = reader or OffsetsReader(settings.make_consumer, self.clock)
        self._offsets_topic: UUID | None = None
        self._threads = {name: ThreadPoolExecutor(1, f"monitor-{name}") for name in ("cluster", "ends", "commits")}
        self._tasks: list[asyncio.Task[None]] = []

    # ---- queries

    def groups(self) -> list[str]:
        return self.store.group_names()

    def verdict(self, group: str) -> GroupVerdict | None:
        """None if the group does not exist. For thousands of partitions use `verdict_in_slices`."""
        return self.store.verdict(group, self.evaluation_ms())

    async def verdict_in_slices(self, group: str) -> GroupVerdict | None:
        """The same, yielding to other tasks in between."""
        for found in self.store.verdict_in_slices(group, self.evaluation_ms()):
            if found is not None:
                return found
            await asyncio.sleep(0)
        return None

    def group_version(self, group: str) -> object:
        """A version of a group's input for evaluation: changes with commits, and every few seconds."""
        known = self.store.groups.get(group)
        return self.ends_ms, known and known.last_commit_ms, known and len(known.topics)

    def forget(self, group: str) -> bool:
        """Forget a group until its next commit; returns whether it was known."""
        return self.store.delete_group(group)

    @property
    def is_ready(self) -> bool:
        """Whether verdicts are valid: old commits are read, and end offsets are known."""
        return self.has_read_old_commits and self.ends_ms is not None

    @property
    def is_stale(self) -> bool:
        """Whether the cluster has not answered for longer than two refresh intervals."""
        limit_ms = 2 * max(self.settings.offset_refresh_ms, self.settings.topic_refresh_ms) + STALE_EXTRA_MS
        age_ms = self.age_ms()
        return age_ms is None or age_ms > limit_ms

    @property
    def is_lost(self) -> bool:
        """Whether no broker answers at present."""
        seen_ms = self.facts_ms if self.facts_ms is not None else self._started_ms
        return self.clock.now_ms() - seen_ms > self.settings.topic_refresh_ms + TIMEOUT_MS

    def age_ms(self) -> int | None:
        """The age of the figures; None if there are none yet."""
        if self.facts_ms is None or self.ends_ms is None:
            return None
        return max(0, self.clock.now_ms() - min(self.facts_ms, self.ends_ms))

    def evaluation_ms(self) -> int:
        """The time at which groups are evaluated."""
        return self.ends_ms if self.is_stale and self.ends_ms is not None else self.clock.now_ms()

    def configure_rules(self, watched: tuple[str, ...], *, with_folders: bool, with_min_isr: bool) -> None:
        """Configure what rules need besides groups; may change at run time."""
        self.settings = self.settings._replace(
            watched_topics=watched, with_log_dirs=with_folders, with_min_isr=with_min_isr
        )

    # ---- tasks

    def start(self) -> None:
        """Requires a running event loop."""
        loops = (self._poll_metadata, self._read_commits, self._poll_end_offsets, self._poll_rule_inputs)
        self._tasks = [spawn_restarting(loop, f"monitor of {self.name}: {loop.__name__}") for loop in loops]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        closing = {"cluster": self._asker.close, "ends": self._ends_asker.close, "commits": self._reader.close}
        closed = asyncio.gather(*(self._run(name, close) for name, close in closing.items()), return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(closed, STOP_SECONDS_MAX)
        for thread in self._threads.values():
            thread.shutdown(wait=False)

    async def _poll_metadata(self) -> None:
        while True:
            try:
                facts = await self._run("cluster", self._asker.describe)
            except ClientError as problem:
                self._note_problem(str(problem))
            else:
                self._apply_metadata(facts)
            self.store.expire(self.clock.now_ms())
            await asyncio.sleep(self.settings.topic_refresh_ms / 1000)

    async def _read_commits(self) -> None:
        while True:
            partitions = self._offsets_partitions()
            if partitions == 0:
                self.has_read_old_commits = self.facts is not None  # no commits to read
                await asyncio.sleep(POLL_SECONDS)
                continue
            await self._restart_if_recreated()
            if self._reader.has_new_partitions(partitions):
                await self._run("commits", self._reader.follow, partitions, await self._offsets_ends(partitions))
            await self._apply_changes(await self._run("commits", self._reader.read))
            self.has_read_old_commits = self._reader.has_read_old_commits and not self._reader.is_unauthorized

    async def _poll_end_offsets(self) -> None:
        followed_due_ms = others_due_ms = new_due_ms = 0
        while True:
            now_ms = self.clock.monotonic_ms()
            if self.facts is None or not self.has_read_old_commits:
                await asyncio.sleep(POLL_SECONDS / 5)
                continue
            if now_ms >= followed_due_ms:
                followed_due_ms = now_ms + self.settings.offset_refresh_ms
                await self._sample_ends([*self.store.followed_partitions(), *self._watched_partitions()])
            elif now_ms >= new_due_ms and (new := list(self.store.without_recent_end)):
                new_due_ms = now_ms + NEW_GROUP_POLL_MS
                await self._sample_ends(new)
            if wanted := self.store.due_stable_ends(self.clock.now_ms()):
                await self._sample_ends(wanted, READ_COMMITTED)
            if unread := self.store.pending_first_unread(UNREAD_PER_POLL):
                await self._read_first_unread(unread)
            if now_ms >= others_due_ms:
                others_due_ms = now_ms + UNFOLLOWED_POLL_MS
                followers = self.store.followers
                await self._sample_ends([place for place in self._all_partitions() if place not in followers])
            await asyncio.sleep(min(POLL_SECONDS, self.settings.offset_refresh_ms / 1000))

    async def _poll_rule_inputs(self) -> None:
        look = 0
        while True:
            settings = self.settings
            if self.facts is not None and (settings.with_log_dirs or settings.with_min_isr):
                if settings.with_log_dirs:
                    self.log_dirs = await self._run("cluster", self._asker.log_dirs, list(self.facts.brokers))
                if settings.with_min_isr and (look % MIN_ISR_ROUNDS == 0 or not self.min_isr):
                    self.min_isr = await self._run("cluster", self._asker.min_isr, list(self.facts.topic_ids))
                look += 1
            await asyncio.sleep(RULE_INPUTS_POLL_MS / 1000 if look else POLL_SECONDS)

    async def _read_first_unread(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Without the right to read a topic the age of its records stays unknown."""
        found: Mapping[TopicPartition, int | None] = {}
        try:
            found = await self._run("ends", self._ends_asker.first_records, offsets)
        except ClientError as problem:
            logger.debug("%s: first unread records: %s", self.name, problem)
        for place, offset in offsets.items():
            self.store.add_first_unread(place, offset, found.get(place), is_known=place in found)

    async def _sample_ends(self, partitions: Sequence[TopicPartition], isolation_level: int = READ_UNCOMMITTED) -> None:
        """In batches. A broker that does not answer is skipped for the rest of the round."""
        assert self.facts is not None
        wanted = await self._run("ends", partitions_by_leader, self.facts, partitions)
        answered = not wanted and not self.problem
        for leader, led in wanted.items():
            try:
                for piece in batched(led, PARTITIONS_PER_REQUEST):
                    ends = await self._run("ends", self._ends_asker.end_offsets, leader, piece, isolation_level)
                    self._apply_ends(ends, self.store.add_stable_end if isolation_level else self.store.add_end)
                    answered = True
            except ClientError as problem:
                logger.debug("%s: no log end offsets from broker %d: %s", self.name, leader, problem)
        if answered:
            self.ends_ms = self.clock.now_ms()

    def _apply_ends(self, ends: Mapping[TopicPartition, int], take: Callable[[TopicPartition, int, int], None]) -> None:
        now_ms = self.clock.now_ms()
        for partition, end in ends.items():
            take(partition, end, now_ms)

    async def _apply_changes(self, changes: list[Change]) -> None:
        for piece in batched(changes, CHANGES_PER_SLICE):
            now_ms = self.clock.now_ms()
            for change in piece:
                if not isinstance(change, CommittedOffset) or self.settings.groups.accepts(change.group):
                    apply_change(self.store, change, now_ms)
            await asyncio.sleep(0)

    async def _offsets_ends(self, partitions: int) -> dict[int, int]:
        """The current end offsets of `__consumer_offsets`, where leaders answer."""
        assert self.facts is not None
        wanted = [TopicPartition(TOPIC, number) for number in range(partitions)]
        found: dict[int, int] = {}
        for leader, led in partitions_by_leader(self.facts, wanted).items():
            with suppress(ClientError):
                ends = await self._run("ends", self._ends_asker.end_offsets, leader, led)
                found |= {partition.partition: end for partition, end in ends.items()}
        return found

    async def _restart_if_recreated(self) -> None:
        """If the topic was recreated, its offsets restart at 0."""
        assert self.facts is not None
        topic_id = self.facts.topic_ids.get(TOPIC)
        if self._offsets_topic is not None and topic_id != self._offsets_topic:
            logger.warning("%s: %s was recreated, and is read from its beginning", self.name, TOPIC)
            await self._run("commits", self._reader.close)
        self._offsets_topic = topic_id

    def _apply_metadata(self, facts: ClusterFacts) -> None:
        counts: dict[str, int] = {}
        for item in facts.partitions:
            counts[item.topic] = counts.get(item.topic, 0) + 1
        self.store.set_topics({name: TopicFacts(facts.topic_ids[name], count) for name, count in counts.items()})
        self.facts = facts
        self.facts_ms = self.clock.now_ms()
        self.brokers_seen_ms |= dict.fromkeys(facts.brokers, self.facts_ms)
        if self.problem:
            logger.info("%s is reachable again", self.name)
            self.problem = ""

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("%s: %s", self.name, problem)
            self.problem = problem

    def _offsets_partitions(self) -> int:
        facts = self.store.topics.get(TOPIC)
        return facts.partitions if facts is not None else 0

    def _watched_partitions(self) -> list[TopicPartition]:
        if not self.settings.watched_topics:
            return []
        topics = {
            topic
            for topic in self.store.topics
            if any(fnmatchcase(topic, name) for name in self.settings.watched_topics)
        }
        followers = self.store.followers
        return [place for place in self._all_partitions() if place.topic in topics and place not in followers]

    def _all_partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(item.topic, item.partition) for item in self.facts.partitions) if self.facts else ()

    def _run(self, thread: str, work: Callable[..., T], *arguments: object) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads[thread], work, *arguments)

    def __repr__(self) -> str:
        return f"<ClusterMonitor {self.store!r}, {self.problem or 'all is well'}>"


# ---- requests to brokers
TIMEOUT_MS: Final = 5_000
PARTITIONS_PER_REQUEST: Final = 1_000
TOPICS_PER_REQUEST: Final = 100
MIN_ISR: Final = "min.insync.replicas"
# A topic with leaderless partitions is still a topic.
_STILL_A_TOPIC: Final = (Error.NONE, Error.LEADER_NOT_AVAILABLE, Error.REPLICA_NOT_AVAILABLE)


class BrokerRequests:
    """Requests to one cluster. Not thread-safe."""

    def __init__(self, make_client: Callable[[], Client]) -> None:
        self._make_client = make_client
        self._client: Client | None = None
        self._first: list[Address] = []

    def describe(self) -> ClusterFacts:
        """Raises ClientError."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self._open().call(request, MetadataResponse, _check)
        self._update_bootstrap(answer)
        topics = [topic for topic in answer.topics if topic.name and topic.error_code in _STILL_A_TOPIC]
        return ClusterFacts(
            answer.cluster_id or "",
            answer.controller_id,
            {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers},
            {topic.name: topic.topic_id for topic in topics if topic.name},
            tuple(partition for topic in topics for partition in _partitions(topic)),
        )

    def end_offsets(
        self, leader: int, partitions: Sequence[TopicPartition], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """The log end offsets of partitions that this broker leads; others are missing. With READ_COMMITTED: the last
        stable offsets.

        Raises ClientError.
        """
        answers = list_offsets_of_leader(self._open(), leader, partitions, LATEST, isolation_level)
        return {partition: answer.offset for partition, answer in answers if isinstance(answer, OffsetAndTimestamp)}

    def first_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The timestamp of the first record at or after each offset; None: only transaction markers follow.

        Raises ClientError.
        """
        return record_times(self._open(), offsets)[0]

    def log_dirs(self, brokers: Iterable[int]) -> list[LogDirFacts]:
        """The log directories of the brokers that answer."""
        found: list[LogDirFacts] = []
        for broker in brokers:
            try:
                dirs = describe_log_dirs(self._open(), [broker], [])[broker]  # without the sizes of replicas
            except ClientError as trouble:
                logger.debug("no log directories from broker %d: %s", broker, trouble)
                continue
            found += [
                LogDirFacts(broker, each.path, bool(each.error), each.total_bytes, each.usable_bytes) for each in dirs
            ]
        return found

    def min_isr(self, topics: Sequence[str]) -> dict[str, int]:
        """min.insync.replicas of the topics that we may describe."""
        found: dict[str, int] = {}
        for piece in batched(topics, TOPICS_PER_REQUEST):
            try:
                described = describe_configs(self._open(), Resource.TOPIC, piece)
            except ClientError as trouble:  # a topic deleted meanwhile fails the whole batch
                logger.debug("no settings of %d topics: %s", len(piece), trouble)
                continue
            for name, configs in described.items():
                value = next((config.value for config in configs if config.name == MIN_ISR), None)
                if value is not None and value.isdecimal():
                    found[name] = int(value)
        return found

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> Client:
        if self._client is None:
            self._client = self._make_client()
            self._client.timeout_ms = min(self._client.timeout_ms, TIMEOUT_MS)
            self._client.connect_retry_ms = 0
            self._first = list(self._client.bootstrap)
        return self._client

    def _update_bootstrap(self, answer: MetadataResponse) -> None:
        client = self._open()
        client.metadata = MetadataResponse(brokers=answer.brokers, controller_id=answer.controller_id)
        known = [Address(broker.host, broker.port) for broker in answer.brokers]
        client.bootstrap = [*self._first, *(address for address in known if address not in self._first)]

    def __repr__(self) -> str:
        return f"<BrokerRequests {self._client!r}>"


def partitions_by_leader(facts: ClusterFacts, wanted: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """Partitions by leader; those without a leader are left out."""
    leaders = {(item.topic, item.partition): item.leader for item in facts.partitions}
    found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition in wanted:
        leader = leaders.get(partition)
        if leader is not None and leader in facts.brokers:
            found[leader].append(partition)
    return dict(found)


def batched(items: Sequence[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece


def _check(answer: MetadataResponse) -> None:
    if answer.error_code:
        raise error_from_code(answer.error_code)


def _partitions(topic: MetadataResponseTopic) -> Iterator[PartitionFacts]:
    for item in topic.partitions:
        yield PartitionFacts(
            topic.name or "", item.partition_index, item.leader_id, tuple(item.replica_nodes), tuple(item.isr_nodes)
        )

"""One cluster under watch: reads commits, asks for the ends of logs, and says what that means for its groups.

    monitor = ClusterMonitor(ClusterSettings("default", "127.0.0.1:9092"))
    monitor.start()                      # on a running event loop
    monitor.groups(); monitor.verdict("billing")
    await monitor.stop()

Rules:
1. The event loop owns all that is known. Threads read and ask; what they bring is taken in slices.
2. Nobody who asks here waits for a broker. When brokers are away the last numbers stay, `age_ms` says how old they are,
   and groups are judged by the time at which they were true: that nothing can be seen does not make a consumer stop.
3. It starts without a cluster, and finds it when it comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.base.clock import Clock, SystemClock
from ottla.base.names import TopicPartition
from ottla.base.tasks import keep_running
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.opening import open_client
from ottla.monitor.asking import PARTITIONS_A_QUESTION, TIMEOUT_MS, Asker, by_leader, pieces
from ottla.monitor.commits import CommitReader, open_consumer
from ottla.monitor.evaluation import GroupVerdict
from ottla.monitor.facts import ClusterFacts, FolderFacts
from ottla.monitor.group_changes import TOPIC, Change, Committed, apply_change
from ottla.monitor.store import Limits, Store, TopicFacts

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "ottla-monitor"
LOOK_SECONDS: Final = 0.5  # how soon something new is noticed: a topic, a group's first commit
OTHERS_MS: Final = 60_000  # between looks at logs that no group follows
NEW_MS: Final = 2_000  # between looks at logs that a group has just begun to follow
EXTRAS_MS: Final = 10_000  # between looks at disks
MIN_ISR_ROUNDS: Final = 6  # settings of topics are asked for in every sixth of these looks
SLICE: Final = 300  # changes that are taken in one go, about 2 ms
STALE_EXTRA_MS: Final = 10_000

STOP_SECONDS_MAX: Final = 10.0  # a thread that waits for a broker

T = TypeVar("T")


class Pattern(NamedTuple):
    """Which groups count: RE2 expressions, searched for as Burrow does; None: all, or none."""

    allow: Any = None
    deny: Any = None

    def accepts(self, group: str) -> bool:
        if self.allow is not None and self.allow.search(group) is None:
            return False
        return self.deny is None or self.deny.search(group) is None


class ClusterSettings(NamedTuple):
    """How to reach a cluster, and how closely to look at it."""

    name: str
    bootstrap: str
    properties: Mapping[str, str] = {}
    limits: Limits = Limits()
    offset_refresh_ms: int = 10_000
    topic_refresh_ms: int = 5_000
    groups: Pattern = Pattern()
    watched: tuple[str, ...] = ()  # patterns of topics that are looked at as often as those that groups follow
    with_folders: bool = False
    with_min_isr: bool = False

    def make_client(self) -> Client:
        return open_client(self.bootstrap, self.properties, CLIENT_ID)

    def make_consumer(self) -> Any:
        return open_consumer(self.bootstrap, {"client.id": CLIENT_ID, **self.properties})

    def check(self) -> None:
        """Raises ClientError if no client can be made of this; nobody is asked."""
        self.make_client().close()
        self.make_consumer().close()


class ClusterMonitor:
    """See above."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        clock: Clock | None = None,
        make_asker: Callable[[], Asker] | None = None,
        reader: CommitReader | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.clock = clock or SystemClock()
        self.store = Store(settings.name, settings.limits)
        self.facts: ClusterFacts | None = None
        self.folders: list[FolderFacts] = []
        self.min_isr: dict[str, int] = {}
        self.brokers_seen_ms: dict[int, int] = {}
        self.facts_ms: int | None = None  # when they were true
        self.ends_ms: int | None = None
        self._started_ms = self.clock.now_ms()
        self.problem = ""  # why the cluster cannot be asked; empty when it can
        self.has_read_past = False
        make_asker = make_asker or (lambda: Asker(settings.make_client))
        self._asker, self._ends_asker = make_asker(), make_asker()
        self._reader = reader or CommitReader(settings.make_consumer, self.clock)
        self._offsets_topic: UUID | None = None
        self._threads = {name: ThreadPoolExecutor(1, f"monitor-{name}") for name in ("cluster", "ends", "commits")}
        self._tasks: list[asyncio.Task[None]] = []

    # For whoever asks

    def groups(self) -> list[str]:
        return self.store.group_names()

    def verdict(self, group: str) -> GroupVerdict | None:
        """None if there is no such group. For a group of thousands of partitions see `verdict_in_slices`."""
        return self.store.verdict(group, self.evaluation_ms())

    async def verdict_in_slices(self, group: str) -> GroupVerdict | None:
        """The same, letting others go on in between."""
        for found in self.store.verdict_in_slices(group, self.evaluation_ms()):
            if found is not None:
                return found
            await asyncio.sleep(0)
        return None

    def news_of(self, group: str) -> object:
        """Changes when there is something new to judge a group by, and with the time every few seconds."""
        known = self.store.groups.get(group)
        return self.ends_ms, known and known.last_commit_ms, known and len(known.topics)

    def forget(self, group: str) -> bool:
        """Forget a group until its next commit; whether it was known."""
        return self.store.delete_group(group)

    @property
    def is_ready(self) -> bool:
        """Whether verdicts mean something: the past was read, and the logs were looked at."""
        return self.has_read_past and self.ends_ms is not None

    @property
    def is_stale(self) -> bool:
        """Whether the cluster has not been seen for longer than it should."""
        limit_ms = 2 * max(self.settings.offset_refresh_ms, self.settings.topic_refresh_ms) + STALE_EXTRA_MS
        age_ms = self.age_ms()
        return age_ms is None or age_ms > limit_ms

    @property
    def is_lost(self) -> bool:
        """Whether no broker answers at the moment."""
        seen_ms = self.facts_ms if self.facts_ms is not None else self._started_ms
        return self.clock.now_ms() - seen_ms > self.settings.topic_refresh_ms + TIMEOUT_MS

    def age_ms(self) -> int | None:
        """How old the numbers are; None if there are none yet."""
        if self.facts_ms is None or self.ends_ms is None:
            return None
        return max(0, self.clock.now_ms() - min(self.facts_ms, self.ends_ms))

    def evaluation_ms(self) -> int:
        """The time by which groups are judged."""
        return self.ends_ms if self.is_stale and self.ends_ms is not None else self.clock.now_ms()

    def look_for(self, watched: tuple[str, ...], *, with_folders: bool, with_min_isr: bool) -> None:
        """What rules want to know besides groups; may change while it runs."""
        self.settings = self.settings._replace(watched=watched, with_folders=with_folders, with_min_isr=with_min_isr)

    # Life

    def start(self) -> None:
        """Needs a running event loop."""
        loops = (self._follow_cluster, self._follow_commits, self._follow_ends, self._follow_extras)
        self._tasks = [keep_running(loop, f"monitor of {self.name}: {loop.__name__}") for loop in loops]

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

    async def _follow_cluster(self) -> None:
        while True:
            try:
                facts = await self._run("cluster", self._asker.describe)
            except ClientError as problem:
                self._note_problem(str(problem))
            else:
                self._take_facts(facts)
            self.store.expire(self.clock.now_ms())
            await asyncio.sleep(self.settings.topic_refresh_ms / 1000)

    async def _follow_commits(self) -> None:
        while True:
            partitions = self._offsets_partitions()
            if partitions == 0:
                self.has_read_past = self.facts is not None  # there is no past
                await asyncio.sleep(LOOK_SECONDS)
                continue
            await self._begin_anew_if_replaced()
            if self._reader.is_new(partitions):
                await self._run("commits", self._reader.follow, partitions, await self._offsets_ends(partitions))
            await self._take_changes(await self._run("commits", self._reader.read))
            self.has_read_past = self._reader.has_read_past and not self._reader.is_refused

    async def _follow_ends(self) -> None:
        followed_due_ms = others_due_ms = new_due_ms = 0
        while True:
            now_ms = self.clock.monotonic_ms()
            if self.facts is None or not self.has_read_past:
                await asyncio.sleep(LOOK_SECONDS / 5)
                continue
            if now_ms >= followed_due_ms:
                followed_due_ms = now_ms + self.settings.offset_refresh_ms
                await self._ask_ends([*self.store.followed_partitions(), *self._watched_partitions()])
            elif now_ms >= new_due_ms and (new := list(self.store.without_end)):
                new_due_ms = now_ms + NEW_MS
                await self._ask_ends(new)
            if now_ms >= others_due_ms:
                others_due_ms = now_ms + OTHERS_MS
                followers = self.store.followers
                await self._ask_ends([place for place in self._all_partitions() if place not in followers])
            await asyncio.sleep(min(LOOK_SECONDS, self.settings.offset_refresh_ms / 1000))

    async def _follow_extras(self) -> None:
        look = 0
        while True:
            settings = self.settings
            if self.facts is not None and (settings.with_folders or settings.with_min_isr):
                if settings.with_folders:
                    self.folders = await self._run("cluster", self._asker.folders, list(self.facts.brokers))
                if settings.with_min_isr and (look % MIN_ISR_ROUNDS == 0 or not self.min_isr):
                    self.min_isr = await self._run("cluster", self._asker.min_isr, list(self.facts.topic_ids))
                look += 1
            await asyncio.sleep(EXTRAS_MS / 1000 if look else LOOK_SECONDS)

    async def _ask_ends(self, partitions: Sequence[TopicPartition]) -> None:
        """One piece after the other; a broker that does not answer is left out of the rest of the round."""
        assert self.facts is not None
        wanted = await self._run("ends", by_leader, self.facts, partitions)
        answered = not wanted and not self.problem
        for leader, led in wanted.items():
            try:
                for piece in pieces(led, PARTITIONS_A_QUESTION):
                    self._take_ends(await self._run("ends", self._ends_asker.ends, leader, piece))
                    answered = True
            except ClientError as problem:
                logger.debug("%s: broker %d does not tell where its logs end: %s", self.name, leader, problem)
        if answered:
            self.ends_ms = self.clock.now_ms()

    def _take_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        now_ms = self.clock.now_ms()
        for partition, end in ends.items():
            self.store.add_end(partition, end, now_ms)

    async def _take_changes(self, changes: list[Change]) -> None:
        for piece in pieces(changes, SLICE):
            now_ms = self.clock.now_ms()
            for change in piece:
                if not isinstance(change, Committed) or self.settings.groups.accepts(change.group):
                    apply_change(self.store, change, now_ms)
            await asyncio.sleep(0)

    async def _offsets_ends(self, partitions: int) -> dict[int, int]:
        """Where the topic of commits ends now, as far as its leaders tell."""
        assert self.facts is not None
        wanted = [TopicPartition(TOPIC, number) for number in range(partitions)]
        found: dict[int, int] = {}
        for leader, led in by_leader(self.facts, wanted).items():
            with suppress(ClientError):
                ends = await self._run("ends", self._ends_asker.ends, leader, led)
                found |= {partition.partition: end for partition, end in ends.items()}
        return found

    async def _begin_anew_if_replaced(self) -> None:
        """The topic was deleted and made again: its offsets begin at 0."""
        assert self.facts is not None
        topic_id = self.facts.topic_ids.get(TOPIC)
        if self._offsets_topic is not None and topic_id != self._offsets_topic:
            logger.warning("%s: %s was made anew, and is read from its beginning", self.name, TOPIC)
            await self._run("commits", self._reader.close)
        self._offsets_topic = topic_id

    def _take_facts(self, facts: ClusterFacts) -> None:
        counts: dict[str, int] = {}
        for item in facts.partitions:
            counts[item.topic] = counts.get(item.topic, 0) + 1
        self.store.set_topics({name: TopicFacts(facts.topic_ids[name], count) for name, count in counts.items()})
        self.facts = facts
        self.facts_ms = self.clock.now_ms()
        self.brokers_seen_ms |= dict.fromkeys(facts.brokers, self.facts_ms)
        if self.problem:
            logger.info("%s can be asked again", self.name)
            self.problem = ""

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("%s: %s", self.name, problem)
            self.problem = problem

    def _offsets_partitions(self) -> int:
        facts = self.store.topics.get(TOPIC)
        return facts.partitions if facts is not None else 0

    def _watched_partitions(self) -> list[TopicPartition]:
        if not self.settings.watched:
            return []
        topics = {
            topic for topic in self.store.topics if any(fnmatchcase(topic, name) for name in self.settings.watched)
        }
        followers = self.store.followers
        return [place for place in self._all_partitions() if place.topic in topics and place not in followers]

    def _all_partitions(self) -> Iterable[TopicPartition]:
        return (TopicPartition(item.topic, item.partition) for item in self.facts.partitions) if self.facts else ()

    def _run(self, thread: str, work: Callable[..., T], *arguments: object) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads[thread], work, *arguments)

    def __repr__(self) -> str:
        return f"<ClusterMonitor {self.store!r}, {self.problem or 'all is well'}>"

"""Opening the logs that are on disk when a broker starts.

Cleanly closed logs open without being read, so they are opened before the first client is served. After a crash each
log is recovered in a worker thread; a partition serves as soon as its own recovery is done, whatever the others do.

Of the threads that recover a folder one takes the smallest log that is left, the others the largest: most partitions
are back at once, and the large ones do not come last. Logs with next to nothing to read are taken many at a time:
handing each of them to a thread and back would cost more than opening it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.broker.replicas.roles import role_of
from ottla.broker.slices import in_slices
from ottla.controller import tree
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.errors import LogDirError
from ottla.storage.folder import bytes_past
from ottla.storage.log import Log
from ottla.storage.log_dir import FoundLog
from ottla.storage.log_dirs import run_doomed

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0  # so long the start waits for recoveries, so that a small broker comes back whole
LARGE_PATIENCE_SECONDS = 0.2  # and so long for the last of them when only large ones are left
SMALL_BYTES_MAX = 64 << 20  # to read: a few hundredths of a second
TINY_BYTES_MAX = 64 << 10
TINY_AT_ONCE = 64


class Unclean:
    """A partition that has to be recovered: nearly always one folder, two after an interrupted move."""

    def __init__(self, copies: list[FoundLog], topic: TopicImage) -> None:
        self.copies = copies
        self.topic = topic
        self.unread_bytes = 0

    @property
    def is_tiny(self) -> bool:
        return self.unread_bytes <= TINY_BYTES_MAX

    @property
    def is_small(self) -> bool:
        return self.unread_bytes <= SMALL_BYTES_MAX

    def __repr__(self) -> str:
        return f"<Unclean {self.copies[0].partition}, {self.unread_bytes} bytes to read>"


class LogLoading:
    """Opens what the folders hold and hands it to the replicas."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        publisher: Publisher,
        on_recovered: Callable[[TopicPartition], None],
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._on_recovered = on_recovered
        self._log_dirs = replicas.log_dirs
        self._tasks: set[asyncio.Task[None]] = set()
        self._unknown: list[list[FoundLog]] = []  # of topics whose node in the store cannot be read
        self._small_left = 0  # logs to recover that take no time worth mentioning
        self._small_done = asyncio.Event()
        self.unopened: list[Unclean] = []  # logs for which there was no room: retry() them when there is some

    async def run(self, stopping: asyncio.Event) -> None:
        """Open all clean logs; start the recovery of the others and wait for it a little.

        A broker that is to stop meanwhile recovers no more than what it has begun with.
        """
        unclean: list[Unclean] = []
        async for copies in in_slices(group_by_partition(self._log_dirs.found)):
            found = copies[0]
            topic = self._topic_of(found)
            if topic is None and tree.topic_path(found.partition.topic) in self._node.image.damaged:
                self._replicas.recovering.add(found.partition)
                self._unknown.append(copies)
            elif topic is None:
                for copy in copies:
                    self._set_aside(copy, "no such topic is known")
            elif self._node.id not in topic.partitions[found.partition.partition].replicas:
                for copy in copies:
                    self._set_aside(copy, "other brokers hold this partition now")
            elif found.is_clean and len(copies) == 1:
                self._open_clean(found, topic)
            else:
                self._replicas.recovering.add(found.partition)
                unclean.append(Unclean(copies, topic))
        if unclean:
            await self._start_recovery(unclean)
            await self._wait_a_little(stopping)
        if self._unknown:
            logger.warning("%d partitions wait for the nodes of their topics to be restored", len(self._unknown))
            self._node.images.on_image(self._look_for_topics)

    def _look_for_topics(self, _old: MetadataImage, _new: MetadataImage) -> None:
        """Nodes of topics that could not be read can: open the logs that have waited for it."""
        known = [(copies, topic) for copies in self._unknown if (topic := self._topic_of(copies[0])) is not None]
        if known:
            self._unknown = [copies for copies in self._unknown if self._topic_of(copies[0]) is None]
            unclean = [Unclean(copies, topic) for copies, topic in known]
            task = tasks.start(self._start_recovery(unclean), "opening the logs of restored topics")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _wait_a_little(self, stopping: asyncio.Event) -> None:
        """A small broker comes back whole; with much to read, as soon as all the rest is there."""
        waits = {tasks.ask(event.wait(), "a start") for event in (self._small_done, stopping)}
        await asyncio.wait(waits, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if stopping.is_set():
            self.cancel()
            return
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=LARGE_PATIENCE_SECONDS)
        left = len(self._replicas.recovering)
        if self._tasks and left:
            logger.info("%d partitions are still recovering; the others are served", left)

    async def retry(self, folder: str) -> None:
        """There is room in this folder of log.dirs: open what could not be opened for want of it."""
        due = [each for each in self.unopened if os.path.dirname(each.copies[0].directory) == folder]
        self.unopened = [each for each in self.unopened if each not in due]
        await self._recover_all(deque(due), takes_smallest=True)

    def missing(self) -> list[TopicPartition]:
        """Partitions that must lie in a folder which is out of service: they are nowhere else."""
        if self._log_dirs.is_whole:
            return []
        replicas = self._replicas
        return [
            name
            for topic in self._node.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._node.id in state.replicas
            and (name := TopicPartition(topic.name, index)) not in replicas.partitions
            and name not in replicas.recovering
        ]

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _topic_of(self, found: FoundLog) -> TopicImage | None:
        topic = self._node.image.topics.get(found.partition.topic)
        return topic if topic is not None and found.partition.partition < len(topic.partitions) else None

    def _open(self, found: FoundLog) -> Log:
        settings = self._node.live.of_topic(self._node.image, found.partition.topic)
        return self._log_dirs.open_log(found, settings)

    def _open_clean(self, found: FoundLog, topic: TopicImage) -> None:
        try:
            self._take(found, self._open(found), topic)
        except (OSError, KafkaError, LogDirError) as error:
            self._give_up(Unclean([found], topic), error)

    def _give_up(self, each: Unclean, error: Exception) -> None:
        """One partition that cannot be opened must not keep the others from being served; nor may a failed disk."""
        found = each.copies[0]
        logger.error("cannot open %s: %s", found.directory, error)
        if isinstance(error, OSError) and not files.is_passing(error):
            self._replicas.recovering.discard(found.partition)
            self._log_dirs.fail_at(found.directory, f"cannot open {found.directory}: {error}")
            return
        self._replicas.recovering.add(found.partition)  # nobody may make a new one in its place
        self._publisher.failed.add(found.partition)
        if isinstance(error, OSError):
            self.unopened.append(each)

    async def _start_recovery(self, unclean: list[Unclean]) -> None:
        """Threads for each folder, as many as num.recovery.threads.per.data.dir says."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._node.workers, measure, unclean)
        self._small_left = sum(each.is_small for each in unclean)
        if self._small_left == 0:
            self._small_done.set()
        threads = self._node.live.under(self._node.image).num_recovery_threads_per_data_dir
        by_folder: dict[str, deque[Unclean]] = {}
        for each in sorted(unclean, key=lambda each: each.unread_bytes):
            by_folder.setdefault(os.path.dirname(each.copies[0].directory), deque()).append(each)
        for queue in by_folder.values():
            for number in range(min(threads, len(queue))):
                recover = partial(self._recover_all, queue, takes_smallest=number == 0)
                task = tasks.keep_running(recover, "recovering logs")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _recover_all(self, queue: deque[Unclean], *, takes_smallest: bool) -> None:
        while queue:
            await self._recover(next_to_recover(queue, takes_smallest=takes_smallest))

    async def _recover(self, some: list[Unclean]) -> None:
        opened = await asyncio.get_running_loop().run_in_executor(self._node.workers, self._open_all, some)
        unforeseen: Exception | None = None
        async for each, logs in in_slices(zip(some, opened, strict=True)):
            try:
                if isinstance(logs, Exception):
                    raise logs
                self._serve(list(zip(each.copies, logs, strict=True)), each.topic)
            except (OSError, KafkaError, LogDirError) as error:
                self._give_up(each, error)
            except Exception as error:  # noqa: BLE001 (raised when the others are served)
                unforeseen = error
            finally:
                self._small_left -= each.is_small
                if self._small_left == 0:
                    self._small_done.set()
        if unforeseen is not None:
            raise unforeseen

    def _open_all(self, some: list[Unclean]) -> list[list[Log] | Exception]:
        """In a worker: what could not be opened is told by its error, and keeps nobody else from being opened."""
        opened: list[list[Log] | Exception] = []
        for each in some:
            try:
                opened.append([self._open(found) for found in each.copies])
            except Exception as error:  # noqa: BLE001 (whoever waits for them judges it)
                opened.append(error)
        return opened

    def _serve(self, opened: list[tuple[FoundLog, Log]], topic: TopicImage) -> None:
        partition = opened[0][0].partition
        self._replicas.recovering.discard(partition)
        if any(self._log_dirs.has_failed(found.directory) for found, _ in opened):
            for _, log in opened:
                log.abandon()
            return
        self._publisher.failed.discard(partition)
        self._take(*(self._keep_best(opened, topic) if len(opened) > 1 else opened[0]), topic)

    def _keep_best(self, opened: list[tuple[FoundLog, Log]], topic: TopicImage) -> tuple[FoundLog, Log]:
        """A move between folders was interrupted when both had the whole log, or a folder that had failed is back.

        What was written last under the highest leader epoch stays, and of those what reaches further: as in an election
        it has everything that is committed. In a folder that was away records may stand that nobody else has taken.
        """
        own = [copy for copy in opened if copy[1].topic_id in (None, topic.topic_id)] or opened
        best = max(own, key=lambda copy: (copy[1].epochs.latest_epoch, copy[1].end_offset, copy[1].log_start_offset))
        for found, log in opened:
            if log is best[1]:
                continue
            log.abandon()
            if log.topic_id in (None, topic.topic_id):
                logger.warning("%s goes: %s has all of it", found.directory, best[0].directory)
                self._log_dirs.drop(found)
            else:
                self._set_aside(found, "it belongs to another topic of the same name")
        return best

    def _take(self, found: FoundLog, log: Log, topic: TopicImage) -> None:
        """Serve an opened log, if it still is what the metadata says."""
        current = self._topic_of(found)
        if current is None or current.topic_id != topic.topic_id:
            log.abandon()
            self._set_aside(found, "its topic was deleted")
            self._publisher.open_soon(found.partition)
            return
        if log.topic_id is not None and log.topic_id != topic.topic_id:
            log.abandon()
            self._set_aside(found, "it belongs to another topic of the same name")
            self._publisher.open_soon(found.partition)
            return
        self._log_dirs.adopt(found, log)
        watermark = self._log_dirs.folder_of(log).high_watermarks.get(found.partition, 0)
        partition = self._replicas.adopt(log, topic.topic_id, watermark)
        state: PartitionImage = current.partitions[found.partition.partition]
        if self._node.id not in state.replicas:  # it was moved away while we were not there
            doomed = self._replicas.retire(*found.partition)
            if doomed is not None:
                run_doomed(doomed)
            return
        partition.take_role(role_of(state), self._node.clock.monotonic_ms())
        self._on_recovered(found.partition)

    def _set_aside(self, found: FoundLog, why: str) -> None:
        """Kafka's way with folders that it has no use for: they get a name of their own and are left to a person."""
        place = self._log_dirs.set_aside(found)
        logger.warning("%s is not used: %s. It was moved to %s", found.directory, why, place)


def next_to_recover(queue: deque[Unclean], *, takes_smallest: bool) -> list[Unclean]:
    """The next log, or some that are opened in less time than it takes to hand them over."""
    take = queue.popleft if takes_smallest else queue.pop
    taken = [take()]
    while queue and taken[-1].is_tiny and queue[0 if takes_smallest else -1].is_tiny and len(taken) < TINY_AT_ONCE:
        taken.append(take())
    return taken


def measure(unclean: list[Unclean]) -> None:
    """In a worker: learn how much of each log recovery must read."""
    for each in unclean:
        for found in each.copies:
            try:
                each.unread_bytes += bytes_past(found.directory, found.recovery_point)
            except OSError:
                continue  # whoever opens it says what is wrong


def group_by_partition(found: list[FoundLog]) -> list[list[FoundLog]]:
    """Nearly always one folder for each partition."""
    groups: dict[TopicPartition, list[FoundLog]] = {}
    for one in found:
        groups.setdefault(one.partition, []).append(one)
    return list(groups.values())

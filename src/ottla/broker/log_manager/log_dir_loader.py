"""Opening of existing logs at startup, with recovery after a crash, and rebuilds of damaged indexes. How one log is
opened: storage/log_loader.py.

Cleanly closed logs are opened without reading them, before the first client is served. After a crash each log is
recovered in a worker thread; a partition is served as soon as its own recovery is done.

Of the recovery threads of a directory one takes the smallest remaining log, the others the largest: most partitions
return at once, and the large ones are not the last. Logs with almost nothing to read are opened many at a time, because
passing each of them to a thread would cost more than opening it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from ottla.base import tasks
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.metadata_publisher import BrokerMetadataPublisher, partition_state_of
from ottla.broker.node import Node
from ottla.broker.offload import in_slices
from ottla.controller import tree
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.errors import LogDirError
from ottla.storage.log import Log
from ottla.storage.log_dir import UnopenedLog
from ottla.storage.log_dirs import run_dir_delete
from ottla.storage.partition_dir import bytes_from_offset
from ottla.storage.segment import IndexRebuild, RebuildNeededError, Segment
from ottla.storage.transaction_check import TransactionIndexWrongError, TransactionRebuild

logger = logging.getLogger(__name__)

RECOVERY_WAIT_SECONDS = 2.0  # maximum wait of the start for recoveries; enough for a small broker
LARGE_RECOVERY_WAIT_SECONDS = 0.2  # the same if only large logs remain
SMALL_BYTES_MAX = 64 << 20  # to read: a few hundredths of a second
TINY_BYTES_MAX = 64 << 10
TINY_LOGS_PER_BATCH = 64


class UncleanLog:
    """A partition that needs recovery: usually one directory, two after an interrupted move."""

    def __init__(self, copies: list[UnopenedLog], topic: TopicImage) -> None:
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
        return f"<UncleanLog {self.copies[0].partition}, {self.unread_bytes} bytes to read>"


class LogDirLoader:
    """Opens the logs in the log directories and adds them to the replicas."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        publisher: BrokerMetadataPublisher,
        on_recovered: Callable[[TopicPartition], None],
    ) -> None:
        self._node = node
        self._replicas = replicas
        self._publisher = publisher
        self._on_recovered = on_recovered
        self._log_dirs = replicas.log_dirs
        self._tasks: set[asyncio.Task[None]] = set()
        self._unknown_topic_logs: list[list[UnopenedLog]] = []  # of topics whose node in the store cannot be read
        self._small_pending = 0  # small logs that still need recovery
        self._small_done = asyncio.Event()
        self.without_space: list[UncleanLog] = []  # logs that did not fit on the disk; see retry()

    async def run(self, stopping: asyncio.Event) -> None:
        """Open all clean logs; start the recovery of the others and wait for a short time.

        If the broker is stopped meanwhile, only started recoveries finish.
        """
        unclean: list[UncleanLog] = []
        async for copies in in_slices(group_by_partition(self._log_dirs.unopened)):
            found = copies[0]
            topic = self._topic_of(found)
            if topic is None and tree.topic_path(found.partition.topic) in self._node.image.damaged:
                self._replicas.recovering_partitions.add(found.partition)
                self._unknown_topic_logs.append(copies)
            elif topic is None:
                for copy in copies:
                    self._rename_stray(copy, "its topic is unknown")
            elif self._node.id not in topic.partitions[found.partition.partition].replicas:
                for copy in copies:
                    self._rename_stray(copy, "it is assigned to other brokers now")
            elif found.is_clean and len(copies) == 1:
                self._open_clean(found, topic)
            else:
                self._replicas.recovering_partitions.add(found.partition)
                unclean.append(UncleanLog(copies, topic))
        if unclean:
            await self._start_recovery(unclean)
            await self._wait_for_recovery(stopping)
        if self._unknown_topic_logs:
            logger.warning(
                "%d partitions wait for the nodes of their topics to be restored", len(self._unknown_topic_logs)
            )
            self._node.images.add_listener(self._open_restored_topics)

    def _open_restored_topics(self, _old: MetadataImage, _new: MetadataImage) -> None:
        """When unreadable topic nodes become readable, open the logs of these topics."""
        known = [
            (copies, topic) for copies in self._unknown_topic_logs if (topic := self._topic_of(copies[0])) is not None
        ]
        if known:
            self._unknown_topic_logs = [
                copies for copies in self._unknown_topic_logs if self._topic_of(copies[0]) is None
            ]
            unclean = [UncleanLog(copies, topic) for copies, topic in known]
            task = tasks.spawn(self._start_recovery(unclean), "opening the logs of restored topics")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _wait_for_recovery(self, stopping: asyncio.Event) -> None:
        """Wait until a small broker is complete, or until only large logs are left."""
        waits = {tasks.spawn_awaited(event.wait(), "a start") for event in (self._small_done, stopping)}
        await asyncio.wait(waits, timeout=RECOVERY_WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if stopping.is_set():
            self.cancel()
            return
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=LARGE_RECOVERY_WAIT_SECONDS)
        left = len(self._replicas.recovering_partitions)
        if self._tasks and left:
            logger.info("%d partitions are still recovering; all others are served", left)

    async def retry(self, folder: str) -> None:
        """Open the logs that did not fit on this log directory, which has space again."""
        due = [each for each in self.without_space if os.path.dirname(each.copies[0].directory) == folder]
        self.without_space = [each for each in self.without_space if each not in due]
        await self._recover_all(deque(due), takes_smallest=True)

    def offline_partitions(self) -> list[TopicPartition]:
        """Return the partitions that must be in a failed log directory, because they are in no other."""
        if self._log_dirs.are_all_online:
            return []
        replicas = self._replicas
        return [
            name
            for topic in self._node.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._node.id in state.replicas
            and (name := TopicPartition(topic.name, index)) not in replicas.partitions
            and name not in replicas.recovering_partitions
        ]

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _topic_of(self, found: UnopenedLog) -> TopicImage | None:
        topic = self._node.image.topics.get(found.partition.topic)
        return topic if topic is not None and found.partition.partition < len(topic.partitions) else None

    def _open(self, found: UnopenedLog) -> Log:
        settings = self._node.dynamic_config.topic_settings(self._node.image, found.partition.topic)
        return self._log_dirs.open_log(found, settings)

    def _open_clean(self, found: UnopenedLog, topic: TopicImage) -> None:
        try:
            self._add_replica(found, self._open(found), topic)
        except (OSError, KafkaError, LogDirError) as error:
            self._on_open_failure(UncleanLog([found], topic), error)

    def _on_open_failure(self, each: UncleanLog, error: Exception) -> None:
        """Handle a log that cannot be opened, so that it does not block the other partitions."""
        found = each.copies[0]
        logger.error("cannot open %s: %s", found.directory, error)
        if isinstance(error, OSError) and not files.is_transient(error):
            self._replicas.recovering_partitions.discard(found.partition)
            self._log_dirs.take_offline_at(found.directory, f"cannot open {found.directory}: {error}")
            return
        self._replicas.recovering_partitions.add(found.partition)  # prevents the creation of a new log in its place
        self._publisher.failed.add(found.partition)
        if isinstance(error, OSError):
            self.without_space.append(each)

    async def _start_recovery(self, unclean: list[UncleanLog]) -> None:
        """Start num.recovery.threads.per.data.dir tasks for each log directory."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._node.workers, measure_unread_bytes, unclean)
        self._small_pending = sum(each.is_small for each in unclean)
        if self._small_pending == 0:
            self._small_done.set()
        threads = self._node.dynamic_config.with_image(self._node.image).num_recovery_threads_per_data_dir
        by_folder: dict[str, deque[UncleanLog]] = {}
        for each in sorted(unclean, key=lambda each: each.unread_bytes):
            by_folder.setdefault(os.path.dirname(each.copies[0].directory), deque()).append(each)
        for queue in by_folder.values():
            for number in range(min(threads, len(queue))):
                recover = partial(self._recover_all, queue, takes_smallest=number == 0)
                task = tasks.spawn_restarting(recover, "recovering logs")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _recover_all(self, queue: deque[UncleanLog], *, takes_smallest: bool) -> None:
        while queue:
            await self._recover(next_to_recover(queue, takes_smallest=takes_smallest))

    async def _recover(self, some: list[UncleanLog]) -> None:
        opened = await asyncio.get_running_loop().run_in_executor(self._node.workers, self._open_all, some)
        unforeseen: Exception | None = None
        async for each, logs in in_slices(zip(some, opened, strict=True)):
            try:
                if isinstance(logs, Exception):
                    raise logs
                self._serve(list(zip(each.copies, logs, strict=True)), each.topic)
            except (OSError, KafkaError, LogDirError) as error:
                self._on_open_failure(each, error)
            except Exception as error:  # noqa: BLE001 (raised when the others are served)
                unforeseen = error
            finally:
                self._small_pending -= each.is_small
                if self._small_pending == 0:
                    self._small_done.set()
        if unforeseen is not None:
            raise unforeseen

    def _open_all(self, some: list[UncleanLog]) -> list[list[Log] | Exception]:
        """Open the logs in a worker thread. For a log that cannot be opened, returns its error."""
        opened: list[list[Log] | Exception] = []
        for each in some:
            try:
                opened.append([self._open(found) for found in each.copies])
            except Exception as error:  # noqa: BLE001 (handled by the caller)
                opened.append(error)
        return opened

    def _serve(self, opened: list[tuple[UnopenedLog, Log]], topic: TopicImage) -> None:
        partition = opened[0][0].partition
        self._replicas.recovering_partitions.discard(partition)
        if any(self._log_dirs.is_offline(found.directory) for found, _ in opened):
            for _, log in opened:
                log.close_files()
            return
        self._publisher.failed.discard(partition)
        self._add_replica(*(self._keep_best(opened, topic) if len(opened) > 1 else opened[0]), topic)

    def _keep_best(self, opened: list[tuple[UnopenedLog, Log]], topic: TopicImage) -> tuple[UnopenedLog, Log]:
        """Keep the best of two copies: after an interrupted move, or when a failed log directory is back.

        As in an election, that is the copy with the highest leader epoch, then the longest one: it has all committed
        records. A directory that was offline may contain records that no other replica accepted.
        """
        own = [copy for copy in opened if copy[1].topic_id in (None, topic.topic_id)] or opened
        best = max(own, key=lambda copy: (copy[1].epochs.latest_epoch, copy[1].end_offset, copy[1].log_start_offset))
        for found, log in opened:
            if log is best[1]:
                continue
            log.close_files()
            if log.topic_id in (None, topic.topic_id):
                logger.warning("removing %s: %s has all of its records", found.directory, best[0].directory)
                self._log_dirs.delete_duplicate(found)
            else:
                self._rename_stray(found, "it belongs to another topic of the same name")
        return best

    def _add_replica(self, found: UnopenedLog, log: Log, topic: TopicImage) -> None:
        """Serve an opened log if it still matches the metadata."""
        current = self._topic_of(found)
        if current is None or current.topic_id != topic.topic_id:
            log.close_files()
            self._rename_stray(found, "its topic was deleted")
            self._publisher.schedule_open(found.partition)
            return
        if log.topic_id is not None and log.topic_id != topic.topic_id:
            log.close_files()
            self._rename_stray(found, "it belongs to another topic of the same name")
            self._publisher.schedule_open(found.partition)
            return
        self._log_dirs.add_opened(found, log)
        watermark = self._log_dirs.log_dir_of(log).high_watermarks.get(found.partition, 0)
        partition = self._replicas.add_partition(log, topic.topic_id, watermark)
        state: PartitionImage = current.partitions[found.partition.partition]
        if self._node.id not in state.replicas:  # it was reassigned while this broker was stopped
            doomed = self._replicas.remove_partition(*found.partition)
            if doomed is not None:
                run_dir_delete(doomed)
            return
        partition.apply_state(partition_state_of(state), self._node.clock.monotonic_ms())
        self._on_recovered(found.partition)

    def _rename_stray(self, found: UnopenedLog, why: str) -> None:
        """Rename an unusable directory as Kafka does; it is kept for inspection."""
        place = self._log_dirs.mark_stray(found)
        logger.warning("%s is not used: %s. It was moved to %s", found.directory, why, place)


def next_to_recover(queue: deque[UncleanLog], *, takes_smallest: bool) -> list[UncleanLog]:
    """Return the next log, or several small ones."""
    take = queue.popleft if takes_smallest else queue.pop
    taken = [take()]
    while (
        queue and taken[-1].is_tiny and queue[0 if takes_smallest else -1].is_tiny and len(taken) < TINY_LOGS_PER_BATCH
    ):
        taken.append(take())
    return taken


def measure_unread_bytes(unclean: list[UncleanLog]) -> None:
    """Determine how much of each log recovery must read, in a worker thread."""
    for each in unclean:
        for found in each.copies:
            try:
                each.unread_bytes += bytes_from_offset(found.directory, found.recovery_point)
            except OSError:
                continue  # opening it will report the error


def group_by_partition(found: list[UnopenedLog]) -> list[list[UnopenedLog]]:
    """Group the directories by partition; usually there is one each."""
    groups: dict[TopicPartition, list[UnopenedLog]] = {}
    for one in found:
        groups.setdefault(one.partition, []).append(one)
    return list(groups.values())


class IndexRebuilds:
    """Rebuilds of damaged indexes that readers found: once per index, by worker threads, while the readers wait."""

    def __init__(self, workers: Executor) -> None:
        self._workers = workers
        self._running: dict[Segment | Log, asyncio.Task[None]] = {}

    async def wait_for(self, needed: RebuildNeededError | TransactionIndexWrongError) -> None:
        """Wait for the rebuild of the indexes, which all readers that found the same damage share."""
        if isinstance(needed, RebuildNeededError):
            if needed.segment not in self._running:
                self._start(needed.segment, IndexRebuild(needed.segment, needed.why))
            await asyncio.shield(self._running[needed.segment])
        else:
            await self.check_transactions(needed.log)

    async def check_transactions(self, log: Log) -> None:
        """Compare the transaction indexes with the markers of the log, and rebuild those that differ."""
        if log not in self._running:
            self._start(log, TransactionRebuild(log))
        await asyncio.shield(self._running[log])

    def _start(self, subject: Segment | Log, rebuild: IndexRebuild | TransactionRebuild) -> None:
        task = self._running[subject] = tasks.spawn(self._rebuild(rebuild), repr(rebuild))
        task.add_done_callback(lambda _: self._running.pop(subject, None))

    async def _rebuild(self, rebuild: IndexRebuild | TransactionRebuild) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._workers, rebuild.run)
        except OSError as error:
            logger.error("%r failed: %s", rebuild, error)
        finally:
            rebuild.install()

    def __repr__(self) -> str:
        return f"<IndexRebuilds {len(self._running)} running>"

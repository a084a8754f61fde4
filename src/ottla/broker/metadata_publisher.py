"""Applies each new metadata image to the partitions of this broker (Kafka's BrokerMetadataPublisher).

A topic with a thousand partitions means thousands of files: a worker thread creates and renames them in batches. Work
that needs no disk runs in slices on the loop. Images are applied in order, so that the name of a deleted topic can be
reused at once. wait_until_applied() returns when the latest image has taken effect: then CreateTopics responds.

A partition that does not fit on the disk stays in `failed` until retry() succeeds. A topic that fails in any other way
is brought in line with the latest image again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from concurrent.futures import Executor
from functools import partial

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.topic_settings import TopicSettings
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.log_manager.checkpoints import MetadataTransactionRecorder
from ottla.controller import tree
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.leader_state import PartitionState
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.log_dir import LogCreation, LogDir, PendingDirDelete

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.004
SORTED_TOPICS_MAX = 5_000  # topics: sorting more would block the loop too long
WAIT_MS_MIN = 1_000  # also for clients that do not wait
RETRY_SECONDS_MIN = 0.5
RETRY_SECONDS_MAX = 30.0
JOBS_PER_BATCH = 64  # directories that are created or renamed before the loop checks the results

DiskWork = Callable[[], None]
Steps = Generator[DiskWork | None, None, None]
"""Yields disk work, which must be done by a worker thread before the next step, or None to yield to the loop."""


class HostedPartition:
    """A partition that this broker should host."""

    def __init__(self, topic: TopicImage, index: int, state: PartitionImage, settings: TopicSettings) -> None:
        self.topic = topic
        self.name = TopicPartition(topic.name, index)
        self.state = state
        self.settings = settings

    def __repr__(self) -> str:
        return f"<HostedPartition {self.name}>"


class BrokerMetadataPublisher:
    """After startup, the only component that opens and closes partitions."""

    def __init__(
        self, node_id: int, replicas: ReplicaSet, live: DynamicBrokerConfig, clock: Clock, workers: Executor
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._live = live
        self._clock = clock
        self._workers = workers
        self._image = MetadataImage()
        self._steps: deque[Steps] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.recorder: MetadataTransactionRecorder | None = (
            None  # None: in a cluster the store is not in a log directory
        )
        self.failed: set[tuple[str, int]] = set()  # partitions that could not be created on disk
        self.without_space: set[TopicPartition] = set()  # those of them for which the disk was full
        self._unapplied: set[str] = set()  # topics that could not be brought in line
        self._retry_timer: asyncio.TimerHandle | None = None
        self._retry_seconds = RETRY_SECONDS_MIN

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self._image = new
        try:
            has_changed = self._live.apply_image(new)
        except Exception:  # the topics of the image do not depend on the broker's own settings
            logger.exception("cannot apply the settings of this broker")
            has_changed = True
        if has_changed:
            self._steps.append(self._reconfigure(new))
        changed = new.changed_topics_since(old)
        if changed:
            self._steps.append(self._apply(old, new, changed))
        self._continue()

    async def wait_until_applied(self, timeout_ms: int | None = None) -> None:
        """Wait until every image so far has taken effect.

        Requests exceed their timeout: they must get a response although a disk hangs. The change itself is committed.
        """
        if self._worker is not None:
            seconds = None if timeout_ms is None else max(timeout_ms, WAIT_MS_MIN) / 1000
            await asyncio.wait((self._worker,), timeout=seconds)

    async def wait_until_recorded(self) -> None:
        """Wait until the log directories have recorded the followed transactions."""
        if self.recorder is not None:
            await self.recorder.wait_until_recorded()

    def schedule_open(self, name: TopicPartition) -> None:
        """Create a partition after the removal of a directory that blocked it, if the metadata still assign it to this
        broker.
        """
        self._steps.append(self._open_all([name]))
        self._continue()

    async def retry(self) -> None:
        """Create the failed partitions, because disk space is available again."""
        names, self.without_space = self.without_space, set()
        if names:
            self._steps.append(self._open_all(sorted(names)))
            self._continue()
            await self.wait_until_applied()

    # ---- slices

    def _continue(self) -> None:
        """Run until disk work is needed or the time slice is over; then continue in a task."""
        if self._worker is None:
            disk_work = self._run_slice()
            if self._steps:
                self._worker = tasks.spawn(self._run_slices(disk_work), "bringing partitions in line with the metadata")

    def _run_slice(self, failure: Exception | None = None) -> DiskWork | None:
        """Run until disk work is needed; `failure` is that of the last disk work."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLICE_SECONDS
        while self._steps:
            try:
                while True:
                    steps, problem = self._steps[0], failure
                    failure = None
                    disk_work = next(steps) if problem is None else steps.throw(problem)
                    if disk_work is not None or loop.time() > deadline:
                        return disk_work
            except StopIteration:
                pass
            except Exception:  # a change that cannot be applied must not block the following ones
                logger.exception("cannot bring the partitions in line with the metadata")
            self._steps.popleft()
        return None

    async def _run_slices(self, disk_work: DiskWork | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._steps:
                failure = None
                if disk_work is None:
                    await asyncio.sleep(0)
                else:
                    try:
                        await loop.run_in_executor(self._workers, disk_work)
                    except Exception as error:  # noqa: BLE001 (the step that requested the work handles it)
                        failure = error
                disk_work = self._run_slice(failure)
        finally:
            self._worker = None

    # ---- failures

    def _retry_later(self, topic: str) -> None:
        self._unapplied.add(topic)
        if self._retry_timer is None:
            self._retry_timer = asyncio.get_running_loop().call_later(self._retry_seconds, self._reapply)
            self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    def _reapply(self) -> None:
        self._retry_timer = None
        names, self._unapplied = self._unapplied, set()
        self._steps.append(self._reapply_topics(names))
        self._continue()

    def _reapply_topics(self, names: Collection[str]) -> Steps:
        """Bring topics in line with the latest image, whatever has been applied of earlier ones."""
        hosted: dict[str, list[Partition]] = {name: [] for name in names}
        for partition in self._replicas.partitions.values():
            if partition.name.topic in hosted:
                hosted[partition.name.topic].append(partition)
        for name in sorted(names):
            topic = self._image.topics.get(name)
            topic_id = topic.topic_id if topic is not None else None
            outdated = [each.name.partition for each in hosted[name] if each.topic_id != topic_id]
            yield from self._apply_topic(self._image, name, outdated)
        if not self._unapplied:
            self._retry_seconds = RETRY_SECONDS_MIN

    # ---- one image

    def _apply(self, old: MetadataImage, new: MetadataImage, names: Collection[str]) -> Steps:
        for name in sorted(names) if len(names) <= SORTED_TOPICS_MAX else names:
            yield None  # even for a hundred thousand topics without replicas here
            before, after = old.topics.get(name), new.topics.get(name)
            is_replaced = before is not None and (after is None or after.topic_id != before.topic_id)
            outdated = range(len(before.partitions)) if before is not None and is_replaced else ()
            yield from self._apply_topic(new, name, outdated)

    def _apply_topic(self, image: MetadataImage, name: str, outdated: Collection[int]) -> Steps:
        """Close the `outdated` partitions, which are those of a deleted topic, and apply the image to the others."""
        topic = image.topics.get(name)
        if topic is None and tree.topic_path(name) in image.damaged:
            return  # the topic's node cannot be read, but the topic was not deleted
        try:
            if outdated:
                yield from self._close_deleted(name, outdated)
                self.failed -= {(name, index) for index in outdated}
            if topic is not None:
                yield from self._close_reassigned(topic)
                ours = [index for index, state in enumerate(topic.partitions) if self._node_id in state.replicas]
                if ours:
                    settings = self._live.topic_settings(image, name)
                    yield from self._open(
                        HostedPartition(topic, index, topic.partitions[index], settings) for index in ours
                    )
        except Exception:
            logger.exception("cannot bring topic %s in line with the metadata, retrying", name)
            self._retry_later(name)

    def _reconfigure(self, image: MetadataImage) -> Steps:
        """Apply changed defaults of the broker, which are part of every topic's settings."""
        for partition in list(self._replicas.partitions.values()):
            topic = partition.name.topic
            try:
                partition.log.settings = self._live.topic_settings(image, topic)
            except Exception:
                logger.exception("cannot change the settings of %s, retrying", partition.name)
                self._retry_later(topic)
            yield None

    def _close_deleted(self, topic: str, indexes: Iterable[int]) -> Steps:
        doomed: list[PendingDirDelete] = []
        for index in indexes:
            folder = self._replicas.remove_partition(topic, index)
            if folder is not None:
                doomed.append(folder)
                self._record(folder.log_dir)
            if len(doomed) == JOBS_PER_BATCH:
                yield from rename_all(doomed)
                doomed = []
            yield None
        yield from rename_all(doomed)

    def _close_reassigned(self, topic: TopicImage) -> Steps:
        """Close replicas that were reassigned to other brokers, which have all of their records."""
        leaving = [
            index
            for index, state in enumerate(topic.partitions)
            if self._node_id not in state.replicas and self._replicas.get(topic.name, index) is not None
        ]
        for index in leaving:
            replicas = topic.partitions[index].replicas
            logger.info("partition %s-%d moved to other brokers: its replicas are %s now", topic.name, index, replicas)
        if leaving:
            yield from self._close_deleted(topic.name, leaving)

    def _open_all(self, names: list[TopicPartition]) -> Steps:
        """Open partitions according to the metadata at the time of the step."""
        wanted: list[HostedPartition] = []
        for name in names:
            state = self._image.partition(*name)
            if state is None or self._node_id not in state.replicas:
                self.failed.discard(name)
            else:
                settings = self._live.topic_settings(self._image, name.topic)
                wanted.append(HostedPartition(self._image.topics[name.topic], name.partition, state, settings))
        yield from self._open(wanted)

    def _open(self, wanted: Iterable[HostedPartition]) -> Steps:
        missing: list[HostedPartition] = []
        for each in wanted:
            name = each.name
            if name in self._replicas.recovering_partitions or name in self._replicas.offline_partitions:
                continue  # it is added when its recovery is done, or when its directory is back
            known = self._replicas.get(*name)
            if known is not None:
                self._apply_role(known, each)
            else:
                missing.append(each)
            if len(missing) == JOBS_PER_BATCH:
                yield from self._create(missing)
                missing = []
            yield None
        yield from self._create(missing)

    def _create(self, missing: list[HostedPartition]) -> Steps:
        """Create all partitions; those of a log directory that fails meanwhile are created in the others."""
        while missing:
            begun: list[tuple[HostedPartition, LogCreation]] = []
            for each in missing:
                try:
                    new = self._replicas.log_dirs.begin_create(each.name, each.topic.topic_id, each.settings)
                except KafkaError as error:
                    self._record_failure(each, error)
                else:
                    begun.append((each, new))
                    self._record(new.log_dir)
            if begun:
                yield partial(run_all, [new for _, new in begun])
            missing = [each for each, new in begun if not self._finish(each, new)]

    def _record(self, log_dir: LogDir) -> None:
        if self.recorder is not None:
            self.recorder.record(log_dir)

    def _finish(self, each: HostedPartition, new: LogCreation) -> bool:
        """Return whether the creation has a final result."""
        try:
            log = self._replicas.log_dirs.finish_create(new)
        except OSError as error:
            self._record_failure(each, error)
            return True
        if log is None:
            return False
        self.failed.discard(each.name)
        self._apply_role(self._replicas.add_partition(log, each.topic.topic_id), each)
        return True

    def _record_failure(self, each: HostedPartition, error: Exception) -> None:
        logger.error("cannot open partition %s: %s", each.name, error)
        self.failed.add(each.name)
        if isinstance(error, OSError) and files.is_transient(error):
            self.without_space.add(each.name)

    def _apply_role(self, replica: Partition, each: HostedPartition) -> None:
        replica.log.settings = each.settings
        try:
            replica.apply_state(partition_state_of(each.state), self._clock.monotonic_ms())
        except Exception:
            logger.exception("cannot apply the role of partition %s, retrying", each.name)
            self._retry_later(each.name.topic)


def rename_all(deletions: list[PendingDirDelete]) -> Steps:
    if deletions:
        yield partial(run_all, deletions)
        for folder in deletions:
            folder.finish()


def run_all(jobs: Iterable[LogCreation | PendingDirDelete]) -> None:
    """Run all jobs in a worker thread."""
    for job in jobs:
        job.run()


def partition_state_of(state: PartitionImage) -> PartitionState:
    """Return the state of a partition for its replica here, from the image."""
    return PartitionState(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=state.replicas,
        partition_epoch=state.partition_epoch,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        eligible_leader_replicas=state.elr,
        is_recovering=state.leader_recovery_state != 0,
    )

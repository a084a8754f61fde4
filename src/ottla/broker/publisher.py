"""Brings the partitions on this broker in line with each new metadata image.

A topic with a thousand partitions means thousands of files: they are made, and renamed when it goes, by a worker, in
lots; what needs no disk is done in slices on the loop. All in the order of the images, so that a name which is free
again can be taken at once. settled() tells when all of an image has taken effect: then its creator is answered.

A partition that the disk has no room for is `failed` until retry() finds some.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.tasks import tell
from ottla.base.topic_settings import TopicSettings
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.replicas.roles import role_of
from ottla.controller import tree
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet
from ottla.storage import files
from ottla.storage.folder_jobs import DoomedFolder, NewLog

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.004
SORTED_MAX = 5_000  # topics: to sort more would keep the loop too long
JOBS_AT_ONCE = 64  # folders that are made or renamed before the loop looks at what became of them

DiskWork = Callable[[], None]
Steps = Iterator[DiskWork | None]
"""What is yielded is for a worker thread, and has to be done before the next step; None is a good moment for others."""


class Wanted:
    """A partition that is to be here."""

    def __init__(self, topic: TopicImage, index: int, state: PartitionImage, settings: TopicSettings) -> None:
        self.topic = topic
        self.name = TopicPartition(topic.name, index)
        self.state = state
        self.settings = settings

    def __repr__(self) -> str:
        return f"<Wanted {self.name}>"


class Publisher:
    """The only one that opens and retires partitions after start-up."""

    def __init__(self, node_id: int, replicas: ReplicaSet, live: LiveSettings, clock: Clock, workers: Executor) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._live = live
        self._clock = clock
        self._workers = workers
        self._image = MetadataImage()
        self._work: deque[Steps] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.failed: set[tuple[str, int]] = set()  # partitions that the disk did not let us make
        self.without_room: set[TopicPartition] = set()  # those of them for which there was no room

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        self._image = new
        if self._live.follow(new):
            self._work.append(self._reconfigure(new))
        changed = new.changed_topics_since(old)
        if changed:
            self._work.append(self._apply(old, new, changed))
        self._go_on()

    async def settled(self) -> None:
        """Wait until every image so far has taken effect."""
        if self._worker is not None:
            await asyncio.shield(self._worker)

    def open_soon(self, name: TopicPartition) -> None:
        """A folder that was in the way of this partition is gone: make it, if the metadata still want it here."""
        self._work.append(self._open_all([name]))
        self._go_on()

    async def retry(self) -> None:
        """There is room on a disk: make what could not be made."""
        names, self.without_room = self.without_room, set()
        if names:
            self._work.append(self._open_all(sorted(names)))
            self._go_on()
            await self.settled()

    # ---- slices

    def _go_on(self) -> None:
        """At once as far as no disk is needed, and time allows; then in a task."""
        if self._worker is None:
            disk_work = self._run_slice()
            if self._work:
                self._worker = tasks.start(self._run_slices(disk_work), "bringing partitions in line with the metadata")

    def _run_slice(self) -> DiskWork | None:
        """Go on until the disk has to do something."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLICE_SECONDS
        while self._work:
            try:
                for disk_work in self._work[0]:
                    if disk_work is not None or loop.time() > deadline:
                        return disk_work
            except Exception:  # one change that cannot be applied must not keep the next ones from it
                logger.exception("cannot bring the partitions in line with the metadata")
            self._work.popleft()
        return None

    async def _run_slices(self, disk_work: DiskWork | None) -> None:
        try:
            while self._work:
                if disk_work is not None:
                    await asyncio.get_running_loop().run_in_executor(self._workers, disk_work)
                else:
                    await asyncio.sleep(0)
                disk_work = self._run_slice()
        finally:
            self._worker = None

    # ---- one image

    def _apply(self, old: MetadataImage, new: MetadataImage, names: Collection[str]) -> Steps:
        for name in sorted(names) if len(names) <= SORTED_MAX else names:
            yield None  # also of a hundred thousand topics of which this broker holds nothing
            before, after = old.topics.get(name), new.topics.get(name)
            if after is None and tree.topic_path(name) in new.damaged:
                continue  # it is not known what the topic is, but it was not deleted
            if before is not None and (after is None or after.topic_id != before.topic_id):
                yield from self._retire(before.name, range(len(before.partitions)))
                self.failed -= {(name, index) for index in range(len(before.partitions))}
            if after is not None:
                yield from self._hand_over(after)
                ours = [index for index, state in enumerate(after.partitions) if self._node_id in state.replicas]
                if ours:
                    settings = self._live.of_topic(new, name)
                    yield from self._open(Wanted(after, index, after.partitions[index], settings) for index in ours)

    def _reconfigure(self, image: MetadataImage) -> Steps:
        """The broker's own defaults changed: they show in the settings of every topic."""
        for partition in list(self._replicas.partitions.values()):
            partition.log.settings = self._live.of_topic(image, partition.name.topic)
            yield None

    def _retire(self, topic: str, indexes: Iterable[int]) -> Steps:
        doomed: list[DoomedFolder] = []
        for index in indexes:
            folder = self._replicas.retire(topic, index)
            if folder is not None:
                doomed.append(folder)
            if len(doomed) == JOBS_AT_ONCE:
                yield from rename_all(doomed)
                doomed = []
            yield None
        yield from rename_all(doomed)

    def _hand_over(self, topic: TopicImage) -> Steps:
        """Replicas that belong to other brokers from now on: all that is in them is there."""
        leaving = [
            index
            for index, state in enumerate(topic.partitions)
            if self._node_id not in state.replicas and self._replicas.get(topic.name, index) is not None
        ]
        for index in leaving:
            replicas = topic.partitions[index].replicas
            logger.info("partition %s-%d moves away: replicas are %s now", topic.name, index, replicas)
        if leaving:
            yield from self._retire(topic.name, leaving)

    def _open_all(self, names: list[TopicPartition]) -> Steps:
        """As the metadata want it when it is their turn."""
        wanted: list[Wanted] = []
        for name in names:
            state = self._image.partition(*name)
            if state is None or self._node_id not in state.replicas:
                self.failed.discard(name)
            else:
                settings = self._live.of_topic(self._image, name.topic)
                wanted.append(Wanted(self._image.topics[name.topic], name.partition, state, settings))
        yield from self._open(wanted)

    def _open(self, wanted: Iterable[Wanted]) -> Steps:
        missing: list[Wanted] = []
        for each in wanted:
            name = each.name
            if name in self._replicas.recovering or name in self._replicas.offline:
                continue  # it joins when its recovery is done, or its folder is back
            known = self._replicas.get(*name)
            if known is not None:
                self._give_role(known, each)
            else:
                missing.append(each)
            if len(missing) == JOBS_AT_ONCE:
                yield from self._make(missing)
                missing = []
            yield None
        yield from self._make(missing)

    def _make(self, missing: list[Wanted]) -> Steps:
        """Until all are there; a folder of `log.dirs` that fails on the way leaves them to the others."""
        while missing:
            begun: list[tuple[Wanted, NewLog]] = []
            for each in missing:
                try:
                    new = self._replicas.log_dirs.begin_create(each.name, each.topic.topic_id, each.settings)
                except KafkaError as error:
                    self._note_failure(each, error)
                else:
                    begun.append((each, new))
            if begun:
                yield partial(run_all, [new for _, new in begun])
            missing = [each for each, new in begun if not self._finish(each, new)]

    def _finish(self, each: Wanted, new: NewLog) -> bool:
        """Whether it is decided what becomes of it."""
        try:
            log = self._replicas.log_dirs.finish_create(new)
        except OSError as error:
            self._note_failure(each, error)
            return True
        if log is None:
            return False
        self.failed.discard(each.name)
        self._give_role(self._replicas.adopt(log, each.topic.topic_id), each)
        return True

    def _note_failure(self, each: Wanted, error: Exception) -> None:
        logger.error("cannot open partition %s: %s", each.name, error)
        self.failed.add(each.name)
        if isinstance(error, OSError) and files.is_passing(error):
            self.without_room.add(each.name)

    def _give_role(self, replica: Partition, each: Wanted) -> None:
        replica.log.settings = each.settings
        tell(replica.take_role, role_of(each.state), self._clock.monotonic_ms())


def rename_all(doomed: list[DoomedFolder]) -> Steps:
    if doomed:
        yield partial(run_all, doomed)
        for folder in doomed:
            folder.finish()


def run_all(jobs: Iterable[NewLog | DoomedFolder]) -> None:
    """In a worker thread."""
    for job in jobs:
        job.run()

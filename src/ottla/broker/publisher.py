"""Brings the partitions on this broker in line with each new metadata image.

A topic with a thousand partitions means thousands of files: they are made in slices, so that the loop goes on serving
everybody in between. settled() tells when all of an image has taken effect, which is when its creator is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator

from ottla.base.clock import Clock
from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.base.tasks import tell
from ottla.base.topic_settings import TopicSettings
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.replicas.roles import role_of
from ottla.controller import tree
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.replica_set import ReplicaSet

logger = logging.getLogger(__name__)

SLICE_SECONDS = 0.004


class Publisher:
    """The only one that opens and retires partitions after start-up."""

    def __init__(self, node_id: int, replicas: ReplicaSet, live: LiveSettings, clock: Clock) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._live = live
        self._clock = clock
        self._work: deque[Iterator[None]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.failed: set[tuple[str, int]] = set()  # partitions that the disk did not let us make

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if self._live.follow(new):
            self._work.append(self._reconfigure(new))
        changed = new.changed_topics_since(old)
        if changed:
            self._work.append(self._apply(old, new, sorted(changed)))
        self._run_slice()
        if self._work and self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run_slices())

    async def settled(self) -> None:
        """Wait until every image so far has taken effect."""
        if self._worker is not None:
            await asyncio.shield(self._worker)

    # ---- slices

    def _run_slice(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SLICE_SECONDS
        while self._work:
            for _ in self._work[0]:
                if loop.time() > deadline:
                    return
            self._work.popleft()

    async def _run_slices(self) -> None:
        try:
            while self._work:
                self._run_slice()
                await asyncio.sleep(0)
        finally:
            self._worker = None

    def _apply(self, old: MetadataImage, new: MetadataImage, names: list[str]) -> Iterator[None]:
        """Yields after each partition: a good moment to let others go on."""
        for name in names:
            before, after = old.topics.get(name), new.topics.get(name)
            if after is None and tree.topic_path(name) in new.damaged:
                continue  # it is not known what the topic is, but it was not deleted
            if before is not None and (after is None or after.topic_id != before.topic_id):
                yield from self._retire(before)
            if after is not None:
                yield from self._hand_over(after)
                yield from self._open(after, self._live.of_topic(new, name))

    def _reconfigure(self, image: MetadataImage) -> Iterator[None]:
        """The broker's own defaults changed: they show in the settings of every topic."""
        for partition in list(self._replicas.partitions.values()):
            partition.log.settings = self._live.of_topic(image, partition.name.topic)
            yield

    def _retire(self, topic: TopicImage) -> Iterator[None]:
        for index in range(len(topic.partitions)):
            self._replicas.retire(topic.name, index)
            yield

    def _hand_over(self, topic: TopicImage) -> Iterator[None]:
        """Replicas that belong to other brokers from now on: all that is in them is there."""
        for index, state in enumerate(topic.partitions):
            if self._node_id not in state.replicas and self._replicas.get(topic.name, index) is not None:
                logger.info("partition %s-%d moves away: replicas are %s now", topic.name, index, state.replicas)
                self._replicas.retire(topic.name, index)
                yield

    def _open(self, topic: TopicImage, settings: TopicSettings) -> Iterator[None]:
        for index, state in enumerate(topic.partitions):
            if self._node_id in state.replicas:
                self.open_partition(topic, index, state, settings)
                yield

    def open_partition(self, topic: TopicImage, index: int, state: PartitionImage, settings: TopicSettings) -> None:
        name = TopicPartition(topic.name, index)
        if name in self._replicas.recovering or name in self._replicas.offline:
            return  # it joins when its recovery is done, or its folder is back
        try:
            partition = self._replicas.open(name, topic.topic_id, settings)
        except (OSError, KafkaError) as error:
            logger.error("cannot open partition %s: %s", name, error)
            self.failed.add(name)
            return
        self.failed.discard(name)
        partition.log.settings = settings
        tell(partition.take_role, role_of(state), self._clock.monotonic_ms())

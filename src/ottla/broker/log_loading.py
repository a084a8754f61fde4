"""Opening the logs that are on disk when a broker starts.

Cleanly closed logs open without being read, so they are opened before the first client is served. After a crash each
log is recovered in a worker thread; a partition serves as soon as its own recovery is done, whatever the others do.
"""

from __future__ import annotations

import asyncio
import logging

from ottla.base.errors import KafkaError
from ottla.broker.services import Services
from ottla.controller.image import PartitionImage, TopicImage
from ottla.storage.errors import LogDirError
from ottla.storage.log import Log
from ottla.storage.log_dir import FoundLog

logger = logging.getLogger(__name__)

RECOVERIES_AT_ONCE = 2
PATIENCE_SECONDS = 2.0  # so long the start waits for recoveries, so that a small broker comes back whole


class LogLoading:
    """Opens what the folders hold and hands it to the replicas."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._log_dirs = services.replicas.log_dirs
        self._slots = asyncio.Semaphore(RECOVERIES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Open all clean logs; start the recovery of the others and wait for it a little."""
        for found in list(self._log_dirs.found):
            topic = self._topic_of(found)
            if topic is None:
                self._set_aside(found, "no such topic is known")
            elif found.is_clean:
                self._open_clean(found, topic)
            else:
                self._services.replicas.recovering.add(found.partition)
                self._start_recovery(found, topic)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE_SECONDS)
            if self._tasks:
                logger.info("%d partitions are still recovering; the others are served", len(self._tasks))

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _topic_of(self, found: FoundLog) -> TopicImage | None:
        topic = self._services.image.topics.get(found.partition.topic)
        return topic if topic is not None and found.partition.partition < len(topic.partitions) else None

    def _open(self, found: FoundLog) -> Log:
        settings = self._services.live.of_topic(self._services.image, found.partition.topic)
        return self._log_dirs.open_log(found, settings)

    def _open_clean(self, found: FoundLog, topic: TopicImage) -> None:
        try:
            self._take(found, topic, self._open(found))
        except (OSError, KafkaError, LogDirError) as error:
            self._give_up(found, error)

    def _give_up(self, found: FoundLog, error: Exception) -> None:
        """One partition that cannot be opened must not keep the others from being served."""
        logger.error("cannot open %s: %s", found.directory, error)
        self._services.replicas.recovering.add(found.partition)  # nobody may make a new one in its place
        self._services.publisher.failed.add(found.partition)

    def _start_recovery(self, found: FoundLog, topic: TopicImage) -> None:
        task = asyncio.get_running_loop().create_task(self._recover(found, topic))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _recover(self, found: FoundLog, topic: TopicImage) -> None:
        async with self._slots:
            try:
                loop = asyncio.get_running_loop()
                log = await loop.run_in_executor(self._services.workers, self._open, found)
            except (OSError, KafkaError, LogDirError) as error:
                self._give_up(found, error)
                return
        self._services.replicas.recovering.discard(found.partition)
        self._take(found, topic, log)

    def _take(self, found: FoundLog, topic: TopicImage, log: Log) -> None:
        """Serve an opened log, if it still is what the metadata says."""
        current = self._topic_of(found)
        if current is None or current.topic_id != topic.topic_id:
            log.abandon()
            self._set_aside(found, "its topic was deleted")
            return
        if log.topic_id is not None and log.topic_id != topic.topic_id:
            log.abandon()
            self._set_aside(found, "it belongs to another topic of the same name")
            return
        self._log_dirs.adopt(found, log)
        partition = self._services.replicas.adopt(log, topic.topic_id)
        state: PartitionImage = current.partitions[found.partition.partition]
        partition.lead(state.leader, state.leader_epoch, state.isr)

    def _set_aside(self, found: FoundLog, why: str) -> None:
        """Kafka's way with folders that it has no use for: they get a name of their own and are left to a person."""
        place = self._log_dirs.set_aside(found)
        logger.warning("%s is not used: %s. It was moved to %s", found.directory, why, place)

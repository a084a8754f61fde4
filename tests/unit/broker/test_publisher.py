"""What becomes of the partitions on a broker when the image changes."""

import asyncio
from pathlib import Path
from uuid import UUID

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import SystemClock
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.publisher import Publisher
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log_dirs import LogDirs

PARTITION = PartitionImage(1, 0, (1,), (1,))
TOPICS = {name: TopicImage(name, UUID(int=number), (PARTITION,)) for number, name in enumerate("ab", start=1)}


def test_only_a_topic_that_is_gone_is_deleted_and_not_one_whose_node_cannot_be_read(tmp_path: Path) -> None:
    async def play() -> None:
        log_dirs = LogDirs.open([str(tmp_path)], node_id=1, clock=SystemClock())
        replicas = ReplicaSet(1, log_dirs, lambda _: None, lambda _: None)
        publisher = Publisher(1, replicas, LiveSettings(BrokerSettings({})))
        image = MetadataImage(topics=TOPICS)
        publisher.on_image(MetadataImage(), image)
        await publisher.settled()
        log = replicas.partitions["b", 0].log
        gone = MetadataImage(damaged=["/brokers/topics/b"])  # a snapshot of a controller that knows neither
        publisher.on_image(image, gone)
        await publisher.settled()
        assert list(replicas.partitions) == [("b", 0)]
        publisher.on_image(gone, MetadataImage(topics=TOPICS))
        await publisher.settled()
        assert replicas.partitions["b", 0].log is log
        log_dirs.close(clean=False)

    asyncio.run(play())

"""What a broker of a cluster does when something of it fails."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

import virtual_time
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.broker.cluster.clustering import Clustering
from ottla.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.cluster_poll import OfflineReplicas


def test_a_controller_tells_itself_of_failed_folders_until_that_has_had_an_effect() -> None:
    told: list[object] = []

    async def take_offline(_broker: int, replicas: object) -> None:
        told.append(replicas)
        if len(told) < 3:
            raise KafkaError(Error.NOT_CONTROLLER)  # ZooKeeper is away for a moment, too short for another election

    async def play() -> None:
        begun: list[asyncio.Task[None]] = []
        stage: Any = SimpleNamespace(
            controller=SimpleNamespace(take_offline=take_offline, was_activated=True),
            membership=SimpleNamespace(
                is_controller=True, begin=lambda work: begun.append(asyncio.ensure_future(work))
            ),
            _polls=None,
        )
        stage._tell_itself = lambda: Clustering._tell_itself(stage)
        stage._offline_replicas = lambda: Clustering._offline_replicas(stage)
        stage._replicas = SimpleNamespace(offline={("t", 0)}, damaged=set(), full=set())
        image = SimpleNamespace(topics={"t": SimpleNamespace(topic_id=UUID(int=1))})
        stage._node = SimpleNamespace(id=1, image=image)
        Clustering.tell_offline(cast("Clustering", stage))
        async with asyncio.timeout(10):
            await asyncio.gather(*begun)

    virtual_time.run(play())
    assert told == [frozenset({(UUID(int=1), 0)})] * 3


class Owner:
    """Broker 1 with a failed folder: what it has made anew, and where."""

    def __init__(
        self, state: PartitionImage, told: list[OfflineReplicas], brokers: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        topic = TopicImage("t", UUID(int=1), (state,))
        image = MetadataImage().with_topics([topic])
        self.made: list[tuple[TopicPartition, str]] = []
        chosen: dict[TopicPartition, str] = {}
        stage: Any = SimpleNamespace(
            _node=SimpleNamespace(
                id=1, image=SimpleNamespace(topics=image.topics, partition=image.partition, brokers=brokers)
            ),
            _replicas=SimpleNamespace(offline={T_0}, log_dirs=SimpleNamespace(prefer=chosen.__setitem__)),
            _publisher=SimpleNamespace(open_soon=lambda name: self.made.append((name, chosen[name]))),
            _polls=SimpleNamespace(told=told),
            membership=SimpleNamespace(is_controller=False),
            tell_offline=lambda: None,
        )
        stage._is_known_as_offline = lambda name: Clustering._is_known_as_offline(stage, name)
        self.answer = Clustering.have_anew(cast("Clustering", stage), T_0, "/b")
        self.offline = stage._replicas.offline


T_0 = TopicPartition("t", 0)
TOLD = [OfflineReplicas(topic_id=UUID(int=1), partitions=[0])]
FOLLOWER = PartitionImage(2, 0, (2, 3), (1, 2, 3))


def test_a_replica_in_a_failed_folder_is_made_anew_in_another_one() -> None:
    owner = Owner(FOLLOWER, TOLD)
    assert (owner.answer, owner.made, owner.offline) == (True, [(T_0, "/b")], set())


@pytest.mark.parametrize(
    ("state", "told", "brokers"),
    [
        (FOLLOWER._replace(isr=(2, 1)), TOLD, (1, 2, 3)),
        (FOLLOWER._replace(isr=(2,), eligible=(1,)), TOLD, (1, 2, 3)),
        (FOLLOWER._replace(leader=1, isr=(1,)), TOLD, (1, 2, 3)),
        (FOLLOWER._replace(replicas=(2, 3)), TOLD, (1, 2, 3)),
        (FOLLOWER, TOLD, (1, 3)),  # nobody leads it
        (FOLLOWER, [], (1, 2, 3)),  # the image may be older than the failure: who is in sync is not known
    ],
)
def test_a_replica_that_others_may_count_on_is_not_made_anew(
    state: PartitionImage, told: list[OfflineReplicas], brokers: tuple[int, ...]
) -> None:
    owner = Owner(state, told, brokers)
    assert (owner.answer, owner.made, owner.offline) == (False, [], {T_0})

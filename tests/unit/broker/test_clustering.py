"""What a broker of a cluster does when something of it fails."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import virtual_time
from ottla.base.errors import Error, KafkaError
from ottla.broker.cluster.clustering import Clustering


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

"""An administrator: creates what the others work with, and meddles while they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.brokers.wire import Client, GoneError

from ottla.base.errors import Error
from ottla.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

DONE = frozenset({Error.NONE, Error.TOPIC_ALREADY_EXISTS})


class Creator(Client):
    """Creates topics until they are there."""

    def __init__(self, cluster: Any, topics: dict[str, int]) -> None:
        super().__init__(cluster, "creator")
        self._topics = topics

    async def run(self) -> None:
        left = dict(self._topics)
        while left:
            request = CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=count, replication_factor=3)
                    for name, count in left.items()
                ],
                timeout_ms=2_000,
            )
            try:
                answer = await self.call(self.anyone(), request, CreateTopicsResponse, 5, 4.0)
            except GoneError:
                await self.pause()
                continue
            for topic in answer.topics:
                if topic.error_code in DONE:
                    left.pop(topic.name, None)
            await self.pause()


class Visitor(Client):
    """One request, whose answer may interest somebody; then it goes."""

    def __init__(
        self,
        cluster: Any,
        name: str,
        request: Any,
        response: type[Any],
        version: int,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__(cluster, name)
        self._asked = (request, response, version)
        self._then = then

    async def run(self) -> None:
        try:
            answer = await self.call(self.anyone(), *self._asked)
        except GoneError:
            return
        if self._then is not None:
            self._then(answer)

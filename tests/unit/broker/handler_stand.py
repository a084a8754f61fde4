"""What handlers of topics and metadata need of a broker: a real controller on a real store, and a client to be."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import virtual_time
from ottla.base.security import Operation, ResourceType
from ottla.base.topic_keys import validate_topic_overrides
from ottla.broker.cluster.control import Control
from ottla.broker.metadata_topics import MetadataTopics
from ottla.controller.image import Endpoint, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.network.client_facts import ClientFacts
from ottla.protocol.codec import EncodedBody, decode_whole
from ottla.protocol.messages.metadata import MetadataResponse
from unit.broker.nodes import node

LISTENERS = {"PLAINTEXT": Endpoint("127.0.0.1", 9092), "OUTSIDE": Endpoint("broker.example", 9093)}
Right = tuple[Operation, ResourceType, str]


class Broker:
    """One broker without sockets and logs."""

    def __init__(self, directory: Path, **settings: str) -> None:
        texts = {key.replace("_", "."): value for key, value in settings.items()}
        me = node({"broker.id": "1", **texts})
        self.settings = me.settings
        self.clock = me.clock
        self.controller = ControllerService(
            EmbeddedStore(directory),
            me.clock,
            self.settings,
            lambda configs: validate_topic_overrides(self.settings, configs),
            images=me.images,
        )
        self.metadata_topics = MetadataTopics()
        self.served_apis = [(3, 0, 13), (18, 0, 4)]
        self.authorizer: object | None = None
        self.audit = None
        self.publisher = SimpleNamespace(settled=nothing)
        self.quotas = SimpleNamespace(is_on=False, mutations=lambda *_: None)
        self.cluster = None
        self.security_changes = None
        self.forwarding = None
        self.broker_apis = [(58, 0, 0)]
        self.control = Control(me, self.controller)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image


class Client:
    """Asks handlers; may do everything but what it is denied."""

    def __init__(self, broker: Any, *denied: Right, listener: str = "PLAINTEXT") -> None:
        self.broker = broker
        self.listener_name = listener
        self.client_id = "tests"
        self.client = ClientFacts("127.0.0.1", 1, listener)
        self.api_version = 0
        self.is_forwarded = False
        self.denied = denied
        broker.authorizer = object() if denied else None

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) not in self.denied

    sees = is_granted = may

    def is_any_granted(self, *_: object) -> bool:
        return not self.denied

    async def ask(self, handle: Callable[[Any, Any], Any], request: Any, version: int) -> Any:
        self.api_version = version
        answer = handle(request, self)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, EncodedBody):
            answer = decode_whole(MetadataResponse, version, memoryview(answer.body))
        return answer


async def nothing() -> None:
    """A publisher that has nothing to do."""


def with_broker(tmp_path: Path, play: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    """Run a play on a broker that has started."""

    async def whole() -> None:
        broker = Broker(tmp_path, **settings)
        await broker.controller.start(LISTENERS, rack="rack-a")
        await play(broker)
        await broker.controller.close()

    virtual_time.run(whole())

"""Fixture for handlers of topics and metadata: a real controller on a real store, and a fake client."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import virtual_time
from tests.unit.broker.nodes import node

from ottla.base.security import Operation, ResourceType
from ottla.base.topic_keys import validate_topic_overrides
from ottla.broker.cluster.controller_requests import ControllerRequests
from ottla.broker.encoded_topics_cache import EncodedTopicsCache
from ottla.broker.security.server_authenticator import ServerAuthenticator
from ottla.controller.image import Endpoint, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.network.connection import ConnectedClient
from ottla.protocol.codec import EncodedBody, decode_whole
from ottla.protocol.messages.metadata import MetadataResponse

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
            me.dynamic_config,
            lambda configs: validate_topic_overrides(self.settings, configs),
            images=me.images,
        )
        self.encoded_topics_cache = EncodedTopicsCache()
        self.served_apis = [(3, 0, 13), (18, 0, 4)]
        self.authorizer: object | None = None
        self.audit = None
        self.authenticator = ServerAuthenticator({}, me.clock, me.workers)
        self.publisher = SimpleNamespace(wait_until_applied=nothing)
        self.quotas = SimpleNamespace(is_on=False, controller_mutations=lambda *_: None)
        self.membership = None
        self.security_changes = None
        self.forwarding = None
        self.broker_apis = [(58, 0, 0)]
        self.controller_requests = ControllerRequests(me, self.controller)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image


class Client:
    """Calls handlers; everything is allowed except the denied operations."""

    def __init__(self, broker: Any, *denied: Right, listener: str = "PLAINTEXT") -> None:
        self.broker = broker
        self.listener_name = listener
        self.client_id = "tests"
        self.client = ConnectedClient("127.0.0.1", 1, listener)
        self.api_version = 0
        self.is_forwarded = False
        self.denied = denied
        broker.authorizer = object() if denied else None

    def is_authorized(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) not in self.denied

    is_visible = is_granted = is_authorized

    def is_granted_by_resource_type(self, *_: object) -> bool:
        return not self.denied

    async def ask(self, handle: Callable[[Any, Any], Any], request: Any, version: int) -> Any:
        self.api_version = version
        answer = handle(request, self)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, EncodedBody):
            answer = decode_whole(MetadataResponse, version, memoryview(answer.body))
        return answer


async def nothing(_timeout_ms: int | None = None) -> None:
    """A publisher without work."""


def with_broker(tmp_path: Path, play: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    """Run a scenario on a started broker."""

    async def whole() -> None:
        broker = Broker(tmp_path, **settings)
        await broker.controller.start(LISTENERS, rack="rack-a")
        await play(broker)
        await broker.controller.close()

    virtual_time.run(whole())

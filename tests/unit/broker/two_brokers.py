"""Two brokers in one process: one is the controller and listens on a real socket, the other one asks it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.base.clock import SystemClock
from ottla.broker.context import Context
from ottla.broker.control import Control
from ottla.broker.controller_link import ControllerLink
from ottla.broker.forwarding import Forwarding
from ottla.broker.handlers.table import BROKER_HANDLERS, HANDLERS
from ottla.broker.peers import Peers
from ottla.controller.holder import ImageHolder
from ottla.controller.image import BrokerImage, Endpoint, MetadataImage
from ottla.network.connection import Connection
from ottla.network.limits import ConnectionLimits
from ottla.network.listener import ConnectionSet, Listener
from ottla.network.poller import Poller
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.codec import decode
from ottla.protocol.headers import decode_request_header, encode_response_frame
from ottla.protocol.messages.cluster import ApiVersion, ApiVersionsResponse
from unit.broker.handler_stand import LISTENERS, Broker

CONTROLLER = 1
ASKER = 2
API_VERSIONS = 18


class Membership:
    """Who is the controller, as a test wants it."""

    def __init__(self, controller_id: int, is_controller: bool) -> None:
        self.controller_id = controller_id
        self.is_controller = is_controller
        self.broker_epoch = 77
        self.controller: Any = None


class ControllerBroker(Broker):
    """Answers envelopes and other questions of brokers over its socket."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.node_id = CONTROLLER
        self.cluster: Any = Membership(CONTROLLER, True)
        self.handlers = HANDLERS
        self.counters = SimpleNamespace(note_answer=lambda *_: None)
        self.seen: list[tuple[int, str, str]] = []  # key of each request, and who sent it
        self.is_silent = False
        self._tasks: set[Any] = set()

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        header = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == API_VERSIONS:
            keys = [*HANDLERS, *BROKER_HANDLERS]
            rows = [ApiVersion(api_key=k, min_version=a.min_version, max_version=a.max_version) for k, a in of(keys)]
            answer = ApiVersionsResponse(api_keys=rows)
            connection.reply(encode_response_frame(key, version, header.correlation_id, answer))
            return True
        request = decode(ALL_APIS[key].request, version, frame, header.body_position)[0]
        context = Context(self, connection, key, version, header.correlation_id, header.client_id)  # type: ignore[arg-type]
        self.seen.append((key, context.principal, header.client_id or ""))
        context.park()
        if not self.is_silent:
            task = asyncio.ensure_future(self.answer(request, context))
            self._tasks.add(task)
        return True

    async def answer(self, request: Any, context: Context) -> None:
        handler = (BROKER_HANDLERS | HANDLERS)[context.api_key]
        result = handler(request, context)
        context.answer(await result if isinstance(result, Awaitable) else result)


def of(keys: list[int]) -> list[tuple[int, Any]]:
    return [(key, ALL_APIS[key]) for key in keys]


class AskingBroker:
    """A broker that is not the controller: what its handlers and its own errands need."""

    def __init__(self, settings: Any, images: ImageHolder, poller: Poller) -> None:
        self.node_id = ASKER
        self.settings = settings
        self.images = images
        self.clock = SystemClock()
        self.cluster: Any = Membership(CONTROLLER, False)
        self.peers = Peers(settings, images, poller)
        self.forwarding = Forwarding(ControllerLink(ASKER, self.peers, self.cluster), 5_000)
        self.authorizer: object | None = None
        self.controller: Any = None
        self.handlers = HANDLERS
        self.control = Control(self)  # type: ignore[arg-type]

    @property
    def image(self) -> MetadataImage:
        return self.images.image


class Asker:
    """A client of the second broker."""

    def __init__(self, broker: AskingBroker, principal: str = "User:alice") -> None:
        self.broker = broker
        self.principal = principal
        self.client_host = "10.1.2.3"
        self.client_id = "alice's client"
        self.correlation_id = 4711
        self.is_forwarded = False
        self.api_key = 0
        self.api_version = 0

    def may(self, *_: object) -> bool:
        return True

    async def ask(self, request: Any, version: int) -> Any:
        self.api_key = next(key for key, api in ALL_APIS.items() if api.request is type(request))
        self.api_version = version
        answer = HANDLERS[self.api_key](request, self)  # type: ignore[arg-type]
        return await answer


Play = Callable[[ControllerBroker, AskingBroker], Awaitable[None]]


def with_two_brokers(directory: Path, play: Play) -> None:
    poller = Poller()

    async def whole() -> None:
        one = ControllerBroker(directory)
        await one.controller.start(LISTENERS, rack=None)
        connections = ConnectionSet(ConnectionLimits(), one, poller)
        listener = Listener("PLAINTEXT", "127.0.0.1", 0, connections)
        listener.start()
        images = ImageHolder()
        address = Endpoint("127.0.0.1", listener.port)
        brokers = {CONTROLLER: BrokerImage(CONTROLLER, {"PLAINTEXT": address}, None, 5)}
        images.publish(MetadataImage(brokers=brokers, controller_id=CONTROLLER))
        one.controller.on_image(lambda _, new: images.publish(new.with_brokers(brokers)))
        two = AskingBroker(one.settings, images, poller)
        try:
            async with asyncio.timeout(30):
                await play(one, two)
        finally:
            two.peers.close()
            listener.close()
            await connections.drain(0)
            await one.controller.close()

    loop = asyncio.SelectorEventLoop(poller)  # type: ignore[arg-type]
    try:
        loop.run_until_complete(whole())
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

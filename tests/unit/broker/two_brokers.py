"""Two brokers in one process: one is the controller and listens on a real socket, the other one is its client."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import virtual_time
from tests.unit.broker.handler_stand import LISTENERS
from tests.unit.broker.nodes import node
from tests.virtual_time import LoopClock

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.controller_requests import ControllerRequests
from ottla.broker.cluster.forwarding import ForwardingManager, decode_if_encoded, forwarded
from ottla.broker.cluster.peers import Peers
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import api_versions
from ottla.broker.handlers.table import APIS
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.main import build_components
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.node import Node
from ottla.broker.offload import Workers
from ottla.controller.image import BrokerImage, Endpoint, MetadataCache, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.network.connection import Connection
from ottla.network.listener_limits import ConnectionLimits
from ottla.network.poller import Poller
from ottla.network.socket_server import Acceptor, SocketServer
from ottla.protocol.apis import ALL_APIS
from ottla.protocol.headers import decode_request_header
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log_dirs import LogDirs

CONTROLLER = 1
ASKER = 2
API_VERSIONS = 18


class Membership:
    """The controller as configured by the test."""

    def __init__(self, controller_id: int, is_controller: bool) -> None:
        self.controller_id = controller_id
        self.is_controller = is_controller
        self.broker_epoch = 77
        self.controller: Any = None

    def has_session(self) -> bool:
        return True

    def no_controller_message(self) -> str:
        return "no controller is elected"


class ControllerBroker:
    """A whole broker without its start: it answers all requests of its socket."""

    def __init__(self, directory: Path, poller: Poller) -> None:
        self.settings = BrokerSettings({"broker.id": "1", "node.id": "1", "log.dirs": str(directory)})
        clock, images, live = LoopClock(), MetadataCache(), DynamicBrokerConfig(self.settings)
        self.images = images
        self._workers = Workers(2)
        log_dirs = LogDirs.open([str(directory)], node_id=1, clock=clock, producer_id_expiration_ms=1000)
        flusher = Flusher(self._workers, log_dirs.sync_times)
        replicas = ReplicaSet(1, log_dirs, flusher.start, flusher.start_rolled)
        store = EmbeddedStore(directory)
        controller = ControllerService(store, clock, live, live.check_topic_configs, images=images)
        publisher = BrokerMetadataPublisher(CONTROLLER, replicas, live, clock, self._workers)
        node = Node(CONTROLLER, live, clock, images, self._workers)
        self.parts = build_components(node, replicas, publisher, flusher, controller, None).services
        self.membership = Membership(CONTROLLER, True)
        self.parts.membership = self.membership  # type: ignore[assignment]
        self._dispatcher = Dispatcher(self.parts, APIS, api_versions.unsupported_version, poller)
        self._log_dirs = log_dirs
        self.seen: list[int] = []  # the API key of each request
        self.is_silent = False

    @property
    def controller(self) -> ControllerService:
        return self.parts.controller

    @property
    def image(self) -> MetadataImage:
        return self.parts.image

    def on_frame(self, connection: Connection, frame: memoryview) -> bool:
        key = decode_request_header(frame).api_key
        if key != API_VERSIONS:
            self.seen.append(key)
            if self.is_silent:
                connection.reserve_reply(overlaps=True)
                return True
        return self._dispatcher.on_frame(connection, frame)

    async def close(self) -> None:
        await self._dispatcher.wait_for_handlers(1)
        await self.controller.close()
        self._log_dirs.close(clean=True)
        self._workers.shutdown()


class AskingBroker:
    """A broker that is not the controller: the parts that its handlers and its own calls need."""

    def __init__(self, settings: Any, images: MetadataCache, poller: Poller) -> None:
        self.node = node(settings, id_=ASKER, images=images)
        self.node_id = ASKER
        self.settings = settings
        self.images = images
        self.clock = self.node.clock
        self.membership: Any = Membership(CONTROLLER, False)
        self.peers = Peers(settings, images, poller)
        self.link = ControllerChannel(ASKER, self.peers, self.membership)
        self.security_changes = None
        self.forwarding = ForwardingManager(self.link, 5_000)
        self.authorizer: object | None = None
        self.quotas = SimpleNamespace(
            is_on=False, controller_mutations=lambda *_: None
        )  # the quotas of the answering broker apply
        self.controller: Any = None
        self.apis = {row.key: row for row in APIS}
        self.controller_requests = ControllerRequests(self.node, self.controller, self.membership, self.link)

    @property
    def image(self) -> MetadataImage:
        return self.images.image


class Asker:
    """A client of the second broker."""

    def __init__(self, broker: AskingBroker, principal: str = "User:alice") -> None:
        self.broker = broker
        self.principal = principal
        self.is_delegated = False
        self.client_host = "10.1.2.3"
        self.client_id = "alice's client"
        self.correlation_id = 4711
        self.is_forwarded = False
        self.responder: Any = SimpleNamespace(throttle_ms=0)
        self.api_key = 0
        self.api_version = 0

    def is_authorized(self, *_: object) -> bool:
        return True

    is_visible = is_granted = is_granted_by_resource_type = is_authorized

    async def ask(self, request: Any, version: int) -> Any:
        self.api_key = next(key for key, api in ALL_APIS.items() if api.request is type(request))
        self.api_version = version
        row = self.broker.apis[self.api_key]
        handle = forwarded(row) if row.is_forwarded else row.handle
        answer = await handle(request, self)  # type: ignore[arg-type]
        return decode_if_encoded(answer, self)  # type: ignore[arg-type]


Play = Callable[[ControllerBroker, AskingBroker], Awaitable[None]]


def with_two_brokers(directory: Path, play: Play) -> None:
    poller = Poller()

    async def whole() -> None:
        one = ControllerBroker(directory, poller)
        await one.controller.start(LISTENERS, rack=None)
        connections = SocketServer(ConnectionLimits(), one, poller)
        listener = Acceptor("PLAINTEXT", "127.0.0.1", 0, connections)
        listener.start()
        images = MetadataCache()
        address = Endpoint("127.0.0.1", listener.port)
        brokers = {CONTROLLER: BrokerImage(CONTROLLER, {"PLAINTEXT": address}, None, 5)}
        images.publish(MetadataImage(brokers=brokers, controller_id=CONTROLLER))
        one.images.add_listener(lambda _, new: images.publish(new.with_brokers(brokers)))
        two = AskingBroker(one.settings, images, poller)
        try:
            await play(one, two)
        finally:
            two.peers.close()
            listener.close()
            await connections.drain(0)
            await one.close()

    virtual_time.run(whole(), poller)

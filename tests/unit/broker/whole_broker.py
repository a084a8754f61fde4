"""A whole broker without sockets, in virtual time: real logs, store, coordinators, dispatcher and connections.

Work is counted, not timed: every function call is a step, on the loop or in a worker. Results are the same on a busy
machine. Steps also advance the loop's clock: code that works in slices of milliseconds yields after a fixed number of
steps.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.unit.broker.handler_stand import LISTENERS
from tests.virtual_time import LoopClock, VirtualLoop

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.configs.dynamic_broker_config import DynamicBrokerConfig
from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import api_versions
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.main import build_components
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.node import Node
from ottla.broker.offload import Workers
from ottla.broker.served_api import ServedApi
from ottla.controller.decisions.topic_changes import NewTopic
from ottla.controller.image import MetadataCache, MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.network.buffers import BufferPool
from ottla.network.connection import ConnectedClient, Connection
from ottla.network.poller import Poller
from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log_dirs import LogDirs

T = TypeVar("T")

STEP_SECONDS: Final = 0.25e-6  # average cost of a Python call
FRAME_BYTES_MAX: Final = 100 << 20
ANSWER_SECONDS_MAX: Final = 60


class Steps:
    """Function calls since the start, on the loop and in workers."""

    def __init__(self) -> None:
        self.on_loop = 0
        self.in_workers = 0
        self.longest_round = 0  # without yielding to the loop
        self._round_began = 0
        self._is_worker = False

    @property
    def total(self) -> int:
        return self.on_loop + self.in_workers

    def note(self, _frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            if self._is_worker:
                self.in_workers += 1
            else:
                self.on_loop += 1

    def end_round(self) -> None:
        self.longest_round = max(self.longest_round, self.on_loop - self._round_began)
        self._round_began = self.on_loop

    def as_worker(self, function: Callable[..., T], *arguments: Any) -> T:
        self._is_worker = True
        try:
            return function(*arguments)
        finally:
            self._is_worker = False


class CountingLoop(VirtualLoop):
    """Virtual time that also advances with steps."""

    def __init__(self) -> None:
        self.steps = Steps()
        super().__init__()

    def time(self) -> float:
        return self.now + self.steps.on_loop * STEP_SECONDS

    def pass_time(self, timeout: float | None) -> None:
        self.steps.end_round()
        if timeout is not None and timeout > 0:
            self.now = max(self.now, self._next_timer() - self.steps.on_loop * STEP_SECONDS)
        super().pass_time(0 if timeout is not None else None)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        return super().run_in_executor(executor, self.steps.as_worker, func, *args)


class Rounds:
    """The poller as seen by a connection: replies are sent at once, large ones in turns."""

    watched: Connection

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None:
        if writable:
            asyncio.get_running_loop().call_soon(self._on_writable)

    def _on_writable(self) -> None:
        self.watched.on_writable()
        if self.watched.is_writing:
            asyncio.get_running_loop().call_soon(self._on_writable)

    def flush_later(self, watched: Connection) -> None:
        asyncio.get_running_loop().call_soon(watched.flush)

    def unwatch(self, descriptor: int) -> None: ...


class Wire:
    """The transport of a client: request bytes and received replies."""

    def __init__(self) -> None:
        self.to_broker = bytearray()
        self.answered: asyncio.Future[None] | None = None
        self.received_bytes = 0
        self._expected = 0

    def receive_into(self, buffer: memoryview) -> int:
        size = min(len(buffer), len(self.to_broker))
        if size == 0:
            raise BlockingIOError
        buffer[:size] = self.to_broker[:size]
        del self.to_broker[:size]
        return size

    def send(self, data: Any, more_follows: bool) -> int:
        if self._expected == 0:
            self._expected = 4 + struct.unpack(">i", bytes(data[:4]))[0]
        self._arrived(len(data))
        return len(data)

    def send_file(self, file_range: Any, bytes_max: int) -> int:
        size = min(file_range.length, bytes_max)
        self._arrived(size)
        return int(size)

    def _arrived(self, size: int) -> None:
        self.received_bytes += size
        self._expected -= size
        if self._expected == 0 and self.answered is not None and not self.answered.done():
            self.answered.set_result(None)

    def close(self) -> None: ...


class WholeBroker:
    """A standalone broker."""

    def __init__(self, directory: Path, apis: tuple[ServedApi, ...], more: Mapping[str, str] | None = None) -> None:
        texts = {"node.id": "1", "broker.id": "1", "log.dirs": str(directory), "group.initial.rebalance.delay.ms": "0"}
        texts["auto.create.topics.enable"] = "false"
        small = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
        self.settings = BrokerSettings({**texts, **small, **(more or {})})
        clock, images, live = LoopClock(), MetadataCache(), DynamicBrokerConfig(self.settings)
        self._workers = Workers(2)
        self._log_dirs = LogDirs.open([str(directory)], node_id=1, clock=clock, producer_id_expiration_ms=86_400_000)
        flusher = Flusher(self._workers, self._log_dirs.sync_times)
        replicas = ReplicaSet(1, self._log_dirs, flusher.start, flusher.start_rolled)
        store = EmbeddedStore(directory)
        controller = ControllerService(store, clock, live, live.check_topic_configs, images=images)
        publisher = BrokerMetadataPublisher(1, replicas, live, clock, self._workers)
        node = Node(1, live, clock, images, self._workers)
        assembly = build_components(node, replicas, publisher, flusher, controller, None)
        self.parts, self._audit = assembly.services, assembly.audit
        self._poller = Poller()
        self.dispatcher = Dispatcher(
            self.parts,
            [api for api in apis if not api.is_inter_broker],
            api_versions.unsupported_version,
            self._poller,
        )
        self._buffers = BufferPool()

    async def start(self) -> None:
        parts = self.parts
        await parts.controller.start(LISTENERS, rack=None)
        parts.publisher.on_image(MetadataImage(), parts.image)
        parts.node.images.add_listener(parts.publisher.on_image)
        parts.node.images.add_listener(parts.coordinators.on_image)
        parts.coordinators.load_led_shards()

    async def create_topics(self, topics: dict[str, int]) -> None:
        await self.parts.controller.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
        await self.parts.publisher.wait_until_applied()

    def connect(self) -> Client:
        return Client(self)

    def connection(self, wire: Wire) -> Connection:
        loop = asyncio.get_running_loop()
        facts = ConnectedClient("127.0.0.1", 50_000, "PLAINTEXT")
        rounds = Rounds()
        rounds.watched = Connection(
            wire, -1, rounds, loop, self._buffers, self.dispatcher, lambda _: None, facts, FRAME_BYTES_MAX
        )
        return rounds.watched

    async def close(self) -> None:
        self.parts.coordinators.close()
        await self.dispatcher.wait_for_handlers(1)
        await self._audit.stop()
        await self.parts.controller.close()
        self._log_dirs.close(clean=False)
        self._workers.shutdown()
        self._poller.close()


class Client:
    """Sends one request after the other over its own connection."""

    def __init__(self, broker: WholeBroker) -> None:
        self.wire = Wire()
        self.connection = broker.connection(self.wire)
        self._correlation_ids = itertools.count(1)

    async def ask(self, request: Any, key: int, version: int) -> int:
        """The length of the response; AssertionError if the broker closes the connection."""
        self.write(request, key, version)
        return await self.answer()

    def write(self, request: Any, key: int, version: int) -> None:
        header = encode_request_header(key, version, next(self._correlation_ids), "long")
        body = bytes(encode(request, version))
        self.wire.to_broker += struct.pack(">i", len(header) + len(body)) + header + body

    async def answer(self) -> int:
        received = self.wire.received_bytes
        answered = self.wire.answered = asyncio.get_running_loop().create_future()
        while self.wire.to_broker and not self.connection.is_closed:
            self.connection.on_readable()
        for _ in range(ANSWER_SECONDS_MAX):
            if answered.done():
                return self.wire.received_bytes - received
            assert not self.connection.is_closed, self.connection.close_detail
            await asyncio.wait([answered], timeout=1)
        raise AssertionError("no answer")


Play = Callable[[WholeBroker], Awaitable[None]]


def with_whole_broker(
    directory: Path, apis: tuple[ServedApi, ...], play: Play, settings: Mapping[str, str] | None = None
) -> None:
    async def whole() -> None:
        broker = WholeBroker(directory, apis, settings)
        await broker.start()
        try:
            await play(broker)
        finally:
            await broker.close()

    run_counting(whole())


def run_counting(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(main)


async def count_steps(work: Coroutine[Any, Any, Any]) -> Steps:
    """The steps of a coroutine."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    loop.now += loop.steps.on_loop * STEP_SECONDS  # advances the clock by earlier work
    loop.steps = steps = Steps()
    sys.setprofile(steps.note)
    try:
        await work
        await asyncio.sleep(0)  # ends the last iteration
    finally:
        sys.setprofile(None)
    return steps

"""A whole broker without sockets, in virtual time: real logs, store, coordinators, dispatcher and connections.

Work is counted, not timed: every call of a function is a step, on the loop or in a worker, so that a test gives the
same figures on a busy machine. The loop's clock goes on with the steps, too: whoever works in slices of milliseconds
gives the loop back after so many steps.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.broker.assembly import assemble
from ottla.broker.configs.live_settings import LiveSettings
from ottla.broker.dispatch import Dispatcher
from ottla.broker.handlers import api_versions
from ottla.broker.logs.flusher import Flusher
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.broker.served_api import ServedApi
from ottla.broker.workers import Workers
from ottla.controller.decisions.machine import NewTopic
from ottla.controller.holder import ImageHolder
from ottla.controller.image import MetadataImage
from ottla.controller.service import ControllerService
from ottla.controller.stores.embedded import EmbeddedStore
from ottla.network.buffers import Buffers
from ottla.network.client_facts import ClientFacts
from ottla.network.connection import Connection
from ottla.network.poller import Poller
from ottla.protocol.codec import encode
from ottla.protocol.headers import encode_request_header
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log_dirs import LogDirs
from unit.broker.handler_stand import LISTENERS
from virtual_time import LoopClock, VirtualLoop

T = TypeVar("T")

STEP_SECONDS: Final = 0.25e-6  # what a call costs on the average of ordinary Python
FRAME_BYTES_MAX: Final = 100 << 20
ANSWER_SECONDS_MAX: Final = 60


class Steps:
    """Calls of functions since it was started, on the loop and in workers."""

    def __init__(self) -> None:
        self.on_loop = 0
        self.in_workers = 0
        self.longest_round = 0  # without giving the loop back
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
    """Virtual time that also goes on with the work that is done."""

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
    """The poller, as a connection sees it: whatever is answered is sent at once."""

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None: ...

    def flush_later(self, watched: Connection) -> None:
        asyncio.get_running_loop().call_soon(watched.flush)

    def unwatch(self, descriptor: int) -> None: ...


class Wire:
    """The transport of a client: its requests as bytes, and what came back."""

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
    """One broker, on its own."""

    def __init__(self, directory: Path, apis: tuple[ServedApi, ...], more: Mapping[str, str] | None = None) -> None:
        texts = {"node.id": "1", "broker.id": "1", "log.dirs": str(directory), "group.initial.rebalance.delay.ms": "0"}
        texts["auto.create.topics.enable"] = "false"
        small = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
        self.settings = BrokerSettings({**texts, **small, **(more or {})})
        clock, images, live = LoopClock(), ImageHolder(), LiveSettings(self.settings)
        self._workers = Workers(2)
        self._log_dirs = LogDirs.open([str(directory)], node_id=1, clock=clock, producer_id_expiration_ms=86_400_000)
        flusher = Flusher(self._workers, self._log_dirs.sync_times)
        replicas = ReplicaSet(1, self._log_dirs, flusher.start, flusher.start_rolled)
        store = EmbeddedStore(directory)
        controller = ControllerService(store, clock, live, live.check_topic_configs, images=images)
        publisher = Publisher(1, replicas, live, clock, self._workers)
        node = Node(1, live, clock, images, self._workers)
        assembly = assemble(node, replicas, publisher, flusher, controller, None)
        self.parts, self._audit = assembly.parts, assembly.audit
        self._poller = Poller()
        self.dispatcher = Dispatcher(
            self.parts,
            [api for api in apis if not api.is_between_brokers],
            api_versions.unsupported_version,
            self._poller,
        )
        self._buffers = Buffers()

    async def start(self) -> None:
        parts = self.parts
        await parts.controller.start(LISTENERS, rack=None)
        parts.publisher.on_image(MetadataImage(), parts.image)
        parts.node.images.on_image(parts.publisher.on_image)
        parts.node.images.on_image(parts.coordinators.on_image)
        parts.coordinators.follow()

    async def create_topics(self, topics: dict[str, int]) -> None:
        await self.parts.controller.create_topics([NewTopic(name, count, 1) for name, count in topics.items()])
        await self.parts.publisher.settled()

    def connect(self) -> Client:
        return Client(self)

    def connection(self, wire: Wire) -> Connection:
        loop = asyncio.get_running_loop()
        facts = ClientFacts("127.0.0.1", 50_000, "PLAINTEXT")
        return Connection(
            wire, -1, Rounds(), loop, self._buffers, self.dispatcher, lambda _: None, facts, FRAME_BYTES_MAX
        )

    async def close(self) -> None:
        self.parts.coordinators.close()
        await self.dispatcher.finish(1)
        await self._audit.stop()
        await self.parts.controller.close()
        self._log_dirs.close(clean=False)
        self._workers.shutdown()
        self._poller.close()


class Client:
    """Sends one request after the other over a connection of its own."""

    def __init__(self, broker: WholeBroker) -> None:
        self.wire = Wire()
        self.connection = broker.connection(self.wire)
        self._correlation_ids = itertools.count(1)

    async def ask(self, request: Any, key: int, version: int) -> int:
        """How long the answer is; a connection that the broker closes is an AssertionError."""
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
            assert not self.connection.is_closed, self.connection.close_reason
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
    """What some work costs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    loop.now += loop.steps.on_loop * STEP_SECONDS  # what was done before has taken its time
    loop.steps = steps = Steps()
    sys.setprofile(steps.note)
    try:
        await work
        await asyncio.sleep(0)  # ends the last round
    finally:
        sys.setprofile(None)
    return steps

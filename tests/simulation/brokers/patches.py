"""Puts the simulated world in place of the real one while a simulation runs: clocks, chance, sockets, files."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from types import SimpleNamespace
from typing import Any, Self

from tests.simulation.brokers.cleaner import InlineCleaner
from tests.simulation.brokers.disk import Disk
from tests.simulation.brokers.sockets import Sockets
from tests.simulation.brokers.world import EPOCH_SECONDS, World
from tests.simulation.brokers.zookeeper import ZooKeeperServer
from tests.simulation.brokers.zookeeper_client import FakeClient

import ottla.broker.cluster.broker_lifecycle  # noqa: F401 (so that all modules are there to be patched)
from ottla.base import tasks
from ottla.broker import delayed_fetch, dispatch, main, startup
from ottla.broker.cluster import metadata_poller, peers
from ottla.broker.delayed_fetch import DelayedFetch
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.log_manager import log_cleaner
from ottla.controller import service
from ottla.controller.cluster import controller, feed
from ottla.controller.stores.zookeeper import session
from ottla.network import peer, peer_transport
from ottla.network.connection import Connection
from ottla.security.sasl import scram
from ottla.storage import broker_epoch_file, files, log_dirs

REAL_TIME = {name: getattr(time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")}


class InlineExecutor:
    """A thread pool that runs its work at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (raised again where the result is awaited)
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *iterables: Any) -> Iterator[Any]:
        return iter([function(*items) for items in zip(*iterables, strict=True)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None: ...

    def shutdown(self, *args: Any, **kwargs: Any) -> None: ...


class Collected:
    """Collections run when they like, and no timer of a broker that was killed is left for the next world."""

    def begin(self) -> None: ...

    def end(self, _: object = None) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@contextlib.contextmanager
def patched(world: World, sockets: Sockets, disk: Disk, server: ZooKeeperServer) -> Iterator[None]:
    """The world is this one until the end of the block."""
    changes = contextlib.ExitStack()

    def put(place: Any, name: str, value: Any) -> None:
        before = getattr(place, name)
        changes.callback(setattr, place, name, before)
        setattr(place, name, value)

    with changes:
        _put_clocks(world, put)
        state = random.getstate()
        changes.callback(random.setstate, state)
        random.seed(world.random.getrandbits(64))
        put(os, "urandom", world.random.randbytes)
        put(os, "sendfile", sockets.send_file)
        put(os, "statvfs", lambda path: SimpleNamespace(f_blocks=10_000, f_bavail=9_000, f_frsize=1 << 20))
        put(service, "Random", lambda: random.Random(world.random.getrandbits(64)))
        for name, function in disk.replacements().items():
            put(files, name, function)
        put(log_dirs, "ThreadPoolExecutor", InlineExecutor)
        put(log_cleaner, "CleanerProcess", InlineCleaner)
        put(broker_epoch_file, "current_boot_id", disk.boot_id)
        for place in (dispatch, delayed_fetch, metadata_poller, feed, controller):
            put(place, "collector_pause", Collected())
        put(startup, "listen", sockets.listen)
        put(main, "announce_ready", lambda *_: None)
        put(main, "ReceiverThread", lambda *_: None)  # everything is received by the loop
        put(main, "configure_collector", lambda: None)
        put(peer_transport, "connect_socket", sockets.connect)
        put(peers, "connect_socket", sockets.connect)
        put(tasks, "start_thread", lambda work, _name: work())

        def make_client(address: Any, timeout_ms: int, loop: Any, identity: Any, security: Any) -> Any:
            client = FakeClient(sockets.network, server, loop, timeout_ms, identity)
            return client, client.connection

        put(session, "make_client", make_client)
        put(scram, "salted_password", cache(scram.salted_password))
        numbers = itertools.count()
        for cls in (
            Connection,
            peer.BrokerConnection,
            DelayedFetch,
            DelayedProduce,
        ):  # sets of them have an order that is the same in every process
            put(cls, "__hash__", lambda self: self.__dict__.setdefault("number of the simulation", next(numbers)))
        threads = threading.active_count()
        yield
        assert threading.active_count() == threads, "a thread was started"


def _put_clocks(world: World, put: Callable[[Any, str, Any], None]) -> None:
    def wall() -> float:
        step = world.current.clock_step if world.current is not None else 0.0
        return EPOCH_SECONDS + world.now + step

    clocks: dict[str, Callable[[], float | int]] = {
        "time": wall,
        "time_ns": lambda: int(wall() * 1_000_000) * 1_000,
        "monotonic": lambda: world.now,
        "monotonic_ns": lambda: int(world.now * 1_000_000_000),
        "perf_counter": lambda: world.now,
    }
    by_real = {REAL_TIME[name]: clock for name, clock in clocks.items()}
    for name, clock in clocks.items():
        put(time, name, clock)
    for module in [each for name, each in list(sys.modules.items()) if name.startswith("ottla.")]:
        for name, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__module__", None) == "time" and value in by_real:
                put(module, name, by_real[value])

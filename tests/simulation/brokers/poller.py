"""A node's poller: tells connections what their sockets are ready for, until they have acted (as epoll does)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.network.close_reason import CloseReason
from ottla.network.loop_latency import SchedulerDelay, SlowIterations

if TYPE_CHECKING:
    from tests.simulation.brokers.node_loop import NodeLoop
    from tests.simulation.brokers.sockets import Endpoint
    from tests.simulation.brokers.world import World

logger = logging.getLogger(__name__)


class NodePoller:
    """What the broker's parts ask of `network.poller.Poller`."""

    def __init__(self, world: World, loop: NodeLoop) -> None:
        self._world = world
        self._loop = loop
        self.endpoints: dict[int, Endpoint] = {}  # all sockets of this node, by descriptor
        self._watched: dict[int, Any] = {}
        self._interest: dict[int, tuple[bool, bool]] = {}
        self._readers: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self._stirred: dict[int, None] = {}  # descriptors that something has happened to
        self._to_flush: list[Any] = []
        self.pending_sockets = self._rounds = 0  # sockets that wait for their turn in this round
        self.round_start_ns = self.busy_ns = self.recent_ns = self.longest_ns = self.slow_count = 0
        self.slow_iterations = SlowIterations(SchedulerDelay())

    def reset_measurements(self) -> None:
        """Nothing is measured here."""

    @property
    def is_busy(self) -> bool:
        return bool(self._stirred or self._to_flush)

    # ---- what connections ask for

    def watch(self, descriptor: int, watched: Any) -> None:
        self._watched[descriptor] = watched
        self._interest[descriptor] = (True, False)
        self.stir(descriptor)

    def interest(self, descriptor: int, readable: bool, writable: bool) -> None:
        assert descriptor in self._watched, "a socket that is not watched"
        self._interest[descriptor] = (readable, writable)
        self.stir(descriptor)

    def flush_later(self, watched: Any) -> None:
        self._to_flush.append(watched)
        self._world.wake(self._loop)

    def unwatch(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)
        self._interest.pop(descriptor, None)
        self._stirred.pop(descriptor, None)

    def add_reader(self, descriptor: int, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._readers[descriptor] = (callback, args)
        self.stir(descriptor)

    def remove_reader(self, descriptor: int) -> bool:
        return self._readers.pop(descriptor, None) is not None

    def watched(self) -> list[Any]:
        return list(self._watched.values())

    # ---- what the network tells

    def stir(self, descriptor: int) -> None:
        self._stirred[descriptor] = None
        if not self._loop.is_runnable:
            self._world.wake(self._loop)

    # ---- a round

    def poll(self) -> None:
        self._flush()
        if not self._stirred:
            return
        self.round_start_ns = int(self._world.now * 1e9)
        stirred = list(self._stirred)
        if len(stirred) > 1:
            self._world.random.shuffle(stirred)
        # With few sockets no connection would see others wait, nor gather answers: every second round reports more.
        self._rounds += 1
        self.pending_sockets = len(stirred) + self._rounds % 2
        for descriptor in stirred:
            self.pending_sockets -= 1
            if descriptor in self._stirred:
                self._serve(descriptor)
        self.pending_sockets = 0
        self._flush()

    def _serve(self, descriptor: int) -> None:
        endpoint = self.endpoints.get(descriptor)
        watched = self._watched.get(descriptor)
        if endpoint is None or watched is None:
            self._call_reader(descriptor, endpoint)
            return
        readable, writable = self._interest[descriptor]
        may_read = readable and endpoint.is_readable
        may_write = writable and endpoint.is_writable
        if not may_read and not may_write and not endpoint.is_broken:
            self._stirred.pop(descriptor, None)
            return
        try:
            if may_write:
                watched.on_writable()
            if may_read:
                watched.on_readable()
            elif endpoint.is_broken:
                watched.abandon(CloseReason.CONNECTION_LOST)
        except Exception:
            logger.exception("closing a connection after an unexpected error")
            watched.abandon(CloseReason.UNEXPECTED_ERROR, "an unexpected error")

    def _call_reader(self, descriptor: int, endpoint: Any) -> None:
        self._stirred.pop(descriptor, None)
        found = self._readers.get(descriptor)
        if found is not None and endpoint is not None and endpoint.is_readable:
            callback, args = found
            self._loop.call_soon(callback, *args)

    def _flush(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        for connection in waiting:
            connection.flush()

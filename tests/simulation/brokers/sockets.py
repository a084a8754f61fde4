"""Sockets in memory, with the manners of real ones: they fill up, send less than they were given, refuse and reset.

An Endpoint is one side of a connection, a ListeningSocket what `listen` makes. Both know the calls that the broker
makes, and raise what the kernel raises.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import Any, Final

from tests.simulation.brokers.network import Network, Wire
from tests.simulation.brokers.node_loop import NodeLoop
from tests.simulation.brokers.world import World

DESCRIPTOR_MIN: Final = 1_000_000  # far from those of real files
BUFFER_BYTES: Final = (96 * 1024, 256 * 1024, 256 * 1024)
SMALL_BUFFER_BYTES: Final = 2_000
PORT_MIN: Final = 40_000


class Sockets:
    """The kernels of all hosts."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.world: World = network.world
        self.listening: dict[tuple[str, int], ListeningSocket] = {}
        self.by_descriptor: dict[int, Endpoint] = {}
        self.hosts: dict[str, str] = {}  # host name by address
        self._descriptors = DESCRIPTOR_MIN
        self.small_buffers = False

    def descriptor(self) -> int:
        self._descriptors += 1
        return self._descriptors

    def host_of(self, loop: NodeLoop) -> str:
        return loop.name.partition(".")[0]

    def listen(self, host: str, port: int, limits: Any) -> ListeningSocket:
        """In place of network.socket_server.listen."""
        if (host, port) in self.listening:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        loop = self._current()
        made = self.listening[host, port] = ListeningSocket(self, loop, (host, port))
        loop.poller.endpoints[made.fileno()] = made  # type: ignore[assignment]
        return made

    async def connect(self, host: str, port: int, _options: object = None) -> Endpoint:
        """In place of network.peer_transport.connect_socket."""
        loop = self._current()
        source, target = self.host_of(loop), self.hosts[host]
        future: asyncio.Future[Endpoint] = loop.create_future()
        made = Endpoint(self, loop, source, target)

        def arrive() -> None:
            listening = self.listening.get((host, port))
            if listening is None or len(listening.backlog) >= listening.backlog_max:
                refusal = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
                self.network.send(target, source, lambda: future.done() or future.set_exception(refusal))
                return
            other = Endpoint(self, listening.loop, target, source)
            made.join(other)
            listening.arrive(other)
            self.network.send(target, source, lambda: future.done() or future.set_result(made))

        self.network.send(source, target, arrive)
        try:
            return await future
        except BaseException:
            made.close()
            raise

    def send_file(self, out: int, source: int, position: int, count: int) -> int:
        """In place of os.sendfile."""
        endpoint = self.by_descriptor[out]
        free = endpoint.free_bytes()
        data = os.pread(source, min(free, count), position)
        return endpoint.send(data) if data else 0

    def kill(self, loop: NodeLoop) -> None:
        """A process has ended: its kernel resets what was open."""
        for address, listening in list(self.listening.items()):
            if listening.loop is loop:
                del self.listening[address]
                for waiting in listening.backlog:
                    waiting.reset_peer()
        for endpoint in list(loop.poller.endpoints.values()):
            if isinstance(endpoint, Endpoint):
                endpoint.reset_peer()

    def clear(self) -> None:
        self.listening.clear()
        self.by_descriptor.clear()

    def _current(self) -> NodeLoop:
        assert self.world.current is not None
        return self.world.current


class Endpoint:
    """One side of a connection."""

    family = socket.AF_INET

    def __init__(self, sockets: Sockets, loop: NodeLoop, here: str, there: str) -> None:
        self._sockets = sockets
        self._loop = loop
        self.here = here
        self.there = there
        self._descriptor = sockets.descriptor()
        chance = sockets.world.random
        self._capacity = SMALL_BUFFER_BYTES if sockets.small_buffers else chance.choice(BUFFER_BYTES)
        self._wire = Wire(sockets.network, here, there, self._on_silence)
        self._peer: Endpoint | None = None
        self._inbox: deque[memoryview] = deque()
        self._unread = 0  # bytes that we have sent and the other side has not read
        self._is_ended = False  # the other side sends no more
        self._error = 0
        self.is_closed = False
        sockets.by_descriptor[self._descriptor] = self
        loop.poller.endpoints[self._descriptor] = self

    def __repr__(self) -> str:
        return f"<Endpoint {self.here} to {self.there}>"

    def join(self, other: Endpoint) -> None:
        self._peer, other._peer = other, self

    # ---- what the poller asks

    @property
    def is_readable(self) -> bool:
        return bool(self._inbox) or self._is_ended or self._error != 0

    @property
    def is_writable(self) -> bool:
        return self._unread < self._capacity or self._error != 0

    @property
    def is_broken(self) -> bool:
        return self._error != 0

    # ---- what the broker calls

    def fileno(self) -> int:
        return -1 if self.is_closed else self._descriptor

    def setblocking(self, flag: bool) -> None: ...

    def setsockopt(self, *args: Any) -> None: ...

    def getsockopt(self, *args: Any) -> bytes:
        return b"cubic"  # all that is asked for is how fast it sends

    def getsockname(self) -> tuple[str, int]:
        return self.here, PORT_MIN

    def getpeername(self) -> tuple[str, int]:
        return self.there, PORT_MIN

    def free_bytes(self) -> int:
        self._check()
        left = self._capacity - self._unread
        if left <= 0:
            raise BlockingIOError(errno.EAGAIN, "full")
        return left

    def send(self, data: Any, flags: int = 0) -> int:
        count = min(self.free_bytes(), len(data))
        if count > 1 and self._sockets.world.random.random() < 0.02:
            count //= 2
        self._put(bytes(memoryview(data)[:count]))
        return count

    def recv_into(self, buffer: Any) -> int:
        if not self._inbox:
            self._check()
            if self._is_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        target = memoryview(buffer)
        filled = 0
        while self._inbox and filled < len(target):
            chunk = self._inbox[0]
            count = min(len(chunk), len(target) - filled)
            target[filled : filled + count] = chunk[:count]
            filled += count
            if count == len(chunk):
                self._inbox.popleft()
            else:
                self._inbox[0] = chunk[count:]
        if self._peer is not None:
            self._peer.on_read(filled)
        return filled

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.poller.endpoints.pop(self._descriptor, None)
        self._sockets.by_descriptor.pop(self._descriptor, None)
        peer = self._peer
        if peer is not None and not self._error:
            self._wire.put(peer.on_end)

    def _check(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if self._error:
            raise OSError(self._error, os.strerror(self._error))

    def _put(self, data: bytes) -> None:
        peer = self._peer
        assert peer is not None, "not connected yet"
        self._unread += len(data)
        self._sockets.world.note(self.here, self.there, len(data))
        self._wire.put(lambda: peer.on_data(data))

    # ---- what the network brings

    def on_data(self, data: bytes) -> None:
        if self.is_closed or self._loop.is_dead:
            self.reset_peer()
            return
        self._inbox.append(memoryview(data))
        self._stir()

    def on_end(self) -> None:
        self._is_ended = True
        self._stir()

    def on_reset(self) -> None:
        self._inbox.clear()
        self._error = self._error or errno.ECONNRESET
        self._stir()

    def on_read(self, count: int) -> None:
        self._unread -= count
        self._stir()

    def _on_silence(self) -> None:
        """What we sent was not acknowledged for too long."""
        if not self.is_closed:
            self._error = self._error or errno.ETIMEDOUT
            self._stir()

    def reset_peer(self) -> None:
        if self._peer is not None and not self._peer.is_closed:
            self._wire.put(self._peer.on_reset)

    def _stir(self) -> None:
        if not self.is_closed and not self._loop.is_dead:
            self._loop.poller.stir(self._descriptor)


class ListeningSocket:
    """Connections that were made and not accepted yet."""

    family = socket.AF_INET
    backlog_max = 50
    is_writable = is_broken = False

    def __init__(self, sockets: Sockets, loop: NodeLoop, address: tuple[str, int]) -> None:
        self._sockets = sockets
        self.loop = loop
        self._address = address
        self._descriptor = sockets.descriptor()
        self.backlog: deque[Endpoint] = deque()

    @property
    def is_readable(self) -> bool:
        return bool(self.backlog)

    def fileno(self) -> int:
        return self._descriptor

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def arrive(self, endpoint: Endpoint) -> None:
        self.backlog.append(endpoint)
        self.loop.poller.stir(self._descriptor)

    def accept(self) -> tuple[Endpoint, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "no pending connection")
        endpoint = self.backlog.popleft()
        return endpoint, (endpoint.there, PORT_MIN)

    def close(self) -> None:
        self._sockets.listening.pop(self._address, None)
        self.loop.poller.endpoints.pop(self._descriptor, None)
        for waiting in self.backlog:
            waiting.reset_peer()
        self.backlog.clear()

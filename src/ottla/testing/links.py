"""TCP proxies between the brokers of a test cluster, which can interrupt and slow down its network.

Every broker advertises the address of a `Proxy` to the other brokers instead of its own; another one leads
each broker to ZooKeeper. The bytes through a proxy belong to a flow from one node to another. Each flow can be cut,
delayed or limited, alone or with the opposite one.

Rules:
1. A cut is silence, not a closed connection: bytes wait, and continue when the flow is restored, as with TCP. The end
   of a connection does not pass a cut either.
2. A proxy of a node that is down refuses connections, as the node's own port would.
3. The kernel identifies the client of a connection: the process that holds the other end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from ottla.base import tasks
from ottla.testing.child import HOST, reserve_port

ZOOKEEPER = 0  # the node id of ZooKeeper; brokers have their own
CHUNK_BYTES = 64 * 1024
QUEUED_CHUNKS_MAX = 64
CALL_SECONDS_MAX = 10.0
CLOSED_INODE = "0"  # in place of an inode: the socket's owner has closed it
LOOKUP_TRIES = 3  # a kernel table that changes during the read may miss a row
STALL_SECONDS = 0.25  # the delay of one lost packet until TCP retransmits it
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends a reset

T = TypeVar("T")


class Flow:
    """The bytes from one node to another. Used only on the event loop of the proxies."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay_seconds = 0.0
        self.bytes_per_second = 0.0  # 0: no limit
        self.loss_rate = 0.0  # the share of chunks that arrive late
        self.carried_bytes = 0

    def __repr__(self) -> str:
        state = "open" if self.is_open.is_set() else "cut"
        return f"<Flow {state} delay={self.delay_seconds:g}s carried={self.carried_bytes}>"


class Proxy:
    """A listening port that forwards to one address; it keeps its port while it is closed."""

    def __init__(self, links: Links, target: int, address: tuple[str, int], source: int | None) -> None:
        self.links = links
        self.target = target
        self.address = address
        self.source = source  # None: found through the kernel
        self._reservation = reserve_port()
        self.port: int = self._reservation.getsockname()[1]
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, reuse_address=True)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def release_port(self) -> None:
        self._reservation.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward_connection(reader, writer)
        except asyncio.CancelledError:
            reset(writer)  # shutdown: _let_in() has closed the other connection

    async def _forward_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        # In a thread: it takes the kernel milliseconds, during which the loop would forward nothing.
        source = self.source
        if source is None:
            source = await asyncio.to_thread(self.links.node_behind, port, self.port)
        if source is None:
            return reset(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.address)
        except OSError:
            return reset(writer)
        pumps = [
            tasks.spawn_awaited(pump(reader, far_writer, self.links.flow(source, self.target)), "a link"),
            tasks.spawn_awaited(pump(far_reader, writer, self.links.flow(self.target, source)), "a link"),
        ]
        is_orderly = False
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            is_orderly = all(each.result() for each in done)
        finally:
            for each in pumps:
                each.cancel()
            for end in (writer, far_writer):
                end.close() if is_orderly else reset(end)
        return None

    def __repr__(self) -> str:
        return f"<Proxy :{self.port} to {self.target} {'open' if self._server else 'closed'}>"


class Links:
    """All proxies and flows of a cluster, on a thread of their own. `pid_of` returns the process of each broker."""

    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        self._pids = pids
        self._flows: dict[tuple[int, int], Flow] = {}
        self._proxies: list[Proxy] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    # ---- proxies

    def add_proxy(self, target: int, port: int, source: int | None = None) -> Proxy:
        """A proxy of a node that listens on `port`. It is closed at first."""
        proxy = Proxy(self, target, (HOST, port), source)
        self._proxies.append(proxy)
        return proxy

    def open_proxies(self, target: int) -> None:
        for proxy in self._proxies_of(target):
            self._run(proxy.open())

    def close_proxies(self, target: int) -> None:
        for proxy in self._proxies_of(target):
            self._run(proxy.close())

    # ---- changes of the network

    def cut(self, source: int, target: int, *, one_way: bool = False) -> None:
        """Block all bytes from `source` to `target`, and back unless `one_way`."""
        for flow in self._flows_between(source, target, one_way=one_way):
            self._loop.call_soon_threadsafe(flow.is_open.clear)

    def join(self, source: int, target: int, *, one_way: bool = False) -> None:
        """Undo cut()."""
        for flow in self._flows_between(source, target, one_way=one_way):
            self._loop.call_soon_threadsafe(flow.is_open.set)

    def slow_down(
        self,
        source: int,
        target: int,
        *,
        delay_seconds: float = 0.0,
        bytes_per_second: float = 0.0,
        loss_rate: float = 0.0,
    ) -> None:
        """Set delay, bandwidth and loss in both directions."""
        for flow in self._flows_between(source, target, one_way=False):
            flow.delay_seconds = delay_seconds
            flow.bytes_per_second = bytes_per_second
            flow.loss_rate = loss_rate

    def heal(self) -> None:
        """Reset everything."""
        for flow in list(self._flows.values()):
            flow.delay_seconds = flow.bytes_per_second = flow.loss_rate = 0.0
            self._loop.call_soon_threadsafe(flow.is_open.set)

    def flow(self, source: int, target: int) -> Flow:
        return self._flows.setdefault((source, target), Flow())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self._close_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()
        for proxy in self._proxies:
            proxy.release_port()

    def node_behind(self, port: int, proxy_port: int) -> int | None:
        """The broker that opened the connection from this port to that proxy, and still holds it."""
        for _ in range(LOOKUP_TRIES):
            inode = inode_of(port, proxy_port)
            if inode == CLOSED_INODE:
                break
            for node, pid in self._pids().items():
                if inode is not None and has_socket_open(pid, inode):
                    return node
        return None

    def _flows_between(self, source: int, target: int, *, one_way: bool) -> list[Flow]:
        return [self.flow(source, target)] + ([] if one_way else [self.flow(target, source)])

    def _proxies_of(self, target: int) -> list[Proxy]:
        return [proxy for proxy in self._proxies if proxy.target == target]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(CALL_SECONDS_MAX)

    async def _close_all(self) -> None:
        for proxy in self._proxies:
            await proxy.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __repr__(self) -> str:
        cut = sorted(pair for pair, flow in self._flows.items() if not flow.is_open.is_set())
        return f"<Links proxies={self._proxies} cut={cut}>"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow) -> bool:
    """Forward one direction of a connection until its end has passed; returns whether it was closed cleanly."""
    chunks: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(QUEUED_CHUNKS_MAX)
    reading = tasks.spawn_awaited(read_chunks(reader, chunks, flow), "a link")
    loop = asyncio.get_running_loop()
    try:
        while True:
            due, chunk = await chunks.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await flow.is_open.wait()
            if not chunk:
                return chunk is not None
            if flow.bytes_per_second:
                await asyncio.sleep(len(chunk) / flow.bytes_per_second)
            flow.carried_bytes += len(chunk)
            writer.write(chunk)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
    finally:
        reading.cancel()


async def read_chunks(
    reader: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes | None]], flow: Flow
) -> None:
    """Read chunks into the queue; the end is an empty chunk, or None for a reset."""
    loop = asyncio.get_running_loop()
    chunk: bytes | None = b"first"
    while chunk:
        try:
            chunk = await reader.read(CHUNK_BYTES)
        except OSError:
            chunk = None
        is_late = flow.loss_rate > 0 and random.random() < flow.loss_rate  # noqa: S311 (not a secret)
        await chunks.put((loop.time() + flow.delay_seconds + (STALL_SECONDS if is_late else 0), chunk))


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset, as a kernel does after the death of a process."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def inode_of(port: int, peer: int) -> str | None:
    """The inode of the socket that is connected from this port to that one.

    Both are compared: the port alone may belong to an earlier connection to another address, whose row the kernel keeps
    for a minute.
    """
    wanted = [f"0100007F:{each:04X}" for each in (port, peer)]
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[1:3] == wanted:
            return words[9]
    return None


def has_socket_open(pid: int, inode: str) -> bool:
    """Whether this process has the socket open."""
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) == wanted:
                    return True
    return False

"""The network between the brokers of a test cluster, where a test can cut it.

Every broker tells the others the address of a door, which is a TCP proxy, instead of its own; another door leads each
broker to ZooKeeper. What goes through a door belongs to a flow, from one node to another, and each flow can be cut,
made slow or narrow, alone or with its counterpart.

Rules:
1. A cut is silence, not a closed connection: bytes wait and go on when the flow is whole again, as with TCP. Also the
   end of a connection does not get through a cut.
2. A door to a node that is down refuses connections, as the node's own port would.
3. Who has opened a connection is told by the kernel: the process that holds the other end.
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

HOST = "127.0.0.1"
ZOOKEEPER = 0  # as the number of a node; brokers have their ids
PIECE_BYTES = 64 * 1024
PIECES_MAX = 64
CALL_SECONDS_MAX = 10.0
NOBODY = "0"  # in place of an inode: whoever had the socket has closed it
LOOKS = 3  # a table of the kernel that changes while it is read may lack a row
STALL_SECONDS = 0.25  # what one lost packet costs until TCP sends it again
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends a reset

T = TypeVar("T")


class Flow:
    """What goes from one node to another. Lives on the loop of the proxies."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay_seconds = 0.0
        self.bytes_per_second = 0.0  # 0: as many as it likes
        self.loss_rate = 0.0  # part of the pieces that come late
        self.carried_bytes = 0

    def __repr__(self) -> str:
        state = "open" if self.is_open.is_set() else "cut"
        return f"<Flow {state} delay={self.delay_seconds:g}s carried={self.carried_bytes}>"


class Door:
    """A listening port that leads to one address; it keeps its number while it is closed."""

    def __init__(self, links: Links, target: int, address: tuple[str, int], source: int | None) -> None:
        self.links = links
        self.target = target
        self.address = address
        self.source = source  # None: whoever it is, the kernel knows
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((HOST, 0))
        self.port: int = self._reservation.getsockname()[1]
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, reuse_address=True)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def forget(self) -> None:
        self._reservation.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._let_in(reader, writer)
        except asyncio.CancelledError:
            reset(writer)  # everything comes to its end

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        # Not on the loop: that takes the kernel milliseconds, and all that is under way would stand still meanwhile.
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
            tasks.ask(pump(reader, far_writer, self.links.flow(source, self.target)), "a link"),
            tasks.ask(pump(far_reader, writer, self.links.flow(self.target, source)), "a link"),
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
        return f"<Door :{self.port} to {self.target} {'open' if self._server else 'closed'}>"


class Links:
    """All doors and flows of a cluster, on a thread of their own. `pid_of` names the process of each broker."""

    def __init__(self, pids: Callable[[], dict[int, int]]) -> None:
        self._pids = pids
        self._flows: dict[tuple[int, int], Flow] = {}
        self._doors: list[Door] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    # ---- doors

    def add_door(self, target: int, port: int, source: int | None = None) -> Door:
        """A door to a node that listens on `port`. It is closed at first."""
        door = Door(self, target, (HOST, port), source)
        self._doors.append(door)
        return door

    def open_doors(self, target: int) -> None:
        for door in self._to(target):
            self._run(door.open())

    def close_doors(self, target: int) -> None:
        for door in self._to(target):
            self._run(door.close())

    # ---- what a test may do to the network

    def cut(self, source: int, target: int, *, one_way: bool = False) -> None:
        """Nothing gets from `source` to `target` any more, nor back unless `one_way`."""
        for flow in self._both(source, target, one_way=one_way):
            self._loop.call_soon_threadsafe(flow.is_open.clear)

    def join(self, source: int, target: int, *, one_way: bool = False) -> None:
        """The opposite of cut()."""
        for flow in self._both(source, target, one_way=one_way):
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
        """Both ways."""
        for flow in self._both(source, target, one_way=False):
            flow.delay_seconds = delay_seconds
            flow.bytes_per_second = bytes_per_second
            flow.loss_rate = loss_rate

    def heal(self) -> None:
        """Everything as it was."""
        for flow in list(self._flows.values()):
            flow.delay_seconds = flow.bytes_per_second = flow.loss_rate = 0.0
            self._loop.call_soon_threadsafe(flow.is_open.set)

    def flow(self, source: int, target: int) -> Flow:
        return self._flows.setdefault((source, target), Flow())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()
        for door in self._doors:
            door.forget()

    def node_behind(self, port: int, door: int) -> int | None:
        """Which broker has opened the connection from this port to that door, and still holds it."""
        for _ in range(LOOKS):
            inode = inode_of(port, door)
            if inode == NOBODY:
                break
            for node, pid in self._pids().items():
                if inode is not None and holds(pid, inode):
                    return node
        return None

    def _both(self, source: int, target: int, *, one_way: bool) -> list[Flow]:
        return [self.flow(source, target)] + ([] if one_way else [self.flow(target, source)])

    def _to(self, target: int) -> list[Door]:
        return [door for door in self._doors if door.target == target]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(CALL_SECONDS_MAX)

    async def _end(self) -> None:
        for door in self._doors:
            await door.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __repr__(self) -> str:
        cut = sorted(pair for pair, flow in self._flows.items() if not flow.is_open.is_set())
        return f"<Links doors={self._doors} cut={cut}>"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow) -> bool:
    """Bytes of one connection in one direction, until its end has got through; whether that was a proper end."""
    pieces: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(PIECES_MAX)
    feeding = tasks.ask(feed(reader, pieces, flow), "a link")
    loop = asyncio.get_running_loop()
    try:
        while True:
            due, piece = await pieces.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await flow.is_open.wait()
            if not piece:
                return piece is not None
            if flow.bytes_per_second:
                await asyncio.sleep(len(piece) / flow.bytes_per_second)
            flow.carried_bytes += len(piece)
            writer.write(piece)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
    finally:
        feeding.cancel()


async def feed(reader: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes | None]], flow: Flow) -> None:
    """Pieces as they come; at the end an empty one, or None for a reset."""
    loop = asyncio.get_running_loop()
    piece: bytes | None = b"first"
    while piece:
        try:
            piece = await reader.read(PIECE_BYTES)
        except OSError:
            piece = None
        is_late = flow.loss_rate > 0 and random.random() < flow.loss_rate  # noqa: S311 (not a secret)
        await pieces.put((loop.time() + flow.delay_seconds + (STALL_SECONDS if is_late else 0), piece))


def reset(writer: asyncio.StreamWriter) -> None:
    """As a kernel whose process has died would end a connection."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def inode_of(port: int, peer: int) -> str | None:
    """The kernel's number of the socket that is connected from this port to that one.

    Both are asked for: the port alone may also be that of an earlier connection to somewhere else, whose row the kernel
    keeps for a minute.
    """
    wanted = [f"0100007F:{each:04X}" for each in (port, peer)]
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[1:3] == wanted:
            return words[9]
    return None


def holds(pid: int, inode: str) -> bool:
    """Whether this process has that socket open."""
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) == wanted:
                    return True
    return False

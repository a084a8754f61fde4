"""A connection of a client, and a client that finds its way: the wire protocol, nothing of the broker's own.

Promises that are watched here: every answer belongs to the oldest request of its connection that waits, and once all is
mended every request is answered in time or its connection ends.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.simulation.brokers.sockets import Endpoint

from ottla.base.errors import Error
from ottla.protocol.codec import ProtocolError, decode_whole, encode
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import layout_of

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster

R = TypeVar("R")

CONNECT_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 3.0
MENDED_ANSWER_SECONDS: Final = 6.0  # once all faults are repaired no client may wait for longer
BACKOFF_SECONDS: Final = (0.05, 0.1, 0.2)
LOGIN_KEYS: Final = (17, 36)
GROUP: Final = 0
TRANSACTION: Final = 1


class GoneError(Exception):
    """No connection, or none any more; the request may have been carried out."""


class WireConnection:
    """One connection to one broker, as the poller sees it."""

    def __init__(self, client: Client, broker: int) -> None:
        self.client = client
        self.broker = broker
        self.is_closed = False
        self.calls: deque[tuple[int, int, int, type[Any], asyncio.Future[Any]]] = deque()
        self._cluster = client.cluster
        self._poller = client.cluster.clients.poller
        self._socket: Endpoint | None = None
        self._in = bytearray()
        self._out = bytearray()
        self._correlation = 0
        self.renew_at: float | None = None  # when its login is to be repeated
        self.expires_at: float | None = None  # from when on nothing but a login is answered
        self._login: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<WireConnection {self.client.name} to {self.broker}, {len(self.calls)} waiting>"

    async def open(self, *, with_login: bool = True) -> None:
        host = self._cluster.host(self.broker)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._socket = await self._cluster.sockets.connect(host.address, 9092)
        except (OSError, TimeoutError) as error:
            raise GoneError(f"cannot connect to {self.broker}: {error!r}") from None
        self._poller.watch(self._socket.fileno(), self)
        if with_login and self._cluster.accounts is not None:
            await self.log_in()

    async def log_in(self) -> None:
        """For the first time or again; other callers wait meanwhile."""
        if self._login is None:
            from tests.simulation.brokers.logins import log_in  # noqa: PLC0415 (clients themselves log in)

            self._login = self._cluster.clients.create_task(log_in(self), name=f"login of {self.client.name}")
        login = self._login
        try:
            await asyncio.shield(login)
        finally:
            if login.done():
                self._login = None

    async def ask(self, request: Any, response: type[R], version: int) -> R:
        return await self.client.wait(self, request, self.send(request, response, version))

    def send(self, request: Any, response: type[R], version: int, *, cut_at: int | None = None) -> asyncio.Future[R]:
        """Requests of one connection are answered in this order. `cut_at`: only so many bytes are sent, and no more."""
        if self.is_closed or self._socket is None:
            raise GoneError("closed")
        key = layout_of(type(request)).api_key
        assert key is not None
        self._correlation += 1
        frame = encode_request_header(key, version, self._correlation, self.client.name) + bytes(
            encode(request, version)
        )
        frame = len(frame).to_bytes(4, "big") + frame
        future: asyncio.Future[R] = self._cluster.clients.create_future()
        if key not in LOGIN_KEYS and self.expires_at is not None and self._cluster.world.now > self.expires_at:
            self._expect_refusal(future, type(request).__name__)
        self.calls.append((key, version, self._correlation, response, future))
        self._out += frame if cut_at is None else frame[:cut_at]
        self.on_writable()
        return future

    def _expect_refusal(self, future: asyncio.Future[Any], name: str) -> None:
        """Its login has expired. A broker that was paused may answer before it looks at the clock."""
        if self._cluster.is_in_trouble:
            return

        def check(answer: asyncio.Future[Any]) -> None:
            if not answer.cancelled() and answer.exception() is None:
                self._cluster.world.break_(f"{self.client.name}: {self.broker} answers {name} after the login expired")

        future.add_done_callback(check)

    # ---- the poller

    def on_writable(self) -> None:
        sock = self._socket
        if sock is None or self.is_closed:
            return
        try:
            while self._out:
                sent = sock.send(self._out)
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            self.abandon(str(error))
            return
        self._poller.interest(sock.fileno(), True, bool(self._out))

    def on_readable(self) -> None:
        sock = self._socket
        if sock is None or self.is_closed:
            return
        buffer = bytearray(65536)
        try:
            count = sock.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self.abandon(str(error))
            return
        if count == 0:
            self.abandon("closed by the broker")
            return
        self._in += buffer[:count]
        while len(self._in) >= 4 and not self.is_closed:
            (size,) = struct.unpack_from(">i", self._in)
            if len(self._in) < 4 + size:
                return
            frame = bytes(self._in[4 : 4 + size])
            del self._in[: 4 + size]
            self._on_frame(memoryview(frame))

    def _on_frame(self, frame: memoryview) -> None:
        if not self.calls:
            self._cluster.world.break_(
                f"{self.client.name}: an answer of {self.broker} to a request that was never sent"
            )
        key, version, correlation, response, future = self.calls.popleft()
        try:
            got, position = decode_response_header(key, version, frame)
            if got != correlation:
                self._cluster.world.break_(f"{self.client.name}: answer {got} of {self.broker}, expected {correlation}")
            answer = decode_whole(response, version, frame, position)
        except ProtocolError as error:
            self._cluster.world.break_(
                f"{self.client.name}: {self.broker} sent what is no {response.__name__}: {error}"
            )
            return
        if not future.done():
            future.set_result(answer)

    def flush(self) -> None: ...

    def abandon(self, reason: str, detail: str = "") -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._socket is not None:
            self._poller.unwatch(self._socket.fileno())
            self._socket.close()
        calls, self.calls = self.calls, deque()
        for *_, future in calls:
            if not future.done():
                future.set_exception(GoneError(reason))
                future.exception()  # marks it as retrieved; a waiting caller still gets it


class Client:
    """What all clients have: connections, what they know of leaders and coordinators, and patience."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.is_done = False  # it should come to an end
        self.connections: dict[int, WireConnection] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[str, Any] = {}
        self.coordinators: dict[tuple[int, str], int] = {}
        self.renews = False  # its logins, before they expire
        if cluster.accounts is not None:
            self.account = self.world.random.choice(cluster.accounts.all)
            self.renews = self.world.chance(0.5)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def start(self) -> None:
        def begin() -> None:
            task = self.cluster.clients.create_task(self._run(), name=self.name)
            self.cluster.working[self.name] = task

        self.cluster.clients.call_soon(begin)

    async def _run(self) -> None:
        try:
            await self.run()
        finally:
            self.cluster.working.pop(self.name, None)
            for connection in self.connections.values():
                connection.abandon("done")

    async def run(self) -> None:
        raise NotImplementedError

    # ---- calling

    async def connection(self, broker: int) -> WireConnection:
        found = self.connections.get(broker)
        if found is None or found.is_closed:
            found = WireConnection(self, broker)
            await found.open()
            known = self.connections.get(broker)
            if known is not None and not known.is_closed:
                found.abandon("another connection was faster")
                return known
            self.connections[broker] = found
        elif self.renews and found.renew_at is not None and self.world.now > found.renew_at:
            await found.log_in()
        return found

    async def call(
        self, broker: int, request: Any, response: type[R], version: int, seconds: float = ANSWER_SECONDS
    ) -> R:
        connection = await self.connection(broker)
        return await self.wait(connection, request, connection.send(request, response, version), seconds)

    async def wait(
        self, connection: WireConnection, request: Any, answer: asyncio.Future[R], seconds: float = ANSWER_SECONDS
    ) -> R:
        sent_at = self.world.now
        if not self.cluster.is_in_trouble:
            seconds = max(seconds, MENDED_ANSWER_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            connection.abandon("no answer")
            if self.cluster.mended_at is not None and sent_at > self.cluster.mended_at + 1.0:
                name = type(request).__name__
                self.world.break_(f"{self.name}: {name} to {connection.broker} was not answered in {seconds} s")
            raise GoneError("no answer") from None

    async def pause(self) -> None:
        await asyncio.sleep(self.world.random.choice(BACKOFF_SECONDS))

    def any_broker(self) -> int:
        return self.world.random.choice(self.cluster.hosts).number

    # ---- finding

    async def leader(self, topic: str, partition: int) -> int:
        """The leader, as far as is known; -1 if there seems to be none."""
        known = self.leaders.get((topic, partition))
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.call(self.any_broker(), request, MetadataResponse, 12)
        for found in answer.topics:
            if found.error_code == Error.NONE and found.name is not None:
                self.topic_ids[found.name] = found.topic_id
                for each in found.partitions:
                    self._note_leader((found.name, each.partition_index), each.leader_id, each.leader_epoch)
        return self.leaders.get((topic, partition), -1)

    def _note_leader(self, place: tuple[str, int], leader: int, epoch: int) -> None:
        """Older news than what is known already are no news (KIP-320)."""
        if leader > 0 and epoch >= self.epochs.get(place, -1):
            self.leaders[place] = leader
            self.epochs[place] = epoch

    def forget_leader(self, topic: str, partition: int) -> None:
        self.leaders.pop((topic, partition), None)

    async def coordinator(self, kind: int, key: str) -> int:
        """-1 if there is none at present."""
        known = self.coordinators.get((kind, key))
        if known is not None:
            return known
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        answer = await self.call(self.any_broker(), request, FindCoordinatorResponse, 4)
        found = answer.coordinators[0]
        if found.error_code != Error.NONE:
            return -1
        self.coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, kind: int, key: str) -> None:
        self.coordinators.pop((kind, key), None)

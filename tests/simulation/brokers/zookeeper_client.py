"""In place of kazoo: the calls that `controller/stores/zookeeper/` makes, over the simulated network.

Everything above kazoo is the broker's own: sessions, heartbeats, watches that last, verdicts on lost answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kazoo.exceptions import ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.protocol.serialization import Exists, Sync
from kazoo.protocol.states import KazooState, WatchedEvent
from tests.simulation.brokers.network import Network, Wire
from tests.simulation.brokers.node_loop import NodeLoop
from tests.simulation.brokers.zookeeper import HOST, ServerSession, ZooKeeperServer

from ottla.controller.stores.store import Node
from ottla.controller.stores.zookeeper.client import GET_DATA, Found, LoopResult, MultiRead

RETRY_SECONDS: Final = (0.1, 0.3, 1.0)
PASSWORD: Final = b"sesame"
Send = Callable[[ServerSession], Any]


class FakeConnection:
    """What the session asks of kazoo's connection."""

    problem = ""
    has_ended = False
    is_refused = False

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self.negotiated_timeout_ms = 0

    def drop(self) -> None:
        self._client.lose()


class FakeTransaction:
    """Operations that are sent together."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self._operations: list[tuple[Any, ...]] = []

    def create(self, path: str, data: bytes, acl: Any, ephemeral: bool = False, sequence: bool = False) -> None:
        self._operations.append(("create", path, data, ephemeral, sequence))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._operations.append(("set", path, data, version))

    def delete(self, path: str, version: int) -> None:
        self._operations.append(("delete", path, version))

    def check(self, path: str, version: int) -> None:
        self._operations.append(("check", path, version))

    def commit_async(self) -> LoopResult:
        server = self._client.server
        return self._client.ask(lambda session: server.multi(session.number, self._operations))


class FakeClient:
    """One session after the other; a new object only when the broker makes one."""

    def __init__(
        self,
        network: Network,
        server: ZooKeeperServer,
        loop: NodeLoop,
        timeout_ms: int,
        identity: tuple[int, bytes] | None,
    ) -> None:
        self.server = server
        self.client_id = identity
        self.connection = FakeConnection(self)
        self.last_zxid = 0
        self.handler = self
        self._network = network
        self._loop = loop
        self._host = loop.name.partition(".")[0]
        self._timeout_ms = timeout_ms
        self._listeners: list[Callable[[str], None]] = []
        self._round = 0  # counts connections: what belongs to an earlier one is dropped
        self._is_connected = False
        self._is_stopped = False
        self._out: Wire | None = None
        self._in: Wire | None = None
        self._waiting: deque[LoopResult] = deque()
        self._watches: dict[tuple[bool, str], list[Callable[[Any], None]]] = {}
        self._attempts = 0
        self._timer: asyncio.TimerHandle | None = None

    # ---- kazoo's calls

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def async_result(self) -> LoopResult:
        return LoopResult(self._loop)

    def start_async(self) -> None:
        self._connect()

    def stop(self) -> None:
        if self.client_id is not None and self._is_connected and self._out is not None:
            number = self.client_id[0]
            self._out.put(lambda: self.server.close_session(number))
        self._is_stopped = True
        self._is_connected = False
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None: ...

    def transaction(self) -> FakeTransaction:
        return FakeTransaction(self)

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> LoopResult:
        return self.ask(lambda session: self._exists(session, path, watch is not None), watch, (False, path))

    def get_children_async(self, path: str, watch: Callable[[Any], None] | None = None) -> LoopResult:
        return self.ask(lambda session: self._children(session, path, watch is not None), watch, (True, path))

    def _call(self, request: Any, result: LoopResult) -> None:
        if isinstance(request, Exists):
            self._send(lambda session: self.server.stat(request.path), result)
        elif isinstance(request, Sync):
            self._send(lambda session: request.path, result)
        else:
            assert isinstance(request, MultiRead), request
            self._send(lambda session: [self._read(kind, path) for kind, path in request.reads], result)

    # ---- at the server

    def _exists(self, session: ServerSession, path: str, is_watching: bool) -> Any:
        if is_watching:
            self.server.watch(session.number, path, is_of_children=False)
        return self.server.stat(path)

    def _children(self, session: ServerSession, path: str, is_watching: bool) -> list[str]:
        names = self.server.children(path)
        if is_watching:
            self.server.watch(session.number, path, is_of_children=True)
        return names

    def _read(self, kind: int, path: str) -> Any:
        node = self.server.nodes.get(path)
        if node is None:
            return None
        if kind == GET_DATA:
            seen = Node(node.data, node.version, node.created, node.changed)
            return Found(seen, node.changed, node.owner, len(node.children))
        return list(node.children)

    # ---- requests

    def ask(
        self, send: Send, watch: Callable[[Any], None] | None = None, key: tuple[bool, str] | None = None
    ) -> LoopResult:
        result = LoopResult(self._loop)
        self._send(send, result, watch, key)
        return result

    def _send(
        self,
        send: Send,
        result: LoopResult,
        watch: Callable[[Any], None] | None = None,
        key: tuple[bool, str] | None = None,
    ) -> None:
        if not self._is_connected or self._out is None or self.client_id is None:
            result.set_exception(ConnectionLoss())
            return
        self._waiting.append(result)
        number, round_, wire = self.client_id[0], self._round, self._in
        assert wire is not None

        def arrive() -> None:
            if not self.server.hear(number):
                wire.put(lambda: self._on_expired(round_))
                return
            session = self.server.sessions[number]
            try:
                answer = send(session)
            except NoNodeError as error:
                answer = error
            zxid = self.server.number
            wire.put(lambda: self._on_answer(round_, result, answer, zxid, watch, key))

        self._out.put(arrive)

    def _on_answer(
        self,
        round_: int,
        result: LoopResult,
        answer: Any,
        zxid: int,
        watch: Callable[[Any], None] | None,
        key: tuple[bool, str] | None,
    ) -> None:
        if round_ != self._round or not self._is_connected:
            return
        assert self._waiting.popleft() is result, "answers come in the order of the requests"
        self.last_zxid = zxid
        if watch is not None and key is not None and not isinstance(answer, NoNodeError):
            self._watches.setdefault(key, []).append(watch)
        if isinstance(answer, Exception):
            result.set_exception(answer)
        else:
            result.set(answer)

    def _on_event(self, round_: int, event: WatchedEvent) -> None:
        if round_ != self._round or not self._is_connected:
            return
        is_of_children = event.type == "CHILD"
        for watch in self._watches.pop((is_of_children, event.path), ()):
            watch(event)
        if event.type == "DELETED":
            for watch in self._watches.pop((True, event.path), ()):
                watch(event)

    # ---- the connection

    def _connect(self) -> None:
        self._timer = None
        if self._is_stopped:
            return
        self._round += 1
        round_ = self._round
        self._out = Wire(self._network, self._host, HOST)
        self._in = wire = Wire(self._network, HOST, self._host)
        session_id = self.client_id[0] if self.client_id is not None else 0

        def push(event: WatchedEvent) -> None:
            wire.put(lambda: self._on_event(round_, event))

        def arrive() -> None:
            if round_ != self._round:
                return  # the caller has given up; a real server would begin a session that is never used
            session = self.server.connect(session_id, self._timeout_ms, push)
            number = session.number if session is not None else 0
            wire.put(lambda: self._on_connected(round_, number))

        self._out.put(arrive)
        self._timer = self._loop.call_later(self._timeout_ms / 2000, self._on_slow, round_)

    def _on_slow(self, round_: int) -> None:
        if round_ == self._round and not self._is_connected:
            self._retry()

    def _retry(self) -> None:
        if self._is_stopped:
            return
        self._round += 1
        if self._timer is not None:
            self._timer.cancel()
        seconds = RETRY_SECONDS[min(self._attempts, len(RETRY_SECONDS) - 1)]
        self._attempts += 1
        self._timer = self._loop.call_later(seconds * (0.6 + 0.4 * self.server.world.random.random()), self._connect)

    def _on_connected(self, round_: int, number: int) -> None:
        if round_ != self._round or self._is_stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        if number == 0:
            self._on_expired(round_)
            return
        self._attempts = 0
        self._is_connected = True
        self.client_id = (number, PASSWORD)
        self.connection.negotiated_timeout_ms = self._timeout_ms
        self._tell(KazooState.CONNECTED)

    def _on_expired(self, round_: int) -> None:
        if round_ != self._round:
            return
        self._is_connected = False
        self.client_id = None
        self._fail(SessionExpiredError)
        self._tell(KazooState.LOST)
        self._retry()

    def lose(self) -> None:
        """The connection is gone, not the session."""
        if self._is_connected:
            self._is_connected = False
            self._fail(ConnectionLoss)
            self._tell(KazooState.SUSPENDED)
            self._retry()

    def _fail(self, error: type[Exception]) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._watches.clear()
        for result in waiting:
            result.set_exception(error())

    def _tell(self, state: str) -> None:
        for listener in list(self._listeners):
            listener(state)

"""The store behind a network: a server that ends silent sessions, and what a broker has of it.

A client learns of changes by a push that may get lost, and surely with its next ping. It never knows more than it was
told: a request without an answer may have been carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.cluster.network import STORE, Answer, Failure, Network, Process
from tests.simulation.cluster.store import MemoryStore, SessionGoneError
from tests.simulation.world import World

from ottla.controller.stores.store import Outcome, StoreOperation, TransactionRefusedError

SESSION_MS = 600
PING_MS = SESSION_MS // 3
PATIENCE_MS = SESSION_MS // 3
EXPIRY_CHECK_MS = 50


class StoreServer(Process):
    """Never fails by itself; it may be out of reach, or silent for a while."""

    def __init__(self, world: World, network: Network) -> None:
        super().__init__(world, STORE)
        self.store = MemoryStore()
        self.store.on_change = self._changed
        self.changes = 0
        self.on_change: Callable[[list[str]], None] = lambda paths: None
        self._network = network
        self._clients: dict[int, StoreClient] = {}  # by host
        self._connections: dict[int, int] = {}  # by session: the newest
        self.after(EXPIRY_CHECK_MS, self._expire)

    def _expire(self) -> None:
        for session in self.store.expire(self.world.now_ms, SESSION_MS):
            self.world.tell(f"session {session} expires")
        self.after(EXPIRY_CHECK_MS, self._expire)

    def _changed(self, paths: list[str]) -> None:
        self.changes += 1
        self.on_change(paths)
        changes = self.changes
        for host, client in self._clients.items():
            self._network.send(STORE, host, lambda client=client: client.on_push(changes))  # type: ignore[misc]

    def on_connect(self, client: StoreClient, answer: Answer) -> None:
        self._clients[client.process.host] = client
        answer((self.store.open_session(self.world.now_ms), self.changes))

    def on_request(self, session: int, connection: int, work: Callable[[MemoryStore], Any], answer: Answer) -> None:
        """Answers (value or exception, number of changes so far).

        What comes late over a connection that its client has given up is dropped: the session has moved on.
        """
        if connection < self._connections.get(session, 0):
            return
        self._connections[session] = connection
        try:
            self.store.hear(session, self.world.now_ms)
            value = work(self.store)
        except (SessionGoneError, TransactionRefusedError) as error:
            value = error
        answer((value, self.changes))


class StoreClient:
    """One broker's session, replaced when it is lost."""

    def __init__(
        self,
        process: Process,
        network: Network,
        on_session: Callable[[], None],
        on_expired: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self.process = process
        self.session = 0
        self.last_contact_ms = process.world.now_ms
        self._network = network
        self._on_session = on_session
        self._on_expired = on_expired
        self._on_change = on_change
        self._seen = 0
        self._connection = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_waiting = False

    def connect(self) -> None:
        def connected(answer: tuple[int, int]) -> None:
            self.session, self._seen = answer
            self.last_contact_ms = self.process.world.now_ms
            self._on_session()
            self._ping(self.session)

        self._network.call(
            self.process,
            STORE,
            lambda server, answer: server.on_connect(self, answer),
            connected,
            lambda why: self.process.after(20, self.connect),
            PATIENCE_MS,
        )

    def close(self) -> None:
        """In good order: what the session owns goes at once."""
        session = self.session
        self._network.send(self.process.host, STORE, lambda: self._server.store.close_session(session))

    @property
    def _server(self) -> StoreServer:
        server = self._network.processes[STORE]
        assert isinstance(server, StoreServer)
        return server

    def _ping(self, session: int) -> None:
        if session == self.session:
            self.ask(lambda store: None, lambda value: None, lambda: None)
            self.process.after(PING_MS, lambda: self._ping(session))

    def on_push(self, changes: int) -> None:
        self.process.take(lambda: self._look(changes))

    def _look(self, changes: int) -> None:
        if changes > self._seen:
            self._seen = changes
            self._on_change()

    # ---- requests

    def ask(
        self,
        work: Callable[[MemoryStore], Any],
        then: Callable[[Any], None],
        unknown: Callable[[], None],
        refused: Callable[[TransactionRefusedError], None] | None = None,
    ) -> None:
        """`unknown`: no answer came in time or the session is over; the outcome is unknown."""
        self._waiting.append(lambda: self._ask(work, then, unknown, refused))
        self._ask_next()

    def _ask_next(self) -> None:
        """One at a time: a session's requests are carried out in the order in which they were made."""
        if not self._is_waiting and self._waiting:
            self._is_waiting = True
            self._waiting.popleft()()

    def _ask(
        self,
        work: Callable[[MemoryStore], Any],
        then: Callable[[Any], None],
        unknown: Callable[[], None],
        refused: Callable[[TransactionRefusedError], None] | None,
    ) -> None:
        session, connection, sent_ms = self.session, self._connection, self.process.world.now_ms

        def answered(answer: tuple[Any, int]) -> None:
            self._is_waiting = False
            self._take(session, sent_ms, answer, then, unknown, refused)
            self._ask_next()

        def lost(_: Failure | None) -> None:
            self._is_waiting = False
            self._connection += 1
            unknown()
            self._ask_next()

        if not session:
            lost(None)
            return
        self._network.call(
            self.process,
            STORE,
            lambda server, answer: server.on_request(session, connection, work, answer),
            answered,
            lost,
            PATIENCE_MS,
        )

    def _take(
        self,
        session: int,
        sent_ms: int,
        answer: tuple[Any, int],
        then: Callable[[Any], None],
        unknown: Callable[[], None],
        refused: Callable[[TransactionRefusedError], None] | None,
    ) -> None:
        value, changes = answer
        if session != self.session:
            unknown()
        elif isinstance(value, SessionGoneError):
            self.session = 0
            unknown()
            self._on_expired()
            self.connect()
        else:
            self.last_contact_ms = max(self.last_contact_ms, sent_ms)
            if isinstance(value, TransactionRefusedError):
                assert refused is not None, value
                refused(value)
            else:
                then(value)
            self._look(changes)

    def multi(
        self,
        operations: Sequence[StoreOperation],
        then: Callable[[list[Outcome]], None],
        unknown: Callable[[], None],
        refused: Callable[[TransactionRefusedError], None],
    ) -> None:
        session = self.session
        self.ask(lambda store: store.multi(session, operations), then, unknown, refused)

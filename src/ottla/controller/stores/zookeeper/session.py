"""A session with ZooKeeper: connection state, heartbeats and requests.

Rules:
1. Nothing blocks the event loop: requests are added to kazoo's queue, responses arrive as futures (client.py).
2. Every request ends: without a response for a session timeout it raises StoreAwayError.
3. Small reads keep the session alive. Each read with a response proves that the session was alive when it was sent, so
   a controller knows that no other one was elected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
)
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KazooState

from ottla.base import tasks
from ottla.base.clock import Clock
from ottla.base.zookeeper_connect import ZooKeeperAddress
from ottla.controller.stores.store import SessionCallback, SessionState, StoreAwayError, StoreError, StoreUnusableError
from ottla.controller.stores.zookeeper.client import (
    IN_FLIGHT_MAX,
    Identity,
    LoginRequiredError,
    LoopResult,
    ObservedConnection,
    cross,
    make_client,
    send_request,
)
from ottla.security.zookeeper import ZooKeeperClientSecurity

logger = logging.getLogger(__name__)

HEARTBEATS_PER_SESSION: Final = 6
CLOSE_SECONDS_MAX: Final = 2.0
PAUSE_SECONDS: Final = 0.01
# A failed login does not end the session: requests wait until a login succeeds.
AWAY: Final = (
    AuthFailedError,
    ConnectionLoss,
    ConnectionClosedError,
    OperationTimeoutError,
    SessionMovedError,
    TimeoutError,
)
STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


class ZooKeeperSession:
    """The current session, over one connection at a time. `on_connected` is called after the listeners."""

    def __init__(
        self,
        address: ZooKeeperAddress,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        clock: Clock,
        on_connected: Callable[[], None],
        security: ZooKeeperClientSecurity,
    ) -> None:
        self.address = address
        self.clock = clock
        self.state = SessionState.SUSPENDED
        self.session_id = 0
        self.last_contact_ms = 0
        self.listeners: list[SessionCallback] = []
        self.connected = asyncio.Event()
        self._wanted_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._on_connected = on_connected
        self._security = security
        self._identity: Identity | None = None
        self._lost_ms: int | None = None  # the time at which the connection was lost
        self._window = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._client: KazooClient | None = None
        self._connection: ObservedConnection | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._refused = asyncio.Event()  # ZooKeeper rejects the login
        self._is_due = asyncio.Event()  # the next heartbeat is due now
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<ZooKeeperSession {self.address} {self.state.value} {self.session_id:#x}>"

    @property
    def timeout_ms(self) -> int:
        negotiated = self._connection.negotiated_timeout_ms if self._connection else 0
        return negotiated or self._wanted_timeout_ms

    @property
    def client(self) -> KazooClient:
        if self._client is None:
            raise StoreError("the ZooKeeper store is not open")
        return self._client

    async def open(self) -> None:
        """Connect; raises StoreUnusableError if there is no connection in time."""
        self._start_client()
        assert self._connection is not None
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                await self._get_in()
        except (TimeoutError, StoreAwayError) as error:
            problem = self._connection.problem or "no answer"
            cure = "Correct zookeeper.ssl.*" if "TLS" in problem else "Start it (ottla zookeeper)"
            await self.close()
            raise StoreUnusableError(
                f"no ZooKeeper responds at {self.address.hosts} within {self._connection_timeout_ms} ms ({problem}). "
                f"{cure}, or correct zookeeper.connect."
            ) from error
        except StoreError:
            await self.close()
            raise
        self._heartbeat = tasks.spawn_restarting(self._keep_session, "the ZooKeeper session")

    async def _get_in(self) -> None:
        """Wait for the first response. Raises StoreUnusableError if ZooKeeper rejects the login."""
        contact = tasks.spawn_awaited(self._make_contact(), "the first request to ZooKeeper")
        refusal = tasks.spawn_awaited(self._refused.wait(), "a refusal of ZooKeeper")
        try:
            await asyncio.wait((contact, refusal), return_when=asyncio.FIRST_COMPLETED)
            if self._refused.is_set():
                assert self._connection is not None
                raise StoreUnusableError(f"ZooKeeper refuses the connection ({self._connection.problem}).")
            await contact
        finally:
            contact.cancel()
            refusal.cancel()

    async def _make_contact(self) -> None:
        await self.connected.wait()
        await self.repeat_heartbeat()

    def _start_client(self) -> None:
        """Start kazoo's thread, for a new session or for the current one."""
        loop = asyncio.get_running_loop()
        client, connection = make_client(self.address, self._wanted_timeout_ms, loop, self._identity, self._security)
        self._client, self._connection = client, connection
        client.add_listener(lambda state: cross(loop, self._on_state, client, state, client.client_id))
        client.start_async()

    async def close(self) -> None:
        """End the session, so that ephemeral nodes are deleted at once and not after the session timeout."""
        self._is_closing = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._client is None:
            return
        # A daemon thread, which does not keep the process from exiting when ZooKeeper does not respond.
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        client = self._client
        tasks.start_thread(lambda: _stop(client, loop, ended.set), "zookeeper-stop")
        try:
            await asyncio.wait_for(ended.wait(), CLOSE_SECONDS_MAX)
        except TimeoutError:
            logger.warning("ZooKeeper does not respond: the session ends after its timeout")

    def _on_state(self, client: KazooClient, kazoo_state: str, identity: Identity | None) -> None:
        if self._is_closing or client is not self._client:
            return
        state = STATES[kazoo_state]
        connection = self._connection
        if connection is not None and connection.is_refused:
            self._refused.set()
        if state is SessionState.EXPIRED and connection is not None and (connection.has_ended or connection.is_refused):
            state = SessionState.SUSPENDED  # kazoo's thread has ended, not the session: see _revive
        if state is SessionState.CONNECTED:
            assert identity is not None
            self._on_new_connection(identity)
        else:
            self._on_lost_connection(state)

    def _on_lost_connection(self, state: SessionState) -> None:
        self.connected.clear()
        if self.state is SessionState.CONNECTED:
            self._lost_ms = self.clock.monotonic_ms()
            if self._heartbeat is not None and not self._refused.is_set():  # before that, open() reports the problem
                logger.warning("the connection to ZooKeeper is lost (%s); trying again", self.address.hosts)
        if state is SessionState.EXPIRED:
            self._identity = None
            logger.warning("the ZooKeeper session 0x%x has expired", self.session_id)
        if state is not self.state:
            self._tell(state)

    def _on_new_connection(self, identity: Identity) -> None:
        session_id, self._identity = identity[0], identity
        is_new = session_id != self.session_id
        if is_new and self.session_id and self.state is not SessionState.EXPIRED:
            self._tell(SessionState.EXPIRED)
        self.session_id = session_id
        self._refused.clear()
        away_ms = self.clock.monotonic_ms() - self._lost_ms if self._lost_ms is not None else 0
        self._lost_ms = None
        logger.info(
            "connected to ZooKeeper (%s), session 0x%x%s, timeout %d ms%s",
            self.address,
            session_id,
            " (new)" if is_new else "",
            self.timeout_ms,
            f", after {away_ms} ms without" if away_ms else "",
        )
        self.connected.set()
        self._is_due.set()  # confirm at once that the session is alive
        self._tell(SessionState.CONNECTED)
        self._on_connected()

    def _tell(self, state: SessionState) -> None:
        self.state = state
        for listener in list(self.listeners):
            try:
                listener(state)
            except Exception:
                logger.exception("a listener of the ZooKeeper session failed")

    async def _keep_session(self) -> None:
        """Send heartbeats. One without a response closes the connection: kazoo would wait for TCP."""
        while True:
            seconds = self.timeout_ms / 1000 / HEARTBEATS_PER_SESSION
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.connected.wait(), seconds)
            if not self.connected.is_set():
                self._revive()
                continue
            self._is_due.clear()
            try:
                await asyncio.wait_for(self._once(self._send_heartbeat), 2 * seconds)
            except TimeoutError:
                if self.connected.is_set() and self._connection is not None:
                    logger.warning("ZooKeeper does not respond; closing the connection")
                    self._connection.drop()
            except KazooException:
                pass  # the listeners get the state change
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), seconds)

    def _revive(self) -> None:
        """Restart kazoo's thread after an unexpected error: otherwise the broker would stay without a connection."""
        if self._connection is not None and self._connection.has_ended:
            logger.error(
                "the connection to ZooKeeper has ended with an error; reconnecting (%s)",
                self._connection.problem or "unknown",
            )
            self._start_client()

    def _send_heartbeat(self) -> LoopResult:
        result: LoopResult = self.client.exists_async("/")
        return result

    async def repeat_heartbeat(self) -> None:
        """Repeat a heartbeat until it gets a response, which sets the last contact."""
        await self.repeat(Exists("/", None))

    async def repeat(self, request: Any) -> Any:
        """Repeat an idempotent request until it gets a response or the session timeout has passed."""
        deadline_ms = self.clock.monotonic_ms() + self.timeout_ms
        while True:
            try:
                return await self.ask(lambda: send_request(self.client, request), deadline_ms)
            except (*AWAY, SessionExpiredError) as error:
                await self.pause(deadline_ms, error)
            except UnimplementedError as error:
                raise StoreUnusableError(
                    f"the ZooKeeper at {self.address.hosts} is too old: 3.6 or newer is needed. Upgrade it."
                ) from error
            except LoginRequiredError as error:
                raise StoreUnusableError(
                    f"the ZooKeeper at {self.address.hosts} requires a login: set a JAAS file with a section "
                    "Client (KAFKA_OPTS=-Djava.security.auth.login.config=FILE)"
                ) from error
            except KazooException as error:
                raise StoreError(f"ZooKeeper refused a request: {error!r}") from error

    async def ask(self, send: Callable[[], LoopResult], deadline_ms: int) -> Any:
        """Send when connected, and wait for the response; raises kazoo's exceptions or TimeoutError."""
        async with self._window:
            seconds = max(deadline_ms - self.clock.monotonic_ms(), 1) / 1000
            async with asyncio.timeout(seconds):
                await self.connected.wait()
                return await self._once(send)

    async def _once(self, send: Callable[[], LoopResult]) -> Any:
        sent_ms = self.clock.monotonic_ms()
        try:
            answer = await send().future
        except KazooException as error:
            if not isinstance(error, (*AWAY, SessionExpiredError)):
                self._note_contact(sent_ms)
            raise
        self._note_contact(sent_ms)
        return answer

    def _note_contact(self, sent_ms: int) -> None:
        self.last_contact_ms = max(self.last_contact_ms, sent_ms)

    async def pause(self, deadline_ms: int, error: Exception) -> None:
        """Pause before a retry: a lost connection may be reported after the failures of its requests."""
        if self._is_closing or self.clock.monotonic_ms() >= deadline_ms:
            raise StoreAwayError(
                f"ZooKeeper ({self.address.hosts}) does not respond ({error!r}); the outcome of a change is unknown"
            ) from error
        await asyncio.sleep(PAUSE_SECONDS)


def _stop(client: KazooClient, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
    """Stop kazoo; runs in a thread, because kazoo waits for its own."""
    with contextlib.suppress(Exception):  # any error means that it has stopped
        client.stop()
        client.close()
    cross(loop, tell)

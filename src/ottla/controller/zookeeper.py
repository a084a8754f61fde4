"""The store of a cluster: Apache ZooKeeper, reached through kazoo.

Rules:
1. Nothing here blocks the loop: requests are put into kazoo's queue, answers come as futures (zookeeper_client.py).
2. Every call ends: when the store does not answer for one session time it raises StoreAwayError.
3. Reads are repeated after a lost connection. A transaction is, too, but only after a look at the nodes it concerns
   (zookeeper_verdict.py), and only within the session that sent it.
4. The session is kept by our own small reads: each that is answered proves that the session was alive when it was sent,
   which is what a controller needs to know that nobody has taken its place.

Needs ZooKeeper 3.6 or newer: many nodes are read with one request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import KazooState
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.base.clock import Clock, SystemClock
from ottla.base.zookeeper_connect import parse_connect
from ottla.controller.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    Refusal,
    SessionCallback,
    SessionState,
    SetNode,
    StoreAwayError,
    StoreError,
    StoreOperation,
    StoreUnusableError,
    TransactionRefusedError,
    WatchCallback,
)
from ottla.controller.zookeeper_client import (
    GET_CHILDREN,
    GET_DATA,
    IN_FLIGHT_MAX,
    Found,
    LoopResult,
    MultiRead,
    ObservedConnection,
    cross,
    make_client,
    send_request,
)
from ottla.controller.zookeeper_verdict import judge, sequential_parents, touched_paths
from ottla.controller.zookeeper_watches import Watches

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS: Final = 6000
HEARTBEATS_PER_SESSION: Final = 6
READS_PER_REQUEST: Final = 500
RESERVED: Final = "zookeeper"  # ZooKeeper's own node, at the top of every ensemble
CLOSE_SECONDS_MAX: Final = 5.0
PAUSE_SECONDS: Final = 0.01
REQUEST_BYTES_MAX: Final = 0xFFFFF - 1024  # ZooKeeper's jute.maxbuffer, less what surrounds the operations
OPERATION_BYTES: Final = 64  # of an operation beside its path and its data

AWAY: Final = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionMovedError, TimeoutError)
REFUSALS: Final = {
    NoNodeError: Refusal.NO_NODE,
    NodeExistsError: Refusal.NODE_EXISTS,
    NotEmptyError: Refusal.NOT_EMPTY,
    BadVersionError: Refusal.BAD_VERSION,
}
STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}

T = TypeVar("T")


class ZooKeeperStore:
    """A SessionStore. All paths are below the chroot of the connect string, which is created when it is missing."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        clock: Clock | None = None,
        *,
        connection_timeout_ms: int | None = None,
    ) -> None:
        self.address = parse_connect(connect)
        self._wanted_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms
        self._clock = clock or SystemClock()
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._last_contact_ms = 0
        self._lost_ms: int | None = None  # since when there is no connection
        self._listeners: list[SessionCallback] = []
        self._connected = asyncio.Event()
        self._window = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._client: KazooClient | None = None
        self._connection: ObservedConnection | None = None
        self._watches: Watches | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        watches = len(self._watches) if self._watches else 0
        return f"<ZooKeeperStore {self.address} {self._state.value} session={self._session_id:#x} watches={watches}>"

    # ---- session

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        negotiated = self._connection.negotiated_timeout_ms if self._connection else 0
        return negotiated or self._wanted_timeout_ms

    def on_session(self, callback: SessionCallback) -> None:
        self._listeners.append(callback)

    def last_contact_ms(self) -> int:
        return self._last_contact_ms

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._client, self._connection = make_client(self.address, self._wanted_timeout_ms, loop)
        self._watches = Watches(loop, self._send_watch)
        self._client.add_listener(lambda state: cross(loop, self._on_state, state, self._client_session_id()))
        self._client.start_async()
        try:
            await asyncio.wait_for(self._connected.wait(), self._connection_timeout_ms / 1000)
            await self._make_chroot()
        except (TimeoutError, StoreAwayError) as error:
            problem = self._connection.problem or "no answer"
            await self.close()
            raise StoreUnusableError(
                f"no ZooKeeper answers at {self.address.hosts} within {self._connection_timeout_ms} ms ({problem}). "
                "Start it (ottla zookeeper), or correct zookeeper.connect."
            ) from error
        self._heartbeat = loop.create_task(self._keep_session())

    async def close(self) -> None:
        """The session ends: ephemeral nodes go at once, not after the session time."""
        self._is_closing = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._client is not None:
            try:
                await asyncio.wait_for(asyncio.to_thread(self._client.stop), CLOSE_SECONDS_MAX)
                self._client.close()
            except Exception:  # noqa: BLE001 (kazoo raises many; the process ends anyway)
                logger.warning("the connection to ZooKeeper did not close cleanly")

    def _client_session_id(self) -> int:
        """On kazoo's thread."""
        identity = self._client.client_id if self._client else None
        return int(identity[0]) if identity else 0

    def _on_state(self, kazoo_state: str, session_id: int) -> None:
        if self._is_closing:
            return
        before, state = self._state, STATES[kazoo_state]
        now_ms = self._clock.monotonic_ms()
        if state is not SessionState.CONNECTED:
            self._connected.clear()
            if before is SessionState.CONNECTED:
                self._lost_ms = now_ms
                logger.warning("the connection to ZooKeeper is lost (%s); trying again", self.address.hosts)
            if state is SessionState.EXPIRED:
                logger.warning("the ZooKeeper session 0x%x has expired", self._session_id)
            self._tell(state)
            return
        is_same = session_id == self._session_id
        self._session_id = session_id
        away_ms = now_ms - self._lost_ms if self._lost_ms is not None else 0
        self._lost_ms = None
        logger.info(
            "connected to ZooKeeper (%s), session 0x%x%s, time-out %d ms%s",
            self.address,
            session_id,
            "" if is_same else " (new)",
            self.session_timeout_ms,
            f", after {away_ms} ms without" if away_ms else "",
        )
        self._connected.set()
        self._tell(state)
        assert self._watches is not None
        self._watches.arm_all()

    def _tell(self, state: SessionState) -> None:
        self._state = state
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception:
                logger.exception("a listener of the ZooKeeper session failed")

    async def _keep_session(self) -> None:
        """A small read now and then. One that is not answered gives the connection up: kazoo would wait for TCP."""
        while True:
            seconds = self.session_timeout_ms / 1000 / HEARTBEATS_PER_SESSION
            await self._connected.wait()
            try:
                await asyncio.wait_for(self._once(lambda: self._kazoo.exists_async("/")), 2 * seconds)
            except TimeoutError:
                if self._connected.is_set() and self._connection is not None:
                    logger.warning("ZooKeeper does not answer; giving the connection up")
                    self._connection.drop()
            except KazooException:
                pass  # whoever must know is told by the state
            await asyncio.sleep(seconds)

    # ---- reading

    async def get(self, path: str) -> Node | None:
        found = (await self._read([(GET_DATA, path)]))[0]
        return found.node if isinstance(found, Found) else None

    async def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        """Those of the nodes that exist, with few requests."""
        return {path: found.node for path, found in (await self._find(paths)).items()}

    async def children(self, path: str) -> list[str]:
        names = (await self._read([(GET_CHILDREN, path)]))[0]
        return self._visible(path, names) if isinstance(names, list) else []

    async def subtree(self, path: str) -> dict[str, Node]:
        """Floor by floor, each with many reads under way; the whole is no snapshot."""
        nodes: dict[str, Node] = {}
        floor = [path]
        while floor:
            found = await self._find(floor)
            nodes.update((each, found[each].node) for each in floor if each in found and each != "/")
            parents = [each for each in floor if each in found and found[each].child_count]
            lists = await self._read([(GET_CHILDREN, each) for each in parents])
            floor = []
            for parent, names in zip(parents, lists, strict=True):
                stem = parent.rstrip("/")
                visible = self._visible(parent, names) if isinstance(names, list) else []
                floor += [f"{stem}/{name}" for name in visible]
        return nodes

    def _visible(self, path: str, names: list[str]) -> list[str]:
        if path == "/" and not self.address.chroot:
            names = [name for name in names if name != RESERVED]
        return sorted(names)

    async def _find(self, paths: Sequence[str]) -> dict[str, Found]:
        results = await self._read([(GET_DATA, path) for path in paths])
        return {path: found for path, found in zip(paths, results, strict=True) if isinstance(found, Found)}

    async def _read(self, reads: Sequence[tuple[int, str]]) -> list[Found | list[str] | None]:
        full = [(kind, self._full(path)) for kind, path in reads]
        pieces = [full[start : start + READS_PER_REQUEST] for start in range(0, len(full), READS_PER_REQUEST)]
        answers = await asyncio.gather(*(self._repeat(MultiRead(piece)) for piece in pieces))
        return [result for answer in answers for result in answer]

    async def _repeat(self, request: Any) -> Any:
        """What does no harm is sent again until it is answered or the time is up."""
        deadline_ms = self._clock.monotonic_ms() + self.session_timeout_ms
        while True:
            try:
                return await self._ask(lambda: send_request(self._kazoo, request), deadline_ms)
            except (*AWAY, SessionExpiredError) as error:
                await self._pause(deadline_ms, error)

    # ---- writing

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        check_size(operations)
        deadline_ms = self._clock.monotonic_ms() + self.session_timeout_ms
        session_id = self._session_id
        while True:
            last_id = self._kazoo.last_zxid
            try:
                results = await self._ask(lambda: self._send_transaction(operations, session_id), deadline_ms)
            except SessionExpiredError as error:
                raise StoreAwayError("the ZooKeeper session expired during a change") from error
            except KazooException as error:
                if not isinstance(error, AWAY):
                    raise StoreError(f"ZooKeeper refused a change: {error!r}") from error
                await self._pause(deadline_ms, error)
            except TimeoutError as error:
                await self._pause(deadline_ms, error)
            else:
                return self._outcomes(operations, results)
            if self._session_id != session_id:
                raise StoreAwayError("the ZooKeeper session ended during a change")
            outcomes = await self._look_again(operations, last_id, session_id)
            if outcomes is not None:
                return outcomes

    def _send_transaction(self, operations: Sequence[StoreOperation], session_id: int) -> LoopResult:
        """Whoever asked knew of the session of that time: in another one its ephemeral nodes would be a surprise."""
        if self._session_id != session_id:
            raise StoreAwayError("the ZooKeeper session ended before a change was sent; it did not happen")
        transaction = self._kazoo.transaction()
        for operation in operations:
            path = self._full(operation.path)
            match operation:
                case CreateNode():
                    transaction.create(
                        path, operation.data, OPEN_ACL_UNSAFE, operation.is_ephemeral, operation.is_sequential
                    )
                case SetNode():
                    transaction.set_data(path, operation.data, operation.expected_version)
                case DeleteNode():
                    transaction.delete(path, operation.expected_version)
                case CheckNode():
                    transaction.check(path, operation.expected_version)
        result: LoopResult = transaction.commit_async()
        return result

    def _outcomes(self, operations: Sequence[StoreOperation], results: Sequence[Any]) -> list[Outcome]:
        """Those that were rolled back, or not tried any more, are innocent: the one that is neither is to blame."""
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                raise refusal(operation, result)
        return [self._outcome(operation, result) for operation, result in zip(operations, results, strict=True)]

    def _outcome(self, operation: StoreOperation, result: Any) -> Outcome:
        match operation:
            case CreateNode():
                return Outcome(result[len(self.address.chroot) :], 0)
            case SetNode():
                return Outcome(operation.path, result.version)
            case _:
                return Outcome(operation.path, operation.expected_version)

    async def _look_again(
        self, operations: Sequence[StoreOperation], last_id: int, session_id: int
    ) -> list[Outcome] | None:
        """What became of a transaction whose answer was lost; None: it did not happen, or nobody can tell."""
        logger.info("the answer to a change of %d nodes was lost; looking at them again", len(operations))
        await self._repeat(Sync(self.address.chroot or "/"))  # this server may be behind the one that we had
        paths = touched_paths(operations)
        for parent in sequential_parents(operations):
            paths += [f"{parent.rstrip('/')}/{name}" for name in await self.children(parent)]
        found = await self._find(paths)
        if self._session_id != session_id:
            raise StoreAwayError("the ZooKeeper session ended during a change")
        return judge(operations, found, last_id, session_id)

    async def _make_chroot(self) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._connection_timeout_ms
        names = self.address.chroot.split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            try:
                results = await self._ask(partial(self._send_creation, path), deadline_ms)
            except AWAY as error:
                raise StoreAwayError(f"ZooKeeper is away: {error!r}") from error
            if isinstance(results[0], Exception) and not isinstance(results[0], NodeExistsError):
                raise StoreUnusableError(
                    f"the chroot {path} cannot be created in ZooKeeper: {results[0]!r}. Create it, or name another one."
                )

    def _send_creation(self, path: str) -> LoopResult:
        transaction = self._kazoo.transaction()
        transaction.create(path, b"", OPEN_ACL_UNSAFE)
        result: LoopResult = transaction.commit_async()
        return result

    # ---- watches

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, False, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, True, callback)

    def _watch(self, path: str, is_of_children: bool, callback: WatchCallback) -> Callable[[], None]:
        assert self._watches is not None, "open() comes first"
        return self._watches.add(path, is_of_children, callback, is_connected=self._connected.is_set())

    def _send_watch(self, path: str, is_of_children: bool, function: Callable[[Any], None]) -> LoopResult:
        client = self._kazoo
        send = client.get_children_async if is_of_children else client.exists_async
        result: LoopResult = send(self._full(path), watch=function)
        return result

    # ---- one request

    async def _ask(self, send: Callable[[], LoopResult], deadline_ms: int) -> Any:
        """Send when there is a connection, and wait for the answer; raises what kazoo raises, or TimeoutError."""
        async with self._window:
            seconds = max(deadline_ms - self._clock.monotonic_ms(), 1) / 1000
            async with asyncio.timeout(seconds):
                await self._connected.wait()
                return await self._once(send)

    async def _once(self, send: Callable[[], LoopResult]) -> Any:
        sent_ms = self._clock.monotonic_ms()
        try:
            answer = await send().future
        except KazooException as error:
            if not isinstance(error, (*AWAY, SessionExpiredError)):
                self._note_contact(sent_ms)
            raise
        self._note_contact(sent_ms)
        return answer

    def _note_contact(self, sent_ms: int) -> None:
        self._last_contact_ms = max(self._last_contact_ms, sent_ms)

    async def _pause(self, deadline_ms: int, error: Exception) -> None:
        """Before another attempt: the news that the connection is lost may come after the answers that it has cost."""
        if self._is_closing or self._clock.monotonic_ms() >= deadline_ms:
            raise StoreAwayError(
                f"ZooKeeper ({self.address.hosts}) does not answer ({error!r}); whether a change happened is not known"
            ) from error
        await asyncio.sleep(PAUSE_SECONDS)

    def _full(self, path: str) -> str:
        return (self.address.chroot + path).rstrip("/") or "/"

    @property
    def _kazoo(self) -> KazooClient:
        if self._client is None:
            raise StoreError("the ZooKeeper store is not open")
        return self._client


def refusal(operation: StoreOperation, error: Exception) -> StoreError:
    reason = REFUSALS.get(type(error))
    if reason is Refusal.NO_NODE and isinstance(operation, CreateNode):
        reason = Refusal.NO_PARENT
    if reason is None:
        return StoreError(f"ZooKeeper refused to change {operation.path}: {error!r}")
    return TransactionRefusedError(operation, reason)


def operation_bytes(operation: StoreOperation) -> int:
    """At most what an operation adds to a request, with a chroot of usual length."""
    data = len(operation.data) if isinstance(operation, CreateNode | SetNode) else 0
    return OPERATION_BYTES + 2 * len(operation.path) + data


def check_size(operations: Sequence[StoreOperation]) -> None:
    """ZooKeeper closes the connection of whoever sends too much: better not to."""
    size = sum(map(operation_bytes, operations))
    if size > REQUEST_BYTES_MAX:
        raise StoreError(f"a change of {size} bytes is more than ZooKeeper takes at once ({REQUEST_BYTES_MAX})")

"""The metadata store of a cluster: Apache ZooKeeper, with kazoo as the client.

Rules:
1. Nothing blocks the event loop, and every call ends: see session.py.
2. Reads are repeated after a lost connection. A transaction is repeated only after reading its nodes (verdict.py), and
   only in the session that sent it.
3. Many nodes are read with one request, which needs ZooKeeper 3.6 or newer.
4. Without explicit settings of login and TLS, those of the environment are used (KAFKA_OPTS), as in Java clients.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.serialization import SetACL, Sync

from ottla.base.clock import Clock, SystemClock
from ottla.base.zookeeper_connect import parse_connect
from ottla.controller.decisions.decision import operation_bytes
from ottla.controller.stores.store import (
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
from ottla.controller.stores.zookeeper.access_rights import rights_of
from ottla.controller.stores.zookeeper.client import GET_CHILDREN, GET_DATA, Found, LoopResult, MultiRead, Read
from ottla.controller.stores.zookeeper.session import AWAY, ZooKeeperSession
from ottla.controller.stores.zookeeper.verdict import judge, sequential_parents, touched_paths
from ottla.controller.stores.zookeeper.watches import Watches
from ottla.security.zookeeper import ZooKeeperClientSecurity, ZooKeeperSecurityError, tool_security

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS: Final = 6000
READS_PER_REQUEST: Final = 500
RESERVED: Final = "zookeeper"  # ZooKeeper's own node, at the root of every ensemble
REQUEST_BYTES_MAX: Final = 0xFFFFF - 1024  # ZooKeeper's jute.maxbuffer, minus the overhead of a request
REFUSALS: Final = {
    NoNodeError: Refusal.NO_NODE,
    NodeExistsError: Refusal.NODE_EXISTS,
    NotEmptyError: Refusal.NOT_EMPTY,
    BadVersionError: Refusal.BAD_VERSION,
}


class ZooKeeperStore:
    """A SessionStore. All paths are below the chroot of the connect string, which is created if it is missing."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        clock: Clock | None = None,
        *,
        connection_timeout_ms: int | None = None,
        makes_chroot: bool = True,
        security: ZooKeeperClientSecurity | None = None,
    ) -> None:
        """Prepare the store. Raises StoreUnusableError for invalid login or TLS settings of the environment."""
        self._makes_chroot = makes_chroot
        self.address = parse_connect(connect)
        self._clock = clock or SystemClock()
        try:
            self._security = tool_security(os.environ) if security is None else security
        except ZooKeeperSecurityError as problem:
            raise StoreUnusableError(str(problem)) from None
        self._session = ZooKeeperSession(
            self.address,
            session_timeout_ms,
            connection_timeout_ms or session_timeout_ms,
            self._clock,
            self._arm_watches,
            self._security,
        )
        self._watches: Watches | None = None

    def __repr__(self) -> str:
        return f"<ZooKeeperStore {self._session!r} watches={len(self._watches) if self._watches else 0}>"

    # ---- session

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session.timeout_ms

    def on_session(self, callback: SessionCallback) -> None:
        self._session.listeners.append(callback)

    def last_contact_ms(self) -> int:
        return self._session.last_contact_ms

    async def open(self) -> None:
        self._watches = Watches(asyncio.get_running_loop(), self._send_watch)
        await self._session.open()
        try:
            await self.get("/")  # fails if the server is too old for multi-reads
            if self._makes_chroot:
                await self._make_chroot()
        except StoreError as error:
            await self.close()
            raise StoreUnusableError(str(error)) from error

    async def close(self) -> None:
        """End the session, so that ephemeral nodes are deleted at once and not after the session timeout."""
        await self._session.close()

    # ---- reading

    async def get(self, path: str) -> Node | None:
        found = (await self._read([(GET_DATA, path)]))[0]
        return found.node if isinstance(found, Found) else None

    async def get_many(self, paths: Sequence[str]) -> dict[str, Node]:
        """Return the existing nodes of these paths, with few requests."""
        return {path: found.node for path, found in (await self._find(paths)).items()}

    async def children(self, path: str) -> list[str]:
        names = (await self._read([(GET_CHILDREN, path)]))[0]
        return self._visible(path, names) if isinstance(names, list) else []

    async def subtree(self, path: str) -> dict[str, Node]:
        """Return the node and everything below it, read level by level; the result is not an atomic snapshot."""
        nodes: dict[str, Node] = {}
        level = [path]
        while level:
            found = await self._find(level)
            nodes.update((each, found[each].node) for each in level if each in found and each != "/")
            parents = [each for each in level if each in found and found[each].child_count]
            lists = await self._read([(GET_CHILDREN, each) for each in parents])
            level = []
            for parent, names in zip(parents, lists, strict=True):
                stem = parent.rstrip("/")
                visible = self._visible(parent, names) if isinstance(names, list) else []
                level += [f"{stem}/{name}" for name in visible]
        return nodes

    def _visible(self, path: str, names: list[str]) -> list[str]:
        if path == "/" and not self.address.chroot:
            names = [name for name in names if name != RESERVED]
        return sorted(names)

    async def _find(self, paths: Sequence[str]) -> dict[str, Found]:
        results = await self._read([(GET_DATA, path) for path in paths])
        return {path: found for path, found in zip(paths, results, strict=True) if isinstance(found, Found)}

    async def _read(self, reads: Sequence[tuple[int, str]]) -> list[Read]:
        full = [(kind, self._full(path)) for kind, path in reads]
        pieces = [full[start : start + READS_PER_REQUEST] for start in range(0, len(full), READS_PER_REQUEST)]
        answers = await asyncio.gather(*(self._session.repeat(MultiRead(piece)) for piece in pieces))
        results: list[Read] = [result for answer in answers for result in answer]
        for result in results:
            if isinstance(result, Exception):
                raise StoreError(f"ZooKeeper refused a read: {result!r}")
        return results

    # ---- writing

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        check_size(operations)
        deadline_ms = self._clock.monotonic_ms() + self.session_timeout_ms
        session_id = self.session_id
        while True:
            last_id = self._session.client.last_zxid
            try:
                results = await self._session.ask(lambda: self._send_transaction(operations, session_id), deadline_ms)
            except SessionExpiredError as error:
                raise StoreAwayError("the ZooKeeper session expired during a change") from error
            except KazooException as error:
                if not isinstance(error, AWAY):
                    raise StoreError(f"ZooKeeper refused a change: {error!r}") from error
                await self._session.pause(deadline_ms, error)
            except TimeoutError as error:
                await self._session.pause(deadline_ms, error)
            else:
                return self._outcomes(operations, results)
            if self.session_id != session_id:
                raise StoreAwayError("the ZooKeeper session ended during a change")
            outcomes = await self._look_again(operations, last_id, session_id)
            if outcomes is not None:
                return outcomes

    def _send_transaction(self, operations: Sequence[StoreOperation], session_id: int) -> LoopResult:
        """Send only in the session of the caller: ephemeral nodes of another session would be unexpected."""
        if self.session_id != session_id:
            raise StoreAwayError("the ZooKeeper session ended before a change was sent; it did not happen")
        transaction = self._session.client.transaction()
        for operation in operations:
            path = self._full(operation.path)
            match operation:
                case CreateNode():
                    transaction.create(
                        path,
                        operation.data,
                        rights_of(operation.path, is_secure=self._security.sets_acls),
                        operation.is_ephemeral,
                        operation.is_sequential,
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
        """Return the outcomes, or raise the error of the failed operation; the others are "rolled back" and "not
        tried".
        """
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
        """Return the outcome of a transaction whose response was lost; None if it did not happen or is unknown."""
        logger.info("the response to a change of %d nodes was lost; reading the nodes again", len(operations))
        await self._session.repeat(Sync(self.address.chroot or "/"))  # this server may lag behind the previous one
        paths = touched_paths(operations)
        for parent in sequential_parents(operations):
            paths += [f"{parent.rstrip('/')}/{name}" for name in await self.children(parent)]
        found = await self._find(paths)
        if self.session_id != session_id:
            raise StoreAwayError("the ZooKeeper session ended during a change")
        return judge(operations, found, last_id, session_id)

    async def _make_chroot(self) -> None:
        names = self.address.chroot.split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            deadline_ms = self._clock.monotonic_ms() + self.session_timeout_ms
            try:
                results = await self._session.ask(partial(self._send_creation, path), deadline_ms)
            except (*AWAY, SessionExpiredError) as error:
                raise StoreUnusableError(f"ZooKeeper is not available ({error!r}). Start the broker again.") from error
            if isinstance(results[0], Exception) and not isinstance(results[0], NodeExistsError):
                raise StoreUnusableError(
                    f"the chroot {path} cannot be created in ZooKeeper: {results[0]!r}. Create it, or use another one."
                )

    def _send_creation(self, path: str) -> LoopResult:
        transaction = self._session.client.transaction()
        transaction.create(path, b"", rights_of(path, is_secure=self._security.sets_acls))
        result: LoopResult = transaction.commit_async()
        return result

    # ---- access rights

    async def set_rights(self, path: str, *, is_secure: bool) -> bool:
        """Set the ACL of the node at `path` by the rules of access_rights.py; returns False if it does not exist."""
        try:
            await self._session.repeat(SetACL(self._full(path), rights_of(path, is_secure=is_secure), -1))
        except StoreError as error:
            if isinstance(error.__cause__, NoNodeError):
                return False
            raise
        return True

    # ---- watches

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, False, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, True, callback)

    def _watch(self, path: str, is_of_children: bool, callback: WatchCallback) -> Callable[[], None]:
        assert self._watches is not None, "open() comes first"
        return self._watches.add(path, is_of_children, callback, is_connected=self._session.connected.is_set())

    def _send_watch(self, path: str, is_of_children: bool, function: Callable[[Any], None]) -> LoopResult:
        client = self._session.client
        send = client.get_children_async if is_of_children else client.exists_async
        result: LoopResult = send(self._full(path), watch=function)
        return result

    def _arm_watches(self) -> None:
        assert self._watches is not None
        self._watches.arm_all()

    def _full(self, path: str) -> str:
        return (self.address.chroot + path).rstrip("/") or "/"


def refusal(operation: StoreOperation, error: Exception) -> StoreError:
    reason = REFUSALS.get(type(error))
    if reason is Refusal.NO_NODE and isinstance(operation, CreateNode):
        reason = Refusal.NO_PARENT
    if reason is None:
        return StoreError(f"ZooKeeper refused to change {operation.path}: {error!r}")
    return TransactionRefusedError(operation, reason)


def check_size(operations: Sequence[StoreOperation]) -> None:
    """Refuse a transaction that is too large: ZooKeeper would close the connection."""
    size = sum(map(operation_bytes, operations))
    if size > REQUEST_BYTES_MAX:
        raise StoreError(f"a change of {size} bytes exceeds the limit of ZooKeeper ({REQUEST_BYTES_MAX})")

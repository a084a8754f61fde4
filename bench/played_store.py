"""ZooKeeper's rules in memory, for controllers of a size that no test machine holds: the store of `bench.controller`.

A parent must exist, a node with children stays, versions count, a transaction does all or nothing, ephemeral nodes go
with their session, watches tell of what was committed. `seconds` is the CPU time of the store itself, which
measurements of a controller subtract.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ottla.base.clock import Clock
from ottla.controller.stores.store import (
    ANY_VERSION,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    Refusal,
    SessionCallback,
    SetNode,
    StoreOperation,
    TransactionRefusedError,
    WatchCallback,
    WatchEvent,
    WatchKind,
    parent_and_name,
    sequential_path,
)

AT_ONCE = 300  # operations: more would keep the loop from what is measured
NO_NAMES: dict[str, None] = {}
T = TypeVar("T")


class PlayedEnsemble:
    """The nodes, their owners, and their watches."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.names: dict[str, dict[str, None]] = {}  # by parent: of its children
        self.owners: dict[str, int] = {}
        self.watches: dict[str, list[WatchCallback]] = {}  # by path, with "/" behind it for those of children
        self.number = 0
        self.sessions = 0
        self.written = 0  # operations
        self.seconds = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.seconds += time.thread_time() - began

    def multi(self, operations: Sequence[StoreOperation], session: int = 0) -> list[Outcome]:
        outcomes = self.commit(operations, session)
        self.tell(operations, outcomes)
        return outcomes

    def commit(self, operations: Sequence[StoreOperation], session: int) -> list[Outcome]:
        """All or none; operations of one transaction may build on one another."""
        undo: list[Callable[[], None]] = []
        self.number += 1
        try:
            outcomes = [self._run(operation, session, undo) for operation in operations]
        except TransactionRefusedError:
            for step in reversed(undo):
                step()
            raise
        self.written += sum(not isinstance(operation, CheckNode) for operation in operations)
        return outcomes

    def tell(self, operations: Sequence[StoreOperation], outcomes: Sequence[Outcome]) -> None:
        """Notifies the watches."""
        for operation, outcome in zip(operations, outcomes, strict=True):
            self._tell(operation, outcome.path)

    def end_session(self, session: int) -> None:
        self.multi([DeleteNode(path) for path, owner in self.owners.items() if owner == session])

    def subtree(self, path: str) -> dict[str, Node]:
        found: dict[str, Node] = {}
        floor = [path] if path in self.nodes else []
        while floor:
            found.update((each, self.nodes[each]) for each in floor if each != "/")
            floor = [f"{each.rstrip('/')}/{name}" for each in floor for name in self.names.get(each, NO_NAMES)]
        return found

    def _run(self, operation: StoreOperation, session: int, undo: list[Callable[[], None]]) -> Outcome:
        path = operation.path
        if isinstance(operation, CreateNode):
            return self._create(operation, session, undo)
        node = self.nodes.get(path)
        if node is None:
            raise TransactionRefusedError(operation, Refusal.NO_NODE)
        if operation.expected_version not in (ANY_VERSION, node.version):
            raise TransactionRefusedError(operation, Refusal.BAD_VERSION)
        if isinstance(operation, SetNode):
            self.nodes[path] = Node(operation.data, node.version + 1, node.created_id, self.number)
            undo.append(lambda: self.nodes.update({path: node}))
            return Outcome(path, node.version + 1)
        if isinstance(operation, DeleteNode):
            if self.names.get(path):
                raise TransactionRefusedError(operation, Refusal.NOT_EMPTY)
            parent, name = parent_and_name(path)
            del self.nodes[path], self.names[parent][name]
            self.owners.pop(path, None)
            undo.append(lambda: self._put(path, node))
        return Outcome(path, node.version)

    def _create(self, operation: CreateNode, session: int, undo: list[Callable[[], None]]) -> Outcome:
        path = sequential_path(operation.path, self.number) if operation.is_sequential else operation.path
        if parent_and_name(path)[0] not in self.nodes:
            raise TransactionRefusedError(operation, Refusal.NO_PARENT)
        if path in self.nodes:
            raise TransactionRefusedError(operation, Refusal.NODE_EXISTS)
        self._put(path, Node(operation.data, 0, self.number, self.number))
        if operation.is_ephemeral:
            self.owners[path] = session
        parent, name = parent_and_name(path)

        def undone() -> None:
            del self.nodes[path], self.names[parent][name]
            self.owners.pop(path, None)

        undo.append(undone)
        return Outcome(path, 0)

    def _put(self, path: str, node: Node) -> None:
        parent, name = parent_and_name(path)
        self.nodes[path] = node
        self.names.setdefault(parent, {})[name] = None

    def _tell(self, operation: StoreOperation, path: str) -> None:
        kinds = {CreateNode: WatchKind.CREATED, SetNode: WatchKind.CHANGED, DeleteNode: WatchKind.DELETED}
        kind = kinds.get(type(operation))
        if kind is None or not self.watches:
            return
        loop = asyncio.get_running_loop()
        for callback in self.watches.get(path, ()):
            loop.call_soon(callback, WatchEvent(kind, path))
        if kind is not WatchKind.CHANGED:
            parent = parent_and_name(path)[0]
            for callback in self.watches.get(f"{parent}/", ()):
                loop.call_soon(callback, WatchEvent(WatchKind.CHANGED, parent))


class PlayedStore:
    """One broker's session: a SessionStore that never loses its connection. Slow operations run in a thread."""

    session_timeout_ms = 18_000

    def __init__(self, ensemble: PlayedEnsemble, clock: Clock) -> None:
        self._ensemble = ensemble
        self._clock = clock
        ensemble.sessions += 1
        self.session_id = ensemble.sessions

    async def open(self) -> None: ...

    async def close(self) -> None:
        self._ensemble.end_session(self.session_id)

    def on_session(self, callback: SessionCallback) -> None: ...

    def last_contact_ms(self) -> int:
        return self._clock.monotonic_ms()

    async def get(self, path: str) -> Node | None:
        return self._ensemble.nodes.get(path)

    async def children(self, path: str) -> list[str]:
        with self._ensemble.counted():
            names = list(self._ensemble.names.get(path, NO_NAMES))
        return await self._apart(lambda: sorted(names))

    async def subtree(self, path: str) -> dict[str, Node]:
        return await self._apart(lambda: self._ensemble.subtree(path))

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        if len(operations) > AT_ONCE:
            outcomes = await self._apart(lambda: self._ensemble.commit(operations, self.session_id))
        else:
            await asyncio.sleep(0)
            with self._ensemble.counted():
                outcomes = self._ensemble.commit(operations, self.session_id)
        with self._ensemble.counted():
            self._ensemble.tell(operations, outcomes)
        return outcomes

    async def _apart(self, work: Callable[[], T]) -> T:
        def run() -> T:
            with self._ensemble.counted():
                return work()

        return await asyncio.to_thread(run)

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(f"{path}/", callback)

    def _watch(self, key: str, callback: WatchCallback) -> Callable[[], None]:
        watches = self._ensemble.watches
        watches.setdefault(key, []).append(callback)
        return lambda: watches[key].remove(callback)

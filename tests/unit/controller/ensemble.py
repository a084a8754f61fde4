"""A store that several brokers share, in memory: sessions, ephemeral nodes and watches, without ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ottla.base.clock import Clock
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    SessionCallback,
    SessionState,
    StoreAwayError,
    StoreOperation,
    WatchCallback,
    WatchEvent,
    WatchKind,
    parent_and_name,
)


class Ensemble:
    """The nodes and their owners."""

    def __init__(self) -> None:
        self.tree = SqliteTree(":memory:")
        self.tree.open()
        self.owners: dict[str, int] = {}
        self.members: list[MemberStore] = []
        self.sessions = 0
        self.transactions = 0

    def multi(self, operations: Sequence[StoreOperation], session_id: int = 0) -> list[Outcome]:
        outcomes = self.tree.multi(operations)
        self.transactions += 1
        touched: list[tuple[str, WatchKind]] = []
        for operation, outcome in zip(operations, outcomes, strict=True):
            match operation:
                case CreateNode():
                    touched.append((outcome.path, WatchKind.CREATED))
                    if operation.is_ephemeral:
                        self.owners[outcome.path] = session_id
                case DeleteNode():
                    touched.append((outcome.path, WatchKind.DELETED))
                    self.owners.pop(outcome.path, None)
                case CheckNode():
                    pass
                case _:
                    touched.append((outcome.path, WatchKind.CHANGED))
        for member in self.members:
            member.tell(touched)
        return outcomes

    def end_session(self, session_id: int) -> None:
        gone: list[StoreOperation] = [DeleteNode(path) for path, owner in self.owners.items() if owner == session_id]
        if gone:
            self.multi(gone)


class MemberStore:
    """One broker's connection: a SessionStore."""

    def __init__(self, ensemble: Ensemble, clock: Clock, session_timeout_ms: int = 6000) -> None:
        self._ensemble = ensemble
        self._clock = clock
        self._watches: list[tuple[str, WatchCallback]] = []
        self._listeners: list[SessionCallback] = []
        self._contact_ms = 0
        self.session_id = 0
        self.session_timeout_ms = session_timeout_ms
        self.is_away = False
        ensemble.members.append(self)

    # ---- sessions

    async def open(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._ensemble.sessions += 1
        self.session_id = self._ensemble.sessions
        self._contact_ms = self._clock.monotonic_ms()

    async def close(self) -> None:
        self.die()

    def die(self) -> None:
        """End the session, as for a broker that stops or whose session expires."""
        if self in self._ensemble.members:
            self._ensemble.members.remove(self)
        self._ensemble.end_session(self.session_id)

    def expire(self) -> None:
        """End the session; the broker notices and gets another one."""
        self._ensemble.end_session(self.session_id)
        self._tell_session(SessionState.EXPIRED)
        self._begin()
        self._tell_session(SessionState.CONNECTED)

    def come_back(self) -> None:
        """Reconnect in the same session."""
        self.is_away = False
        self._contact_ms = self._clock.monotonic_ms()
        self._tell_session(SessionState.CONNECTED)

    def _tell_session(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    def on_session(self, callback: SessionCallback) -> None:
        self._listeners.append(callback)

    def last_contact_ms(self) -> int:
        return self._contact_ms

    # ---- nodes

    async def get(self, path: str) -> Node | None:
        await self._contact()
        return self._ensemble.tree.get(path)

    async def children(self, path: str) -> list[str]:
        await self._contact()
        return self._ensemble.tree.children(path)

    async def subtree(self, path: str) -> dict[str, Node]:
        await self._contact()
        return self._ensemble.tree.subtree(path)

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        await self._contact()
        return self._ensemble.multi(operations, self.session_id)

    async def _contact(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreAwayError("no response")
        self._contact_ms = self._clock.monotonic_ms()

    # ---- watches

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(path, callback)

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        return self._watch(f"{path}/", callback)

    def _watch(self, key: str, callback: WatchCallback) -> Callable[[], None]:
        entry = (key, callback)
        self._watches.append(entry)

        def end() -> None:
            if entry in self._watches:
                self._watches.remove(entry)

        return end

    def tell(self, touched: list[tuple[str, WatchKind]]) -> None:
        loop = asyncio.get_running_loop()
        for path, kind in touched:
            parent = f"{parent_and_name(path)[0]}/"
            for key, callback in self._watches:
                if key == path or (key == parent and kind is not WatchKind.CHANGED):
                    loop.call_soon(callback, WatchEvent(kind, path))

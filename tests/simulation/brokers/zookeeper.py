"""ZooKeeper, as its clients see it: a tree of versioned nodes, transactions, sessions with ephemeral nodes, watches.

One server that never fails, on a host of its own ("zk") that can be cut off from each broker. What an ensemble does not
promise is played by the wires between: an answer may come late or never, and a session ends when its client was not
heard for too long, of which the client learns only when it is heard again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType, WatchedEvent
from tests.simulation.brokers.world import World

HOST: Final = "zk"
LOOK_SECONDS: Final = 0.2
ANY_VERSION: Final = -1
FIRST_SESSION: Final = 0x1000


class Stat(NamedTuple):
    """What kazoo tells of a node, as far as the broker asks."""

    czxid: int
    version: int


class ServerNode:
    """One node."""

    __slots__ = ("changed", "children", "created", "data", "owner", "sequence", "version")

    def __init__(self, data: bytes, number: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.created = number
        self.changed = number
        self.owner = owner
        self.sequence = 0
        self.children: dict[str, None] = {}


class ServerSession:
    """A client, over all its connections. `push` sends an event over the newest of them."""

    def __init__(self, number: int, timeout_ms: int, now: float) -> None:
        self.number = number
        self.timeout_ms = timeout_ms
        self.heard = now
        self.push: Callable[[WatchedEvent], None] | None = None


class ZooKeeperServer:
    """The ensemble."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, ServerNode] = {"/": ServerNode(b"", 0, 0)}
        self.number = 0
        self.sessions: dict[int, ServerSession] = {}
        self.on_change: Callable[[str], None] = lambda path: None
        self._last_session = FIRST_SESSION
        # (is of children, path) -> the sessions that want to know, once
        self._watches: dict[tuple[bool, str], dict[int, None]] = {}
        world.after(LOOK_SECONDS, self._expire)

    # ---- sessions

    def connect(self, session_id: int, timeout_ms: int, push: Callable[[WatchedEvent], None]) -> ServerSession | None:
        """Go on with a session, or begin one with id 0; None: that session has expired."""
        if session_id == 0:
            self._last_session += 1
            session = self.sessions[self._last_session] = ServerSession(self._last_session, timeout_ms, self.world.now)
        elif session_id in self.sessions:
            session = self.sessions[session_id]
            self._forget_watches(session_id)  # they are the connection's, and the client sets them again
        else:
            return None
        session.heard = self.world.now
        session.push = push
        return session

    def hear(self, session_id: int) -> bool:
        session = self.sessions.get(session_id)
        if session is not None:
            session.heard = self.world.now
        return session is not None

    def close_session(self, session_id: int) -> None:
        if self.sessions.pop(session_id, None) is None:
            return
        self.number += 1
        self._forget_watches(session_id)
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            self._remove(path)

    def _expire(self) -> None:
        for session in list(self.sessions.values()):
            if self.world.now - session.heard > session.timeout_ms / 1000:
                self.world.tell(f"zk: session {session.number:#x} expires")
                self.close_session(session.number)
        self.world.after(LOOK_SECONDS, self._expire)

    # ---- watches

    def _forget_watches(self, session_id: int) -> None:
        for waiting in self._watches.values():
            waiting.pop(session_id, None)

    def watch(self, session_id: int, path: str, *, is_of_children: bool) -> None:
        self._watches.setdefault((is_of_children, path), {})[session_id] = None

    def _fire(self, kind: str, path: str, *, is_of_children: bool) -> None:
        for session_id in self._watches.pop((is_of_children, path), ()):
            session = self.sessions.get(session_id)
            if session is not None and session.push is not None:
                session.push(WatchedEvent(kind, "CONNECTED", path))

    # ---- reading

    def stat(self, path: str) -> Stat | None:
        node = self.nodes.get(path)
        return None if node is None else Stat(node.created, node.version)

    def children(self, path: str) -> list[str]:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError
        return list(node.children)

    # ---- writing

    def multi(self, session_id: int, operations: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results as kazoo tells them: of all, or the error of one and what that means for the others."""
        undo: list[Callable[[], None]] = []
        changed: list[tuple[str, str]] = []
        results: list[Any] = []
        self.number += 1
        for operation in operations:
            try:
                results.append(self._run(session_id, operation, undo, changed))
            except (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError) as error:
                for step in reversed(undo):
                    step()
                rest = len(operations) - len(results) - 1
                rolled_back: list[Any] = [RolledBackError() for _ in results]
                return [*rolled_back, error, *(RuntimeInconsistency() for _ in range(rest))]
        for kind, path in changed:
            self._tell(kind, path)
        return results

    def _run(
        self,
        session_id: int,
        operation: tuple[Any, ...],
        undo: list[Callable[[], None]],
        changed: list[tuple[str, str]],
    ) -> Any:
        match operation:
            case ("create", path, data, is_ephemeral, is_sequential):
                parent, name = split(path)
                if parent not in self.nodes:
                    raise NoNodeError
                above = self.nodes[parent]
                if is_sequential:
                    name = f"{name}{above.sequence:010d}"
                    path = f"{parent.rstrip('/')}/{name}"
                if path in self.nodes:
                    raise NodeExistsError
                above.sequence += 1
                self.nodes[path] = ServerNode(data, self.number, session_id if is_ephemeral else 0)
                above.children[name] = None
                undo.append(lambda: (self.nodes.pop(path), above.children.pop(name)))  # type: ignore[arg-type,return-value]
                changed.append((EventType.CREATED, path))
                return path
            case ("set", path, data, version):
                node = self._checked(path, version)
                before = (node.data, node.version, node.changed)
                node.data, node.version, node.changed = data, node.version + 1, self.number

                def restore() -> None:
                    node.data, node.version, node.changed = before

                undo.append(restore)
                changed.append((EventType.CHANGED, path))
                return Stat(node.created, node.version)
            case ("delete", path, version):
                node = self._checked(path, version)
                if node.children:
                    raise NotEmptyError
                parent, name = split(path)
                del self.nodes[path]
                above = self.nodes[parent]
                del above.children[name]
                undo.append(lambda: (self.nodes.update({path: node}), above.children.update({name: None})))  # type: ignore[arg-type,return-value]
                changed.append((EventType.DELETED, path))
                return True
            case ("check", path, version):
                self._checked(path, version)
                return True
        raise AssertionError(operation)

    def _checked(self, path: str, version: int) -> ServerNode:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError
        return node

    def _remove(self, path: str) -> None:
        parent, name = split(path)
        del self.nodes[path]
        self.nodes[parent].children.pop(name, None)
        self._tell(EventType.DELETED, path)

    def _tell(self, kind: str, path: str) -> None:
        self.world.note("zk", kind, path)
        self._fire(kind, path, is_of_children=False)
        if kind != EventType.CHANGED:
            if kind == EventType.DELETED:
                self._fire(kind, path, is_of_children=True)
            self._fire(EventType.CHILD, split(path)[0], is_of_children=True)
        self.on_change(path)

    def spoil(self, path: str, data: bytes) -> None:
        """Write invalid data into a node, from outside the cluster."""
        self.number += 1
        node = self.nodes[path]
        node.data, node.version, node.changed = data, node.version + 1, self.number
        self._tell(EventType.CHANGED, path)


def split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name

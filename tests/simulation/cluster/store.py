"""ZooKeeper as the controller sees it: versioned nodes, transactions, sessions with their ephemeral nodes, watches.

One copy, always consistent: what an ensemble promises its clients. What it does not promise is played by the network
between: a request or its answer may be lost, so that a writer cannot know whether its write happened; a session ends
when its client was not heard for too long, and the client learns that only when it is heard again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.controller import tree
from ottla.controller.stores.store import (
    ANY_VERSION,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    Outcome,
    Refusal,
    SetNode,
    StoreOperation,
    TransactionRefusedError,
    parent_and_name,
)

NO_SESSION = 0


class StoredNode(NamedTuple):
    """A node and the session that it goes with."""

    node: Node
    owner: int = NO_SESSION


class SessionGoneError(Exception):
    """The session has expired: its client must make a new one."""


class MemoryStore:
    """The ensemble."""

    def __init__(self) -> None:
        self.nodes: dict[str, StoredNode] = {"/": StoredNode(Node(b"", 0, 0))}
        self.transactions = 0
        self.sessions: dict[int, int] = {}  # id -> when it was heard last
        self.on_change: Callable[[list[str]], None] = lambda paths: None
        for path in tree.SKELETON:
            self.nodes[path] = StoredNode(Node(b"", 0, 0))

    # ---- sessions

    def open_session(self, now_ms: int) -> int:
        self.transactions += 1
        self.sessions[self.transactions] = now_ms
        return self.transactions

    def hear(self, session: int, now_ms: int) -> None:
        if session not in self.sessions:
            raise SessionGoneError
        self.sessions[session] = now_ms

    def expire(self, now_ms: int, timeout_ms: int) -> list[int]:
        """End the sessions that were silent for too long, with all that they own."""
        silent = [session for session, heard_ms in self.sessions.items() if heard_ms + timeout_ms < now_ms]
        for session in silent:
            self.close_session(session)
        return silent

    def close_session(self, session: int) -> None:
        if self.sessions.pop(session, None) is None:
            return
        self.transactions += 1
        paths = [path for path, stored in self.nodes.items() if stored.owner == session]
        for path in paths:
            del self.nodes[path]
        if paths:
            self.on_change(paths)

    # ---- reading

    def get(self, path: str) -> Node | None:
        stored = self.nodes.get(path)
        return stored.node if stored is not None else None

    def children(self, path: str) -> list[str]:
        return sorted(name for parent, name in map(parent_and_name, self.nodes) if parent == path and name)

    def subtree(self, path: str = "/") -> dict[str, Node]:
        below = path.rstrip("/") + "/"
        return {each: self.nodes[each].node for each in sorted(self.nodes) if each == path or each.startswith(below)}

    # ---- writing

    def multi(self, session: int, operations: Sequence[StoreOperation]) -> list[Outcome]:
        """All or none."""
        if session not in self.sessions:
            raise SessionGoneError
        before = dict(self.nodes)
        number = self.transactions + 1
        try:
            outcomes = [self._run(session, number, operation) for operation in operations]
        except TransactionRefusedError:
            self.nodes = before
            raise
        self.transactions = number
        paths = [
            outcome.path for outcome, each in zip(outcomes, operations, strict=True) if type(each) is not CheckNode
        ]
        if paths:
            self.on_change(paths)
        return outcomes

    def _run(self, session: int, number: int, operation: StoreOperation) -> Outcome:
        match operation:
            case CreateNode():
                return self._create(session, number, operation)
            case SetNode():
                stored = self._checked(operation, operation.expected_version)
                version = stored.node.version + 1
                node = Node(operation.data, version, stored.node.created_id, number)
                self.nodes[operation.path] = StoredNode(node, stored.owner)
                return Outcome(operation.path, version)
            case DeleteNode():
                stored = self._checked(operation, operation.expected_version)
                if any(each.startswith(f"{operation.path}/") for each in self.nodes):
                    raise TransactionRefusedError(operation, Refusal.NOT_EMPTY)
                del self.nodes[operation.path]
                return Outcome(operation.path, stored.node.version)
            case CheckNode():
                return Outcome(operation.path, self._checked(operation, operation.expected_version).node.version)

    def _create(self, session: int, number: int, operation: CreateNode) -> Outcome:
        if parent_and_name(operation.path)[0] not in self.nodes:
            raise TransactionRefusedError(operation, Refusal.NO_PARENT)
        if operation.path in self.nodes:
            raise TransactionRefusedError(operation, Refusal.NODE_EXISTS)
        owner = session if operation.is_ephemeral else NO_SESSION
        self.nodes[operation.path] = StoredNode(Node(operation.data, 0, number, number), owner)
        return Outcome(operation.path, 0)

    def _checked(self, operation: SetNode | DeleteNode | CheckNode, expected: int) -> StoredNode:
        stored = self.nodes.get(operation.path)
        if stored is None:
            raise TransactionRefusedError(operation, Refusal.NO_NODE)
        if expected not in (ANY_VERSION, stored.node.version):
            raise TransactionRefusedError(operation, Refusal.BAD_VERSION)
        return stored

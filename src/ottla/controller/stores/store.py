"""The interface of the metadata store: a small tree of versioned nodes, as Kafka's metadata in ZooKeeper.

The controller uses only this interface. Its rules are ZooKeeper's, so the same code serves both stores: the parent of a
node must exist, a node with children cannot be deleted, every change raises the node's version by one, and `multi` is
atomic. A write returns only when it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
SEQUENCE_DIGITS = 10


class Node(NamedTuple):
    """The contents of a path in the store."""

    data: bytes
    version: int  # 0 when created, +1 with every set
    created_id: int  # the transaction that created it (czxid); that of a broker node is the broker epoch
    modified_id: int = 0  # the transaction that wrote it last (mzxid); 0: unknown


class CreateNode(NamedTuple):
    """Create a node. Ephemeral nodes are deleted with their session; sequential ones get a number appended."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False
    is_sequential: bool = False


class SetNode(NamedTuple):
    """Replace a node's data, if it still has the expected version."""

    path: str
    data: bytes
    expected_version: int = ANY_VERSION


class DeleteNode(NamedTuple):
    """Delete a node without children, if it still has the expected version."""

    path: str
    expected_version: int = ANY_VERSION


class CheckNode(NamedTuple):
    """Fail the whole transaction if the node has another version; this fences old writers."""

    path: str
    expected_version: int


StoreOperation = CreateNode | SetNode | DeleteNode | CheckNode


class Outcome(NamedTuple):
    """The result of one operation: the path (with its number, if sequential) and the new version."""

    path: str
    version: int


class WatchKind(Enum):
    """The kinds of changes of a watched node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class WatchEvent(NamedTuple):
    """A committed change of a watched node, or of the set of its children; may report several changes as one."""

    kind: WatchKind
    path: str


WatchCallback = Callable[[WatchEvent], None]


class StoreError(Exception):
    """A request to the store failed; nothing has changed unless the message states otherwise."""


class StoreFullError(StoreError):
    """The disk has no space for the change, not even in the reserve; nothing has changed."""


class StoreUnusableError(StoreError):
    """The store cannot be used at all; the message has the problem and its solution for the operator."""


class StoreAwayError(StoreError):
    """The store did not respond in time, or the session has ended: the outcome of a change is unknown."""


class TransactionRefusedError(StoreError):
    """One operation of a transaction was rejected, so none of them was done."""

    def __init__(self, operation: StoreOperation, reason: Refusal) -> None:
        super().__init__(f"{reason.value}: {operation.path}")
        self.operation = operation
        self.reason = reason


class Refusal(Enum):
    """The reasons why a transaction is rejected."""

    NO_NODE = "no such node"
    NO_PARENT = "the parent node does not exist"
    NODE_EXISTS = "the node exists already"
    NOT_EMPTY = "the node has children"
    BAD_VERSION = "the node has another version than expected"


class MetadataStore(Protocol):
    """The store of the controller. All methods run on the event loop and never block it."""

    async def open(self) -> None:
        """Open the store, or raise StoreUnusableError."""

    async def close(self) -> None: ...

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """Return the names (not paths) of a node's children, sorted."""

    async def subtree(self, path: str) -> dict[str, Node]:
        """Return the node at `path` and everything below it, by path, parents before children."""

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        """Execute all of the operations or none (TransactionRefusedError); they are durable on return."""

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        """Call back on the loop after the node was created, changed or deleted; calling the result ends the watch.

        A read after this call misses no change. Changes in quick succession may be reported as one.
        """

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        """Call back on the loop after children were created or deleted (kind CHANGED); see watch_node."""


class SessionState(Enum):
    """The state of a broker's session with a shared store."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection: the session and its ephemeral nodes may or may not exist
    EXPIRED = "expired"  # the session has ended with its ephemeral nodes; CONNECTED follows with a new session


SessionCallback = Callable[[SessionState], None]


class SessionStore(MetadataStore, Protocol):
    """A store that several brokers share. Ephemeral nodes belong to the session of the broker that created them.

    Watches survive reconnects and new sessions: then each of them is called once, because changes may have been missed.
    """

    @property
    def session_id(self) -> int:
        """A new number for every session; 0 before the first one."""

    @property
    def session_timeout_ms(self) -> int:
        """The time without contact after which the session expires, as negotiated with the store."""

    def on_session(self, callback: SessionCallback) -> None:
        """Call back on the loop with every change of the session state."""

    def last_contact_ms(self) -> int:
        """Return the monotonic time at which the last request with a response was sent.

        The session is certainly alive for `session_timeout_ms` from then on.
        """


def parent_and_name(path: str) -> tuple[str, str]:
    """Split a path: "/brokers/ids" is the child "ids" of "/brokers", and "/brokers" a child of "/"."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def sequential_path(path: str, number: int) -> str:
    return f"{path}{number:0{SEQUENCE_DIGITS}d}"

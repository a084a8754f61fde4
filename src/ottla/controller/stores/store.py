"""The metadata store: a small tree of versioned nodes, the shape that Kafka's metadata has in ZooKeeper.

The controller knows only this interface. Its rules are ZooKeeper's, so that one code path serves both stores:
a node's parent must exist, a node with children cannot be deleted, every change raises the node's version by one, and
`multi` does all of its operations or none. Nothing is answered before it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
SEQUENCE_DIGITS = 10


class Node(NamedTuple):
    """What the store keeps at a path."""

    data: bytes
    version: int  # 0 when created, +1 with every set
    created_id: int  # the number of the transaction that created it; a broker's epoch is that of its node
    modified_id: int = 0  # the number of the transaction that wrote it last; 0: the store does not say


class CreateNode(NamedTuple):
    """Create a node. Ephemeral nodes go with the session that made them; sequential ones get a number appended."""

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
    """Do nothing, but fail the whole transaction if the node has another version: this is how writers are fenced."""

    path: str
    expected_version: int


StoreOperation = CreateNode | SetNode | DeleteNode | CheckNode


class Outcome(NamedTuple):
    """What one operation of a transaction came to: the path (with its number, if sequential) and the new version."""

    path: str
    version: int


class WatchKind(Enum):
    """What happened to a watched node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class WatchEvent(NamedTuple):
    """A committed change of a watched node, or of the set of its children; it may stand for several of them."""

    kind: WatchKind
    path: str


WatchCallback = Callable[[WatchEvent], None]


class StoreError(Exception):
    """The store could not do what it was asked for; nothing has changed unless the message says otherwise."""


class StoreFullError(StoreError):
    """There is no room for the change, not even in the reserve: it did not happen."""


class StoreUnusableError(StoreError):
    """The store cannot be used at all: what is wrong and what to do, in words for the person who runs the broker."""


class StoreAwayError(StoreError):
    """The store did not answer in time, or the session ended meanwhile: whether a change happened is not known."""


class TransactionRefusedError(StoreError):
    """One operation of a transaction did not hold, so none of them was done."""

    def __init__(self, operation: StoreOperation, reason: Refusal) -> None:
        super().__init__(f"{reason.value}: {operation.path}")
        self.operation = operation
        self.reason = reason


class Refusal(Enum):
    """Why a transaction was refused."""

    NO_NODE = "no such node"
    NO_PARENT = "the parent node does not exist"
    NODE_EXISTS = "the node exists already"
    NOT_EMPTY = "the node has children"
    BAD_VERSION = "the node has another version than expected"


class MetadataStore(Protocol):
    """What the controller needs of a store. All methods run on the event loop and never block it."""

    async def open(self) -> None:
        """Make ready for use, or raise StoreUnusableError."""

    async def close(self) -> None: ...

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """The names (not paths) of a node's children, sorted."""

    async def subtree(self, path: str) -> dict[str, Node]:
        """The node at `path` and everything below it, by path, parents before children."""

    async def multi(self, operations: Sequence[StoreOperation]) -> list[Outcome]:
        """All of the operations or none (TransactionRefusedError); durable when it returns."""

    def watch_node(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        """Call back on the loop after the node was created, changed or deleted; the result ends the watch.

        Whoever reads the node after asking for the watch misses nothing. Quick changes may be told as one.
        """

    def watch_children(self, path: str, callback: WatchCallback) -> Callable[[], None]:
        """Call back on the loop after children came or went (kind CHANGED); otherwise as watch_node."""


class SessionState(Enum):
    """How a broker stands with a store that it shares with others."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection: the session, and with it the ephemeral nodes, may or may not live on
    EXPIRED = "expired"  # the session is over and its ephemeral nodes are gone; CONNECTED follows with another session


SessionCallback = Callable[[SessionState], None]


class SessionStore(MetadataStore, Protocol):
    """A store that several brokers share. Ephemeral nodes belong to the session of the broker that made them.

    Watches survive everything: after a new connection and after a new session each of them is called once, so that its
    owner looks again.
    """

    @property
    def session_id(self) -> int:
        """Another number with every new session; 0 before the first."""

    @property
    def session_timeout_ms(self) -> int:
        """After how long without contact the others may hold this broker for dead, as agreed with the store."""

    def on_session(self, callback: SessionCallback) -> None:
        """Call back on the loop with every change of the state."""

    def last_contact_ms(self) -> int:
        """The monotonic time at which the last request was sent that the store has answered.

        The session lasts at least `session_timeout_ms` from then on, and perhaps no longer.
        """


def parent_and_name(path: str) -> tuple[str, str]:
    """Split a path: "/brokers/ids" is the child "ids" of "/brokers", and "/brokers" a child of "/"."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def sequential_path(path: str, number: int) -> str:
    return f"{path}{number:0{SEQUENCE_DIGITS}d}"

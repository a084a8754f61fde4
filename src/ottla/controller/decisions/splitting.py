"""Large changes in pieces: ZooKeeper takes about a megabyte at once. Pure.

The order of the operations stays. Each piece is a transaction of its own, so a controller that dies in between leaves
a beginning behind; decisions order their operations so that every beginning makes sense: a topic without the state of
some partitions gets them from the next controller, a topic that was being deleted has a mark and is deleted to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.controller import tree
from ottla.controller.stores.store import CheckNode, CreateNode, DeleteNode, SetNode, StoreOperation

BYTES_MAX: Final = 800_000
OPERATION_BYTES: Final = 64  # of an operation beside its path and its data


def split(operations: Sequence[StoreOperation], bytes_max: int = BYTES_MAX) -> Iterator[Sequence[StoreOperation]]:
    """Pieces that are as large as they may be."""
    if sum(map(operation_bytes, operations)) > bytes_max:
        operations = with_marks(operations)
    start = 0
    size = 0
    for index, operation in enumerate(operations):
        needed = operation_bytes(operation)
        if size + needed > bytes_max and index > start:
            yield operations[start:index]
            start, size = index, 0
        size += needed
    if start < len(operations):
        yield operations[start:]


def with_marks(operations: Sequence[StoreOperation]) -> Sequence[StoreOperation]:
    """A deletion that takes several transactions marks its topics first: whoever finds a mark deletes to the end."""
    prefix = f"{tree.BROKER_TOPICS}/"
    topics = [
        operation.path.removeprefix(prefix)
        for operation in operations
        if isinstance(operation, DeleteNode)
        and operation.path.startswith(prefix)
        and "/" not in operation.path[len(prefix) :]
    ]
    there = {operation.path for operation in operations}
    paths = [path for topic in topics if (path := tree.delete_topic_path(topic)) not in there]
    return (*map(CreateNode, paths), *operations, *map(DeleteNode, paths))


def fenced(fence: CheckNode, piece: Sequence[StoreOperation]) -> tuple[StoreOperation, ...]:
    """A transaction of a controller: it does nothing if another one has been elected since."""
    return (fence, *piece)


def operation_bytes(operation: StoreOperation) -> int:
    """At most what an operation adds to a request, with a chroot of usual length."""
    data = len(operation.data) if isinstance(operation, CreateNode | SetNode) else 0
    return OPERATION_BYTES + 2 * len(operation.path) + data

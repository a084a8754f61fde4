"""Decides from the current nodes whether a transaction happened whose response was lost with the connection. Pure.

In ZooKeeper all writes of a transaction have the same zxid, as creation or modification id of their nodes. The
transaction happened if every node has the written contents with the same zxid, and that is newer than all zxids seen
before. Otherwise it is sent again, and the expected versions decide. A wrong "no" leads only to a rejection, after
which the writer reads the nodes; after a wrong "yes" two writers would both assume success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.controller.stores.store import (
    ANY_VERSION,
    CheckNode,
    CreateNode,
    DeleteNode,
    Outcome,
    SetNode,
    StoreOperation,
    parent_and_name,
)
from ottla.controller.stores.zookeeper.client import Found

NO_PROOF = 0  # consistent with the transaction, but not a proof
NOT_DONE = -1


def judge(
    operations: Sequence[StoreOperation], found: Mapping[str, Found], last_id: int, session_id: int
) -> list[Outcome] | None:
    """Return the outcomes if the transaction happened; None if it did not or if that is unknown.

    `found` has every existing node of `touched_paths`, and the siblings of sequential ones.
    """
    paths = [operation.path for operation in operations if not isinstance(operation, CheckNode)]
    if not paths or len(set(paths)) != len(paths):
        return None
    outcomes: list[Outcome] = []
    numbers: set[int] = set()
    for operation in operations:
        outcome, number = _look(operation, found, last_id, session_id)
        if number == NOT_DONE:
            return None
        outcomes.append(outcome)
        numbers.add(number)
    proofs = numbers - {NO_PROOF}
    if len(proofs) == 1 or (not proofs and _are_deletions(operations)):
        return outcomes
    return None


def touched_paths(operations: Sequence[StoreOperation]) -> list[str]:
    """Return the nodes to read, except those of sequential creations."""
    return [each.path for each in operations if not isinstance(each, CheckNode) and not _is_sequential(each)]


def sequential_parents(operations: Sequence[StoreOperation]) -> list[str]:
    """Return the parents of sequential nodes."""
    return sorted({parent_and_name(each.path)[0] for each in operations if _is_sequential(each)})


def _look(operation: StoreOperation, found: Mapping[str, Found], last_id: int, session_id: int) -> tuple[Outcome, int]:
    """Return the outcome if the operation happened, and the zxid of its transaction, NO_PROOF, or NOT_DONE."""
    match operation:
        case CreateNode():
            path = _created_path(operation, found, last_id)
            return Outcome(path, 0), _created_number(operation, found.get(path), last_id, session_id)
        case SetNode():
            return _look_at_set(operation, found.get(operation.path), last_id)
        case DeleteNode():
            node = found.get(operation.path)
            is_there = node is not None and node.node.created_id <= last_id  # a newer node was created later
            return Outcome(operation.path, operation.expected_version), NOT_DONE if is_there else NO_PROOF
        case _:
            return Outcome(operation.path, operation.expected_version), NO_PROOF


def _look_at_set(operation: SetNode, found: Found | None, last_id: int) -> tuple[Outcome, int]:
    """Judge a write. Without an expected version it proves nothing, because others may have written the same; it can be
    repeated.
    """
    if found is None:
        return Outcome(operation.path, operation.expected_version), NOT_DONE
    outcome = Outcome(operation.path, found.node.version)
    if operation.expected_version == ANY_VERSION:
        return outcome, NO_PROOF
    is_next = found.node.version == operation.expected_version + 1
    is_ours = is_next and found.node.data == operation.data and found.changed_id > last_id
    return outcome, found.changed_id if is_ours else NOT_DONE


def _created_number(operation: CreateNode, found: Found | None, last_id: int, session_id: int) -> int:
    if found is None:
        return NOT_DONE
    is_ours = found.node.data == operation.data and found.node.created_id > last_id
    is_ours = is_ours and found.owner == (session_id if operation.is_ephemeral else 0)
    return found.node.created_id if is_ours else NOT_DONE


def _created_path(operation: CreateNode, found: Mapping[str, Found], last_id: int) -> str:
    if not operation.is_sequential:
        return operation.path
    for path, each in found.items():
        is_sibling = path.startswith(operation.path) and path[len(operation.path) :].isdigit()
        if is_sibling and each.node.created_id > last_id and each.node.data == operation.data:
            return path
    return operation.path


def _is_sequential(operation: StoreOperation) -> bool:
    return isinstance(operation, CreateNode) and operation.is_sequential


def _are_deletions(operations: Sequence[StoreOperation]) -> bool:
    """Return whether there are only deletions; it does not matter which client has deleted the nodes."""
    return all(isinstance(each, DeleteNode | CheckNode) for each in operations)

"""Did it happen? A transaction whose answer was lost with the connection, judged by what the nodes hold now.

Pure. All writes of one transaction carry one number in ZooKeeper: that of its nodes' creation or last change. It
happened if every node holds what we wrote, under one and the same number that is newer than all we had seen. Otherwise
the answer is "send it again": the versions inside decide, as they do for any transaction. The worst that a wrong "no"
can do is a refusal, after which the writer looks at the nodes; a wrong "yes" would make two writers believe they won.
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

NO_PROOF = 0  # fits, but proves nothing
NOT_DONE = -1


def judge(
    operations: Sequence[StoreOperation], found: Mapping[str, Found], last_id: int, session_id: int
) -> list[Outcome] | None:
    """The outcomes, if the transaction happened; None if it did not or nobody can tell.

    `found` has every node of `touched_paths` that exists, and the siblings of sequential ones.
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
    """The nodes to read, but for those of sequential creations."""
    return [each.path for each in operations if not isinstance(each, CheckNode) and not _is_sequential(each)]


def sequential_parents(operations: Sequence[StoreOperation]) -> list[str]:
    """Below these the names of sequential nodes are to be found."""
    return sorted({parent_and_name(each.path)[0] for each in operations if _is_sequential(each)})


def _look(operation: StoreOperation, found: Mapping[str, Found], last_id: int, session_id: int) -> tuple[Outcome, int]:
    """The outcome if it happened, and the number of the transaction that did it, or NO_PROOF, or NOT_DONE."""
    match operation:
        case CreateNode():
            path = _created_path(operation, found, last_id)
            return Outcome(path, 0), _created_number(operation, found.get(path), last_id, session_id)
        case SetNode():
            return _look_at_set(operation, found.get(operation.path), last_id)
        case DeleteNode():
            node = found.get(operation.path)
            is_there = node is not None and node.node.created_id <= last_id  # a newer one is not the one that was meant
            return Outcome(operation.path, operation.expected_version), NOT_DONE if is_there else NO_PROOF
        case _:
            return Outcome(operation.path, operation.expected_version), NO_PROOF


def _look_at_set(operation: SetNode, found: Found | None, last_id: int) -> tuple[Outcome, int]:
    """A write that takes any version proves nothing: others may have written the same. It can be repeated."""
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
    """What was to be deleted is gone: by whom does not matter."""
    return all(isinstance(each, DeleteNode | CheckNode) for each in operations)

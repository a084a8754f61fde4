"""Steps of a journal's moves that healing and balancing share. Pure, by the rules of decision.py.

A cleanup is written in the order moves, settings, journal: after a crash in between, the journal has too many moves,
never too few, and the next cleanup removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from ottla.base.errors import Error
from ottla.controller.decisions.decision import Decision
from ottla.controller.decisions.leader_eligibility import BrokerAvailability, ElectionRules
from ottla.controller.decisions.reassignment import ReassignmentRequest, decide_reassignments, is_reassigning
from ottla.controller.image import MetadataImage
from ottla.controller.self_balancing.journals import JournalNode, ReplicaMove, Throttle
from ottla.controller.self_balancing.replica_throttles import throttle_configs, write_configs


class HasMoves(Protocol):
    """A journal with moves and their throttles."""

    @property
    def moves(self) -> tuple[ReplicaMove, ...]: ...

    @property
    def throttle(self) -> Throttle: ...

    def with_moves(self, moves: tuple[ReplicaMove, ...], throttle: Throttle) -> Self: ...


J = TypeVar("J", bound=HasMoves)


class CleanupResult(NamedTuple, Generic[J]):
    """The result of a cleanup."""

    journal: J
    ended: tuple[ReplicaMove, ...] = ()  # or changed by an operator
    cancelled: tuple[ReplicaMove, ...] = ()


def is_move_in_progress(image: MetadataImage, move: ReplicaMove) -> bool:
    """Whether a move is in progress, and unchanged since it was started."""
    partition = image.partition(*move.partition)
    if partition is None:
        return False
    if move.is_same_broker:
        is_held = not is_reassigning(partition) and set(move.added) <= set(partition.replicas)
        return is_held and not set(move.added) <= set(partition.isr)
    return set(partition.adding_replicas) == set(move.added) and set(partition.removing_replicas) == set(move.removed)


def decide_move_cleanup(
    image: MetadataImage,
    node: JournalNode[J],
    is_obsolete: Callable[[ReplicaMove], bool],
    liveness: BrokerAvailability,
    rules: ElectionRules,
    throttle_rate: int,
    throttled: Callable[[Iterable[ReplicaMove]], Iterable[ReplicaMove]] = tuple,
) -> Decision[CleanupResult[J]]:
    """Cancel obsolete moves, drop ended ones, and reduce the throttles to the rest, as `throttled` describes it."""
    under_way = [move for move in node.journal.moves if is_move_in_progress(image, move)]
    obsolete = [move for move in under_way if is_obsolete(move)]
    requests = [ReassignmentRequest(move.partition, None) for move in obsolete if not move.is_same_broker]
    cancel = decide_reassignments(image, requests, liveness, rules)
    refused = {result.partition for result in cancel.reply if result.error is not Error.NONE}
    cancelled = tuple(move for move in obsolete if move.partition not in refused)
    left = tuple(move for move in under_way if move not in cancelled)
    slow = throttle_configs(cancel.image, node.journal.throttle, throttled(left), throttle_rate)
    configs, after = write_configs(cancel.image, slow)
    journal = node.journal.with_moves(left, slow.throttle)
    ended = tuple(move for move in node.journal.moves if move not in under_way)
    operations = (*cancel.operations, *configs)
    if journal != node.journal:
        operations += node.operations(journal)
    return Decision(operations, after, CleanupResult(journal, ended, cancelled))

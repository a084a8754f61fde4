"""One step of a member from what it has to what it should have (KIP-848).

First it gives up what it must, then it moves to the new epoch and takes what is free; what others still hold it gets in
later steps. A partition is never given to a member while another owns it. What a member does not subscribe to any more
it gives up at once, even while the next target is still to be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.groups.consumer_group import Assignment, ConsumerMember, MemberState, Since

Owned = dict[UUID, frozenset[int]] | None
"""What a member says that it has; None when its heartbeat does not tell."""

NONE: frozenset[int] = frozenset()


class Step(NamedTuple):
    """Where a member stands after a heartbeat."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    pending_revocation: Assignment
    since: Since


def next_step(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    subscribed: frozenset[UUID] | None,
    owned: Owned,
    is_free: Callable[[UUID, int], bool],
) -> Step:
    """`subscribed` are the topics that the member reads; None when that is the same as before."""
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return where_it_stands(member) if subscribed is None else _without_foreign(member, subscribed)
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.pending_revocation):
        return where_it_stands(member)
    wanted_at_all = target if subscribed is None else _only(target, subscribed)
    kept = {
        topic_id: both
        for topic_id, have in member.assigned.items()
        if (both := have & wanted_at_all.get(topic_id, NONE))
    }
    to_revoke = _minus(member.assigned, kept)
    if to_revoke and _still_owns(owned, to_revoke):
        return _revoking(member, kept, to_revoke)
    wanted = _minus(wanted_at_all, kept)
    free = {
        topic_id: available
        for topic_id, partitions in wanted.items()
        if (available := frozenset(each for each in partitions if is_free(topic_id, each)))
    }
    assigned = {topic_id: kept.get(topic_id, NONE) | free.get(topic_id, NONE) for topic_id in {**kept, **free}}
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    since = {
        (topic_id, each): member.since.get((topic_id, each), 0) if each in kept.get(topic_id, NONE) else target_epoch
        for topic_id, partitions in assigned.items()
        for each in partitions
    }
    return Step(target_epoch, member.epoch, state, assigned, {}, since)


def where_it_stands(member: ConsumerMember) -> Step:
    return Step(
        member.epoch, member.previous_epoch, member.state, member.assigned, member.pending_revocation, member.since
    )


def gone_for_a_while(member: ConsumerMember, epoch: int) -> Step:
    """A static member keeps what it has until it is back, but not for its old epochs."""
    since = {(topic_id, each): 0 for topic_id, partitions in member.assigned.items() for each in partitions}
    return Step(epoch, member.previous_epoch, member.state, member.assigned, {}, since)


def _without_foreign(member: ConsumerMember, subscribed: frozenset[UUID]) -> Step:
    kept = _only(member.assigned, subscribed)
    foreign = _minus(member.assigned, kept)
    return _revoking(member, kept, foreign) if foreign else where_it_stands(member)


def _revoking(member: ConsumerMember, kept: Assignment, to_revoke: Assignment) -> Step:
    return Step(member.epoch, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke, member.since)


def _still_owns(owned: Owned, revoked: Assignment) -> bool:
    """A member that does not say what it has may have all of it."""
    if owned is None:
        return True
    return any(owned.get(topic_id, NONE) & partitions for topic_id, partitions in revoked.items())


def _only(assignment: Assignment, topics: frozenset[UUID]) -> Assignment:
    return {topic_id: partitions for topic_id, partitions in assignment.items() if topic_id in topics}


def _minus(one: Assignment, other: Assignment) -> Assignment:
    return {topic_id: rest for topic_id, partitions in one.items() if (rest := partitions - other.get(topic_id, NONE))}

"""Reconciliation of a member's current assignment with its target assignment (KIP-848).

A member first revokes partitions, then moves to the new epoch and gets the free ones; partitions that other members own
follow in later steps. A partition is never assigned to a member while another one owns it. A member at once revokes
partitions of topics that it no longer subscribes to, before the next target is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.groups.consumer_group import Assignment, AssignmentEpochs, ConsumerGroupMember, MemberState

OwnedPartitions = dict[UUID, frozenset[int]] | None
"""The partitions that a member reports as owned; None if its heartbeat does not contain them."""

NO_PARTITIONS: frozenset[int] = frozenset()


class CurrentAssignment(NamedTuple):
    """The current assignment of a member after a heartbeat."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned_partitions: Assignment
    partitions_pending_revocation: Assignment
    assignment_epochs: AssignmentEpochs


def next_assignment(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    subscribed: frozenset[UUID] | None,
    owned: OwnedPartitions,
    is_free: Callable[[UUID, int], bool],
) -> CurrentAssignment:
    """Return the next assignment. `subscribed` are the topics of the member's subscription; None if unchanged."""
    if member.state is MemberState.STABLE and member.member_epoch == target_epoch:
        return current_assignment(member) if subscribed is None else _without_unsubscribed(member, subscribed, owned)
    if member.state is MemberState.UNREVOKED_PARTITIONS and _owns_revoked_partitions(
        owned, member.partitions_pending_revocation
    ):
        return current_assignment(member)
    wanted_at_all = target if subscribed is None else _restrict_to_topics(target, subscribed)
    kept = {
        topic_id: both
        for topic_id, have in member.assigned_partitions.items()
        if (both := have & wanted_at_all.get(topic_id, NO_PARTITIONS))
    }
    to_revoke = _subtract(member.assigned_partitions, kept)
    if to_revoke and _owns_revoked_partitions(owned, to_revoke):
        return _revoke(member, kept, to_revoke)
    wanted = _subtract(wanted_at_all, kept)
    free = {
        topic_id: available
        for topic_id, partitions in wanted.items()
        if (available := frozenset(each for each in partitions if is_free(topic_id, each)))
    }
    assigned = {
        topic_id: kept.get(topic_id, NO_PARTITIONS) | free.get(topic_id, NO_PARTITIONS) for topic_id in {**kept, **free}
    }
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED_PARTITIONS
    since = {
        (topic_id, each): member.assignment_epochs.get((topic_id, each), 0)
        if each in kept.get(topic_id, NO_PARTITIONS)
        else target_epoch
        for topic_id, partitions in assigned.items()
        for each in partitions
    }
    return CurrentAssignment(target_epoch, member.member_epoch, state, assigned, {}, since)


def current_assignment(member: ConsumerGroupMember) -> CurrentAssignment:
    return CurrentAssignment(
        member.member_epoch,
        member.previous_member_epoch,
        member.state,
        member.assigned_partitions,
        member.partitions_pending_revocation,
        member.assignment_epochs,
    )


def static_member_left(member: ConsumerGroupMember, epoch: int) -> CurrentAssignment:
    """Return the assignment of a static member that leaves:

    it keeps its partitions, but not their assignment epochs.
    """
    since = {(topic_id, each): 0 for topic_id, partitions in member.assigned_partitions.items() for each in partitions}
    return CurrentAssignment(epoch, member.previous_member_epoch, member.state, member.assigned_partitions, {}, since)


def _without_unsubscribed(
    member: ConsumerGroupMember, subscribed: frozenset[UUID], owned: OwnedPartitions
) -> CurrentAssignment:
    kept = _restrict_to_topics(member.assigned_partitions, subscribed)
    foreign = _subtract(member.assigned_partitions, kept)
    if not foreign:
        return current_assignment(member)
    if _owns_revoked_partitions(owned, foreign):
        return _revoke(member, kept, foreign)
    return CurrentAssignment(
        member.member_epoch, member.previous_member_epoch, member.state, kept, {}, member.assignment_epochs
    )


def _revoke(member: ConsumerGroupMember, kept: Assignment, to_revoke: Assignment) -> CurrentAssignment:
    return CurrentAssignment(
        member.member_epoch,
        member.member_epoch,
        MemberState.UNREVOKED_PARTITIONS,
        kept,
        to_revoke,
        member.assignment_epochs,
    )


def _owns_revoked_partitions(owned: OwnedPartitions, revoked: Assignment) -> bool:
    """Return whether the member may own revoked partitions; one that does not report its partitions may own all of
    them.
    """
    if owned is None:
        return True
    return any(owned.get(topic_id, NO_PARTITIONS) & partitions for topic_id, partitions in revoked.items())


def _restrict_to_topics(assignment: Assignment, topics: frozenset[UUID]) -> Assignment:
    return {topic_id: partitions for topic_id, partitions in assignment.items() if topic_id in topics}


def _subtract(one: Assignment, other: Assignment) -> Assignment:
    return {
        topic_id: rest
        for topic_id, partitions in one.items()
        if (rest := partitions - other.get(topic_id, NO_PARTITIONS))
    }

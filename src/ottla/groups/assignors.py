"""Server-side assignors of the consumer group protocol (KIP-848). Pure functions.

`uniform` balances the number of partitions among the members and moves as few partitions as possible. `range` assigns
consecutive partitions of each topic, which co-locates partitions with the same index of several topics.

A heartbeat computes the assignment of all members in one callback, so the cost is linear in members and partitions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heapreplace, merge
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from ottla.groups.consumer_group import Assignment, topic_id_sort_key

Subscription = frozenset[UUID]
MemberLoad = tuple[int, str]  # number of partitions, member id


class Subscriber(NamedTuple):
    """The subscription of a member, as input of an assignor."""

    member_id: str
    instance_id: str | None
    subscribed_topic_ids: Subscription
    current_assignment: Assignment  # its previous target assignment


Assignor = Callable[[list[Subscriber], dict[UUID, int]], dict[str, Assignment]]
"""Maps members and partition counts by topic to the target assignment of each member."""


# ---- range


def assign_range(subscribers: list[Subscriber], partition_counts: dict[UUID, int]) -> dict[str, Assignment]:
    targets: dict[str, Assignment] = {member.member_id: {} for member in subscribers}
    in_order = sorted(
        subscribers, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id)
    )
    subscriptions = {member.subscribed_topic_ids for member in subscribers}
    readers_by_subscriptions: dict[frozenset[Subscription], list[str]] = {}
    for topic_id, count in partition_counts.items():
        wanted = frozenset(each for each in subscriptions if topic_id in each)
        readers = readers_by_subscriptions.get(wanted)
        if readers is None:
            readers = [member.member_id for member in in_order if member.subscribed_topic_ids in wanted]
            readers_by_subscriptions[wanted] = readers
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        first = 0
        for index, reader in enumerate(readers[:count]):
            end = first + share + (1 if index < extra else 0)
            targets[reader][topic_id] = frozenset(range(first, end))
            first = end
    return targets


# ---- uniform


def assign_uniform(subscribers: list[Subscriber], partition_counts: dict[UUID, int]) -> dict[str, Assignment]:
    counts = dict(sorted(partition_counts.items(), key=topic_id_sort_key))
    members = sorted(subscribers, key=itemgetter(0))
    kept, free = _keep_current_assignment(members, counts)
    if len({member.subscribed_topic_ids for member in members}) == 1:
        free = {topic_id: free[topic_id] for topic_id in counts if topic_id in members[0].subscribed_topic_ids}
        return _assign_homogeneous(kept, free)
    return _HeterogeneousAssignment(members, kept).assign(free)


def _keep_current_assignment(
    members: list[Subscriber], partition_counts: dict[UUID, int]
) -> tuple[dict[str, Assignment], dict[UUID, set[int]]]:
    """Each member keeps the partitions of its previous target that it still subscribes to; the others are free."""
    free = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    kept: dict[str, Assignment] = {}
    for member in members:
        mine = kept[member.member_id] = {}
        for topic_id, partitions in member.current_assignment.items():
            if topic_id in free and topic_id in member.subscribed_topic_ids:
                is_free = free[topic_id].issuperset(partitions)
                retained = partitions if is_free else partitions & free[topic_id]
                if retained:
                    mine[topic_id] = retained
                    free[topic_id] -= retained
    return kept, free


def _assign_homogeneous(kept: dict[str, Assignment], free: dict[UUID, set[int]]) -> dict[str, Assignment]:
    """All members subscribe to the same topics: each one fills up its share of consecutive free partitions.

    Kafka does the same, with the members in the order of a hash table. Here the members with most partitions come
    first, so that they keep the extra partitions.
    """
    sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in kept.items()}
    share, extra = divmod(sum(sizes.values()) + sum(map(len, free.values())), len(kept))
    targets = dict(kept)
    # Descending, so that the first partitions are taken from the end.
    unassigned = [(topic_id, sorted(partitions, reverse=True)) for topic_id, partitions in free.items()]
    unfilled: list[tuple[str, int]] = []  # member ids, and how many partitions they lack
    for index, member_id in enumerate(sorted(kept, key=lambda member_id: (-sizes[member_id], member_id))):
        quota = share + (1 if index < extra else 0)
        if sizes[member_id] > quota:
            targets[member_id], revoked = _split(kept[member_id], quota)
            unassigned += revoked
        elif sizes[member_id] < quota:
            unfilled.append((member_id, quota - sizes[member_id]))
    unassigned.reverse()
    for member_id, lacking in unfilled:
        targets[member_id] = _fill(targets[member_id], unassigned, lacking)
    return targets


def _split(assignment: Assignment, quota: int) -> tuple[Assignment, list[tuple[UUID, list[int]]]]:
    """The first `quota` partitions, and the others by topic in descending order."""
    first: Assignment = {}
    others: list[tuple[UUID, list[int]]] = []
    for topic_id, partitions in sorted(assignment.items(), key=topic_id_sort_key):
        if len(partitions) <= quota:
            first[topic_id] = partitions
        else:
            in_order = sorted(partitions)
            others.append((topic_id, in_order[quota:][::-1]))
            if quota:
                first[topic_id] = frozenset(in_order[:quota])
        quota = max(quota - len(partitions), 0)
    return first, others


def _fill(assignment: Assignment, unassigned: list[tuple[UUID, list[int]]], lacking: int) -> Assignment:
    """Move partitions from the end of `unassigned` to the assignment; returns the new one."""
    filled = dict(assignment)
    while lacking:
        topic_id, partitions = unassigned[-1]
        taken = partitions[-lacking:]
        if taken:
            del partitions[-lacking:]
            filled[topic_id] = filled.get(topic_id, frozenset()).union(taken)
            lacking -= len(taken)
        if not partitions:
            unassigned.pop()
    return filled


class _HeterogeneousAssignment:
    """The assignment of members with different subscriptions.

    Members with equal subscriptions share a heap or a sorted list: a group has many members and few different
    subscriptions.
    """

    def __init__(self, members: list[Subscriber], kept: dict[str, Assignment]) -> None:
        self._topics = {member.member_id: member.subscribed_topic_ids for member in members}
        # The partitions of each topic in ascending order.
        self._places = {
            member_id: {topic_id: sorted(partitions) for topic_id, partitions in assignment.items()}
            for member_id, assignment in kept.items()
        }
        self._sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in kept.items()}

    def assign(self, free: dict[UUID, set[int]]) -> dict[str, Assignment]:
        self._assign_free(free)
        self._balance()
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items() if partitions}
            for member_id, topics in self._places.items()
        }

    def _loads(self) -> dict[Subscription, list[MemberLoad]]:
        """The members by subscription, those with the fewest partitions first."""
        loads: dict[Subscription, list[MemberLoad]] = {}
        for load in sorted((size, member_id) for member_id, size in self._sizes.items()):
            loads.setdefault(self._topics[load[1]], []).append(load)
        return loads

    def _assign_free(self, free: dict[UUID, set[int]]) -> None:
        """Assign each partition to the subscriber of its topic with the fewest partitions."""
        heaps = self._loads()  # a sorted list is a heap
        given: dict[str, set[UUID]] = {}
        for topic_id, partitions in free.items():
            candidates = [heap for topics, heap in heaps.items() if topic_id in topics]
            if not candidates:
                continue
            for partition in sorted(partitions):
                heap = min(candidates)
                size, member_id = heap[0]
                self._places[member_id].setdefault(topic_id, []).append(partition)
                given.setdefault(member_id, set()).add(topic_id)
                heapreplace(heap, (size + 1, member_id))
        for heap in heaps.values():
            self._sizes.update((member_id, size) for size, member_id in heap)
        for member_id, topic_ids in given.items():
            for topic_id in topic_ids:
                self._places[member_id][topic_id].sort()

    def _balance(self) -> None:
        """Move partitions from the most to the least loaded members while that reduces the difference.

        Members with equal subscriptions end with a difference of at most one. Every move brings two counts closer, so
        the loop ends. If the least loaded member of a subscription can get nothing, the others with it cannot either,
        until a member with some of these topics has gained partitions.
        """
        loads = self._loads()
        waiting = set(loads)
        while waiting:
            topics = min(waiting, key=lambda each: loads[each][0])
            poor = loads[topics][0][1]
            donors = self._donate(poor, loads)
            if not donors:
                waiting.discard(topics)
                continue
            for member_id, old_size in donors.items():
                in_order = loads[self._topics[member_id]]
                del in_order[bisect_left(in_order, (old_size, member_id))]
                insort(in_order, (self._sizes[member_id], member_id))
            waiting.update(
                each
                for each, in_order in loads.items()
                if self._sizes[poor] - in_order[0][0] > 1 and not each.isdisjoint(self._places[poor])
            )

    def _donate(self, poor: str, loads: dict[Subscription, list[MemberLoad]]) -> dict[str, int]:
        """Give `poor` half of the surplus of each more loaded member; returns the old sizes of all that changed."""
        topics = self._topics[poor]
        changed: dict[str, int] = {}
        old_size = self._sizes[poor]
        related = [reversed(in_order) for each, in_order in loads.items() if not each.isdisjoint(topics)]
        for size, rich in merge(*related, reverse=True):
            surplus = size - self._sizes[poor]
            if surplus <= 1:
                break
            moved = self._move(rich, poor, topics, surplus // 2)
            if moved:
                changed[rich], changed[poor] = size, old_size
                self._sizes[rich] -= moved
                self._sizes[poor] += moved
        return changed

    def _move(self, rich: str, poor: str, topics: Subscription, count_max: int) -> int:
        """Move the last partitions of these topics; returns how many."""
        count = 0
        for topic_id in sorted(topics.intersection(self._places[rich]), key=lambda each: each.int, reverse=True):
            partitions = self._places[rich][topic_id]
            moved = partitions[-(count_max - count) :]
            del partitions[len(partitions) - len(moved) :]
            mine = self._places[poor].setdefault(topic_id, [])
            mine += moved
            mine.sort()
            count += len(moved)
            if count == count_max:
                break
        return count


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

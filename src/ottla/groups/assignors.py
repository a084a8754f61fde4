"""Server-side assignors of the consumer group protocol (KIP-848). Pure functions.

`uniform` balances the number of partitions among the members and moves as few partitions as possible. `range` assigns
consecutive partitions of each topic, which co-locates partitions with the same index of several topics.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heapreplace
from typing import NamedTuple
from uuid import UUID

from ottla.groups.consumer_group import Assignment, topic_id_sort_key

TopicIdPartition = tuple[UUID, int]


class Subscriber(NamedTuple):
    """The subscription of a member, as input of an assignor."""

    member_id: str
    instance_id: str | None
    subscribed_topic_ids: frozenset[UUID]
    current_assignment: Assignment  # its previous target assignment


Assignor = Callable[[list[Subscriber], dict[UUID, int]], dict[str, Assignment]]
"""Maps members and partition counts by topic to the target assignment of each member."""


def assign_range(subscribers: list[Subscriber], partition_counts: dict[UUID, int]) -> dict[str, Assignment]:
    places: dict[str, list[TopicIdPartition]] = {member.member_id: [] for member in subscribers}
    in_order = sorted(
        subscribers, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id)
    )
    for topic_id, count in partition_counts.items():
        readers = [member for member in in_order if topic_id in member.subscribed_topic_ids]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        first = 0
        for index, reader in enumerate(readers):
            end = first + share + (1 if index < extra else 0)
            places[reader.member_id] += [(topic_id, partition) for partition in range(first, end)]
            first = end
    return {member_id: to_assignment(each) for member_id, each in places.items()}


def assign_uniform(subscribers: list[Subscriber], partition_counts: dict[UUID, int]) -> dict[str, Assignment]:
    places: dict[str, set[TopicIdPartition]] = {member.member_id: set() for member in sorted(subscribers)}
    held = _keep_current_assignment(subscribers, partition_counts, places)
    free = [
        (topic_id, partition)
        for topic_id, count in sorted(partition_counts.items(), key=topic_id_sort_key)
        for partition in range(count)
        if (topic_id, partition) not in held
    ]
    _assign_heterogeneous(free, places, subscribers)
    _balance(places, {member.member_id: member.subscribed_topic_ids for member in subscribers})
    return {member_id: to_assignment(list(each)) for member_id, each in places.items()}


def _assign_heterogeneous(
    unassigned: list[TopicIdPartition], assigned: dict[str, set[TopicIdPartition]], members: list[Subscriber]
) -> None:
    """Assign each partition to the subscriber of its topic with the fewest partitions.

    Members with equal subscriptions share a heap: a group has many members and few different subscriptions.
    """
    heaps: dict[frozenset[UUID], list[tuple[int, str]]] = {}
    for member in members:
        heaps.setdefault(member.subscribed_topic_ids, []).append((len(assigned[member.member_id]), member.member_id))
    for heap in heaps.values():
        heapify(heap)
    topic_id = None
    candidates: list[list[tuple[int, str]]] = []
    for place in unassigned:
        if place[0] != topic_id:
            topic_id = place[0]
            candidates = [heap for topics, heap in heaps.items() if topic_id in topics]
        if candidates:
            heap = min(candidates)
            count, least = heap[0]
            assigned[least].add(place)
            heapreplace(heap, (count + 1, least))


def _keep_current_assignment(
    members: list[Subscriber], partition_counts: dict[UUID, int], assigned: dict[str, set[TopicIdPartition]]
) -> set[TopicIdPartition]:
    """Let each member keep the partitions of its previous target that it still subscribes to; returns these."""
    held: set[TopicIdPartition] = set()
    for member in sorted(members):
        for topic_id, partitions in member.current_assignment.items():
            if topic_id in member.subscribed_topic_ids:
                for partition in partitions:
                    place = (topic_id, partition)
                    if partition < partition_counts.get(topic_id, 0) and place not in held:
                        held.add(place)
                        assigned[member.member_id].add(place)
    return held


def _balance(assigned: dict[str, set[TopicIdPartition]], topics_by_member: dict[str, frozenset[UUID]]) -> None:
    """Move partitions from the most to the least loaded members while that reduces the difference.

    Members with equal subscriptions end with a difference of at most one. Every move brings two counts closer, so the
    loop ends. Each round visits the members in the order of their load.
    """
    moved = True
    while moved:
        moved = False
        by_load = sorted(assigned, key=lambda member_id: (len(assigned[member_id]), member_id))
        for poor in by_load:
            for rich in reversed(by_load):
                surplus = len(assigned[rich]) - len(assigned[poor])
                if surplus <= 1:
                    break
                if topics_by_member[poor].isdisjoint(topics_by_member[rich]):
                    continue
                movable = [place for place in assigned[rich] if place[0] in topics_by_member[poor]]
                movable = sorted(movable, key=_partition_sort_key)[-(surplus // 2) :]
                if movable:
                    assigned[rich] -= set(movable)
                    assigned[poor] |= set(movable)
                    moved = True
            if moved:
                break


def _partition_sort_key(place: TopicIdPartition) -> tuple[int, int]:
    return place[0].int, place[1]


def to_assignment(partitions: list[TopicIdPartition]) -> Assignment:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

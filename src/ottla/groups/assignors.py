"""Server-side assignors of the new protocol: who should read which partitions. Pure functions.

`uniform` gives everybody the same number of partitions, or one more, and moves as few as it can. `range` gives each
topic's partitions in consecutive runs, so that partitions of the same number of several topics meet at one member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.groups.consumer_group import Assignment

Place = tuple[UUID, int]


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    current: Assignment  # the target it had before


Assignor = Callable[[list[Subscriber], dict[UUID, int]], dict[str, Assignment]]
"""Members and the number of partitions of each topic -> what each member should have."""


def assign_range(members: list[Subscriber], partition_counts: dict[UUID, int]) -> dict[str, Assignment]:
    places: dict[str, list[Place]] = {member.member_id: [] for member in members}
    in_order = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
    for topic_id, count in partition_counts.items():
        readers = [member for member in in_order if topic_id in member.topics]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        first = 0
        for index, reader in enumerate(readers):
            end = first + share + (1 if index < extra else 0)
            places[reader.member_id] += [(topic_id, partition) for partition in range(first, end)]
            first = end
    return {member_id: as_assignment(each) for member_id, each in places.items()}


def assign_uniform(members: list[Subscriber], partition_counts: dict[UUID, int]) -> dict[str, Assignment]:
    readers_of = {
        topic_id: [member.member_id for member in members if topic_id in member.topics] for topic_id in partition_counts
    }
    places: dict[str, set[Place]] = {member.member_id: set() for member in sorted(members)}
    held = _keep_current(members, partition_counts, places)
    for topic_id, count in sorted(partition_counts.items()):
        for partition in range(count):
            if (topic_id, partition) not in held and readers_of[topic_id]:
                least = min(readers_of[topic_id], key=lambda member_id: (len(places[member_id]), member_id))
                places[least].add((topic_id, partition))
    _level(places, {member.member_id: member.topics for member in members})
    return {member_id: as_assignment(list(each)) for member_id, each in places.items()}


def _keep_current(
    members: list[Subscriber], partition_counts: dict[UUID, int], places: dict[str, set[Place]]
) -> set[Place]:
    """Everybody starts with what it had, as far as it still reads it."""
    held: set[Place] = set()
    for member in sorted(members):
        for topic_id, partitions in member.current.items():
            if topic_id in member.topics:
                for partition in partitions:
                    place = (topic_id, partition)
                    if partition < partition_counts.get(topic_id, 0) and place not in held:
                        held.add(place)
                        places[member.member_id].add(place)
    return held


def _level(places: dict[str, set[Place]], topics_of: dict[str, frozenset[UUID]]) -> None:
    """Move partitions from who has most to who has least, as long as that makes the difference smaller.

    Members of equal subscriptions end with a difference of one at most. Every move brings two counts closer, so this
    ends; each round looks at the members in the order of their load.
    """
    moved = True
    while moved:
        moved = False
        by_load = sorted(places, key=lambda member_id: (len(places[member_id]), member_id))
        for poor in by_load:
            for rich in reversed(by_load):
                surplus = len(places[rich]) - len(places[poor])
                if surplus <= 1:
                    break
                movable = sorted(place for place in places[rich] if place[0] in topics_of[poor])[-(surplus // 2) :]
                if movable:
                    places[rich] -= set(movable)
                    places[poor] |= set(movable)
                    moved = True
            if moved:
                break


def as_assignment(places: list[Place]) -> Assignment:
    topics: dict[UUID, set[int]] = {}
    for topic_id, partition in places:
        topics.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}

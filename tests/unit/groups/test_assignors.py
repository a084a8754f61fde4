"""The assignors: their answers, and their cost. A single heartbeat computes the assignment of all members."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from tests.call_count import calls_of

from ottla.groups.assignors import ASSIGNORS, Assignor, Subscriber, assign_uniform
from ottla.groups.consumer_group import Assignment

TOPICS = [UUID(int=number) for number in range(1, 401)]
COUNTS = dict.fromkeys(TOPICS, 1)


class Asked(frozenset[UUID]):
    """A set of topics that counts its lookups."""

    looks = 0

    def __contains__(self, topic_id: object) -> bool:
        Asked.looks += 1
        return super().__contains__(topic_id)


def test_members_with_regular_expressions_cost_no_lookup_per_partition() -> None:
    """Fifty members whose expressions match the same topics, or none, are two subscriptions, not fifty."""
    members = [Subscriber(f"m{number}", None, Asked(TOPICS if number % 2 else []), {}) for number in range(50)]
    Asked.looks = 0
    found = assign_uniform(members, COUNTS)
    assert Asked.looks <= 3 * len(TOPICS)
    assert {len(found[f"m{number}"]) for number in range(1, 50, 2)} == {16}
    assert not any(found[f"m{number}"] for number in range(0, 50, 2))


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_goes_to_the_member_with_the_fewest_of_those_that_subscribe_to_it(seed: int) -> None:
    source = random.Random(seed)
    subscriptions = [frozenset(source.sample(TOPICS, source.randint(0, 40))) for _ in range(4)]
    members = [Subscriber(f"m{number}", None, source.choice(subscriptions), {}) for number in range(12)]
    found = assign_uniform(members, COUNTS)
    given = [topic_id for assignment in found.values() for topic_id in assignment]
    assert sorted(given) == sorted(frozenset().union(*(each.subscribed_topic_ids for each in members)))
    for each in members:
        assert found[each.member_id].keys() <= each.subscribed_topic_ids
        for other in members:
            if other.subscribed_topic_ids == each.subscribed_topic_ids:
                assert abs(len(found[each.member_id]) - len(found[other.member_id])) <= 1


def joined(names: str, held: dict[str, Assignment], topics: frozenset[UUID]) -> list[Subscriber]:
    return [Subscriber(name, None, topics, held.get(name, {})) for name in names]


def partitions(found: dict[str, Assignment]) -> dict[str, list[tuple[int, int]]]:
    return {
        member_id: sorted((topic_id.int, partition) for topic_id, numbers in topics.items() for partition in numbers)
        for member_id, topics in found.items()
    }


def test_uniform_gives_consecutive_partitions_as_kafka_does() -> None:
    topics = frozenset(TOPICS[:2])
    first = assign_uniform(joined("ab", {}, topics), {TOPICS[0]: 4})
    assert partitions(first) == {"a": [(1, 0), (1, 1)], "b": [(1, 2), (1, 3)]}
    with_a_third = assign_uniform(joined("abc", first, topics), {TOPICS[0]: 4, TOPICS[1]: 3})
    assert partitions(with_a_third) == {
        "a": [(1, 0), (1, 1), (2, 0)],
        "b": [(1, 2), (1, 3)],
        "c": [(2, 1), (2, 2)],
    }
    without_a = assign_uniform(joined("bc", with_a_third, topics), {TOPICS[0]: 4, TOPICS[1]: 3})
    assert partitions(without_a) == {
        "b": [(1, 0), (1, 1), (1, 2), (1, 3)],
        "c": [(2, 0), (2, 1), (2, 2)],
    }


@pytest.mark.parametrize("seed", range(50))
def test_uniform_moves_only_what_exceeds_the_share_of_a_member(seed: int) -> None:
    source = random.Random(seed)
    topics = frozenset(TOPICS[:5])
    counts = {topic_id: source.randint(0, 12) for topic_id in topics}
    held: dict[str, Assignment] = {}
    for round_number in range(6):
        names = "".join(source.sample("abcdefghij", source.randint(1, 10)))
        counts = {topic_id: count + source.choice([0, 0, 3]) for topic_id, count in counts.items()}
        found = assign_uniform(joined(names, held, topics), counts)
        share, extra = divmod(sum(counts.values()), len(names))
        everything = sorted((topic_id.int, number) for topic_id, count in counts.items() for number in range(count))
        assert sorted(place for mine in partitions(found).values() for place in mine) == everything
        assert sorted(map(len, partitions(found).values()), reverse=True) == [
            share + (index < extra) for index in range(len(names))
        ], round_number
        before = {name: set(partitions(held).get(name, [])) for name in names}
        kept = sum(len(before[name].intersection(mine)) for name, mine in partitions(found).items())
        in_order = sorted(map(len, before.values()), reverse=True)
        assert kept == sum(min(size, share + (index < extra)) for index, size in enumerate(in_order))
        held = found


def plainly_balanced(members: list[Subscriber], places: dict[str, set[tuple[int, int]]]) -> None:
    """The rule of `uniform` for members with different subscriptions, as a search through all pairs of members."""
    topics = {member.member_id: {topic_id.int for topic_id in member.subscribed_topic_ids} for member in members}
    moved = True
    while moved:
        moved = False
        by_load = sorted(places, key=lambda name: (len(places[name]), name))
        for poor in by_load:
            for rich in reversed(by_load):
                surplus = len(places[rich]) - len(places[poor])
                if surplus > 1:
                    given = set(sorted(place for place in places[rich] if place[0] in topics[poor])[-(surplus // 2) :])
                    places[rich] -= given
                    places[poor] |= given
                    moved = moved or bool(given)
            if moved:
                break


@pytest.mark.parametrize("seed", range(100))
def test_members_with_different_subscriptions_are_balanced_pair_by_pair(seed: int) -> None:
    source = random.Random(seed)
    topics = TOPICS[:6]
    counts = {topic_id: source.randint(0, 9) for topic_id in topics}
    subscriptions = [frozenset(source.sample(topics, source.randint(1, 6))) for _ in range(source.randint(2, 5))]
    members = [Subscriber(f"m{number}", None, source.choice(subscriptions), {}) for number in range(9)]
    owners = {
        topic_id: [member.member_id for member in members if topic_id in member.subscribed_topic_ids]
        for topic_id in topics
    }
    held: dict[str, set[tuple[int, int]]] = {member.member_id: set() for member in members}
    for topic_id, count in counts.items():
        for number in range(count):
            if owners[topic_id]:
                held[source.choice(owners[topic_id][:2])].add((topic_id.int, number))
    members = [
        member._replace(
            current_assignment={
                topic_id: frozenset(number for topic, number in held[member.member_id] if topic == topic_id.int)
                for topic_id in topics
            }
        )
        for member in members
    ]
    if len({member.subscribed_topic_ids for member in members}) > 1:
        plainly_balanced(members, held)
        assert partitions(assign_uniform(members, counts)) == {name: sorted(mine) for name, mine in held.items()}


@pytest.mark.parametrize("assignor", ASSIGNORS.values())
def test_cost_is_linear_in_members_and_partitions(assignor: Assignor) -> None:
    topics = frozenset(TOPICS[:10])
    counts = dict.fromkeys(topics, 200)
    few = [Subscriber(f"m{number}", None, topics, {}) for number in range(100)]
    held = assignor(few, counts)
    all_members = [each._replace(current_assignment=held[each.member_id]) for each in few]
    all_members += [Subscriber(f"n{number}", None, topics, {}) for number in range(100)]
    assert calls_of(lambda: assignor(all_members, counts)) < 15 * (len(all_members) + 2000)
    mixed = [each._replace(subscribed_topic_ids=topics - {TOPICS[index % 2]}) for index, each in enumerate(all_members)]
    assert calls_of(lambda: assignor(mixed, counts)) < 30 * (len(mixed) + 2000)

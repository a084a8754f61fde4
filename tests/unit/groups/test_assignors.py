"""The cost of the `uniform` assignor: a single heartbeat computes the assignment of all members, in one callback."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from ottla.groups.assignors import Subscriber, assign_uniform

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

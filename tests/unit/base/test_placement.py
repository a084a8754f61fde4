"""Where replicas go."""

from collections import Counter

import pytest

from ottla.base.errors import Error, KafkaError
from ottla.base.placement.new_partitions import alternate_racks, check_manual_replicas, place_replicas


def test_one_broker_has_everything_and_rows_are_shared() -> None:
    rows = place_replicas([1], 3, 1, start=17, shift=5)
    assert rows == [(1,), (1,), (1,)]
    assert rows[0] is rows[1] is rows[2]


def test_leaders_go_round_from_the_start() -> None:
    assert [row[0] for row in place_replicas([3, 1, 2], 6, 1, start=1, shift=0)] == [2, 3, 1, 2, 3, 1]


def test_followers_are_shifted_in_every_round() -> None:
    rows = place_replicas([0, 1, 2, 3, 4], 10, 3, start=0, shift=0)
    assert rows[:5] == [(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)]
    assert rows[5:] == [(0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2)]


@pytest.mark.parametrize("brokers", [1, 2, 3, 5, 7])
def test_replicas_differ_and_are_spread_evenly(brokers: int) -> None:
    for factor in range(1, brokers + 1):
        rows = place_replicas(range(brokers), 6 * brokers, factor, start=3, shift=2)
        assert all(len(set(row)) == factor for row in rows)
        assert set(Counter(row[0] for row in rows).values()) == {6}
        assert set(Counter(broker for row in rows for broker in row).values()) == {6 * factor}


def test_added_partitions_continue_the_round() -> None:
    all_rows = place_replicas([1, 2, 3], 9, 2, start=1, shift=1)
    assert place_replicas([1, 2, 3], 5, 2, start=1, shift=1, first_partition=4) == all_rows[4:]


def test_too_few_brokers_are_refused_in_kafkas_words() -> None:
    with pytest.raises(KafkaError) as caught:
        place_replicas([1], 1, 2, start=0, shift=0)
    assert caught.value.error is Error.INVALID_REPLICATION_FACTOR
    assert caught.value.message == (
        "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered "
        "or some brokers have all their log directories cordoned."
    )


@pytest.mark.parametrize(
    ("replicas", "factor", "rest"),
    [
        ((), None, "an empty replica list."),
        ((9, 1, 7), None, "broker 7, but no such broker is registered."),
        ((2, 1, 2), None, "the broker 2 more than once."),
        (
            (1,),
            2,
            (
                "a partition with 1 replica(s), but this is not consistent with previous partitions, "
                "which have 2 replica(s)."
            ),
        ),
    ],
)
def test_bad_assignments_by_hand(replicas: tuple[int, ...], factor: int | None, rest: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_manual_replicas({1, 2}, replicas, factor)
    assert caught.value.error is Error.INVALID_REPLICA_ASSIGNMENT
    assert caught.value.message == f"The manual partition assignment includes {rest}"


def test_a_good_assignment_by_hand() -> None:
    check_manual_replicas({1, 2}, (2, 1), 2)


# ---- racks

RACKS = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "c"}


def test_racks_alternate() -> None:
    assert alternate_racks([5, 4, 3, 2, 1, 0], {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}) == [0, 3, 5, 1, 4, 2]


def test_every_replica_is_in_a_rack_of_its_own() -> None:
    rows = place_replicas(range(6), 36, 3, start=2, shift=1, racks=RACKS)
    assert all({RACKS[broker] for broker in row} == {"a", "b", "c"} for row in rows)
    assert set(Counter(row[0] for row in rows).values()) == {6}
    assert set(Counter(broker for row in rows for broker in row).values()) == {18}


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 5, 6])
def test_as_many_racks_as_can_be_are_used(factor: int) -> None:
    uneven = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for row in place_replicas(range(6), 30, factor, start=0, shift=0, racks=uneven):
        assert len(set(row)) == factor
        assert len({uneven[broker] for broker in row}) == min(factor, 3)


def test_kafkas_own_example_of_rows_over_racks() -> None:
    """Six brokers in three racks, as the comment of Kafka's AdminUtils lists them."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternate_racks(range(6), racks) == [0, 3, 1, 5, 4, 2]
    rows = place_replicas(range(6), 7, 3, start=0, shift=0, racks=racks)
    assert rows == [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2)]


def test_racks_count_only_if_all_brokers_have_one() -> None:
    plain = place_replicas(range(6), 12, 3, start=1, shift=2)
    assert place_replicas(range(6), 12, 3, start=1, shift=2, racks={**RACKS, 3: None}) == plain
    assert place_replicas(range(6), 12, 3, start=1, shift=2, racks={}) == plain

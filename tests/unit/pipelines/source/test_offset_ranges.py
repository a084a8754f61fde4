"""Limits per trigger and ranges for tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.names import TopicPartition
from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.offset_ranges import interleave_partitions, limit_offsets, split_ranges

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def ranges(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", number, 10, 10 + size) for number, size in enumerate(sizes)]


def test_a_limit_is_shared_in_proportion() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 900, B: 100}, 100) == {A: 90, B: 10}


def test_a_small_partition_is_not_starved() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 10_000, B: 1}, 100) == {A: 99, B: 1}


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    assert limit_offsets({A: 5, B: 5}, {A: 9, B: 5}, 100) == {A: 9, B: 5}
    assert limit_offsets({A: 5, B: 5}, {A: 5, B: 5}, 100) == {A: 5, B: 5}


@given(SIZES, st.integers(1, 500))
def test_limited_batches_always_come_to_the_end(sizes: list[int], limit: int) -> None:
    at = {TopicPartition("t", number): 0 for number in range(len(sizes))}
    end = {TopicPartition("t", number): size for number, size in enumerate(sizes)}
    for _ in range(sum(sizes) + 1):
        before, at = at, limit_offsets(at, end, limit)
        assert sum(at.values()) - sum(before.values()) <= limit + len(sizes)
        if at == end:
            return
        assert at != before
    raise AssertionError("it never ends")


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_split_ranges_hold_every_offset_once(sizes: list[int], least: int | None, most: int | None) -> None:
    found = split_ranges(ranges(sizes), least, most)
    offsets = [(each.partition, offset) for each in found for offset in range(each.start, each.end)]
    assert offsets == [(number, 10 + offset) for number, size in enumerate(sizes) for offset in range(size)]
    assert all(each.size > 0 for each in found)
    if most is not None:
        assert all(each.size <= most for each in found)


def test_enough_ranges_for_the_wanted_number_of_tasks() -> None:
    assert [each.size for each in split_ranges(ranges([100]), 4, None)] == [25, 25, 25, 25]
    assert len(split_ranges(ranges([300, 100]), 4, None)) == 4
    assert len(split_ranges(ranges([1, 1, 1]), 2, None)) == 3


def test_tasks_look_into_every_partition_before_they_go_on_in_the_first() -> None:
    found = interleave_partitions(split_ranges(ranges([30, 10, 20]), None, 10))
    assert [(each.partition, each.start) for each in found] == [(0, 10), (1, 10), (2, 10), (0, 20), (2, 20), (0, 30)]


def test_the_first_look_into_a_partition_is_short_where_there_is_much_in_it() -> None:
    found = interleave_partitions(split_ranges(ranges([30, 10, 20]), None, 10), first=2)
    looks = [(each.partition, each.start, each.end) for each in found]
    assert looks == [
        (0, 10, 12),
        (1, 10, 20),
        (2, 10, 12),
        (0, 12, 20),
        (2, 12, 20),
        (0, 20, 30),
        (2, 20, 30),
        (0, 30, 40),
    ]

"""Which records are taken as samples."""

from __future__ import annotations

from ottla.base.names import TopicPartition
from ottla.pipelines.source.sampling import sample_ranges


def ranges(bounds: dict[int, tuple[int, int]], count: int) -> list[tuple[int, int, int]]:
    first = {TopicPartition("t", number): start for number, (start, _) in bounds.items()}
    after = {TopicPartition("t", number): end for number, (_, end) in bounds.items()}
    return [(each.partition, each.start, each.end) for each in sample_ranges(first, after, count)]


def test_a_small_topic_is_read_whole() -> None:
    assert ranges({0: (5, 9), 1: (0, 0)}, 100) == [(0, 5, 9)]


def test_a_large_one_from_both_ends() -> None:
    assert ranges({0: (10, 1000)}, 7) == [(0, 10, 14), (0, 997, 1000)]


def test_partitions_share_and_none_is_left_out() -> None:
    assert ranges({0: (0, 100), 1: (0, 100), 2: (0, 100)}, 2) == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]

"""Which offsets a query reads next, as pure functions: limits per trigger, shares, and ranges for tasks.

The arithmetic is that of Spark's kafka source, so both split the same data into the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from ottla.base.names import TopicPartition
from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.options import Offsets

FIRST_RANGE_RECORDS = 1000  # records


def limit_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], offsets_max: int) -> Offsets:
    """An end that covers at most about `offsets_max` offsets, from each partition in proportion to its backlog."""
    sizes = {partition: end[partition] - start[partition] for partition in end if end[partition] > start[partition]}
    total = sum(sizes.values())
    if total == 0:
        return dict(end)
    limited = dict(end)
    for partition, size in sizes.items():
        share = offsets_max * (size / total)
        # at least one offset, so that a small partition never starves
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end[partition], start[partition] + offsets)
    return limited


def count_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """The number of offsets between start and end."""
    return sum(max(0, offset - start.get(partition, offset)) for partition, offset in end.items())


def split_ranges(
    ranges: Iterable[OffsetRange], partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Ranges for tasks: no empty ones; large ones are split until there are enough and none is too large."""
    found = [item for item in ranges if item.size > 0]
    if records_max is not None:
        found = [part for item in found for part in _split_range(item, -(-item.size // records_max))]
    if partitions_min is None or len(found) >= partitions_min:
        return found
    total = sum(item.size for item in found)
    return [part for item in found for part in _split_range(item, _range_count(item.size, total, partitions_min))]


def interleave_partitions(ranges: Iterable[OffsetRange], first: int = FIRST_RANGE_RECORDS) -> list[OffsetRange]:
    """Interleave the ranges of the partitions: first of each, then second of each. A reader that stops early has seen
    every partition. A partition with several ranges starts with a short one."""
    of_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for item in ranges:
        of_partition.setdefault(TopicPartition(item.topic, item.partition), []).append(item)
    for found in of_partition.values():
        if len(found) > 1 and found[0].size > first:
            look = found[0].start + first
            found[:1] = [found[0]._replace(end=look), found[0]._replace(start=look)]
    return [item for turn in zip_longest(*of_partition.values()) for item in turn if item is not None]


def _range_count(count: int, total: int, partitions_min: int) -> int:
    return max(1, math.floor(count / total * partitions_min + 0.5))


def _split_range(item: OffsetRange, parts: int) -> list[OffsetRange]:
    """Nearly equal ranges, at most one per offset."""
    found = []
    start = item.start
    for left in range(min(parts, item.size), 0, -1):
        end = start + (item.end - start) // left
        found.append(item._replace(start=start, end=end))
        start = end
    return found

"""Which offsets a query reads next, decided without asking anybody: limits per trigger, shares, ranges for tasks.

The numbers are those of Spark's kafka source, so that both cut the same data into the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest

from ottla.base.names import TopicPartition
from ottla.operations.fetching import Range
from ottla.pipelines.source.bounds import Offsets

FIRST_LOOK = 1000  # records


def limit_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], offsets_max: int) -> Offsets:
    """An end that takes at most about `offsets_max` offsets, from each partition in proportion to what it has."""
    sizes = {partition: end[partition] - start[partition] for partition in end if end[partition] > start[partition]}
    total = sum(sizes.values())
    if total == 0:
        return dict(end)
    limited = dict(end)
    for partition, size in sizes.items():
        share = offsets_max * (size / total)
        # a small partition is never starved: it gets at least one offset
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end[partition], start[partition] + offsets)
    return limited


def available(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between the two."""
    return sum(max(0, offset - start.get(partition, offset)) for partition, offset in end.items())


def split(ranges: Iterable[Range], partitions_min: int | None, records_max: int | None) -> list[Range]:
    """Ranges for tasks: none is empty, large ones are cut until there are enough and none is too large."""
    found = [item for item in ranges if item.size > 0]
    if records_max is not None:
        found = [part for item in found for part in _cut(item, -(-item.size // records_max))]
    if partitions_min is None or len(found) >= partitions_min:
        return found
    total = sum(item.size for item in found)
    return [part for item in found for part in _cut(item, _share(item.size, total, partitions_min))]


def in_turn(ranges: Iterable[Range], first: int = FIRST_LOOK) -> list[Range]:
    """The first of each partition, then the second of each: whoever stops when there is enough has looked into all of
    them, and need not read whole partitions before the one that has it. A partition of several ranges is looked into
    with a few records before."""
    of_partition: dict[TopicPartition, list[Range]] = {}
    for item in ranges:
        of_partition.setdefault(TopicPartition(item.topic, item.partition), []).append(item)
    for found in of_partition.values():
        if len(found) > 1 and found[0].size > first:
            look = found[0].start + first
            found[:1] = [found[0]._replace(end=look), found[0]._replace(start=look)]
    return [item for turn in zip_longest(*of_partition.values()) for item in turn if item is not None]


def _share(count: int, total: int, partitions_min: int) -> int:
    return max(1, math.floor(count / total * partitions_min + 0.5))


def _cut(item: Range, parts: int) -> list[Range]:
    """Nearly equal parts; never more of them than there are offsets."""
    found = []
    start = item.start
    for left in range(min(parts, item.size), 0, -1):
        end = start + (item.end - start) // left
        found.append(item._replace(start=start, end=end))
        start = end
    return found

"""Some records of a topic, without Spark: the first and the last of each partition, for they may differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.base.names import TopicPartition
from ottla.operations.fetching import Range
from ottla.pipelines.source.bounds import Offsets
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.losses import SourceError
from ottla.pipelines.source.options import Options
from ottla.pipelines.source.reading import read_range

PARTITIONS_MAX = 50  # that are looked into


def sample_values(options: Options, count: int) -> list[bytes | None]:
    """About so many values, or all that there are. Raises SourceError, ClientError."""
    cluster = open_cluster(options)
    try:
        partitions = cluster.partitions(options.subscription)[:PARTITIONS_MAX]
        if not partitions:
            raise SourceError("there is no such topic")
        ranges = list(sample_ranges(cluster.earliest(partitions), cluster.latest(partitions), count))
    finally:
        cluster.close()
    return [
        value
        for wanted in ranges
        for batch in read_range(wanted, options)
        for value in batch.column("value").to_pylist()
    ]


def sample_ranges(first: Offsets, after: Mapping[TopicPartition, int], count: int) -> Iterator[Range]:
    """From each partition that has any, a half from its beginning and a half from its end."""
    filled = [place for place in sorted(first) if after[place] > first[place]]
    for place in filled:
        share = max(1, count // len(filled))
        start, end = first[place], after[place]
        if end - start <= share:
            yield Range(place.topic, place.partition, start, end)
            continue
        early = (share + 1) // 2
        yield Range(place.topic, place.partition, start, start + early)
        if share > early:
            yield Range(place.topic, place.partition, end - (share - early), end)

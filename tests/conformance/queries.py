"""Reads a topic as the source of pipelines does, without Spark around it: our own wire client logs in there, too."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.operations.range_fetcher import OffsetRange
from ottla.pipelines.source.cluster import open_cluster
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.range_reader import read_range


def queried_values(address: str, topic: str, login: Mapping[str, str]) -> list[bytes | None]:
    """All values of a topic of one partition."""
    named = {f"kafka.{name}": value for name, value in login.items()}
    options = read_options({"kafka.bootstrap.servers": address, "subscribe": topic, **named}, is_stream=False)
    cluster = open_cluster(options)
    try:
        (partition,) = cluster.partitions(options.subscription)
        end = cluster.end_offsets([partition])[partition]
    finally:
        cluster.close()
    batches = read_range(OffsetRange(topic, 0, 0, end), options)
    return [value for batch in batches for value in batch.column("value").to_pylist()]

"""A cluster as its brokers describe it: plain values, for rules and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

NOBODY = -1  # as a leader or controller


class PartitionFacts(NamedTuple):
    """One partition and its replicas."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ClusterFacts(NamedTuple):
    """What Metadata told, all topics included."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, str]  # those that are there, with their addresses
    topic_ids: Mapping[str, UUID]
    partitions: tuple[PartitionFacts, ...]


class FolderFacts(NamedTuple):
    """A log folder of a broker; sizes are those of its disk, -1 where an old broker does not tell."""

    broker: int
    path: str
    is_failed: bool
    total_bytes: int
    usable_bytes: int

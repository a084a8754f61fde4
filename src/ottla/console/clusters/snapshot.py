"""What is known of a cluster at a moment: immutable, and each part carries the time at which it was read.

Whoever answers a page takes the snapshot that there is; a part that could not be read stays as it was, with its age and
the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.client.admin import Topic
from ottla.client.groups import Member
from ottla.operations.lag import PartitionLag

NEVER = 0
Offsets = Mapping[TopicPartition, int]


class Part(StrEnum):
    """What is read in one go, with a rhythm of its own."""

    METADATA = "metadata"  # brokers, topics, partitions, leaders
    ENDS = "ends"
    STARTS = "starts"
    GROUPS = "groups"  # groups, their states and members
    COMMITS = "commits"
    SIZES = "sizes"  # folders and what lies in them


class PartState(NamedTuple):
    """How fresh a part is: `read_ms` is wall time (0: never), `problem` why the last try failed."""

    version: int = 0
    read_ms: int = NEVER
    problem: str | None = None


class Broker(NamedTuple):
    """A live broker, as the metadata name it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class Folder(NamedTuple):
    """A log folder of a broker; the room of its disk is -1 where the broker does not tell."""

    path: str
    problem: str | None
    replicas: int
    size_bytes: int
    total_bytes: int
    usable_bytes: int


class Group(NamedTuple):
    """A group; members are those of consumer groups that are described, none of an empty one."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    assignor: str = ""
    coordinator: int | None = None
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster as it was seen last."""

    version: int = 0
    states: Mapping[Part, PartState] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)  # records a second, written
    groups: Mapping[str, Group] = field(default_factory=dict)
    commits: Mapping[str, Offsets] = field(default_factory=dict)
    consume_rates: Mapping[str, float] = field(default_factory=dict)  # records a second, by group
    sizes: Offsets = field(default_factory=dict)  # of the leader's replica, else of any
    broker_bytes: Mapping[int, int] = field(default_factory=dict)
    folders: Mapping[int, tuple[Folder, ...]] = field(default_factory=dict)

    def state(self, part: Part) -> PartState:
        return self.states.get(part, PartState())

    def __repr__(self) -> str:
        return f"<Snapshot {self.version}: {len(self.brokers)} brokers, {len(self.topics)} topics>"


def lag(end: int | None, committed: int | None) -> int | None:
    """As Kafka's tools print it; but ends and commits are read at different moments, so never below zero."""
    offsets = PartitionLag(committed, end).offsets
    return None if offsets is None else max(0, offsets)

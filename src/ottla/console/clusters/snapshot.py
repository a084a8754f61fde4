"""An immutable snapshot of a cluster; each part has the time at which it was read.

Handlers answer from the current snapshot. A part that could not be read keeps its last data, with its age and the
reason.
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
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
Offsets = Mapping[TopicPartition, int]


class Part(StrEnum):
    """A part of the snapshot that is read together, with its own period."""

    METADATA = "metadata"  # brokers, topics, partitions, leaders
    ENDS = "ends"
    STARTS = "starts"
    GROUPS = "groups"  # groups, their states and members
    COMMITS = "commits"
    SIZES = "sizes"  # log directories and replica sizes


class PartState(NamedTuple):
    """The freshness of a part: `read_ms` is wall time (0: never), `problem` is why the last reading failed."""

    version: int = 0
    read_ms: int = NEVER
    problem: str | None = None


class Broker(NamedTuple):
    """A live broker of the metadata."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class LogDir(NamedTuple):
    """A log directory of a broker; total and usable bytes are -1 if the broker does not report them."""

    path: str
    problem: str | None
    replicas: int
    size_bytes: int
    total_bytes: int
    usable_bytes: int


class Group(NamedTuple):
    """A group; only described consumer groups have members."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    assignor: str = ""
    coordinator: int | None = None
    members: tuple[Member, ...] = ()

    @property
    def is_described(self) -> bool:
        """Whether its members are known; those of Connect, Kafka Streams and share groups are not."""
        return self.coordinator is not None or self.state in WITHOUT_MEMBERS


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The last known state of a cluster."""

    version: int = 0
    states: Mapping[Part, PartState] = field(default_factory=dict)
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)  # records per second, produced
    groups: Mapping[str, Group] = field(default_factory=dict)
    commits: Mapping[str, Offsets] = field(default_factory=dict)
    consume_rates: Mapping[str, float] = field(default_factory=dict)  # records per second, by group
    sizes: Offsets = field(default_factory=dict)  # of the leader's replica, else of any replica
    broker_bytes: Mapping[int, int] = field(default_factory=dict)
    folders: Mapping[int, tuple[LogDir, ...]] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """Whether the last readings of metadata and end offsets succeeded; otherwise the snapshot is old."""
        metadata, ends = self.state(Part.METADATA), self.state(Part.ENDS)
        return ends.read_ms != NEVER and not metadata.problem and not ends.problem

    def state(self, part: Part) -> PartState:
        return self.states.get(part, PartState())

    def total_lag(self, commits: Offsets) -> int | None:
        """The lag of all these partitions; None if it is known of none."""
        ends = self.ends
        lags = [max(0, ends[place] - offset) for place, offset in commits.items() if place in ends]
        return sum(lags) if lags else None

    def __repr__(self) -> str:
        return f"<Snapshot {self.version}: {len(self.brokers)} brokers, {len(self.topics)} topics>"


def lag(end: int | None, committed: int | None) -> int | None:
    """Lag as Kafka's tools compute it, but never negative: ends and commits are read at different times."""
    offsets = PartitionLag(committed, end).offsets
    return None if offsets is None else max(0, offsets)

"""The cluster as a graph: its brokers in their racks, and who copies how many partitions from whom."""

from __future__ import annotations

from collections import Counter

import msgspec

from ottla.console.api.brokers import BrokerRow, broker_rows
from ottla.console.api.call import Call
from ottla.console.clusters.snapshot import Snapshot


class Link(msgspec.Struct, frozen=True):
    """Partitions that `follower` copies from `leader`; `behind` of them are not in sync."""

    leader: int
    follower: int
    partitions: int
    behind: int


class TopologyAnswer(msgspec.Struct, frozen=True):
    brokers: list[BrokerRow]
    links: list[Link]


def show(call: Call) -> TopologyAnswer:
    return TopologyAnswer(broker_rows(call.snapshot), links(call.snapshot))


def links(snapshot: Snapshot) -> list[Link]:
    """Of leaders that live, the most used first; a partition without a leader is copied by nobody."""
    copied: Counter[tuple[int, int]] = Counter()
    behind: Counter[tuple[int, int]] = Counter()
    for topic in snapshot.topics.values():
        for partition in topic.partitions:
            leader = partition.leader
            if leader not in snapshot.brokers:
                continue
            for follower in partition.replicas:
                if follower != leader:
                    copied[leader, follower] += 1
                    behind[leader, follower] += follower not in partition.isr
    return [Link(*pair, count, behind[pair]) for pair, count in copied.most_common()]

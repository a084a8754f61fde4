"""What must hold at the end of a run, when all faults are repaired and no client sends requests any more.

What concerns single records, transactions and offsets is watched all the time: see ledger.py.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from tests.simulation.brokers.cluster import BrokerHost, Cluster
from tests.simulation.brokers.ledger import Place

from ottla.network.connection import Connection

if TYPE_CHECKING:
    from ottla.broker.main import BrokerComponents

TASKS_MORE_MAX = 3  # of a kind, beyond what the broker had when it was idle at first


class Invariant(Protocol):
    """One promise."""

    def broken(self, cluster: Cluster) -> str | None:
        """What is wrong, if anything is."""


class NoTaskDied:
    """No task ended with an exception that was never retrieved, in any life of any broker."""

    def broken(self, cluster: Cluster) -> str | None:
        deaths = list(cluster.deaths)
        for host in cluster.hosts:
            if host.loop is not None:
                deaths += [f"{host.loop.name}: {death}" for death in host.loop.deaths()]
        deaths += [f"{cluster.clients.name}: {death}" for death in cluster.clients.deaths()]
        deaths += cluster.world.problems
        return f"died in silence: {deaths}" if deaths else None


class NoUnexpectedError:
    """No broker logged an exception that the code does not expect."""

    def broken(self, cluster: Cluster) -> str | None:
        return f"unexpected errors: {cluster.errors}" if cluster.errors else None


class NoRequestWaits:
    """No request is parked any more, and nothing waits for a partition, but for the brokers among themselves."""

    def broken(self, cluster: Cluster) -> str | None:
        for host in cluster.hosts:
            waiting = waiting_at(host)
            if waiting:
                return f"at {host.name} {waiting}"
        return None


class NoTasksAreLeft:
    """A broker has as many tasks as it had when it was idle at first."""

    def __init__(self, cluster: Cluster) -> None:
        self._before: Counter[str] = Counter()
        for host in cluster.hosts:
            self._before |= tasks_of(host)

    def broken(self, cluster: Cluster) -> str | None:
        for host in cluster.hosts:
            more = {
                name: count
                for name, count in tasks_of(host).items()
                if count > self._before.get(name, 0) + TASKS_MORE_MAX
            }
            if more:
                return f"tasks are left at {host.name}: {more}"
        return None


class ReplicasAreEqual:
    """All replicas of a partition hold the same, once all are in sync."""

    def broken(self, cluster: Cluster) -> str | None:
        for host in cluster.hosts:
            if host.assembly is None:
                return f"{host.name} does not serve"
        for name, each in ends_of_replicas(cluster).items():
            if len(set(each.values())) > 1:
                return f"the replicas of {name} differ in length: {each}"
        return None


def ends_of_replicas(cluster: Cluster) -> dict[Place, dict[str, int]]:
    """Partition -> broker -> end of its log, of brokers that serve."""
    ends: dict[Place, dict[str, int]] = {}
    for host in cluster.hosts:
        if host.assembly is not None:
            for name, partition in host.assembly.services.replicas.partitions.items():
                ends.setdefault((name[0], name[1]), {})[host.name] = partition.log.end_offset
    return ends


def waiting_at(host: BrokerHost) -> str | None:
    assembly: BrokerComponents | None = host.assembly
    if assembly is None or host.loop is None:
        return "it does not serve"
    for watched in host.loop.poller.watched():
        if isinstance(watched, Connection) and watched.pending and not watched.client.host.startswith("b"):
            return f"{len(watched.pending)} replies are pending for {watched.client.host}"
    for name, partition in assembly.services.replicas.partitions.items():
        for kind in ("_fetch_waiters", "_produce_waiters", "_delete_records_waiters", "_flush_waiters"):
            found = getattr(partition, kind)
            if found:
                return f"{len(found)} of {kind} wait for {name}: {list(found)[:3]}"
    return None


def tasks_of(host: BrokerHost) -> Counter[str]:
    if host.loop is None:
        return Counter()
    return Counter(re.sub(r"[0-9]+", "N", task.get_name()) for task in host.loop.tasks.values())

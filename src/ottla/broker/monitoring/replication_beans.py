"""Beans about copies between brokers: changes of in-sync replicas, fetchers and how far behind they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.node import Node
from ottla.metrics.beans import Bean, Source, gauge, meter_attributes, named
from ottla.metrics.meters import Meter
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.cluster.clustering import Clustering
    from ottla.broker.replicas.replica_fetchers import ReplicaFetchers

SERVER: Final = "kafka.server"
CLIENT_ID: Final = "Replica"
BEANS_PER_PAUSE: Final = 50


class ReplicationBeans:
    """Looks at the fetchers and at what was asked of the controller. A broker that is alone has neither."""

    def __init__(self, node: Node, replicas: ReplicaSet, clustering: Clustering | None) -> None:
        self._node = node
        self._replicas = replicas
        self._clustering = clustering
        now_s = time.monotonic()
        self._meters = {
            "FailedIsrUpdatesPerSec": (Meter(now_s), "failedUpdates"),
            "IsrExpandsPerSec": (Meter(now_s), "expands"),
            "IsrShrinksPerSec": (Meter(now_s), "shrinks"),
        }
        self._bytes = {"ReplicationBytesInPerSec": Meter(now_s), "ReplicationBytesOutPerSec": Meter(now_s)}

    @property
    def sources(self) -> list[Source]:
        return [
            Source(SERVER, "BrokerTopicMetrics", self._copied_bytes),
            Source(SERVER, "FetcherLagMetrics", self._lags, is_large=True),
            Source(SERVER, "ReplicaFetcherManager", self._fetchers),
            Source(SERVER, "ReplicaManager", self._isr_changes),
        ]

    @property
    def _replica_fetchers(self) -> ReplicaFetchers | None:
        return self._clustering.replica_fetchers if self._clustering is not None else None

    def tick(self, elapsed_s: float) -> None:
        for name, (meter, _) in self._meters.items():
            meter.tick(self._isr_count(name), elapsed_s)
        for name, meter in self._bytes.items():
            meter.tick(self._byte_count(name), elapsed_s)

    def _isr_count(self, name: str) -> int:
        changes = self._clustering.isr_changes if self._clustering is not None else None
        if changes is None:
            return 0
        counts = {
            "FailedIsrUpdatesPerSec": changes.failures,
            "IsrExpandsPerSec": changes.expands,
            "IsrShrinksPerSec": changes.shrinks,
        }
        return counts[name]

    def _byte_count(self, name: str) -> int:
        total = self._replicas.traffic.total()
        return total.replication_bytes_in if name == "ReplicationBytesInPerSec" else total.replication_bytes_out

    def _isr_changes(self) -> Iterator[Bean | None]:
        for name, (meter, unit) in self._meters.items():
            attributes = meter_attributes(meter, self._isr_count(name), time.monotonic(), unit)
            yield Bean(named(SERVER, "ReplicaManager", name), attributes)

    def _copied_bytes(self) -> Iterator[Bean | None]:
        if self._replica_fetchers is not None:
            for name, meter in self._bytes.items():
                attributes = meter_attributes(meter, self._byte_count(name), time.monotonic(), "bytes")
                yield Bean(named(SERVER, "BrokerTopicMetrics", name), attributes)

    def _fetchers(self) -> Iterator[Bean | None]:
        fetchers = self._replica_fetchers
        if fetchers is None:
            return
        failed = sum(fetcher.plan.failed_count for fetcher in fetchers.fetchers.values())
        numbers = {"DeadThreadCount": 0, "FailedPartitionsCount": failed, "MaxLag": fetchers.lag_max}
        for name, value in numbers.items():
            yield gauge(SERVER, "ReplicaFetcherManager", name, value, clientId=CLIENT_ID)

    def _lags(self) -> Iterator[Bean | None]:
        fetchers = self._replica_fetchers
        if fetchers is None:
            return
        place = 0
        for fetcher in list(fetchers.fetchers.values()):
            client_id = f"ReplicaFetcherThread-{fetcher.number}-{fetcher.leader_id}"
            for followed in list(fetcher.plan.followed.values()):
                topic, index = followed.partition.name
                yield gauge(
                    SERVER,
                    "FetcherLagMetrics",
                    "ConsumerLag",
                    followed.lag,
                    clientId=client_id,
                    topic=topic,
                    partition=str(index),
                )
                place += 1
                if place % BEANS_PER_PAUSE == 0:
                    yield None

    def __repr__(self) -> str:
        return f"<ReplicationBeans of broker {self._node.id}>"

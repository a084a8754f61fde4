"""Beans about what is: partitions, topics of the cluster, log folders, the broker itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from ottla import __version__
from ottla.broker.logs.flusher import Flusher
from ottla.broker.monitoring.loop_watch import LoopWatch
from ottla.broker.node import Node
from ottla.broker.publisher import Publisher
from ottla.controller.image import MetadataImage
from ottla.metrics import process
from ottla.metrics.beans import (
    Bean,
    ObjectName,
    Source,
    Value,
    gauge,
    histogram_attributes,
    meter_attributes,
    named,
    quoted,
)
from ottla.metrics.meters import Meter, RecentHistogram
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

CONTROLLER: Final = "kafka.controller"
LOG: Final = "kafka.log"
SERVER: Final = "kafka.server"
CLUSTER: Final = "kafka.cluster"
MS: Final = 1e6
PARTITIONS_PER_PAUSE: Final = 100
STARTING, RECOVERY, RUNNING, STOPPING = 1, 2, 3, 6  # Kafka's numbers for a broker's state

PartitionNumber = tuple[str, Callable[[Partition], int]]
LOG_NUMBERS: Final[tuple[PartitionNumber, ...]] = (
    ("LogEndOffset", lambda partition: partition.log.end_offset),
    ("LogStartOffset", lambda partition: partition.log.log_start_offset),
    ("NumLogSegments", lambda partition: len(partition.log.segments)),
    ("Size", lambda partition: partition.log.size_bytes),
)


class StateBeans:
    """Looks at the broker's own objects; keeps nothing but the count of a metadata image."""

    def __init__(
        self, node: Node, replicas: ReplicaSet, publisher: Publisher, flusher: Flusher, loop_watch: LoopWatch
    ) -> None:
        self._node = node
        self._replica_set = replicas
        self._publisher = publisher
        self._flusher = flusher
        self._loop_watch = loop_watch
        self._flushes = RecentHistogram(flusher.flush_ns)
        self._flush_meter = Meter(time.monotonic())
        self._no_meter = Meter(time.monotonic())  # for what cannot happen on one broker
        self._counted: tuple[MetadataImage, ClusterCount] | None = None
        self.is_serving = False
        self.is_stopping = False

    @property
    def sources(self) -> list[Source]:
        return [
            Source(CLUSTER, "Partition", self._partitions, is_large=True),
            Source(CONTROLLER, "ControllerStats", self._controller_stats),
            Source(CONTROLLER, "KafkaController", self._controller),
            Source(LOG, "Log", self._logs, is_large=True),
            Source(LOG, "LogFlushStats", self._flush_stats),
            Source(LOG, "LogManager", self._log_dirs),
            Source("kafka.network", "SocketServer", self._socket_server),
            Source(SERVER, "KafkaRequestHandlerPool", self._handler_pool),
            Source(SERVER, "KafkaServer", self._server),
            Source(SERVER, "ReplicaManager", self._replicas),
            Source(SERVER, "app-info", self._app_info),
        ]

    def tick(self, elapsed_s: float) -> None:
        self._flush_meter.tick(self._flusher.flush_ns.total, elapsed_s)
        self._flushes.tick(time.monotonic())

    # ---- partitions on this broker

    def _replicas(self) -> Iterator[Bean | None]:
        replicas = self._replica_set
        count = PartitionCount()
        for place, partition in enumerate(list(replicas.partitions.values())):
            count.add(partition, self._replica_count(partition))
            if place % PARTITIONS_PER_PAUSE == 0:
                yield None
        offline = len(replicas.offline) + len(self._publisher.failed)
        numbers = {
            "AtMinIsrPartitionCount": count.at_min_isr,
            "LeaderCount": count.leaders,
            "OfflineReplicaCount": offline,
            "PartitionCount": len(replicas.partitions),
            "ReassigningPartitions": count.reassigning,
            "UnderMinIsrPartitionCount": count.under_min_isr,
            "UnderReplicatedPartitions": count.under_replicated,
        }
        for name, value in numbers.items():
            yield gauge(SERVER, "ReplicaManager", name, value)

    def _replica_count(self, partition: Partition) -> int:
        known = self._node.image.partition(partition.name.topic, partition.name.partition)
        return len(known.replicas) if known is not None else 0

    def _logs(self) -> Iterator[Bean | None]:
        return self._of_partitions(LOG, "Log", LOG_NUMBERS)

    def _partitions(self) -> Iterator[Bean | None]:
        numbers: tuple[PartitionNumber, ...] = (
            ("AtMinIsr", lambda partition: int(partition.is_leader and is_at_min_isr(partition))),
            ("InSyncReplicasCount", lambda partition: len(partition.in_sync)),
            ("LastStableOffsetLag", lambda partition: partition.high_watermark - partition.last_stable_offset),
            ("ReplicasCount", self._replica_count),
            ("UnderMinIsr", lambda partition: int(partition.is_leader and is_under_min_isr(partition))),
            ("UnderReplicated", self._is_under_replicated),
        )
        return self._of_partitions(CLUSTER, "Partition", numbers)

    def _is_under_replicated(self, partition: Partition) -> int:
        return int(partition.is_leader and len(partition.in_sync) < self._replica_count(partition))

    def _of_partitions(self, domain: str, type_: str, numbers: tuple[PartitionNumber, ...]) -> Iterator[Bean | None]:
        partitions = list(self._replica_set.partitions.values())
        for name, number in numbers:
            for place, partition in enumerate(partitions):
                topic, index = partition.name
                if not partition.is_deleted:
                    yield gauge(domain, type_, name, number(partition), topic=topic, partition=str(index))
                if place % PARTITIONS_PER_PAUSE == 0:
                    yield None

    # ---- the cluster

    def _controller(self) -> Iterator[Bean | None]:
        image = self._node.image
        if self._counted is None or self._counted[0] is not image:
            count = ClusterCount()
            for topic in list(image.topics.values()):
                for state in topic.partitions:
                    count.add(state.leader, state.replicas)
                yield None
            self._counted = (image, count)
        count = self._counted[1]
        numbers = {
            "ActiveBrokerCount": len(image.brokers),
            "ActiveControllerCount": int(image.controller_id == self._node.id),
            "FencedBrokerCount": 0,
            "GlobalPartitionCount": count.partitions,
            "GlobalTopicCount": len(image.topics),
            "OfflinePartitionsCount": count.offline,
            "PreferredReplicaImbalanceCount": count.imbalanced,
        }
        for name, value in numbers.items():
            yield gauge(CONTROLLER, "KafkaController", name, value)

    def _controller_stats(self) -> Iterator[Bean | None]:
        """With one copy of everything there is never a choice of leaders, so none is ever unclean."""
        attributes = meter_attributes(self._no_meter, 0, time.monotonic(), "elections")
        yield Bean(named(CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec"), attributes)

    # ---- folders and flushes

    def _log_dirs(self) -> Iterator[Bean | None]:
        dirs = self._replica_set.log_dirs.dirs
        for log_dir in dirs:
            failed, path = int(log_dir.failure is not None), quoted(log_dir.path)
            yield gauge(LOG, "LogManager", "LogDirectoryOffline", failed, logDirectory=path)
        yield gauge(LOG, "LogManager", "OfflineLogDirectoryCount", sum(d.failure is not None for d in dirs))

    def _flush_stats(self) -> Iterator[Bean | None]:
        count = self._flusher.flush_ns.total
        attributes = histogram_attributes(self._flushes, count, MS)
        attributes |= meter_attributes(self._flush_meter, count, time.monotonic(), "calls")
        attributes["LatencyUnit"] = "MILLISECONDS"
        yield Bean(named(LOG, "LogFlushStats", "LogFlushRateAndTimeMs"), attributes)

    # ---- the broker

    @property
    def broker_state(self) -> int:
        if self.is_stopping:
            return STOPPING
        if not self.is_serving:
            return STARTING
        return RECOVERY if self.recovering else RUNNING

    @property
    def recovering(self) -> int:
        """Partitions that are not served yet; what failed will not be."""
        return len(self._replica_set.recovering - self._publisher.failed)

    def _server(self) -> Iterator[Bean | None]:
        read, written = process.disk_bytes()
        yield gauge(SERVER, "KafkaServer", "BrokerState", self.broker_state)
        yield gauge(SERVER, "KafkaServer", "ClusterId", self._node.image.cluster_id)
        yield gauge(SERVER, "KafkaServer", "linux-disk-read-bytes", read)
        yield gauge(SERVER, "KafkaServer", "linux-disk-write-bytes", written)

    def _app_info(self) -> Iterator[Bean | None]:
        started_ms = int(process.started_s() * 1000)
        facts: dict[str, Value] = {"version": __version__, "commit-id": "unknown", "start-time-ms": started_ms}
        yield Bean(ObjectName(SERVER, (("type", "app-info"),)), facts)
        of_node: dict[str, Value] = {"Version": __version__, "CommitId": "unknown", "StartTimeMs": started_ms}
        yield Bean(ObjectName(SERVER, (("type", "app-info"), ("id", str(self._node.id)))), of_node)

    def _handler_pool(self) -> Iterator[Bean | None]:
        """One loop reads, handles and answers: how idle it is stands under both of Kafka's names."""
        idle = self._loop_watch.idle
        attributes: dict[str, Value] = {
            "Count": self._loop_watch.idle_ns,
            "MeanRate": self._loop_watch.idle_since_start,
            "OneMinuteRate": idle,
            "FiveMinuteRate": idle,
            "FifteenMinuteRate": idle,
            "RateUnit": "NANOSECONDS",
            "EventType": "percent",
        }
        yield Bean(named(SERVER, "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent"), attributes)

    def _socket_server(self) -> Iterator[Bean | None]:
        idle = self._loop_watch.idle
        yield gauge("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent", idle)

    def __repr__(self) -> str:
        return f"<StateBeans of broker {self._node.id} in state {self.broker_state}>"


class PartitionCount:
    """Sums over the partitions that this broker leads."""

    def __init__(self) -> None:
        self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = self.reassigning = 0

    def add(self, partition: Partition, replica_count: int) -> None:
        if partition.is_leader:
            self.leaders += 1
            self.under_replicated += len(partition.in_sync) < replica_count
            self.under_min_isr += is_under_min_isr(partition)
            self.at_min_isr += is_at_min_isr(partition)
            self.reassigning += bool(partition.role.adding or partition.role.removing)


class ClusterCount:
    """Sums over all partitions of the cluster."""

    def __init__(self) -> None:
        self.partitions = self.offline = self.imbalanced = 0

    def add(self, leader: int, replicas: tuple[int, ...]) -> None:
        self.partitions += 1
        self.offline += leader < 0
        self.imbalanced += bool(replicas) and leader != replicas[0]


def is_under_min_isr(partition: Partition) -> bool:
    return len(partition.in_sync) < partition.min_in_sync


def is_at_min_isr(partition: Partition) -> bool:
    return len(partition.in_sync) == partition.min_in_sync

"""MBeans of states: partitions, topics of the cluster, log directories, replication, log cleaner, process, broker."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.broker.log_manager.flusher import Flusher
from ottla.broker.metadata_publisher import BrokerMetadataPublisher
from ottla.broker.metrics_endpoint.event_loop_load import EventLoopLoad
from ottla.broker.node import Node
from ottla.controller.image import MetadataImage
from ottla.metrics import process
from ottla.metrics.beans import (
    Bean,
    ObjectName,
    Source,
    Value,
    gauge,
    gauges,
    histogram_attributes,
    meter_attributes,
    named,
    quoted,
)
from ottla.metrics.counters import CleanerCounters
from ottla.metrics.meters import Meter, RecentHistogram
from ottla.metrics.prometheus import Family, Sample
from ottla.replication.partition import Partition
from ottla.replication.replica_set import ReplicaSet

if TYPE_CHECKING:
    from ottla.broker.cluster.broker_lifecycle import BrokerLifecycle
    from ottla.broker.replica_manager.replica_fetchers import ReplicaFetcherManager


CONTROLLER: Final = "kafka.controller"
LOG: Final = "kafka.log"
SERVER: Final = "kafka.server"
CLUSTER: Final = "kafka.cluster"
MS: Final = 1e6
PARTITIONS_PER_PAUSE: Final = 100
STARTING, RECOVERY, RUNNING, STOPPING = 1, 2, 3, 6  # Kafka's values of BrokerState

PartitionAttribute = tuple[str, Callable[[Partition], int]]
LOG_ATTRIBUTES: Final[tuple[PartitionAttribute, ...]] = (
    ("LogEndOffset", lambda partition: partition.log.end_offset),
    ("LogStartOffset", lambda partition: partition.log.log_start_offset),
    ("NumLogSegments", lambda partition: len(partition.log.segments)),
    ("Size", lambda partition: partition.log.size_bytes),
)

CLIENT_ID: Final = "Replica"
BEANS_PER_PAUSE: Final = 50

JAVA: Final = "java.lang"


class StateBeans:
    """Reads the broker's objects; caches only the partition count of a metadata image."""

    def __init__(
        self,
        node: Node,
        replicas: ReplicaSet,
        publisher: BrokerMetadataPublisher,
        flusher: Flusher,
        loop_watch: EventLoopLoad,
    ) -> None:
        self._node = node
        self._replica_set = replicas
        self._publisher = publisher
        self._flusher = flusher
        self._loop_watch = loop_watch
        self._flushes = RecentHistogram(flusher.flush_ns)
        self._flush_meter = Meter(time.monotonic())
        self._zero_meter = Meter(time.monotonic())  # for events that a broker never has
        self._counted: tuple[MetadataImage, ClusterCounts] | None = None
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
        count = LeaderCounts()
        for place, partition in enumerate(list(replicas.partitions.values())):
            count.add(partition, self._replica_count(partition))
            if place % PARTITIONS_PER_PAUSE == 0:
                yield None
        offline = len(replicas.offline_partitions) + len(self._publisher.failed)
        numbers = {
            "AtMinIsrPartitionCount": count.at_min_isr,
            "LeaderCount": count.leaders,
            "OfflineReplicaCount": offline,
            "PartitionCount": len(replicas.partitions),
            "ReassigningPartitions": count.reassigning,
            "UnderMinIsrPartitionCount": count.under_min_isr,
            "UnderReplicatedPartitions": count.under_replicated,
        }
        yield from gauges(SERVER, "ReplicaManager", numbers)

    def _replica_count(self, partition: Partition) -> int:
        known = self._node.image.partition(partition.name.topic, partition.name.partition)
        return len(known.replicas) if known is not None else 0

    def _logs(self) -> Iterator[Bean | None]:
        return self._of_partitions(LOG, "Log", LOG_ATTRIBUTES)

    def _partitions(self) -> Iterator[Bean | None]:
        numbers: tuple[PartitionAttribute, ...] = (
            ("AtMinIsr", lambda partition: int(partition.is_leader and is_at_min_isr(partition))),
            ("InSyncReplicasCount", lambda partition: len(partition.isr)),
            ("LastStableOffsetLag", lambda partition: partition.high_watermark - partition.last_stable_offset),
            ("ReplicasCount", self._replica_count),
            ("UnderMinIsr", lambda partition: int(partition.is_leader and is_under_min_isr(partition))),
            ("UnderReplicated", self._is_under_replicated),
        )
        return self._of_partitions(CLUSTER, "Partition", numbers)

    def _is_under_replicated(self, partition: Partition) -> int:
        return int(partition.is_leader and len(partition.isr) < self._replica_count(partition))

    def _of_partitions(self, domain: str, type_: str, numbers: tuple[PartitionAttribute, ...]) -> Iterator[Bean | None]:
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
            count = ClusterCounts()
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
        yield from gauges(CONTROLLER, "KafkaController", numbers)

    def _controller_stats(self) -> Iterator[Bean | None]:
        """Unclean elections are not counted: the value is always 0."""
        attributes = meter_attributes(self._zero_meter, 0, time.monotonic(), "elections")
        yield Bean(named(CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec"), attributes)

    # ---- log directories and flushes

    def _log_dirs(self) -> Iterator[Bean | None]:
        dirs = self._replica_set.log_dirs.dirs
        for log_dir in dirs:
            failed, path = int(log_dir.offline_reason is not None), quoted(log_dir.path)
            yield gauge(LOG, "LogManager", "LogDirectoryOffline", failed, logDirectory=path)
        yield gauge(LOG, "LogManager", "OfflineLogDirectoryCount", sum(d.offline_reason is not None for d in dirs))

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
        """Return the number of partitions that are not served yet, without failed ones."""
        return len(self._replica_set.recovering_partitions - self._publisher.failed)

    def _server(self) -> Iterator[Bean | None]:
        read, written = process.disk_bytes()
        values: dict[str, float | str] = {
            "BrokerState": self.broker_state,
            "ClusterId": self._node.image.cluster_id,
            "linux-disk-read-bytes": read,
            "linux-disk-write-bytes": written,
        }
        yield from gauges(SERVER, "KafkaServer", values)

    def _app_info(self) -> Iterator[Bean | None]:
        started_ms = int(process.started_s() * 1000)
        facts: dict[str, Value] = {"version": __version__, "commit-id": "unknown", "start-time-ms": started_ms}
        yield Bean(ObjectName(SERVER, (("type", "app-info"),)), facts)
        of_node: dict[str, Value] = {"Version": __version__, "CommitId": "unknown", "StartTimeMs": started_ms}
        yield Bean(ObjectName(SERVER, (("type", "app-info"), ("id", str(self._node.id)))), of_node)

    def _handler_pool(self) -> Iterator[Bean | None]:
        """Yield the idle share of the event loop, under both of Kafka's names."""
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


class LeaderCounts:
    """Sums over the partitions led by this broker."""

    def __init__(self) -> None:
        self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = self.reassigning = 0

    def add(self, partition: Partition, replica_count: int) -> None:
        if partition.is_leader:
            self.leaders += 1
            self.under_replicated += len(partition.isr) < replica_count
            self.under_min_isr += is_under_min_isr(partition)
            self.at_min_isr += is_at_min_isr(partition)
            self.reassigning += bool(partition.state.adding_replicas or partition.state.removing_replicas)


class ClusterCounts:
    """Sums over all partitions of the cluster."""

    def __init__(self) -> None:
        self.partitions = self.offline = self.imbalanced = 0

    def add(self, leader: int, replicas: tuple[int, ...]) -> None:
        self.partitions += 1
        self.offline += leader < 0
        self.imbalanced += bool(replicas) and leader != replicas[0]


def is_under_min_isr(partition: Partition) -> bool:
    return len(partition.isr) < partition.effective_min_isr


def is_at_min_isr(partition: Partition) -> bool:
    return len(partition.isr) == partition.effective_min_isr


class ReplicationBeans:
    """MBeans of replication: ISR changes, fetchers and their lags. A standalone broker has none."""

    def __init__(self, node: Node, replicas: ReplicaSet, clustering: BrokerLifecycle | None) -> None:
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
    def _replica_fetchers(self) -> ReplicaFetcherManager | None:
        return self._clustering.replica_fetchers if self._clustering is not None else None

    def tick(self, elapsed_s: float) -> None:
        for name, (meter, _) in self._meters.items():
            meter.tick(self._isr_count(name), elapsed_s)
        for name, meter in self._bytes.items():
            meter.tick(self._byte_count(name), elapsed_s)

    def _isr_count(self, name: str) -> int:
        changes = self._clustering.alter_partition_manager if self._clustering is not None else None
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
        yield from gauges(SERVER, "ReplicaFetcherManager", numbers, clientId=CLIENT_ID)

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
                    max(0, followed.lag),
                    clientId=client_id,
                    topic=topic,
                    partition=str(index),
                )
                place += 1
                if place % BEANS_PER_PAUSE == 0:
                    yield None

    def __repr__(self) -> str:
        return f"<ReplicationBeans of broker {self._node.id}>"


class CleanerBeans:
    """MBeans of the log cleaner."""

    def __init__(self, node: Node, replicas: ReplicaSet, counters: CleanerCounters) -> None:
        self._node = node
        self._replicas = replicas
        self._counters = counters

    @property
    def sources(self) -> list[Source]:
        return [Source(LOG, "LogCleaner", self._cleaner), Source(LOG, "LogCleanerManager", self._manager)]

    def _cleaner(self) -> Iterator[Bean | None]:
        yield gauge(LOG, "LogCleaner", "cleaner-recopy-percent", round(100 * self._counters.last_recopy))
        yield gauge(LOG, "LogCleaner", "max-clean-time-secs", round(self._counters.last_seconds))

    def _manager(self) -> Iterator[Bean | None]:
        counters = self._counters
        since_ms = self._node.clock.now_ms() - counters.checked_ms if counters.checked_ms else 0
        yield gauge(LOG, "LogCleanerManager", "max-dirty-percent", round(100 * counters.max_dirty_ratio))
        yield gauge(LOG, "LogCleanerManager", "time-since-last-run-ms", since_ms)
        by_folder = self._uncleanable()
        for log_dir in self._replicas.log_dirs.dirs:
            count, path = by_folder[log_dir.path], quoted(log_dir.path)
            yield gauge(LOG, "LogCleanerManager", "uncleanable-partitions-count", count, logDirectory=path)

    def _uncleanable(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for topic, index in list(self._counters.uncleanable):
            partition = self._replicas.get(topic, index)
            if partition is not None:
                found[partition.log.directory.rpartition("/")[0]] += 1
        return found

    def families(self) -> Iterator[Family]:
        counters = self._counters
        for name, note, value in (
            ("runs", "Logs that were compacted.", counters.runs),
            ("read_bytes", "Bytes that compaction has read.", counters.bytes_read),
            ("written_bytes", "Bytes that compaction has written.", counters.bytes_written),
            ("removed_records", "Records that compaction has removed.", counters.records_read - counters.records_kept),
            ("seconds", "Time that compaction took.", counters.seconds),
        ):
            yield Family(f"ottla_cleaner_{name}_total", "counter", note, [Sample((), value)])


class ProcessBeans:
    """MBeans of the process under the names of the Java platform, which dashboards use."""

    def __init__(self, collector: process.CollectorTimes) -> None:
        self._collector = collector

    @property
    def sources(self) -> list[Source]:
        return [
            Source(JAVA, "GarbageCollector", self._garbage_collectors),
            Source(JAVA, "Memory", self._memory),
            Source(JAVA, "OperatingSystem", self._operating_system),
            Source(JAVA, "Runtime", self._runtime),
            Source(JAVA, "Threading", self._threading),
        ]

    def _garbage_collectors(self) -> Iterator[Bean | None]:
        for generation, numbers in enumerate(gc.get_stats()):
            name = f"Generation {generation}"
            attributes: dict[str, Value] = {
                "CollectionCount": numbers["collections"],
                "CollectionTime": int(self._collector.seconds[generation] * 1000),
                "Name": name,
                "Valid": True,
            }
            yield Bean(ObjectName(JAVA, (("type", "GarbageCollector"), ("name", name))), attributes)

    def _memory(self) -> Iterator[Bean | None]:
        """Yield the resident memory of the process, which has no separate heap."""
        used, total = process.resident_bytes(), process.memory_bytes()[0]
        yield self._bean("Memory", {"HeapMemoryUsage": {"init": 0, "used": used, "committed": used, "max": total}})

    def _operating_system(self) -> Iterator[Bean | None]:
        total, free = process.memory_bytes()
        attributes: dict[str, Value] = {
            "Name": platform.system(),
            "Version": platform.release(),
            "Arch": platform.machine(),
            "AvailableProcessors": os.cpu_count() or 1,
            "SystemLoadAverage": os.getloadavg()[0],
            "ProcessCpuTime": int(process.cpu_seconds() * 1e9),
            "CommittedVirtualMemorySize": process.virtual_bytes(),
            "TotalMemorySize": total,
            "FreeMemorySize": free,
            "TotalPhysicalMemorySize": total,
            "FreePhysicalMemorySize": free,
            "OpenFileDescriptorCount": process.open_files(),
            "MaxFileDescriptorCount": process.open_files_max(),
        }
        yield self._bean("OperatingSystem", attributes)

    def _runtime(self) -> Iterator[Bean | None]:
        started_s = process.started_s()
        attributes: dict[str, Value] = {
            **process.runtime_names(),
            "Pid": os.getpid(),
            "StartTime": int(started_s * 1000),
            "Uptime": int((time.time() - started_s) * 1000),
        }
        yield self._bean("Runtime", attributes)

    def _threading(self) -> Iterator[Bean | None]:
        yield self._bean("Threading", {"ThreadCount": process.thread_count()})

    def _bean(self, type_: str, attributes: dict[str, Value]) -> Bean:
        return Bean(ObjectName(JAVA, (("type", type_),)), attributes)

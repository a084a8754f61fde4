"""Beans about compaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ottla.broker.node import Node
from ottla.metrics.beans import Bean, Source, gauge, quoted
from ottla.metrics.cleaner import CleanerCounters
from ottla.metrics.prometheus import Family, Sample
from ottla.replication.replica_set import ReplicaSet

LOG: Final = "kafka.log"


class CleanerBeans:
    """Reads what the cleaner notes about itself."""

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
        since_ms = self._node.clock.now_ms() - counters.looked_ms if counters.looked_ms else 0
        yield gauge(LOG, "LogCleanerManager", "max-dirty-percent", round(100 * counters.dirtiest))
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

"""Prometheus metrics: Burrow's names and labels, Kafka's `consumer_lag`, and the monitor's own state.

As in Burrow a partition with an incomplete history shows its lag, but neither offset nor status. Beyond SAMPLES_MAX
partitions of groups the rest is left out of a scrape and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from ottla.base.names import TopicPartition
from ottla.metrics.prometheus import Family, Sample, render_families
from ottla.monitor.cluster_monitor import ClusterMonitor
from ottla.monitor.lag_evaluation import GroupVerdict

SAMPLES_MAX: Final = 50_000  # partitions of groups, and as many of topics
SLICE: Final = 500

Labels = tuple[tuple[str, str], ...]


class Samples:
    """The families of one scrape."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.partitions = 0
        self.skipped = 0

    def add(self, name: str, help_: str, labels: Labels, value: float) -> None:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = Family(name, "gauge", help_, [])
        family.samples.append(Sample(labels, value))

    def add_group(self, verdict: GroupVerdict) -> None:
        labels = (("cluster", verdict.cluster), ("consumer_group", verdict.group))
        self.add("burrow_kafka_consumer_lag_total", "Records that the group is behind", labels, verdict.totallag)
        self.add(
            "burrow_kafka_consumer_status",
            "Burrow's verdict of the group: 0 NOTFOUND, 1 OK, 2 WARN, 3 ERR",
            labels,
            verdict.status,
        )
        help_ = "Verdict of the group, as pages and alerts use it: 1 OK, 2 WARN, 3 ERR"
        self.add("ottla_monitor_consumer_status", help_, labels, verdict.ottla_status)
        if verdict.lag_ms is not None:
            help_ = "Age of the oldest record that the group has not committed"
            self.add("ottla_monitor_consumer_lag_seconds", help_, labels, verdict.lag_ms / 1000)
        for item in verdict.partitions:
            if self.partitions >= SAMPLES_MAX:
                self.skipped += 1
                continue
            self.partitions += 1
            place = (("topic", item.topic), ("partition", str(item.partition)))
            full = (*labels, *place)
            self.add("burrow_kafka_consumer_partition_lag", "Records that are not committed", full, item.current_lag)
            if item.end is not None:
                group = (("cluster", verdict.cluster), ("group", verdict.group), *place)
                self.add("consumer_lag", "Records that a group has not committed yet", group, item.current_lag)
            if item.end is not None and item.complete == 1.0:
                self.add("burrow_kafka_consumer_current_offset", "Offset of the newest commit", full, item.end.offset)
                help_ = "Verdict of the partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND"
                self.add("burrow_kafka_topic_partition_status", help_, full, item.status)

    def add_end(self, cluster: str, partition: TopicPartition, end: int) -> None:
        labels = (("cluster", cluster), ("topic", partition.topic), ("partition", str(partition.partition)))
        self.add("burrow_kafka_topic_partition_offset", "Where the log of the partition ends", labels, end)

    def add_monitor(self, monitor: ClusterMonitor) -> None:
        labels = (("cluster", monitor.name),)
        age_ms = monitor.age_ms()
        if age_ms is not None:
            self.add("ottla_monitor_age_seconds", "How old the numbers of the cluster are", labels, age_ms / 1000)
        self.add("ottla_monitor_ready", "Whether all commits of the past were read", labels, int(monitor.is_ready))
        self.add("ottla_monitor_followed", "Partitions that groups follow", labels, monitor.store.partition_count)
        help_ = "Commits that were left out because too many partitions are followed"
        self.add("ottla_monitor_left_out", help_, labels, monitor.store.ignored_commits)


async def scrape(clusters: Mapping[str, ClusterMonitor]) -> AsyncIterator[str]:
    """The text in chunks, yielding to other tasks in between."""
    samples = Samples()
    for monitor in clusters.values():
        samples.add_monitor(monitor)
        for group in monitor.groups():
            verdict = await monitor.verdict_in_slices(group)
            if verdict is not None:
                samples.add_group(verdict)
                await asyncio.sleep(0)
        for place, (partition, history) in enumerate(list(monitor.store.ends.items())[:SAMPLES_MAX]):
            samples.add_end(monitor.name, partition, history.end)
            if place % SLICE == SLICE - 1:
                await asyncio.sleep(0)
    samples.add("ottla_monitor_samples_left_out", "Partitions left out of this scrape", (), samples.skipped)
    for text in render_families(samples.families.values()):
        yield text
        await asyncio.sleep(0)

"""How many bytes a second partitions get and give, from two looks at a cluster.  Pure.

What is written follows from the offsets: records that came, times the bytes that a record of the partition takes.
What is read is told by the metrics of brokers, for a topic at a time: it is shared out among the partitions that the
broker leads, by what is written to them. Apache Kafka tells neither over the wire, but offsets everybody has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.operations.broker_figures import TOPIC
from ottla.operations.metric_readings import Rates, Reading

BYTES_OUT = f"{TOPIC}bytesout_total"


class Look(NamedTuple):
    """Sizes and offsets at one moment; a partition that is missing was not told."""

    taken_s: float
    sizes: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def bytes_in(before: Look, now: Look) -> dict[TopicPartition, float]:
    """For each partition that both looks know; growth alone would be wrong where old segments are deleted meanwhile."""
    seconds = max(0.001, now.taken_s - before.taken_s)
    found = {}
    for name in now.ends.keys() & before.ends.keys() & now.starts.keys() & now.sizes.keys():
        records = max(0, now.ends[name] - before.ends[name])
        held = now.ends[name] - now.starts[name]
        growth = max(0, now.sizes[name] - before.sizes.get(name, now.sizes[name]))
        usual = now.sizes[name] * records / held if held > 0 else 0.0
        found[name] = max(growth, usual) / seconds if records else 0.0
    return found


def bytes_out(
    leaders: Mapping[TopicPartition, int],
    written: Mapping[TopicPartition, float],
    readings: Mapping[int, tuple[Reading, Reading]],
) -> dict[TopicPartition, float]:
    """For each partition whose leader was read twice."""
    by_topic: dict[tuple[int, str], list[TopicPartition]] = {}
    for name, leader in leaders.items():
        if leader in readings:
            by_topic.setdefault((leader, name.topic), []).append(name)
    rates = {broker: topic_rates(*pair) for broker, pair in readings.items()}
    found = {}
    for (leader, topic), names in by_topic.items():
        rate = rates[leader].get(topic, 0.0)
        total = sum(written.get(name, 0.0) for name in names)
        for name in names:
            found[name] = rate * (written.get(name, 0.0) / total if total else 1 / len(names))
    return found


def topic_rates(before: Reading, now: Reading) -> dict[str, float]:
    """What a broker sends to consumers, by topic."""
    rates = Rates(before, now)
    earlier = {sample.labels["topic"]: sample.value for sample in before.all(BYTES_OUT) if "topic" in sample.labels}
    return {
        sample.labels["topic"]: max(0.0, sample.value - earlier.get(sample.labels["topic"], 0.0)) / rates.seconds
        for sample in now.all(BYTES_OUT)
        if "topic" in sample.labels
    }

"""Topic descriptions in Kafka's layout: one line per topic and one per partition, separated by tabs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.base.names import TopicPartition, id_text
from ottla.cli.java.hash_order import hash_map_order
from ottla.client.admin import Partition, Topic
from ottla.client.reassignments import Reassignment
from ottla.operations.topic_summary import Moves, is_under_replicated, min_isr, replication_factor

if TYPE_CHECKING:
    from ottla.client.configs import Config


ZERO_TOPIC_ID = UUID(int=0)


class DescribeFilter(NamedTuple):
    """The requested partitions; without any condition all of them, with the lines of their topics."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    only_overrides: bool = False

    @property
    def is_partitions_only(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


def describe_lines(
    topics: Sequence[Topic],
    configs: dict[str, list[Config]],
    live_brokers: Collection[int],
    wanted: DescribeFilter | None = None,
    moves: Moves | None = None,
) -> Iterator[str]:
    """All lines about these topics in the given order; `moves` are active reassignments."""
    wanted = wanted or DescribeFilter()
    moves = moves or {}
    for topic in topics:
        settings = configs.get(topic.name, [])
        if not wanted.is_partitions_only and (not wanted.only_overrides or has_overrides(settings)):
            yield topic_line(topic, settings, moves)
        if not wanted.only_overrides:
            yield from (
                partition_line(topic.name, item, moves.get(TopicPartition(topic.name, item.number)))
                for item in shown_partitions(topic, settings, live_brokers, wanted, moves)
            )


def topic_line(topic: Topic, settings: list[Config], moves: Moves) -> str:
    fields = [f"Topic: {topic.name}"]
    if topic.topic_id != ZERO_TOPIC_ID:
        fields.append(f"TopicId: {id_text(topic.topic_id)}")
    fields.append(f"PartitionCount: {len(topic.partitions)}")
    fields.append(f"ReplicationFactor: {replication_factor(topic, moves)}")
    fields.append(f"Configs: {','.join(overrides(settings))}")
    return "\t".join(fields)


def partition_line(name: str, partition: Partition, move: Reassignment | None = None) -> str:
    fields = [
        f"\tTopic: {name}",
        f"Partition: {partition.number}",
        f"Leader: {partition.leader if partition.leader >= 0 else 'none'}",
        f"Replicas: {_brokers(partition.replicas)}",
        f"Isr: {_brokers(partition.isr)}",
    ]
    if move is not None:
        fields += [f"Adding Replicas: {_brokers(move.adding)}", f"Removing Replicas: {_brokers(move.removing)}"]
    fields += [
        f"Elr: {_brokers(partition.eligible_leader_replicas)}",
        f"LastKnownElr: {_brokers(partition.last_known_elr)}",
    ]
    return "\t".join(fields)


def legacy_line(line: str, marked: Collection[str] = (), wanted: DescribeFilter | None = None) -> str:
    """The line in the format of Kafka's former --zookeeper output; `marked` are topics marked for deletion."""
    name = line.lstrip("\t").removeprefix("Topic: ").partition("\t")[0]
    if line.startswith("Topic: "):
        fields = [field.replace(": ", ":", 1) for field in line.split("\t") if not field.startswith("TopicId: ")]
        return "\t".join([*fields, "MarkedForDeletion:true"] if name in marked else fields)
    is_marked_here = name in marked and wanted is not None and wanted.is_partitions_only
    return line.partition("\tElr: ")[0] + ("\tMarkedForDeletion: true" if is_marked_here else "")


def shown_partitions(
    topic: Topic, settings: list[Config], live_brokers: Collection[int], wanted: DescribeFilter, moves: Moves
) -> list[Partition]:
    """The requested partitions of a topic."""
    least_isr = min_isr(settings)

    def is_shown(partition: Partition) -> bool:
        return (
            not wanted.is_partitions_only
            or (wanted.under_replicated and is_under_replicated(topic.name, partition, moves))
            or (wanted.unavailable and partition.leader not in live_brokers)
            or (wanted.under_min_isr and (partition.leader < 0 or len(partition.isr) < least_isr))
            or (wanted.at_min_isr and len(partition.isr) == least_isr)
        )

    return [partition for partition in topic.partitions if is_shown(partition)]


def overrides(settings: list[Config]) -> list[str]:
    """The settings that differ from Kafka's defaults, in the order of Kafka's tool."""
    by_name = {config.name: config for config in settings}
    order = [by_name[name] for name in hash_map_order(by_name)]
    return [f"{config.name}={_value(config)}" for config in order if not config.is_default]


def has_overrides(settings: list[Config]) -> bool:
    return any(not config.is_default for config in settings)


def kafka_order(topics: Sequence[Topic]) -> list[Topic]:
    """The topics in the order of Kafka's tool."""
    by_name = {topic.name: topic for topic in topics}
    return [by_name[name] for name in hash_map_order(by_name, capacity=len(by_name))]


def _brokers(ids: list[int] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))


def _value(config: Config) -> str:
    return "null" if config.value is None else config.value

"""A model of the cluster for reassignment plans: replicas, their sizes, and the traffic of partitions.

Two samples, some seconds apart, yield the traffic. Brokers that do not respond are listed: their figures are unknown,
not 0.
Incoming bytes follow from offsets: new records times the average record size of the partition. Outgoing bytes are
reported by the brokers' metrics per topic, and are distributed over the partitions that the broker leads in proportion
to incoming bytes. Apache Kafka returns neither over the wire, but offsets are always available.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerCapacity, PartitionLoad
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError
from ottla.client.log_dirs import LogDir, TopicPartitionReplica, describe_log_dirs
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.operations.broker_rates import TOPIC_METRICS
from ottla.operations.doctor.findings import brokers_text, shorten_list
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import Rates, Reading, read_metrics
from ottla.operations.reassignment.moves import replica_sizes, replicas_of
from ottla.operations.reassignment.plan import PlanError

BYTES_OUT = f"{TOPIC_METRICS}bytesout_total"


class ClusterSample(NamedTuple):
    """Sizes and offsets at one moment; unknown partitions are missing."""

    taken_s: float
    sizes: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def bytes_in(before: ClusterSample, now: ClusterSample) -> dict[TopicPartition, float]:
    """For each partition in both samples. Size growth alone is wrong if old segments are deleted in between."""
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
    """For each partition whose leader's metrics were read twice."""
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
    """Bytes per second sent to consumers, by topic."""
    rates = Rates(before, now)
    earlier = {
        sample.labels["topic"]: sample.value for sample in before.samples_of(BYTES_OUT) if "topic" in sample.labels
    }
    return {
        sample.labels["topic"]: max(0.0, sample.value - earlier.get(sample.labels["topic"], 0.0)) / rates.seconds
        for sample in now.samples_of(BYTES_OUT)
        if "topic" in sample.labels
    }


MEASURE_SECONDS = 3.0
METRICS_SECONDS_MAX = 3.0
METRICS_HOST, METRICS_PORT = "ottla.metrics.host", "ottla.metrics.port"


class ClusterModel(NamedTuple):
    """The cluster as plans need it; `silent` brokers did not return sizes, `unmeasured` ones no traffic."""

    cluster_id: str
    topics: list[Topic]
    loads: list[PartitionLoad]
    brokers: dict[int, BrokerCapacity]
    sizes: dict[TopicPartitionReplica, int]
    without_sizes: list[int]
    without_traffic: list[int]

    @property
    def rows(self) -> dict[TopicPartition, list[int]]:
        return {load.partition: list(load.row) for load in self.loads}

    @property
    def dead_brokers(self) -> list[int]:
        """Brokers that hold replicas but are down."""
        return sorted({broker for load in self.loads for broker in load.row} - set(self.brokers))


def load_cluster_model(client: Client, measure_seconds: float = 0.0) -> ClusterModel:
    """Read the cluster. With 0 seconds the traffic is not measured."""
    cluster = describe_cluster(client)
    topics = Admin(client).topics()
    rows = replicas_of(topics)
    living = {broker.broker_id: broker for broker in cluster.brokers}
    urls = metrics_urls(client, {one.broker_id: one.host for one in cluster.brokers}) if measure_seconds else {}
    folders, silent = describe_log_dirs_safely(client, living)
    sizes = replica_sizes(folders)
    written: dict[TopicPartition, float] = {}
    read: dict[TopicPartition, float] = {}
    measured: dict[int, tuple[Reading, Reading]] = {}
    if measure_seconds:
        before, earlier = take_sample(client, rows, sizes), read_all_metrics(urls)
        client.sleep(measure_seconds)
        folders, silent = describe_log_dirs_safely(client, living)
        sizes = replica_sizes(folders)
        now, later = take_sample(client, rows, sizes), read_all_metrics(urls)
        measured = {broker: (earlier[broker], later[broker]) for broker in earlier.keys() & later.keys()}
        written = bytes_in(before, now)
        read = bytes_out(leaders_of(topics), written, measured)
    largest = largest_replicas(rows, sizes)
    loads = [
        PartitionLoad(name, tuple(row), largest.get(name), written.get(name), read.get(name))
        for name, row in sorted(rows.items())
    ]
    rooms = {broker: broker_disk_space(found.rack, folders.get(broker)) for broker, found in living.items()}
    unmeasured = sorted(living.keys() - measured.keys()) if measure_seconds else sorted(living)
    return ClusterModel(cluster.cluster_id, topics, loads, rooms, sizes, silent, unmeasured)


def describe_log_dirs_safely(client: Client, brokers: Iterable[int]) -> tuple[dict[int, list[LogDir]], list[int]]:
    """The log directories of each broker, and the brokers that did not respond."""
    found: dict[int, list[LogDir]] = {}
    silent = []
    for broker in sorted(brokers):
        try:
            found |= describe_log_dirs(client, [broker])
        except ClientError:
            silent.append(broker)
    return found, silent


def largest_replicas(
    rows: Mapping[TopicPartition, Collection[int]], sizes: Mapping[TopicPartitionReplica, int]
) -> dict[TopicPartition, int]:
    """The expected size of a new replica: that of the largest existing one; partitions without known
    sizes are missing.
    """
    found = {}
    for name, row in rows.items():
        known = [sizes[place] for broker in row if (place := TopicPartitionReplica(name, broker)) in sizes]
        if known:
            found[name] = max(known)
    return found


def broker_disk_space(rack: str | None, folders: list[LogDir] | None) -> BrokerCapacity:
    """The disk space of a broker. It is unknown if a log directory failed or does not report its disk."""
    if not folders or any(folder.total_bytes < 0 for folder in folders):
        return BrokerCapacity(rack)
    return BrokerCapacity(
        rack, sum(folder.total_bytes for folder in folders), sum(folder.usable_bytes for folder in folders)
    )


def leaders_of(topics: Iterable[Topic]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.number): partition.leader
        for topic in topics
        for partition in topic.partitions
    }


def take_sample(
    client: Client, rows: Mapping[TopicPartition, Collection[int]], sizes: Mapping[TopicPartitionReplica, int]
) -> ClusterSample:
    starts, _ = list_offsets(client, rows, EARLIEST)
    ends, _ = list_offsets(client, rows, LATEST)
    return ClusterSample(
        client.clock.monotonic_ms() / 1000,
        largest_replicas(rows, sizes),
        {name: found.offset for name, found in starts.items()},
        {name: found.offset for name, found in ends.items()},
    )


# ---- metrics


def metrics_urls(client: Client, hosts: Mapping[int, str]) -> dict[int, str]:
    """The metrics URLs of brokers, from their settings; Apache Kafka has no such settings."""
    found = {}
    for broker, host in hosts.items():
        try:
            configs = describe_configs(client, Resource.BROKER, [str(broker)])
        except ClientError:
            continue
        values = {config.name: config.value for config in configs.get(str(broker), ())}
        port, bound = values.get(METRICS_PORT) or "", values.get(METRICS_HOST) or ""
        if port.isdecimal() and int(port):
            place = host if bound in ("", "0.0.0.0", "::") else bound  # noqa: S104 (compared, not bound to)
            found[broker] = f"http://{f'[{place}]' if ':' in place else place}:{port}"
    return found


def read_all_metrics(urls: Mapping[int, str]) -> dict[int, Reading]:
    found = {}
    for broker, url in urls.items():
        try:
            reading = read_metrics(url, seconds_max=METRICS_SECONDS_MAX)
        except OperationError:
            continue
        if reading.info().get("node_id") == str(broker):  # 127.0.0.1 may be a broker of another machine
            found[broker] = reading
    return found


# ---- preconditions of a plan


def check_all_brokers_live(facts: ClusterModel, apart_from: Collection[int] = ()) -> None:
    """Reject a plan while brokers are down: the others would seem less loaded than after their return."""
    away = [broker for broker in facts.dead_brokers if broker not in apart_from]
    check_leaders(facts, {load.partition for load in facts.loads if set(load.row) & set(facts.dead_brokers)})
    if away:
        one, it = ("is down, but holds", "it") if len(away) == 1 else ("are down, but hold", "them")
        raise PlanError(
            f"{brokers_text(away)} {one} replicas: start {it}, or take {it} out "
            f"(ottla cluster remove {' '.join(map(str, away))})"
        )


def check_leaders(facts: ClusterModel, moved: Collection[TopicPartition]) -> None:
    """Reject moves of partitions without a leader: there is no source to copy from, so the move would never end."""
    holders: set[int] = set()
    names = []
    for topic in facts.topics:
        for item in topic.partitions:
            name = TopicPartition(topic.name, item.number)
            if item.leader < 0 and name in moved:
                names.append(name)
                holders.update(item.isr or item.eligible_leader_replicas or item.last_known_elr or item.replicas)
    if not names:
        return
    have, their = ("has", "its") if len(names) == 1 else ("have", "their")
    again = "that broker" if len(holders) == 1 else "those brokers"
    raise PlanError(
        f"{shorten_list(map(str, names))} {have} no leader, and {their} records are only on "
        f"{brokers_text(holders)}: there is "
        f"nothing to copy from. Start {again} again{data_loss_alternatives(facts, names, their)}"
    )


def data_loss_alternatives(facts: ClusterModel, names: Sequence[TopicPartition], their: str) -> str:
    """The alternatives if records that exist only on dead brokers may be lost."""
    found = {topic.name: topic.partitions for topic in facts.topics}
    topics = list(dict.fromkeys(name.topic for name in names))
    if all(item.leader < 0 for topic in topics for item in found[topic]):
        many = "" if len(topics) == 1 else "s"
        return f", or, if {their} records may be lost, delete the topic{many} (ottla topics delete {' '.join(topics)})"
    rows = {name: item.replicas for name in names for item in found[name.topic] if item.number == name.partition}
    living = [name for name, row in rows.items() if not facts.brokers.keys().isdisjoint(row)]
    if not living:
        return ""
    command = f"ottla elect --election-type unclean --topic {living[0].topic} --partition {living[0].partition}"
    return f", or, if {their} records may be lost, elect a replica that is not in sync ({command})"

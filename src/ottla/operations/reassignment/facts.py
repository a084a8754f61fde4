"""What a plan for a whole cluster has to know, asked of the cluster: who holds what, how large it is, how busy.

Two looks, some seconds apart, tell the traffic. Who does not answer is named: his figures are not known, and not 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.names import TopicPartition
from ottla.base.placement.broker_loads import BrokerRoom, PartitionLoad
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.configs import Resource, describe_configs
from ottla.client.errors import ClientError
from ottla.client.log_dirs import Folder, PlacedReplica, describe_log_dirs
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.reassignments import Reassignment, list_reassignments
from ottla.operations.doctor.findings import brokers_text, some
from ottla.operations.errors import OperationError
from ottla.operations.metric_readings import Reading, read_metrics
from ottla.operations.reassignment.plan import PlanError
from ottla.operations.reassignment.progress import replica_sizes
from ottla.operations.reassignment.rates import Look, bytes_in, bytes_out
from ottla.operations.reassignment.steps import replicas_of

MEASURE_SECONDS = 3.0
METRICS_SECONDS_MAX = 3.0
METRICS_HOST, METRICS_PORT = "ottla.metrics.host", "ottla.metrics.port"


class ClusterFacts(NamedTuple):
    """A cluster as plans need it; `silent` do not tell what they hold, `unmeasured` not what they send."""

    cluster_id: str
    topics: list[Topic]
    loads: list[PartitionLoad]
    brokers: dict[int, BrokerRoom]
    sizes: dict[PlacedReplica, int]
    silent: list[int]
    unmeasured: list[int]

    @property
    def rows(self) -> dict[TopicPartition, list[int]]:
        return {load.partition: list(load.row) for load in self.loads}

    @property
    def away(self) -> list[int]:
        """Brokers that hold something and are not there."""
        return sorted({broker for load in self.loads for broker in load.row} - set(self.brokers))


def gather(client: Client, measure_seconds: float = 0.0) -> ClusterFacts:
    """Ask everybody. With 0 seconds the traffic is not measured, and so not known."""
    cluster = describe_cluster(client)
    topics = Admin(client).topics()
    rows = replicas_of(topics)
    living = {broker.broker_id: broker for broker in cluster.brokers}
    urls = metrics_urls(client, {one.broker_id: one.host for one in cluster.brokers}) if measure_seconds else {}
    folders, silent = ask_folders(client, living)
    sizes = replica_sizes(folders)
    written: dict[TopicPartition, float] = {}
    read: dict[TopicPartition, float] = {}
    measured: dict[int, tuple[Reading, Reading]] = {}
    if measure_seconds:
        before, earlier = look(client, rows, sizes), read_all(urls)
        client.sleep(measure_seconds)
        folders, silent = ask_folders(client, living)
        sizes = replica_sizes(folders)
        now, later = look(client, rows, sizes), read_all(urls)
        measured = {broker: (earlier[broker], later[broker]) for broker in earlier.keys() & later.keys()}
        written = bytes_in(before, now)
        read = bytes_out(leaders_of(topics), written, measured)
    largest = largest_replicas(rows, sizes)
    loads = [
        PartitionLoad(name, tuple(row), largest.get(name), written.get(name), read.get(name))
        for name, row in sorted(rows.items())
    ]
    rooms = {broker: room_of(found.rack, folders.get(broker)) for broker, found in living.items()}
    unmeasured = sorted(living.keys() - measured.keys()) if measure_seconds else sorted(living)
    return ClusterFacts(cluster.cluster_id, topics, loads, rooms, sizes, silent, unmeasured)


def ask_folders(client: Client, brokers: Iterable[int]) -> tuple[dict[int, list[Folder]], list[int]]:
    """The folders of each broker, and who does not tell."""
    found: dict[int, list[Folder]] = {}
    silent = []
    for broker in sorted(brokers):
        try:
            found |= describe_log_dirs(client, [broker])
        except ClientError:
            silent.append(broker)
    return found, silent


def largest_replicas(
    rows: Mapping[TopicPartition, Collection[int]], sizes: Mapping[PlacedReplica, int]
) -> dict[TopicPartition, int]:
    """What a new replica will take: as much as the largest that there is; nothing stands here if none is told."""
    found = {}
    for name, row in rows.items():
        known = [sizes[place] for broker in row if (place := PlacedReplica(name, broker)) in sizes]
        if known:
            found[name] = max(known)
    return found


def room_of(rack: str | None, folders: list[Folder] | None) -> BrokerRoom:
    """All folders of a broker together; a folder that failed, or whose disk is not told, makes it unknown."""
    if not folders or any(folder.total_bytes < 0 for folder in folders):
        return BrokerRoom(rack)
    return BrokerRoom(
        rack, sum(folder.total_bytes for folder in folders), sum(folder.usable_bytes for folder in folders)
    )


def leaders_of(topics: Iterable[Topic]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.number): partition.leader
        for topic in topics
        for partition in topic.partitions
    }


def look(client: Client, rows: Mapping[TopicPartition, Collection[int]], sizes: Mapping[PlacedReplica, int]) -> Look:
    starts, _ = list_offsets(client, rows, EARLIEST)
    ends, _ = list_offsets(client, rows, LATEST)
    return Look(
        client.clock.monotonic_ms() / 1000,
        largest_replicas(rows, sizes),
        {name: found.offset for name, found in starts.items()},
        {name: found.offset for name, found in ends.items()},
    )


# ---- metrics


def metrics_urls(client: Client, hosts: Mapping[int, str]) -> dict[int, str]:
    """Where the metrics of brokers are, as their settings say; Apache Kafka has no such settings."""
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


def read_all(urls: Mapping[int, str]) -> dict[int, Reading]:
    found = {}
    for broker, url in urls.items():
        try:
            reading = read_metrics(url, seconds_max=METRICS_SECONDS_MAX)
        except OperationError:
            continue
        if reading.info().get("node_id") == str(broker):  # 127.0.0.1 of another machine is another broker
            found[broker] = reading
    return found


# ---- what must be so before a plan is made


def check_whole(facts: ClusterFacts, apart_from: Collection[int] = ()) -> None:
    """Refuse while brokers are away: the others would look less busy than they will be when those are back."""
    away = [broker for broker in facts.away if broker not in apart_from]
    check_led(facts, {load.partition for load in facts.loads if set(load.row) & set(facts.away)})
    if away:
        one, it = ("is away, but holds", "it") if len(away) == 1 else ("are away, but hold", "them")
        raise PlanError(
            f"{brokers_text(away)} {one} replicas: start {it}, or take {it} out "
            f"(ottla cluster remove {' '.join(map(str, away))})"
        )


def check_led(facts: ClusterFacts, moved: Collection[TopicPartition]) -> None:
    """Refuse to move what nobody leads: there is nothing to copy from, and the move would wait for ever."""
    holders: set[int] = set()
    names = []
    for topic in facts.topics:
        for item in topic.partitions:
            name = TopicPartition(topic.name, item.number)
            if item.leader < 0 and name in moved:
                names.append(name)
                holders.update(item.isr or item.eligible or item.last_eligible or item.replicas)
    if not names:
        return
    have, their = ("has", "its") if len(names) == 1 else ("have", "their")
    again = "that broker" if len(holders) == 1 else "those brokers"
    raise PlanError(
        f"{some(map(str, names))} {have} no leader, and {their} records are only on {brokers_text(holders)}: there is "
        f"nothing to copy from. Start {again} again{or_lose(facts, names, their)}"
    )


def or_lose(facts: ClusterFacts, names: Sequence[TopicPartition], their: str) -> str:
    """What else one can do if the records that are on nobody who lives may be lost, and no others."""
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
    return f", or, if {their} records may be lost, let a replica lead that is not in sync ({command})"


def foreign_moves(client: Client, own: Collection[TopicPartition]) -> dict[TopicPartition, Reassignment]:
    """What moves, but not because of us."""
    return {name: move for name, move in list_reassignments(client).items() if name not in own}

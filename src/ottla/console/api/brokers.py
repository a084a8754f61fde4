"""Brokers: list, one broker with log directories and settings, overview and topology of the cluster."""

from __future__ import annotations

from collections import Counter

import msgspec

from ottla.client.client import Client
from ottla.client.configs import Config, Resource, Source, describe_configs
from ottla.console.api.call import Call
from ottla.console.api.errors import bad_request, not_found
from ottla.console.api.topics import SettingChanges, SettingList, alter_settings, setting
from ottla.console.clusters.cluster import wait_until
from ottla.console.clusters.snapshot import Snapshot

POINTS_MAX = 600
HOURS_MAX = 24
ALL_BROKERS = ""  # the resource name of the cluster-wide default (KIP-226)
BROKERS_READ_MAX = 30  # for their own values


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker; one that is down but holds replicas is listed with `is_alive` False."""

    broker: int
    is_alive: bool
    is_controller: bool
    host: str | None
    port: int | None
    rack: str | None
    replicas: int
    leaders: int
    under_replicated: int  # replicas of this broker that are not in sync
    rate: float  # records per second produced to its leaders
    size_bytes: int | None


class BrokerList(msgspec.Struct, frozen=True):
    brokers: list[BrokerRow]


class FolderRow(msgspec.Struct, frozen=True):
    path: str
    problem: str | None
    replicas: int
    size_bytes: int
    total_bytes: int | None
    usable_bytes: int | None


class BrokerAnswer(msgspec.Struct, frozen=True):
    broker: BrokerRow
    folders: list[FolderRow]


class DefaultSetting(msgspec.Struct, frozen=True):
    """A cluster-wide setting; `is_set` False: not set. `in_force` is the effective value of the first broker, `own` are
    brokers with their own value, which takes precedence.
    """

    name: str
    value: str | None
    is_set: bool
    in_force: str | None
    is_sensitive: bool
    own: list[int]


class DefaultSettingList(msgspec.Struct, frozen=True):
    settings: list[DefaultSetting]


class Overview(msgspec.Struct, frozen=True):
    """The state of a cluster in numbers."""

    cluster_id: str | None
    controller: int
    brokers: list[BrokerRow]
    topics: int
    partitions: int
    leaderless: int
    under_replicated: int
    not_preferred: int
    groups: int
    groups_by_state: dict[str, int]
    backlog: int
    produce_rate: float
    consume_rate: float
    size_bytes: int
    busiest_topics: list[tuple[str, float]]
    laziest_groups: list[tuple[str, int]]


class HistoryAnswer(msgspec.Struct, frozen=True):
    """Columns: wall time in ms, records per second produced and consumed, lag in records; null: unknown. Records of
    internal topics are not counted.
    """

    at_ms: list[float]
    produced: list[float]
    consumed: list[float]
    backlog: list[float]


def list_brokers(call: Call) -> BrokerList:
    return BrokerList(broker_rows(call.snapshot))


def show_broker(call: Call) -> BrokerAnswer:
    row = find_broker_row(call)
    folders = [
        FolderRow(
            folder.path,
            folder.problem,
            folder.replicas,
            folder.size_bytes,
            folder.total_bytes if folder.total_bytes >= 0 else None,
            folder.usable_bytes if folder.usable_bytes >= 0 else None,
        )
        for folder in call.snapshot.folders.get(row.broker, ())
    ]
    return BrokerAnswer(row, folders)


async def list_settings(call: Call) -> SettingList:
    row = find_broker_row(call)
    return SettingList([setting(config) for config in await call.cluster.query_cached(broker_settings, row.broker)])


async def change_settings(call: Call) -> SettingList:
    """Change dynamic settings of one broker."""
    broker = str(find_broker_row(call).broker)
    configs = await call.cluster.query(broker_settings, int(broker))
    await alter_settings(call, Resource.BROKER, broker, f"broker {broker}", configs)
    return await list_settings(call)


async def list_default_settings(call: Call) -> DefaultSettingList:
    """Dynamic settings: the cluster-wide values, and the brokers that differ."""
    brokers = sorted(call.snapshot.brokers)
    return DefaultSettingList(await call.cluster.query_cached(default_settings, tuple(brokers[:BROKERS_READ_MAX])))


async def change_default_settings(call: Call) -> DefaultSettingList:
    """Change cluster-wide settings; a broker's own value takes precedence."""
    configs = await call.cluster.query(_cluster_wide_configs)
    await alter_settings(call, Resource.BROKER, ALL_BROKERS, "all brokers", configs)
    await call.cluster.query(_wait_until_visible, call.body)
    return await list_default_settings(call)


def _wait_until_visible(client: Client, body: SettingChanges) -> None:
    def is_seen() -> bool:
        values = {config.name: config.value for config in _cluster_wide_configs(client)}
        is_set = all(
            key in values and values[key] in (value, None) for key, value in body.set.items()
        )  # None: a secret
        return is_set and not values.keys() & set(body.remove)

    wait_until(is_seen)


def default_settings(client: Client, brokers: tuple[int, ...]) -> list[DefaultSetting]:
    cluster_wide = {config.name: setting(config) for config in _cluster_wide_configs(client)}
    changeable: dict[str, Config] = {}
    own: dict[str, list[int]] = {}
    for broker in brokers:
        for config in broker_settings(client, broker):
            if config.is_read_only:
                continue
            changeable.setdefault(config.name, config)
            if config.source == Source.DYNAMIC_BROKER_CONFIG:
                own.setdefault(config.name, []).append(broker)
    rows = []
    for name in sorted({*cluster_wide, *changeable}):
        wide, one = cluster_wide.get(name), changeable.get(name)
        is_sensitive = wide.is_sensitive if wide is not None else one is not None and one.is_sensitive
        in_force = setting(one).value if one is not None else None
        rows.append(
            DefaultSetting(
                name, wide.value if wide else None, wide is not None, in_force, is_sensitive, own.get(name, [])
            )
        )
    return rows


def _cluster_wide_configs(client: Client) -> list[Config]:
    found = describe_configs(client, Resource.BROKER, [ALL_BROKERS]).get(ALL_BROKERS, [])
    return [config for config in found if config.source == Source.DYNAMIC_DEFAULT_BROKER_CONFIG]


def overview(call: Call) -> Overview:
    snapshot = call.snapshot
    topics = [topic for topic in snapshot.topics.values() if call.sees(topic.name)]
    partitions = [partition for topic in topics for partition in topic.partitions]
    own = {topic.name for topic in topics if not topic.is_internal}
    rates: Counter[str] = Counter()
    for place, rate in snapshot.rates.items():
        if place.topic in own:  # internal topics are not written by clients
            rates[place.topic] += rate  # type: ignore[assignment]  # counters count floats as well
    lags = Counter(
        {name: snapshot.total_lag(snapshot.commits[name]) or 0 for name in snapshot.commits if call.sees(name)}
    )
    groups = [group for group in snapshot.groups.values() if call.sees(group.group_id)]
    return Overview(
        snapshot.cluster_id,
        snapshot.controller_id,
        broker_rows(snapshot),
        len(topics),
        len(partitions),
        sum(each.leader < 0 for each in partitions),
        sum(len(each.isr) < len(each.replicas) for each in partitions),
        sum(each.leader >= 0 and each.replicas[:1] != [each.leader] for each in partitions),
        len(groups),
        dict(Counter(group.state for group in groups)),
        sum(lags.values()),
        float(sum(rates.values())),
        sum(snapshot.consume_rates.get(group.group_id, 0.0) for group in groups),
        sum(snapshot.broker_bytes.values()),
        [(name, float(rate)) for name, rate in rates.most_common(5) if rate],
        [(name, number) for name, number in lags.most_common(5) if number],
    )


async def history(call: Call) -> HistoryAnswer:
    hours = call.int_query("hours", 1, HOURS_MAX)
    now_ms = call.console.clock.now_ms()
    columns = call.cluster.reader.history.since(now_ms - max(1, hours) * 3_600_000, POINTS_MAX, now_ms)
    return HistoryAnswer(*columns)


def broker_settings(client: Client, broker_id: int) -> list[Config]:
    return describe_configs(client, Resource.BROKER, [str(broker_id)])[str(broker_id)]


def broker_rows(snapshot: Snapshot) -> list[BrokerRow]:
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    rates: dict[int, float] = {}
    for topic in snapshot.topics.values():
        for partition in topic.partitions:
            replicas.update(partition.replicas)
            leaders[partition.leader] += 1
            behind.update(set(partition.replicas) - set(partition.isr))
    for place, rate in snapshot.rates.items():
        topic_of = snapshot.topics.get(place.topic)
        if topic_of is not None and place.partition < len(topic_of.partitions):
            leader = topic_of.partitions[place.partition].leader
            rates[leader] = rates.get(leader, 0.0) + rate
    rows = []
    for broker_id in sorted({*snapshot.brokers, *replicas}):
        broker = snapshot.brokers.get(broker_id)
        rows.append(
            BrokerRow(
                broker_id,
                broker is not None,
                broker_id == snapshot.controller_id,
                broker.host if broker is not None else None,
                broker.port if broker is not None else None,
                broker.rack if broker is not None else None,
                replicas[broker_id],
                leaders[broker_id],
                behind[broker_id],
                rates.get(broker_id, 0.0),
                snapshot.broker_bytes.get(broker_id),
            )
        )
    return rows


def find_broker_row(call: Call) -> BrokerRow:
    text = call.parameters["broker"]
    if not (text.isascii() and text.isdecimal()):
        raise bad_request("{0} is not a broker id", text)
    row = next((row for row in broker_rows(call.snapshot) if str(row.broker) == text), None)
    if row is None:
        raise not_found("there is no broker {0}", text)
    return row


class Link(msgspec.Struct, frozen=True):
    """Partitions that `follower` copies from `leader`; `behind` of them are not in sync."""

    leader: int
    follower: int
    partitions: int
    behind: int


class TopologyAnswer(msgspec.Struct, frozen=True):
    brokers: list[BrokerRow]
    links: list[Link]


def show_topology(call: Call) -> TopologyAnswer:
    return TopologyAnswer(broker_rows(call.snapshot), replication_links(call.snapshot))


def replication_links(snapshot: Snapshot) -> list[Link]:
    """Replication links from live leaders, the most used first."""
    copied: Counter[tuple[int, int]] = Counter()
    behind: Counter[tuple[int, int]] = Counter()
    for topic in snapshot.topics.values():
        for partition in topic.partitions:
            leader = partition.leader
            if leader not in snapshot.brokers:
                continue
            for follower in partition.replicas:
                if follower != leader:
                    copied[leader, follower] += 1
                    behind[leader, follower] += follower not in partition.isr
    return [Link(*pair, count, behind[pair]) for pair, count in copied.most_common()]

"""Topics: list, one topic with partitions and settings, creation, deletion and changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from ottla.base.broker_settings import is_password
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.admin import CLUSTER_DEFAULT, Admin, Topic
from ottla.client.client import Client
from ottla.client.configs import Config, Resource, Source, alter_configs, describe_configs
from ottla.client.errors import BrokerError, ClientError
from ottla.client.offsets import delete_records
from ottla.console.api.call import Call
from ottla.console.api.errors import bad_request, check_unchanged, from_client_error
from ottla.console.auth.rights import Role
from ottla.console.clusters.cluster import is_secret
from ottla.console.clusters.snapshot import Part, Snapshot, lag
from ottla.operations.topic_summary import summarize

ALL_RECORDS = -1
MASK = "********"


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in the list. `records`: end minus start offsets; None: not read yet."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    leaderless: int
    records: int | None
    size_bytes: int | None
    rate: float
    groups: int


class TopicList(msgspec.Struct, frozen=True):
    topics: list[TopicRow]


class PartitionRow(msgspec.Struct, frozen=True):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start: int | None
    end: int | None
    size_bytes: int | None
    rate: float


class TopicGroup(msgspec.Struct, frozen=True):
    """A group with members or commits for this topic."""

    group: str
    state: str
    members: int
    lag: int | None


class TopicAnswer(msgspec.Struct, frozen=True):
    topic: TopicRow
    topic_id: str
    partitions: list[PartitionRow]
    groups: list[TopicGroup]


class SummaryFigure(msgspec.Struct, frozen=True):
    """A figure with the name that CMAK uses; its level is ok, yellow or red."""

    name: str
    value: int | None
    level: str


class SummaryBroker(msgspec.Struct, frozen=True):
    broker: int
    partitions: list[int]
    leaders: int
    is_skewed: bool
    is_leader_skewed: bool


class SummaryAnswer(msgspec.Struct, frozen=True):
    figures: list[SummaryFigure]
    brokers: list[SummaryBroker]


class Setting(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: str
    is_default: bool
    is_sensitive: bool
    is_read_only: bool


class SettingList(msgspec.Struct, frozen=True):
    settings: list[Setting]


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """None: the default of the cluster; with `validate_only` nothing is created."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: dict[str, str] = {}
    validate_only: bool = False


class SettingChanges(msgspec.Struct, forbid_unknown_fields=True):
    """`expected`: the values that the caller has seen; if they differ, nothing is changed (409)."""

    set: dict[str, str] = {}
    remove: list[str] = []
    expected: dict[str, str | None] = {}


class MorePartitions(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int


class Names(msgspec.Struct, forbid_unknown_fields=True):
    names: list[str]


class Outcome(msgspec.Struct, frozen=True):
    """The result for one of several names; no error: done."""

    name: str
    error: str | None = None
    message: str | None = None


class Outcomes(msgspec.Struct, frozen=True):
    results: list[Outcome]


def list_topics(call: Call) -> TopicList:
    snapshot = call.snapshot
    readers = readers_of(snapshot)
    return TopicList(
        [
            topic_row(snapshot, topic, len(readers[topic.name]))
            for topic in snapshot.topics.values()
            if call.sees(topic.name)
        ]
    )


def show_topic(call: Call) -> TopicAnswer:
    topic, snapshot = call.topic(), call.snapshot
    names = sorted(name for name in readers_of(snapshot)[topic.name] if call.sees(name))
    return TopicAnswer(
        topic_row(snapshot, topic, len(names)),
        str(topic.topic_id),
        [partition_row(snapshot, topic, place) for place in range(len(topic.partitions))],
        [topic_group(snapshot, topic, name) for name in names],
    )


def show_summary(call: Call) -> SummaryAnswer:
    topic, snapshot = call.topic(), call.snapshot
    ends = {place.partition: end for place, end in snapshot.ends.items() if place.topic == topic.name}
    found = summarize(topic, ends, snapshot.brokers)
    return SummaryAnswer(
        [SummaryFigure(figure.name, figure.value, figure.level.value) for figure in found.figures],
        [
            SummaryBroker(row.broker, list(row.partitions), row.leader_count, row.is_skewed, row.is_leader_skewed)
            for row in found.brokers
        ],
    )


async def list_settings(call: Call) -> SettingList:
    name = call.topic().name
    return SettingList([setting(config) for config in await call.cluster.query_cached(topic_settings, name)])


async def create_topic(call: Call) -> TopicRow:
    body: NewTopic = call.body
    call.require_role(Role.OPERATOR, body.name)
    call.audit(body.name, after=body)

    def create(client: Client) -> None:
        Admin(client).create_topic(
            body.name,
            partitions=CLUSTER_DEFAULT if body.partitions is None else body.partitions,
            replication_factor=CLUSTER_DEFAULT if body.replication_factor is None else body.replication_factor,
            configs=body.settings,
            validate_only=body.validate_only,
        )

    await call.cluster.change(create, refresh=() if body.validate_only else (Part.METADATA, Part.ENDS, Part.STARTS))
    made = call.snapshot.topics.get(body.name)
    if made is not None and not body.validate_only:
        return topic_row(call.snapshot, made, 0)
    return TopicRow(body.name, False, body.partitions or 0, body.replication_factor or 0, 0, 0, 0, 0, 0.0, 0)


async def change_settings(call: Call) -> SettingList:
    name = call.topic().name
    await alter_settings(call, Resource.TOPIC, name, name, await call.cluster.query(topic_settings, name))
    return await list_settings(call)


async def alter_settings(call: Call, resource: Resource, name: str, target: str, configs: Sequence[Config]) -> None:
    """Apply the changes of the body if the expected values still hold. Secrets are not audited."""
    body: SettingChanges = call.body
    known = {config.name: setting(config) for config in configs}
    before = {key: item.value for key, item in known.items()}
    touched = [*body.set, *body.remove]
    if not touched:
        raise bad_request("name a setting in `set` or in `remove`")
    secret = {
        key for key in touched if is_secret(key) or is_password(key) or (key in known and known[key].is_sensitive)
    }
    after = {key: MASK if key in secret and key in body.set else body.set.get(key) for key in touched}
    call.audit(target, {key: before.get(key) for key in touched}, after)
    check_unchanged(before, body.expected)
    await call.cluster.change(alter_configs, resource, name, body.set, body.remove, refresh=(Part.METADATA,))


async def add_partitions(call: Call) -> None:
    body: MorePartitions = call.body
    topic = call.topic()
    call.audit(topic.name, {"partitions": len(topic.partitions)}, {"partitions": body.partitions})

    def add(client: Client) -> None:
        Admin(client).create_partitions(topic.name, body.partitions)

    await call.cluster.change(add, refresh=(Part.METADATA, Part.ENDS, Part.STARTS))


async def empty_topics(call: Call) -> Outcomes:
    """Delete all records; topics, settings and groups remain."""
    return await _change_each(call, "records", _delete_all_records, (Part.STARTS, Part.ENDS, Part.SIZES))


async def delete_topics(call: Call) -> Outcomes:
    return await _change_each(call, "topic", _delete_topic, (Part.METADATA, Part.ENDS))


async def delete_topic(call: Call) -> None:
    topic = call.topic()
    call.audit(topic.name, before=_audit_row(call.snapshot, topic))
    await call.cluster.change(_delete_topic, topic, refresh=(Part.METADATA,))


def topic_settings(client: Client, name: str) -> list[Config]:
    return describe_configs(client, Resource.TOPIC, [name])[name]


def setting(config: Config) -> Setting:
    value = MASK if config.is_sensitive and config.value is not None else config.value
    sources = {source.value: source.name for source in Source}
    return Setting(
        config.name,
        value,
        sources.get(config.source, "UNKNOWN"),
        config.is_default,
        config.is_sensitive,
        config.is_read_only,
    )


def topic_row(snapshot: Snapshot, topic: Topic, groups: int) -> TopicRow:
    places = [TopicPartition(topic.name, partition.number) for partition in topic.partitions]
    spans = [
        snapshot.ends[place] - snapshot.starts[place]
        for place in places
        if place in snapshot.ends and place in snapshot.starts
    ]
    sizes = [snapshot.sizes[place] for place in places if place in snapshot.sizes]
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(places),
        max((len(partition.replicas) for partition in topic.partitions), default=0),
        sum(len(partition.isr) < len(partition.replicas) for partition in topic.partitions),
        sum(partition.leader < 0 for partition in topic.partitions),
        sum(spans) if spans else None,
        sum(sizes) if sizes else None,
        sum(snapshot.rates.get(place, 0.0) for place in places),
        groups,
    )


def partition_row(snapshot: Snapshot, topic: Topic, index: int) -> PartitionRow:
    partition = topic.partitions[index]
    place = TopicPartition(topic.name, partition.number)
    return PartitionRow(
        partition.number,
        partition.leader,
        partition.replicas,
        partition.isr,
        snapshot.starts.get(place),
        snapshot.ends.get(place),
        snapshot.sizes.get(place),
        snapshot.rates.get(place, 0.0),
    )


def topic_group(snapshot: Snapshot, topic: Topic, name: str) -> TopicGroup:
    group = snapshot.groups.get(name)
    commits = snapshot.commits.get(name, {})
    places = [TopicPartition(topic.name, partition.number) for partition in topic.partitions]
    behind = [lag(snapshot.ends.get(place), commits.get(place)) for place in places]
    known = [each for each in behind if each is not None]
    return TopicGroup(
        name,
        group.state if group is not None else "",
        sum(any(place.topic == topic.name for place in member.assigned) for member in group.members) if group else 0,
        sum(known) if known else None,
    )


def readers_of(snapshot: Snapshot) -> defaultdict[str, set[str]]:
    """By topic the groups that have committed for it or have members on it."""
    readers: defaultdict[str, set[str]] = defaultdict(set)
    for name, offsets in snapshot.commits.items():
        for topic in {place.topic for place in offsets}:
            readers[topic].add(name)
    for name, group in snapshot.groups.items():
        for member in group.members:
            for place in member.assigned:
                readers[place.topic].add(name)
    return readers


async def _change_each(
    call: Call, what: str, change: Callable[[Client, Topic], None], hurries: tuple[Part, ...]
) -> Outcomes:
    """Apply a change to several topics; failures do not stop the others."""
    names = call.names_to_change("name 1 to {0} topics")
    topics = [call.snapshot.topics.get(name) for name in names]

    def change_all(client: Client) -> list[Outcome]:
        results = []
        for name, topic in zip(names, topics, strict=True):
            try:
                change(client, topic if topic is not None else Topic(name, UUID(int=0), False, []))
                results.append(Outcome(name))
            except ClientError as problem:
                error = from_client_error(problem)
                results.append(Outcome(name, error.code, error.message))
        return results

    results = await call.cluster.change(change_all, refresh=hurries)
    for topic, result in zip(topics, results, strict=True):
        before = _audit_row(call.snapshot, topic) if topic is not None else None
        problem = f"{result.error}: {result.message}" if result.error else ""
        call.audit(f"{what} {result.name}", before, problem=problem)
    return Outcomes(results)


def _delete_topic(client: Client, topic: Topic) -> None:
    Admin(client).delete_topics([topic.name])


def _delete_all_records(client: Client, topic: Topic) -> None:
    wanted = {TopicPartition(topic.name, partition.number): ALL_RECORDS for partition in topic.partitions}
    if not wanted:
        raise BrokerError(f"there is no topic {topic.name}", Error.UNKNOWN_TOPIC_OR_PARTITION, None)
    _, failures = delete_records(client, wanted)
    for problem in failures.values():
        raise problem


def _audit_row(snapshot: Snapshot, topic: Topic) -> TopicRow:
    return topic_row(snapshot, topic, 0)

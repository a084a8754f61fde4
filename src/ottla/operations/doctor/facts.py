"""What can be seen of a cluster from outside: asked once, in one go, so that the checks can be pure.

Whatever cannot be asked is noted with its reason and left out: a sick cluster answers only half of the questions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.addresses import Address
from ottla.client.admin import Admin, Partition, Topic
from ottla.client.client import Client
from ottla.client.configs import Config, Resource, describe_configs
from ottla.client.errors import ClientError, RefusedError
from ottla.client.groups import Group, describe_groups, list_groups
from ottla.client.log_dirs import Folder, describe_log_dirs
from ottla.client.offsets import list_offsets
from ottla.client.reassignments import Reassignment, list_reassignments
from ottla.client.versions import offered_versions
from ottla.operations.group_lag import committed_lags
from ottla.operations.hanging_transactions import OpenTransaction, SearchError, find_hanging
from ottla.operations.lag import total_lag
from ottla.operations.topic_replicas import MIN_ISR
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

CONNECT_TIMEOUT_MS = 3_000
ROUNDS = 5  # of the measurement how long a broker needs to answer
MAX_TIMESTAMP = -3
HANGING_MS = 15 * 60 * 1000
GROUPS_MAX = 200
UNCLEAN = "unclean.leader.election.enable"
TOPIC_KEYS = (MIN_ISR, UNCLEAN)  # all that the checks want to know of a topic's settings
FORBIDDEN = frozenset(error for error in Error if error.name.endswith("AUTHORIZATION_FAILED"))
BROKER_TOPICS = ("__consumer_offsets", "__transaction_state")  # only brokers write to them: their time is the brokers'

T = TypeVar("T")


class BrokerFacts(NamedTuple):
    """One broker as it looks from here."""

    id: int
    address: Address
    rack: str | None
    problem: str | None = None  # why it cannot be reached
    error: Error | None = None
    milliseconds: tuple[float, ...] = ()  # that its answers took
    versions: Mapping[int, tuple[int, int]] | None = None
    controller_id: int | None = None  # that it believes in
    leaders: Mapping[TopicPartition, tuple[int, int]] | None = None  # leader and its epoch, as this broker tells


class GroupFacts(NamedTuple):
    """One group, and how far it is behind."""

    group: Group
    lag: int | None  # None: nobody knows


@dataclass
class Facts:
    """Everything; what could not be asked is empty, and `unknown` says why."""

    now_ms: int
    cluster_id: str = ""
    brokers: dict[int, BrokerFacts] = field(default_factory=dict)
    topics: list[Topic] = field(default_factory=list)
    later: dict[TopicPartition, Partition] = field(default_factory=dict)  # the same partitions a moment later
    topic_configs: dict[str, list[Config]] = field(default_factory=dict)  # only TOPIC_KEYS
    broker_configs: dict[int, dict[str, str]] = field(default_factory=dict)
    folders: dict[int, list[Folder]] = field(default_factory=dict)
    moves: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    groups: list[GroupFacts] = field(default_factory=list)
    newest_ms: dict[TopicPartition, int] = field(default_factory=dict)  # time of the newest record
    hanging: list[OpenTransaction] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)  # what this login may not ask

    def partitions(self) -> list[tuple[TopicPartition, Partition]]:
        return [
            (TopicPartition(topic.name, partition.number), partition)
            for topic in self.topics
            for partition in topic.partitions
        ]


def gather(client: Client, pause_seconds: float) -> Facts:
    """Ask for everything. ClientError only if no broker can be reached at all."""
    facts = Facts(now_ms=client.clock.now_ms())
    cluster = client.cluster()
    facts.cluster_id = cluster.cluster_id or ""
    admin = Admin(client)
    ask = Asking(facts)
    facts.topics = ask("topics", admin.topics, [])
    names = [topic.name for topic in facts.topics]
    if names:
        facts.topics = ask("partitions of topics", lambda: admin.describe(names), facts.topics)
        facts.topic_configs = ask("settings of topics", lambda: admin.topic_configs(names, TOPIC_KEYS), {})
    for broker in sorted(cluster.brokers, key=lambda broker: broker.node_id):
        address = Address(broker.host, broker.port)
        facts.brokers[broker.node_id] = look_at_broker(client, broker.node_id, address, broker.rack)
    living = [broker.id for broker in facts.brokers.values() if broker.problem is None]
    for broker_id in living:
        look_inside(client, broker_id, facts, ask)
    facts.moves = ask("moves of replicas", lambda: list_reassignments(client), {})
    facts.groups = ask("consumer groups", lambda: look_at_groups(client), [])
    facts.newest_ms = ask("newest records", lambda: newest_times(client, facts.topics), {})
    facts.hanging = ask("transactions", lambda: hanging(client, facts), [])
    time.sleep(pause_seconds)
    later: list[Topic] = ask("topics", lambda: admin.topics(names), []) if names else []
    facts.later = {
        TopicPartition(topic.name, partition.number): partition for topic in later for partition in topic.partitions
    }
    return facts


def look_inside(client: Client, broker_id: int, facts: Facts, ask: Asking) -> None:
    """What only the broker itself can tell."""
    nothing: dict[int, list[Folder]] = {}
    no_settings: dict[str, str] = {}
    facts.broker_configs[broker_id] = ask(
        f"settings of broker {broker_id}", lambda: settings(client, broker_id), no_settings
    )
    facts.folders |= ask(f"folders of broker {broker_id}", lambda: describe_log_dirs(client, [broker_id]), nothing)


class Asking:
    """Asks; what fails is noted and has the value that is given instead."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def __call__(self, what: str, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except ClientError as problem:
            if problem.error in FORBIDDEN:
                self.facts.forbidden.append(what)
            else:
                self.facts.unknown.append(f"{what}: {problem}")
        except SearchError as failed:
            self.facts.unknown.append(f"{what}: {failed.what} ({failed.problem})")
        return otherwise


def look_at_broker(client: Client, broker_id: int, address: Address, rack: str | None) -> BrokerFacts:
    """Connect as any client would, at the address that the cluster tells; measure; ask what it believes."""
    plain = BrokerFacts(broker_id, address, rack)
    try:
        connection = client.open_connection(address)
    except ClientError as problem:
        return plain._replace(problem=str(problem), error=problem.error)
    try:
        times = []
        versions: dict[int, tuple[int, int]] = {}
        for _ in range(ROUNDS):
            started = time.monotonic()
            versions = offered_versions(connection, CONNECT_TIMEOUT_MS)
            times.append((time.monotonic() - started) * 1000)
        version = min(versions[3][1], 9) if 3 in versions else 0
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = connection.call(request, MetadataResponse, version, CONNECT_TIMEOUT_MS)
    except ClientError as problem:
        return plain._replace(problem=str(problem), error=problem.error)
    finally:
        connection.close()
    leaders = {
        TopicPartition(topic.name or "", item.partition_index): (item.leader_id, item.leader_epoch)
        for topic in answer.topics
        for item in topic.partitions
    }
    return plain._replace(
        milliseconds=tuple(times), versions=versions, controller_id=answer.controller_id, leaders=leaders
    )


def settings(client: Client, broker_id: int) -> dict[str, str]:
    found = describe_configs(client, Resource.BROKER, [str(broker_id)])
    return {config.name: config.value or "" for configs in found.values() for config in configs}


def look_at_groups(client: Client) -> list[GroupFacts]:
    names = sorted(listing.group_id for listing in list_groups(client))[:GROUPS_MAX]
    answers = describe_groups(client, names)
    groups = [answer for answer in answers.values() if isinstance(answer, Group)]
    found = []
    lags = committed_lags(client, [group.group_id for group in groups])
    for group in groups:
        lag = lags[group.group_id]
        if isinstance(lag, RefusedError):
            raise lag
        found.append(GroupFacts(group, total_lag(lag.values()).records))
    return found


def newest_times(client: Client, topics: Sequence[Topic]) -> dict[TopicPartition, int]:
    led = [
        TopicPartition(topic.name, partition.number)
        for topic in topics
        for partition in topic.partitions
        if partition.leader >= 0
    ]
    found, _ = list_offsets(client, led, MAX_TIMESTAMP) if led else ({}, {})
    return {name: item.timestamp_ms for name, item in found.items() if item.timestamp_ms >= 0}


def hanging(client: Client, facts: Facts) -> list[OpenTransaction]:
    """Only where somebody uses transactions at all: the search asks every leader about every partition."""
    if not any(topic.name == BROKER_TOPICS[1] for topic in facts.topics):
        return []
    return find_hanging(client, None, None, None, facts.now_ms - HANGING_MS)

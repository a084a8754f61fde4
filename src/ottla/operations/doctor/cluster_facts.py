"""The facts of a cluster that `ottla doctor` checks: read once, so that the checks are pure.

A read that fails is noted with its reason and left out: a broken cluster answers only some requests.
Groups that fall behind are found with the rules of the monitor (LagTrend in lag.py), without sampling: from the last
minutes' commits in `__consumer_offsets`, and the log end offsets at the times of these commits by record timestamps.
Records with invented timestamps never make a group look worse: their log then seems to have ended at its current end or
at its start.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ottla.base.broker_settings import find_key
from ottla.base.errors import Error, KafkaError
from ottla.base.names import TopicPartition
from ottla.client.addresses import Address
from ottla.client.admin import Admin, Partition, Topic
from ottla.client.client import Client
from ottla.client.configs import Config, Resource, Source, describe_configs
from ottla.client.connection import offered_versions
from ottla.client.errors import BrokerError, ClientError
from ottla.client.groups import Group, describe_groups, list_groups
from ottla.client.log_dirs import LogDir, describe_log_dirs
from ottla.client.offsets import LATEST, NO_OFFSET, list_offsets
from ottla.client.reassignments import Reassignment, list_reassignments
from ottla.operations.advice.group_samples import Commit, recent_commits
from ottla.operations.fetched_batches import FetchedDataError
from ottla.operations.group_lag import committed_lags
from ottla.operations.hanging_transactions import OpenTransaction, SearchError, find_hanging
from ottla.operations.lag import POINT_MS, LagTrend, total_lag
from ottla.operations.range_fetcher import FetchError
from ottla.operations.topic_summary import MIN_ISR
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

TREND_PERIOD_MS = 150_000
PARTITIONS_MAX = 100  # of one group


def is_falling_behind(client: Client, group_id: str) -> bool:
    """Whether the group falls behind; False if unknown, for instance without the right to read the commits."""
    try:
        commits = list(recent_commits(client, group_id, client.clock.now_ms() - TREND_PERIOD_MS))
        trends = _trends(client, commits)
    except (ClientError, FetchError, FetchedDataError, KafkaError):
        return False
    return any(trend.is_falling_behind for trend in trends)


def _trends(client: Client, commits: Sequence[Commit]) -> list[LagTrend]:
    by_place: defaultdict[TopicPartition, list[Commit]] = defaultdict(list)
    for commit in commits:
        by_place[commit.place].append(commit)
    places = sorted(by_place)[:PARTITIONS_MAX]
    if not places:
        return []
    newest, _ = list_offsets(client, places, LATEST)
    trends = {place: LagTrend() for place in newest}
    for time_ms in sample_times(sorted(commit.time_ms for commit in commits)):
        then, _ = list_offsets(client, list(trends), time_ms)
        for place, trend in trends.items():
            known = [commit for commit in by_place[place] if commit.time_ms <= time_ms]
            if known and place in then:
                end = then[place].offset if then[place].offset != NO_OFFSET else newest[place].offset
                trend.add_sample(known[-1].offset, max(end, known[-1].offset), time_ms, known[-1].time_ms)
    return list(trends.values())


def sample_times(times_ms: Sequence[int]) -> list[int]:
    """Times of commits that are at least POINT_MS apart."""
    found: list[int] = []
    for time_ms in times_ms:
        if not found or time_ms - found[-1] >= POINT_MS:
            found.append(time_ms)
    return found


CONNECT_TIMEOUT_MS = 3_000
PROBES_PER_BROKER = 5  # response time measurements
MAX_TIMESTAMP = -3
HANGING_MS = 15 * 60 * 1000
GROUPS_MAX = 200
TRENDS_MAX = 50
UNCLEAN = "unclean.leader.election.enable"
TOPIC_KEYS = (MIN_ISR, UNCLEAN)  # all topic settings that the checks need
FORBIDDEN = frozenset(error for error in Error if error.name.endswith("AUTHORIZATION_FAILED"))
# only brokers write to them, so their timestamps are the brokers'
BROKER_TOPICS = ("__consumer_offsets", "__transaction_state")

T = TypeVar("T")


class BrokerFacts(NamedTuple):
    """One broker as a client sees it."""

    id: int
    address: Address
    rack: str | None
    problem: str | None = None  # why it cannot be reached
    error: Error | None = None
    milliseconds: tuple[float, ...] = ()  # response times
    versions: Mapping[int, tuple[int, int]] | None = None
    controller_id: int | None = None  # the controller that it reports
    # leader and leader epoch, as this broker reports them
    leaders: Mapping[TopicPartition, tuple[int, int]] | None = None


class GroupFacts(NamedTuple):
    """One group and its lag."""

    group: Group
    lag: int | None  # None: unknown
    is_falling_behind: bool = False  # by the rules of the monitor


@dataclass
class ClusterFacts:
    """All facts; what could not be read is empty, and `unknown` says why."""

    now_ms: int
    cluster_id: str = ""
    brokers: dict[int, BrokerFacts] = field(default_factory=dict)
    topics: list[Topic] = field(default_factory=list)
    partitions_later: dict[TopicPartition, Partition] = field(
        default_factory=dict
    )  # the same partitions a moment later
    topic_configs: dict[str, list[Config]] = field(default_factory=dict)  # only TOPIC_KEYS
    broker_configs: dict[int, dict[str, str]] = field(default_factory=dict)
    # by broker: names of stored settings that it does not know
    unknown_settings: dict[int, list[str]] = field(default_factory=dict)
    log_dirs: dict[int, list[LogDir]] = field(default_factory=dict)
    reassignments: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    groups: list[GroupFacts] = field(default_factory=list)
    newest_ms: dict[TopicPartition, int] = field(default_factory=dict)  # timestamp of the newest record
    hanging: list[OpenTransaction] = field(default_factory=list)
    failed_reads: list[str] = field(default_factory=list)
    unauthorized_reads: list[str] = field(default_factory=list)  # what this login may not read

    def partitions(self) -> list[tuple[TopicPartition, Partition]]:
        return [
            (TopicPartition(topic.name, partition.number), partition)
            for topic in self.topics
            for partition in topic.partitions
        ]


def collect_facts(client: Client, pause_seconds: float) -> ClusterFacts:
    """Read all facts. Raises ClientError only if no broker can be reached."""
    facts = ClusterFacts(now_ms=client.clock.now_ms())
    cluster = client.cluster()
    facts.cluster_id = cluster.cluster_id or ""
    admin = Admin(client)
    ask = FactReader(facts)
    facts.topics = ask("topics", admin.topics, [])
    names = [topic.name for topic in facts.topics]
    if names:
        facts.topics = ask("partitions of topics", lambda: admin.describe(names), facts.topics)
        facts.topic_configs = ask("settings of topics", lambda: admin.topic_configs(names, TOPIC_KEYS), {})
    for broker in sorted(cluster.brokers, key=lambda broker: broker.node_id):
        address = Address(broker.host, broker.port)
        facts.brokers[broker.node_id] = probe_broker(client, broker.node_id, address, broker.rack)
    living = [broker.id for broker in facts.brokers.values() if broker.problem is None]
    for broker_id in living:
        describe_broker(client, broker_id, facts, ask)
    facts.reassignments = ask("moves of replicas", lambda: list_reassignments(client), {})
    facts.groups = ask("consumer groups", lambda: describe_group_lags(client), [])
    facts.newest_ms = ask("newest records", lambda: newest_times(client, facts.topics), {})
    facts.hanging = ask("transactions", lambda: find_hanging_transactions(client, facts), [])
    time.sleep(pause_seconds)
    later: list[Topic] = ask("topics", lambda: admin.topics(names), []) if names else []
    facts.partitions_later = {
        TopicPartition(topic.name, partition.number): partition for topic in later for partition in topic.partitions
    }
    return facts


def describe_broker(client: Client, broker_id: int, facts: ClusterFacts, ask: FactReader) -> None:
    """Facts that only the broker itself returns."""
    nothing: dict[int, list[LogDir]] = {}
    no_settings: list[Config] = []
    found = ask(f"settings of broker {broker_id}", lambda: settings(client, broker_id), no_settings)
    facts.broker_configs[broker_id] = {config.name: config.value or "" for config in found}
    facts.unknown_settings[broker_id] = [config.name for config in found if is_unknown_setting(config)]
    facts.log_dirs |= ask(f"folders of broker {broker_id}", lambda: describe_log_dirs(client, [broker_id]), nothing)


class FactReader:
    """Runs a read; a failure is noted and replaced by the default."""

    def __init__(self, facts: ClusterFacts) -> None:
        self.facts = facts

    def __call__(self, what: str, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except ClientError as problem:
            if problem.error in FORBIDDEN:
                self.facts.unauthorized_reads.append(what)
            else:
                self.facts.failed_reads.append(f"{what}: {problem}")
        except SearchError as failed:
            self.facts.failed_reads.append(f"{what}: {failed.step} ({failed.problem})")
        return otherwise


def probe_broker(client: Client, broker_id: int, address: Address, rack: str | None) -> BrokerFacts:
    """Connect like any client, at the advertised address; measure response times; read its view of leaders."""
    plain = BrokerFacts(broker_id, address, rack)
    try:
        connection = client.open_connection(address)
    except ClientError as problem:
        return plain._replace(problem=str(problem), error=problem.error)
    try:
        times = []
        versions: dict[int, tuple[int, int]] = {}
        for _ in range(PROBES_PER_BROKER):
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


def settings(client: Client, broker_id: int) -> list[Config]:
    found = describe_configs(client, Resource.BROKER, [str(broker_id)])
    return [config for configs in found.values() for config in configs]


def is_unknown_setting(config: Config) -> bool:
    """Stored under a name that neither we nor the broker know: a broker hides the values of unknown settings."""
    is_changed = config.source in (Source.DYNAMIC_BROKER_CONFIG, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    return is_changed and config.is_sensitive and config.value is None and find_key(config.name) is None


def describe_group_lags(client: Client) -> list[GroupFacts]:
    names = sorted(listing.group_id for listing in list_groups(client))[:GROUPS_MAX]
    answers = describe_groups(client, names)
    groups = [answer for answer in answers.values() if isinstance(answer, Group)]
    found: list[GroupFacts] = []
    lags = committed_lags(client, [group.group_id for group in groups])
    for group in groups:
        lag = lags[group.group_id]
        if isinstance(lag, BrokerError):
            raise lag
        records = total_lag(lag.values()).records
        falls = bool(
            records and group.members and len(found) < TRENDS_MAX and is_falling_behind(client, group.group_id)
        )
        found.append(GroupFacts(group, records, falls))
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


def find_hanging_transactions(client: Client, facts: ClusterFacts) -> list[OpenTransaction]:
    """Only if transactions are used: the search sends a request to every leader for every partition."""
    if not any(topic.name == BROKER_TOPICS[1] for topic in facts.topics):
        return []
    return find_hanging(client, None, None, None, facts.now_ms - HANGING_MS)

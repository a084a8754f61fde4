"""What a cluster is, read over the wire: as much of it as a file is about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ottla.base.errors import Error
from ottla.cli.cluster_file.model import (
    ALL_BROKERS,
    BROKERS,
    GROUPS,
    OF_MOVES,
    TOPICS,
    ClusterState,
    Settings,
    TopicState,
    is_of_a_service,
)
from ottla.cli.security.cluster import read_cluster as read_policy
from ottla.cli.security.policy import SECTIONS as POLICY_SECTIONS
from ottla.client.admin import Admin, Topic
from ottla.client.client import Client
from ottla.client.configs import Config, Resource, Source, describe_configs, resources_with_configs
from ottla.client.errors import ClientError
from ottla.client.groups import list_groups
from ottla.client.reassignments import list_reassignments
from ottla.operations.topic_replicas import Moves, replication_factor

RESOURCES_MAX: Final = 500  # in one request
NO_SETTINGS: Final[Settings] = {}

T = TypeVar("T")


def read_cluster(client: Client, sections: Collection[str], wanted: ClusterState | None = None) -> ClusterState:
    """These sections; of topics and groups the settings of those that are wanted, of all of them without a wish."""
    brokers, fixed = _brokers(client) if BROKERS in sections else (None, frozenset())
    return ClusterState(
        _topics(client, wanted and wanted.topics) if TOPICS in sections else None,
        brokers,
        _groups(client, wanted.groups if wanted is not None and wanted.groups else {}) if GROUPS in sections else None,
        None,
        read_policy(client, [name for name in POLICY_SECTIONS if name in sections]),
        fixed,
    )


def exported(state: ClusterState) -> ClusterState:
    """What belongs into a file: neither topics of services nor what moves of replicas have set for a while."""
    topics = {
        name: topic._replace(settings=_lasting(topic.settings))
        for name, topic in (state.topics or {}).items()
        if not is_of_a_service(name)
    }
    brokers = {name: _lasting(settings) for name, settings in (state.brokers or {}).items()}
    return state._replace(topics=topics, brokers=brokers)


def _lasting(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key not in OF_MOVES}


def _topics(client: Client, wanted: Collection[str] | None) -> Mapping[str, TopicState]:
    topics = [topic for topic in Admin(client).topics() if not topic.is_internal]
    moves = list_reassignments(client)
    names = [topic.name for topic in topics if wanted is None or topic.name in wanted]
    settings: dict[str, Settings] = {}
    for some in _portions(names):
        for name, configs in describe_configs(client, Resource.TOPIC, some).items():
            settings[name] = _own(configs, Source.DYNAMIC_TOPIC_CONFIG)
    return {topic.name: _topic(topic, moves, settings.get(topic.name, NO_SETTINGS)) for topic in topics}


def _topic(topic: Topic, moves: Moves, settings: Settings) -> TopicState:
    return TopicState(len(topic.partitions), replication_factor(topic, moves), settings)


def _brokers(client: Client) -> tuple[Mapping[str, Settings], frozenset[str]]:
    """What is set while they run, and the names of what cannot be."""
    default = describe_configs(client, Resource.BROKER, [ALL_BROKERS])[ALL_BROKERS]
    found = {ALL_BROKERS: _own(default, Source.DYNAMIC_DEFAULT_BROKER_CONFIG)}
    fixed: set[str] = set()
    for broker in sorted(Admin(client).live_brokers()):
        name = str(broker)
        configs = describe_configs(client, Resource.BROKER, [name])[name]
        found[name] = _own(configs, Source.DYNAMIC_BROKER_CONFIG)
        fixed |= {config.name for config in configs if config.is_read_only}
    return found, frozenset(fixed)


def _groups(client: Client, wanted: Iterable[str]) -> Mapping[str, Settings]:
    try:
        known = resources_with_configs(client, Resource.GROUP)
    except ClientError as problem:
        if problem.error is not Error.UNSUPPORTED_VERSION:
            raise
        known = [group.group_id for group in list_groups(client)]  # a broker that cannot tell which have settings
    found: dict[str, Settings] = {}
    for some in _portions(sorted({*known, *wanted})):
        for name, configs in describe_configs(client, Resource.GROUP, some).items():
            found[name] = _own(configs, Source.DYNAMIC_GROUP_CONFIG)
    return found


def _own(configs: Iterable[Config], source: Source) -> Settings:
    """What was set for just this resource."""
    return {config.name: None if config.is_sensitive else config.value for config in configs if config.source == source}


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + RESOURCES_MAX] for start in range(0, len(items), RESOURCES_MAX))

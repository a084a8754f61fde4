"""What `kafka-configs.sh` says about the settings of topics, brokers, loggers, groups and metrics subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ottla.base.errors import Error
from ottla.base.names import topic_name_problem
from ottla.cli.configs.entities import BROKERS, GROUPS, LOGGERS, METRICS, TOPICS, Entities
from ottla.cli.java.options import OptionError
from ottla.cli.java.order import hash_map_order
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import (
    Config,
    Resource,
    Source,
    alter_configs,
    describe_configs,
    resources_with_configs,
)
from ottla.client.errors import ClientError
from ottla.client.groups import list_groups

DEFAULT = ""  # the name of the settings that all brokers share
RESOURCES = {
    TOPICS: Resource.TOPIC,
    BROKERS: Resource.BROKER,
    LOGGERS: Resource.BROKER_LOGGER,
    METRICS: Resource.CLIENT_METRICS,
    GROUPS: Resource.GROUP,
}
# Where a value comes from that somebody set for just this entity.
_OWN_SOURCES = {
    TOPICS: Source.DYNAMIC_TOPIC_CONFIG,
    BROKERS: Source.DYNAMIC_BROKER_CONFIG,
    METRICS: Source.DYNAMIC_CLIENT_METRICS_CONFIG,
    GROUPS: Source.DYNAMIC_GROUP_CONFIG,
}


def describe_resources(client: Client, entities: Entities, is_all: bool, is_old: bool) -> Iterator[str]:
    """The lines about one entity or about all of its type."""
    kind, single = entities.type, entities.type.removesuffix("s")
    if kind == TOPICS and entities.name:
        _check_topic(entities.name)
    if entities.name and not is_all and not _exists(client, kind, entities.name):
        yield f"The {single} '{entities.name}' doesn't exist and doesn't have dynamic config."
        return
    for name in [entities.name] if entities.name is not None else _names(client, kind):
        if is_old:
            pairs = ",".join(f"{item.name}={item.value}" for item in settings_of(client, kind, name, False))
            yield f"Configs for {single} '{name}' are {pairs}"
            continue
        if name == DEFAULT:
            yield f"Default configs for {kind} in the cluster are:"
        else:
            yield f"{'All' if is_all else 'Dynamic'} configs for {single} {name} are:"
        yield from map(config_line, settings_of(client, kind, name, is_all))


def alter_resource(client: Client, entities: Entities, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    name = entities.name or DEFAULT
    if entities.type == TOPICS:
        _check_topic(name)
    if entities.type == LOGGERS:
        known = {config.name for config in settings_of(client, LOGGERS, name, False)}
        unknown = [logger for logger in (*deleted, *added) if logger not in known]
        if unknown:
            raise OptionError(f"Invalid broker logger(s): {','.join(unknown)}")
    alter_configs(client, RESOURCES[entities.type], name, added, deleted)


def settings_of(client: Client, kind: str, name: str, is_all: bool) -> list[Config]:
    """The settings of one entity by their names; only its own unless all are wanted."""
    found = describe_configs(client, RESOURCES[kind], [name], with_synonyms=True)[name]
    own = Source.DYNAMIC_DEFAULT_BROKER_CONFIG if kind == BROKERS and name == DEFAULT else _OWN_SOURCES.get(kind)
    return sorted(config for config in found if is_all or own is None or config.source == own)


def config_line(config: Config) -> str:
    synonyms = ", ".join(f"{_source(item.source)}:{item.name}={_text(item.value)}" for item in config.synonyms)
    sensitive = "true" if config.is_sensitive else "false"
    return f"  {config.name}={_text(config.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _check_topic(name: str) -> None:
    problem = topic_name_problem(name)
    if problem is not None:
        raise OptionError(problem)


def _exists(client: Client, kind: str, name: str) -> bool:
    return name in _names(client, kind)


def _names(client: Client, kind: str) -> list[str]:
    """Who there is of a type, in the order in which Kafka's tool lists them."""
    admin = Admin(client)
    if kind == TOPICS:
        return hash_map_order([topic.name for topic in admin.topics()])
    if kind in (BROKERS, LOGGERS):
        return [*map(str, admin.live_brokers()), DEFAULT]
    if kind == METRICS:
        return resources_with_configs(client, Resource.CLIENT_METRICS)
    groups = [group.group_id for group in list_groups(client)]
    try:
        groups += resources_with_configs(client, Resource.GROUP)
    except ClientError as problem:
        if problem.error not in (Error.UNSUPPORTED_VERSION, Error.CLUSTER_AUTHORIZATION_FAILED):
            raise
    return list(dict.fromkeys(groups))


def _source(number: int) -> str:
    return Source(number).name if number in Source._value2member_map_ else Source.UNKNOWN.name


def _text(value: str | None) -> str:
    return "null" if value is None else value

"""The entities of `kafka-configs.sh`: their spellings, valid combinations, and the settings of resources.

`--entity-type topics --entity-name orders` is the same as `--topic orders`. Errors have Kafka's wording and order.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.names import topic_name_problem
from ottla.cli.java.hash_order import hash_map_order
from ottla.cli.java.options import KafkaOptions, OptionError, is_legacy_zookeeper
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

TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = "topics", "brokers", "broker-loggers", "client-metrics", "groups"
CLIENTS, USERS, IPS = "clients", "users", "ips"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
# Option -> entity type, in the order in which several options are combined.
FLAGS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": METRICS,
    "group": GROUPS,
}
DEFAULT_FLAGS = {"client-defaults": CLIENTS, "user-defaults": USERS, "broker-defaults": BROKERS, "ip-defaults": IPS}
WITH_DEFAULT = (USERS, CLIENTS, BROKERS, IPS)


class Entities(NamedTuple):
    """Types and names in the given order; "" is the default of its type, a missing name means all."""

    types: list[str]
    names: list[str]

    @property
    def type(self) -> str:
        return self.types[0]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


def parse_entities(options: KafkaOptions) -> Entities:
    flags = [flag for flag in (*FLAGS, *DEFAULT_FLAGS) if options.has(flag)]
    types = [*options.texts("entity-type"), *((FLAGS | DEFAULT_FLAGS)[flag] for flag in flags)]
    given = iter(options.texts("entity-name"))
    spelled = [name for name in options.order if name in ("entity-name", "entity-default")]
    names = [next(given) if name == "entity-name" else "" for name in spelled]
    return Entities(types, names + [options.text(flag) or "" for flag in flags])


def check_command(options: KafkaOptions) -> Entities:
    """Reject what Kafka rejects, in the same order."""
    if options.has("alter") == options.has("describe"):
        options.print_usage_and_exit("Command must include exactly one action: --describe, --alter")
    options.check_invalid_args("describe", "add-config", "delete-config")
    entities = parse_entities(options)
    doubles = [kind for index, kind in enumerate(entities.types) if kind in entities.types[:index]]
    if doubles:
        raise OptionError(f"Duplicate entity type(s) specified: {','.join(dict.fromkeys(doubles))}")
    if not (options.has("bootstrap-server") or options.has("bootstrap-controller") or is_legacy_zookeeper(options)):
        raise OptionError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    _check_types(options, entities)
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise OptionError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    check_entity_names(entities)
    _check_describe(options, entities)
    _check_alter(options, entities)
    return entities


def _check_types(options: KafkaOptions, entities: Entities) -> None:
    for kind in entities.types:
        if kind not in TYPES:
            raise OptionError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not entities.types:
        raise OptionError("At least one entity type must be specified")
    if len(entities.types) > 1 and set(entities.types) != {USERS, CLIENTS}:
        raise OptionError("Only 'users' and 'clients' entity types may be specified together")
    is_spelled = any(options.has(name) for name in ("entity-name", "entity-type", "entity-default"))
    if is_spelled and any(options.has(flag) for flag in (*FLAGS, *DEFAULT_FLAGS)):
        raise OptionError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")


def check_entity_names(entities: Entities) -> None:
    """Brokers must have integer ids, and addresses must be valid."""
    named = [name for name in entities.names if name]
    if BROKERS in entities.types or LOGGERS in entities.types:
        for name in named:
            if not re.fullmatch("[+-]?[0-9]{1,10}", name):
                raise OptionError(
                    f"The entity name for {entities.type} must be a valid integer broker id, but it is: {name}"
                )
    if IPS in entities.types:
        for name in named:
            _check_address(name, entities.type)


def _check_address(name: str, kind: str) -> None:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        raise OptionError(
            f"The entity name for {kind} must be a valid IP or resolvable host, but it is: {name}"
        ) from None


def _check_describe(options: KafkaOptions, entities: Entities) -> None:
    if not options.has("describe"):
        return
    kinds = ",".join(entities.types)
    if options.has("entity-default") and not any(kind in entities.types for kind in WITH_DEFAULT):
        raise OptionError(f"--entity-default must not be specified with --describe of {kinds}")
    if LOGGERS in entities.types and not any(entities.names):
        raise OptionError(f"An entity name must be specified with --describe of {kinds}")


def _check_alter(options: KafkaOptions, entities: Entities) -> None:
    if not options.has("alter"):
        return
    if any(kind in entities.types for kind in WITH_DEFAULT):
        if not entities.names:
            raise OptionError(
                "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
            )
    elif not any(entities.names):
        raise OptionError(f"An entity name must be specified with --alter of {','.join(entities.types)}")
    if options.has("add-config") and options.has("add-config-file"):
        raise OptionError("Only one of --add-config or --add-config-file must be specified")
    if not any(options.has(name) for name in ("add-config", "add-config-file", "delete-config")):
        raise OptionError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if len(entities.types) != len(entities.names):
        raise OptionError("An entity name must be specified for every entity type")


# ---- settings of topics, brokers, loggers, groups and metrics subscriptions
DEFAULT = ""  # the name of the cluster-wide broker defaults
RESOURCES = {
    TOPICS: Resource.TOPIC,
    BROKERS: Resource.BROKER,
    LOGGERS: Resource.BROKER_LOGGER,
    METRICS: Resource.CLIENT_METRICS,
    GROUPS: Resource.GROUP,
}
# The source of values that are set on the entity itself.
_OWN_SOURCES = {
    TOPICS: Source.DYNAMIC_TOPIC_CONFIG,
    BROKERS: Source.DYNAMIC_BROKER_CONFIG,
    METRICS: Source.DYNAMIC_CLIENT_METRICS_CONFIG,
    GROUPS: Source.DYNAMIC_GROUP_CONFIG,
}


def describe_resources(client: Client, entities: Entities, is_all: bool, is_old: bool) -> Iterator[str]:
    """The lines about one entity, or about all of its type."""
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
    """The settings of one entity, sorted by name; without `is_all` only its own."""
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
    """The entities of a type, in the order of Kafka's tool."""
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

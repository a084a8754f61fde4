"""Which entity `kafka-configs.sh` is asked about, under any of its spellings, and which combinations make sense.

`--entity-type topics --entity-name orders` is the same as `--topic orders`. Complaints have Kafka's wording and order.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

from ottla.cli.java.options import KafkaOptions, OptionError, is_of_old

TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = "topics", "brokers", "broker-loggers", "client-metrics", "groups"
CLIENTS, USERS, IPS = "clients", "users", "ips"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
# Option -> entity type; the order is the one in which entities of several options are taken.
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
    """Types and names in the order given; "" names the default of its type, a missing name means all."""

    types: list[str]
    names: list[str]

    @property
    def type(self) -> str:
        return self.types[0]

    @property
    def name(self) -> str | None:
        return self.names[0] if self.names else None


def entities_of(options: KafkaOptions) -> Entities:
    flags = [flag for flag in (*FLAGS, *DEFAULT_FLAGS) if options.has(flag)]
    types = [*options.texts("entity-type"), *((FLAGS | DEFAULT_FLAGS)[flag] for flag in flags)]
    given = iter(options.texts("entity-name"))
    spelled = [name for name in options.order if name in ("entity-name", "entity-default")]
    names = [next(given) if name == "entity-name" else "" for name in spelled]
    return Entities(types, names + [options.text(flag) or "" for flag in flags])


def check_command(options: KafkaOptions) -> Entities:
    """Refuse what Kafka refuses, in the same order."""
    if options.has("alter") == options.has("describe"):
        options.refuse("Command must include exactly one action: --describe, --alter")
    options.refuse_with("describe", "add-config", "delete-config")
    entities = entities_of(options)
    doubles = [kind for place, kind in enumerate(entities.types) if kind in entities.types[:place]]
    if doubles:
        raise OptionError(f"Duplicate entity type(s) specified: {','.join(dict.fromkeys(doubles))}")
    if not (options.has("bootstrap-server") or options.has("bootstrap-controller") or is_of_old(options)):
        raise OptionError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    _check_types(options, entities)
    if options.has("bootstrap-server") and options.has("bootstrap-controller"):
        raise OptionError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    check_names(entities)
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


def check_names(entities: Entities) -> None:
    """Brokers have numbers, addresses must be some."""
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

"""`ottla configs`: shows and changes the settings of topics, brokers, groups, users and other entities."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla.base.broker_settings import BrokerSettings, find_key
from ottla.base.legacy_keys import nearest_key
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag, parse_pairs
from ottla.cli.client_settings import client_of, load_properties
from ottla.cli.configs.config_entities import (
    BROKERS,
    CLIENTS,
    DEFAULT,
    IPS,
    METRICS,
    RESOURCES,
    TYPES,
    USERS,
    Entities,
    alter_resource,
    check_entity_names,
    settings_of,
)
from ottla.cli.tables import print_table
from ottla.cli.terminal import UsageError, is_terminal, print_line, warn
from ottla.client.client import Client
from ottla.client.configs import Config, Source

EXAMPLES = """
ottla configs describe topic orders
ottla configs describe broker 1 --all
ottla configs set topic orders retention.ms=86400000 cleanup.policy=compact,delete
ottla configs set broker default log.cleaner.threads=2
ottla configs unset topic orders retention.ms
"""
KINDS = {kind if kind == METRICS else kind.removesuffix("s"): kind for kind in TYPES}
ALL_BROKERS = "default"  # as a name: the defaults of all entities of a kind
HIDDEN = "(hidden)"


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    entities = Entities([KINDS[options.kind]], [DEFAULT if options.name == ALL_BROKERS else options.name])
    check_entity_names(entities)
    with client_of(options) as client:
        code: int = options.action(client, entities, options)
        return code


def _parser() -> Parser:
    kind = Argument("kind", choices=sorted(KINDS), metavar="KIND", help=", ".join(sorted(KINDS)))
    name = Argument("name", metavar="NAME", help=f"of the topic, broker ...; {ALL_BROKERS}: all of a kind")
    return Parser(
        prog="ottla configs",
        description="Show and change settings while the cluster runs.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "describe",
                "show settings",
                _describe,
                kind,
                name,
                flag("--all", help="include defaults"),
                examples=EXAMPLES,
            ),
            Command(
                "set",
                "change settings",
                _set,
                kind,
                name,
                Argument("pairs", nargs="*", metavar="KEY=VALUE"),
                Argument("--file", metavar="FILE", help="file with settings; keeps passwords off the command line"),
                examples=EXAMPLES,
            ),
            Command(
                "unset",
                "reset settings to their defaults",
                _unset,
                kind,
                name,
                Argument("keys", nargs="+", metavar="KEY"),
                examples=EXAMPLES,
            ),
        ),
    )


def _describe(client: Client, entities: Entities, options: argparse.Namespace) -> int:
    if entities.type not in RESOURCES:
        from ottla.cli.configs.quota_entities import describe_quotas_and_credentials  # noqa: PLC0415 (rarely needed)

        for line in describe_quotas_and_credentials(client, entities):
            print_line(line)
        return 0
    settings = settings_of(client, entities.type, entities.name or DEFAULT, options.all)
    if not settings and is_terminal(sys.stdout):
        print(f"No settings of its own. All effective ones: ottla configs describe {options.kind} {options.name} --all")
    elif settings:
        print_table(("Setting", "Value", "From"), [_row(config) for config in settings])
    return 0


def _set(client: Client, entities: Entities, options: argparse.Namespace) -> int:
    changed = load_properties(options.file) if options.file is not None else {}
    changed |= parse_pairs(options.pairs, allow_bare=False)
    if not changed:
        raise UsageError("nothing to change: give KEY=VALUE or --file FILE")
    _alter(client, entities, changed, [])
    unknown = [name for name in changed if find_key(name) is None] if entities.type == BROKERS else []
    for name in unknown:
        hint = nearest_key(name, BrokerSettings.keys)
        warn(f"warning: {name} is stored and has no effect, because no setting is called so{hint}")
    print(f"Changed {', '.join(changed)} of {options.kind} {options.name}.")
    return 0


def _unset(client: Client, entities: Entities, options: argparse.Namespace) -> int:
    _alter(client, entities, {}, options.keys)
    print(f"Put back {', '.join(options.keys)} of {options.kind} {options.name}.")
    return 0


def _alter(client: Client, entities: Entities, changed: dict[str, str], deleted: list[str]) -> None:
    if entities.type in (USERS, CLIENTS, IPS):
        from ottla.cli.configs.quota_entities import alter_quotas_and_credentials  # noqa: PLC0415

        alter_quotas_and_credentials(client, entities, changed, deleted)
    else:
        alter_resource(client, entities, changed, deleted)


def _row(config: Config) -> tuple[str, str, str]:
    value = HIDDEN if config.is_sensitive else "" if config.value is None else config.value
    name = Source(config.source).name if config.source in Source._value2member_map_ else "unknown"
    source = name.removesuffix("_CONFIG").replace("_", " ").lower()
    return config.name, value, source + (", read-only" if config.is_read_only else "")

"""`ottla quotas`: how much users, clients and addresses may: list, set and remove limits."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Final

from ottla.cli.arguments import Parser, add_connection
from ottla.cli.client_settings import parse_pairs, run_action
from ottla.cli.quotas.limits import COLUMNS, as_words, rows
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, UsageError, say
from ottla.client.client import Client
from ottla.client.quota_words import (
    ADDRESS_LIMITS,
    DEFAULTS,
    LIMITS,
    NAMES,
    QuotaError,
    entity_text,
    number_text,
    parse_entity,
    parse_limit,
)
from ottla.client.quotas import Alteration, Entity, alter_quotas, describe_quotas

EXAMPLES: Final = """
ottla quotas list
ottla quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
ottla quotas set --user alice --client-defaults request_percentage=50
ottla quotas set --ip-defaults connection_creation_rate=20
ottla quotas remove --user alice producer_byte_rate
"""


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    parser = Parser(
        prog="ottla quotas",
        description="How much users, clients and addresses may: bytes, records, requests, connections.",
        examples=EXAMPLES,
    )
    add_connection(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    listing = commands.add_parser("list", help="show limits", examples=EXAMPLES)
    listing.set_defaults(action=_list)
    listing.add_argument("--json", action="store_true", help="print JSON, in the words of a security file")
    setting = commands.add_parser("set", help="set limits", examples=EXAMPLES)
    setting.set_defaults(action=_set)
    known = ", ".join((*LIMITS, *ADDRESS_LIMITS))
    setting.add_argument("pairs", nargs="+", metavar="LIMIT=NUMBER", help=f"one of {known}")
    removing = commands.add_parser("remove", help="remove limits", examples=EXAMPLES)
    removing.set_defaults(action=_remove)
    removing.add_argument("keys", nargs="*", metavar="LIMIT", help="which; default: all of it")
    for command in (listing, setting, removing):
        add_connection(command)
        for word, meaning in (("user", "a user"), ("client", "a client id"), ("ip", "an address")):
            command.add_argument(f"--{word}", metavar="NAME", help=meaning)
            command.add_argument(f"--{word}-defaults", action="store_true", help=f"each {word} without its own")
    return parser


def _entity(options: argparse.Namespace) -> dict[str, str | None]:
    given = {word: getattr(options, word.replace("-", "_")) for word in (*NAMES, *DEFAULTS)}
    try:
        return parse_entity({word: value for word, value in given.items() if value not in (None, False)})
    except QuotaError as problem:
        raise UsageError(
            f"{problem}: --user, --client, --ip, --user-defaults ..." if not problem.word else str(problem)
        ) from None


def _list(client: Client, options: argparse.Namespace) -> int:
    is_any = any(getattr(options, word.replace("-", "_")) for word in (*NAMES, *DEFAULTS))
    wanted = [(kind, name or "") for kind, name in _entity(options).items()] if is_any else []
    found = describe_quotas(client, wanted, is_strict=False)
    if options.json:
        print(json.dumps(as_words(found), indent=2))
    else:
        print_table(COLUMNS, rows(found), COLUMNS[-1:])
    return 0


def _set(client: Client, options: argparse.Namespace) -> int:
    entity = _entity(options)
    try:
        limits = {
            key: parse_limit(entity, key, value) for key, value in parse_pairs(options.pairs, allow_bare=False).items()
        }
    except QuotaError as problem:
        raise UsageError(str(problem)) from None
    alter_quotas(client, [Alteration(entity, limits)])
    told = ", ".join(f"{key}={number_text(value)}" for key, value in limits.items())
    say(f"Set for {entity_text(entity)}: {told}")
    return 0


def _remove(client: Client, options: argparse.Namespace) -> int:
    entity = _entity(options)
    known = _limits_of(client, entity)
    missing = [key for key in options.keys if key not in known]
    if missing or not known:
        what = ", ".join(missing) or "limit"
        raise ToolError(f"there is no {what} of {entity_text(entity)}: ottla quotas list")
    keys = options.keys or sorted(known)
    alter_quotas(client, [Alteration(entity, {}, keys)])
    say(f"Removed from {entity_text(entity)}: {', '.join(keys)}")
    return 0


def _limits_of(client: Client, entity: Entity) -> dict[str, float]:
    found = describe_quotas(client, [(kind, name or "") for kind, name in entity.items()])
    return found[0].limits if found else {}

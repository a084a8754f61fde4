"""`ottla quotas`: how much users, clients and addresses may: list, set, remove limits; who is held up, and by what."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from ottla.cli.arguments import Parser, add_connection, parse_pairs
from ottla.cli.client_settings import run_action
from ottla.cli.quotas.report import as_facts, suggested_words, top_screen
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, UsageError, is_terminal, say, warn
from ottla.cli.top.live import run_live, seconds_of
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, Source, describe_configs
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
from ottla.operations.metric_readings import DEFAULT_URL, VARIABLE, Reading, read_metrics
from ottla.operations.quota_limits import COLUMNS, as_words, rows
from ottla.operations.quota_shares import BY, PAIR, Share, command, is_observing, shares_of, suggestions

EXAMPLES: Final = """
ottla quotas list
ottla quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
ottla quotas set --user alice --client-defaults request_percentage=50
ottla quotas set --ip-defaults connection_creation_rate=20
ottla quotas remove --user alice producer_byte_rate
ottla quotas top
ottla quotas suggest --headroom 2 --by user
"""
TOPIC_LIMITS: Final = "ottla.quota."
TOPIC_COLUMNS: Final = ("TOPIC", "SETTING", "VALUE")
HEADROOM: Final = 1.5  # times what was seen
SPAN_S: Final = 30.0  # over which a live screen tells who was held up: waits may be long


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.action in (_top, _suggest):  # they ask metrics endpoints, not brokers
        code: int = options.action(options)
        return code
    return run_action(options)


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
    listing.add_argument("--topics", action="store_true", help="limits of topics instead, which are settings of theirs")
    setting = commands.add_parser("set", help="set limits", examples=EXAMPLES)
    setting.set_defaults(action=_set)
    known = ", ".join((*LIMITS, *ADDRESS_LIMITS))
    setting.add_argument("pairs", nargs="+", metavar="LIMIT=NUMBER", help=f"one of {known}")
    removing = commands.add_parser("remove", help="remove limits", examples=EXAMPLES)
    removing.set_defaults(action=_remove)
    removing.add_argument("keys", nargs="*", metavar="LIMIT", help="which; default: all of it")
    _add_watching(commands)
    for each in (listing, setting, removing):
        add_connection(each)
        for word, meaning in (("user", "a user"), ("client", "a client id"), ("ip", "an address")):
            each.add_argument(f"--{word}", metavar="NAME", help=meaning)
            each.add_argument(f"--{word}-defaults", action="store_true", help=f"each {word} without its own")
    return parser


def _add_watching(commands: Any) -> None:
    top = commands.add_parser("top", help="see live who is held up, by which rule, and what he would need")
    top.set_defaults(action=_top)
    top.add_argument("--all", action="store_true", help="also those who are not held up")
    top.add_argument("--interval", type=seconds_of, default=2.0, metavar="S", help="seconds between readings (2)")
    top.add_argument("--once", action="store_true", help="print one plain screen and end, as in a pipe")
    suggest = commands.add_parser("suggest", help="limits for what was seen in the last hour")
    suggest.set_defaults(action=_suggest)
    suggest.add_argument(
        "--headroom", type=_headroom, default=HEADROOM, metavar="N", help=f"times what was seen (default: {HEADROOM})"
    )
    suggest.add_argument("--by", choices=BY, default=PAIR, help="each client of each user (default), users, or clients")
    for each in (top, suggest):
        each.add_argument("--json", action="store_true", help="print JSON")
        each.add_argument(
            "--url",
            action="append",
            metavar="URL",
            help=f"a broker's metrics endpoint; once for each broker (default: ${VARIABLE} or {DEFAULT_URL})",
        )


def _headroom(text: str) -> float:
    try:
        headroom = float(text)
    except ValueError:
        headroom = 0.0
    if not 1 <= headroom <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: it is a number from 1 to 1000")
    return headroom


def _words(options: argparse.Namespace) -> dict[str, object]:
    given = {word: getattr(options, word.replace("-", "_")) for word in (*NAMES, *DEFAULTS)}
    return {word: value for word, value in given.items() if value not in (None, False)}


def _entity(options: argparse.Namespace) -> dict[str, str | None]:
    try:
        return parse_entity(_words(options))
    except QuotaError as problem:
        hint = "" if problem.word else ": --user, --client, --ip, --user-defaults ..."
        raise UsageError(f"{problem}{hint}") from None


def _list(client: Client, options: argparse.Namespace) -> int:
    if options.topics:
        return _list_topics(client, options)
    entity = _entity(options) if _words(options) else {}
    found = describe_quotas(client, [(kind, name or "") for kind, name in entity.items()], is_strict=False)
    if options.json:
        print(json.dumps(as_words(found), indent=2))
    else:
        print_table(COLUMNS, rows(found), COLUMNS[-1:])
    return 0


def _list_topics(client: Client, options: argparse.Namespace) -> int:
    if _words(options):
        raise UsageError("--topics stands alone: no user, client or address")
    names = [topic.name for topic in Admin(client).topics()]
    found = [
        (name, config.name, config.value or "")
        for name, configs in sorted(describe_configs(client, Resource.TOPIC, names).items())
        for config in sorted(configs)
        if config.name.startswith(TOPIC_LIMITS) and config.source == Source.DYNAMIC_TOPIC_CONFIG
    ]
    if options.json:
        print(json.dumps([dict(zip(("topic", "setting", "value"), row, strict=True)) for row in found], indent=2))
    else:
        print_table(TOPIC_COLUMNS, found)
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


# ---- who is held up


def _top(options: argparse.Namespace) -> int:
    earlier = deque([_readings(options)], maxlen=max(1, round(SPAN_S / options.interval)))

    def screen() -> str:
        now = _readings(options)
        shown = _shares(options, earlier[0], now)
        earlier.append(now)
        return top_screen(shown, any(map(is_observing, now)), options.all)

    if is_terminal(sys.stdout) and not (options.once or options.json):
        run_live(screen, options.interval, "ottla quotas top")
    time.sleep(options.interval)
    if options.json:
        now = _readings(options)
        facts = [as_facts(share) for share in _shares(options, earlier[0], now)]
        print(json.dumps({"rehearsal": any(map(is_observing, now)), "shares": facts}, indent=2))
    else:
        print(screen())
    return 0


def _suggest(options: argparse.Namespace) -> int:
    readings = _readings(options)
    shares = [share for reading in readings for share in shares_of(reading, reading)]
    found = suggestions(shares, options.headroom, options.by)
    if options.json:
        print(json.dumps([suggested_words(each) for each in found], indent=2))
    for each in found if not options.json else ():
        say(command(each))
    if not any(map(is_observing, readings)):
        warn(
            "note: only who has a limit already is measured. ottla.quota.mode=observe measures everybody, and holds "
            "nobody up"
        )
    return 0


def _readings(options: argparse.Namespace) -> list[Reading]:
    return [read_metrics(url) for url in options.url or [os.environ.get(VARIABLE) or DEFAULT_URL]]


def _shares(options: argparse.Namespace, before: Sequence[Reading], now: Sequence[Reading]) -> list[Share]:
    """Of all brokers, those that are held up most first."""
    found = [share for pair in zip(before, now, strict=True) for share in shares_of(*pair)]
    shown = [share for share in found if share.is_held or (options.all and share.is_used)]
    return sorted(shown, key=lambda share: (-share.held_share, -share.held_for_s))

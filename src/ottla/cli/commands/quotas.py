"""`ottla quotas`: lists, sets and removes client quotas, shows throttled clients, suggests quotas."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from ottla.base.text import escape_cell
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag, parse_pairs
from ottla.cli.client_settings import run_action
from ottla.cli.live_screen import run_live, seconds_of
from ottla.cli.reports.broker_screen import short_number
from ottla.cli.tables import padded, print_table
from ottla.cli.terminal import ToolError, UsageError, is_terminal, print_line, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.configs import Resource, Source, describe_configs
from ottla.client.quotas import (
    ADDRESS_LIMITS,
    DEFAULTS,
    LIMITS,
    NAMES,
    Alteration,
    Entity,
    QuotaError,
    alter_quotas,
    describe_quotas,
    entity_text,
    number_text,
    parse_entity,
    parse_limit,
)
from ottla.operations.metric_readings import DEFAULT_URL, URL_VARIABLE, Reading, read_metrics
from ottla.operations.quotas import (
    BY,
    COLUMNS,
    NONE,
    PAIR,
    QuotaUse,
    Suggestion,
    is_observing,
    quota_command,
    quota_rows,
    quota_uses,
    quota_words,
    suggest_quotas,
)

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
HEADROOM: Final = 1.5  # factor of the observed rate
SPAN_S: Final = 30.0  # interval of the live screen's rates; throttling can be long


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.action in (_top, _suggest):  # these query metrics endpoints, not brokers
        code: int = options.action(options)
        return code
    return run_action(options)


def _parser() -> Parser:
    entity = [
        argument
        for word, meaning in (("user", "a user"), ("client", "a client id"), ("ip", "an address"))
        for argument in (
            Argument(f"--{word}", metavar="NAME", help=meaning),
            flag(f"--{word}-defaults", help=f"each {word} without its own"),
        )
    ]
    return Parser(
        prog="ottla quotas",
        description="How much users, clients and addresses may: bytes, records, requests, connections.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "list",
                "show limits",
                _list,
                flag("--json", help="print JSON, with the keys of a security file"),
                flag("--topics", help="show limits of topics instead, which are topic settings"),
                *entity,
                examples=EXAMPLES,
            ),
            Command(
                "set",
                "set limits",
                _set,
                Argument(
                    "pairs", nargs="+", metavar="LIMIT=NUMBER", help=f"one of {', '.join((*LIMITS, *ADDRESS_LIMITS))}"
                ),
                *entity,
                examples=EXAMPLES,
            ),
            Command(
                "remove",
                "remove limits",
                _remove,
                Argument("keys", nargs="*", metavar="LIMIT", help="the limits to remove; default: all"),
                *entity,
                examples=EXAMPLES,
            ),
            *_metric_commands(),
        ),
    )


def _metric_commands() -> tuple[Command, ...]:
    output = (
        flag("--json", help="print JSON"),
        Argument(
            "--url",
            action="append",
            metavar="URL",
            help=f"a broker's metrics endpoint; once for each broker (default: ${URL_VARIABLE} or {DEFAULT_URL})",
        ),
    )
    return (
        Command(
            "top",
            "show throttled clients live, with the quota and the rate they need",
            _top,
            flag("--all", help="include clients that are not throttled"),
            Argument("--interval", type=seconds_of, default=2.0, metavar="S", help="seconds between readings (2)"),
            flag("--once", help="print one plain screen and exit, as in a pipe"),
            *output,
            has_shared=False,
        ),
        Command(
            "suggest",
            "suggest quotas for the traffic of the last hour",
            _suggest,
            Argument(
                "--headroom",
                type=_headroom,
                default=HEADROOM,
                metavar="N",
                help=f"factor of the observed rate (default: {HEADROOM})",
            ),
            Argument("--by", choices=BY, default=PAIR, help="each client of each user (default), users, or clients"),
            *output,
            has_shared=False,
        ),
    )


def _headroom(text: str) -> float:
    try:
        headroom = float(text)
    except ValueError:
        headroom = 0.0
    if not 1 <= headroom <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: the range is 1 to 1000")
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
        print(json.dumps(quota_words(found), indent=2))
    else:
        print_table(COLUMNS, quota_rows(found), COLUMNS[-1:])
    return 0


def _list_topics(client: Client, options: argparse.Namespace) -> int:
    if _words(options):
        raise UsageError("--topics excludes users, clients and addresses")
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
    limits_text = ", ".join(f"{key}={number_text(value)}" for key, value in limits.items())
    print_line(f"Set for {entity_text(entity)}: {limits_text}")
    return 0


def _remove(client: Client, options: argparse.Namespace) -> int:
    entity = _entity(options)
    known = _limits_of(client, entity)
    missing = [key for key in options.keys if key not in known]
    if missing or not known:
        what = ", ".join(missing) or "limit"
        raise ToolError(f"{entity_text(entity)} has no {what}: ottla quotas list")
    keys = options.keys or sorted(known)
    alter_quotas(client, [Alteration(entity, {}, keys)])
    print_line(f"Removed from {entity_text(entity)}: {', '.join(keys)}")
    return 0


def _limits_of(client: Client, entity: Entity) -> dict[str, float]:
    found = describe_quotas(client, [(kind, name or "") for kind, name in entity.items()])
    return found[0].limits if found else {}


# ---- throttled clients


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
        facts = [share_json(share) for share in _shares(options, earlier[0], now)]
        print(json.dumps({"rehearsal": any(map(is_observing, now)), "shares": facts}, indent=2))
    else:
        print(screen())
    return 0


def _suggest(options: argparse.Namespace) -> int:
    readings = _readings(options)
    shares = [share for reading in readings for share in quota_uses(reading, reading)]
    found = suggest_quotas(shares, options.headroom, options.by)
    if options.json:
        print(json.dumps([suggestion_entry(each) for each in found], indent=2))
    for each in found if not options.json else ():
        print_line(quota_command(each))
    if not any(map(is_observing, readings)):
        warn(
            "note: only clients with a quota are measured. ottla.quota.mode=observe measures all clients and throttles "
            "none"
        )
    return 0


def _readings(options: argparse.Namespace) -> list[Reading]:
    return [read_metrics(url) for url in options.url or [os.environ.get(URL_VARIABLE) or DEFAULT_URL]]


def _shares(options: argparse.Namespace, before: Sequence[Reading], now: Sequence[Reading]) -> list[QuotaUse]:
    """The shares of all brokers, the most throttled first."""
    found = [share for pair in zip(before, now, strict=True) for share in quota_uses(*pair)]
    shown = [share for share in found if share.is_throttled or (options.all and share.is_used)]
    return sorted(shown, key=lambda share: (-share.throttled_share, -share.throttle_time_s))


# ---- output of top and suggest
TOP_COLUMNS: Final = ("BROKER", "QUOTA", "USER", "CLIENT", "RULE", "LIMIT", "RATE", "HELD", "FOR", "NEEDS")
OBSERVE_MODE_NOTE: Final = (
    "observe mode (ottla.quota.mode=observe): clients shown as throttled are not actually throttled"
)


def top_rows(shares: Sequence[QuotaUse]) -> list[tuple[str, ...]]:
    return [
        (
            share.broker,
            share.key,
            share.user or NONE,
            share.client_id or NONE,
            NONE if share.limit is None else share.rule,
            NONE if share.limit is None else short_number(share.limit),
            short_number(share.rate),
            f"{min(share.throttled_share, 1.0):.0%}",
            f"{share.throttle_time_s:.1f} s",
            short_number(share.estimated_demand),
        )
        for share in shares
    ]


def top_screen(shares: Sequence[QuotaUse], is_rehearsed: bool, is_all: bool) -> str:
    """The screen as escaped text."""
    lines = [OBSERVE_MODE_NOTE] if is_rehearsed else []
    if shares:
        lines += padded(TOP_COLUMNS, [tuple(map(escape_cell, row)) for row in top_rows(shares)])
    else:
        lines.append("No traffic yet." if is_all else "No client is throttled. To show all measured clients: --all")
    return "\n".join(lines)


def share_json(share: QuotaUse) -> dict[str, object]:
    """A share as JSON values."""
    return {**share._asdict(), "needed": share.estimated_demand}


def suggestion_entry(suggestion: Suggestion) -> dict[str, object]:
    """A suggestion as an entry of a security file."""
    words: dict[str, object] = {"user": suggestion.user} if suggestion.user else {}
    if suggestion.client_id:
        words["client"] = suggestion.client_id
    limits = suggestion.limits.items()
    return {**words, **{key: int(limit) if limit == int(limit) else limit for key, limit in limits}}

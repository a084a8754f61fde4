"""`ottla audit`: read the audit trail: who logged in, what was denied, what was changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.base.names import AUDIT_TOPIC
from ottla.cli.arguments import Parser, add_connection, bootstrap_of
from ottla.cli.audit.choosing import Choice, parse_events, parse_principal, parse_since
from ottla.cli.audit.showing import ChosenEvents, EventLines
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.records.consuming import EARLIEST, LATEST, Plan, consumer_settings, read_and_print
from ottla.cli.records.ordered import SortingSink
from ottla.cli.terminal import EXIT_FAILED, ToolError, is_terminal, warn
from ottla.client.admin import Admin
from ottla.client.errors import ClientError

MEMORY_BYTES = 64 << 20  # for events that are sorted by time; more of them go through a file
NO_TRAIL = (
    f"there is no audit trail: the topic {AUDIT_TOPIC} does not exist, or you may not see it. It is made with the "
    "first event after ottla.audit.enable=true"
)
EXAMPLES = """
ottla audit --since 24h                            all of a day
ottla audit --principal alice --event 'topic.*'    what alice did to topics
ottla audit --event denied,login.failed --follow   as it happens, until Ctrl-C
ottla audit --topic orders --json                  for programs
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    choice = Choice(
        parse_principal(options.principal),
        parse_events(options.event),
        options.topic,
        parse_since(options.since, time.time_ns() // 1_000_000),
    )
    properties = command_properties(getattr(options, "command_config", None))
    bootstrap = bootstrap_of(options)
    _require_trail(bootstrap, properties)
    is_old_wanted = choice.since_ms is not None or not options.follow
    plan = Plan(
        AUDIT_TOPIC,
        offset=EARLIEST if is_old_wanted else LATEST,
        since_ms=choice.since_ms,
        until_end=not options.follow,
        must_exist=True,
    )
    settings = consumer_settings(bootstrap, plan, {"client.id": "ottla-audit"}, properties)
    lines = EventLines(as_json=options.json, is_followed=options.follow)
    if options.follow:
        if is_terminal(sys.stderr):
            warn("Waiting for events. Ctrl-C stops.")
        events = ChosenEvents(choice, lines)
        read_and_print(settings, properties, plan, events)
    else:  # partitions and brokers have no order among themselves but that of time
        with SortingSink(lines, MEMORY_BYTES) as sorting:
            events = ChosenEvents(choice, sorting)
            read_and_print(settings, properties, plan, events)
            events.finish()
    if events.unreadable:
        raise ToolError(
            f"{events.unreadable} records of {AUDIT_TOPIC} are no events that this version can read", EXIT_FAILED
        )
    return 0


def _parser() -> Parser:
    parser = Parser(prog="ottla audit", description="Read the audit trail.", examples=EXAMPLES)
    add_connection(parser)
    parser.add_argument("--principal", metavar="NAME", help="only what this principal did (alice is User:alice)")
    parser.add_argument(
        "--event", action="append", default=[], metavar="NAME", help="only these events; patterns such as 'topic.*'"
    )
    parser.add_argument("--topic", metavar="NAME", help="only what was done to this topic; patterns, too")
    parser.add_argument("--since", metavar="TIME", help="30m, 12h, 7d, or a date such as 2026-11-15T08:00:00")
    parser.add_argument("--follow", "-f", action="store_true", help="go on with new events, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="the events as they are, one JSON object a line")
    return parser


def _require_trail(bootstrap: str, properties: dict[str, str]) -> None:
    with make_client(bootstrap, properties) as client:
        try:
            Admin(client).topic(AUDIT_TOPIC)
        except ClientError as problem:
            if problem.error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.TOPIC_AUTHORIZATION_FAILED):
                raise ToolError(NO_TRAIL) from None
            raise

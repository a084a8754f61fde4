"""`ottla advise`: what to change about a topic, a group or a client, what it will bring, and the figure it rests on.

Works with any Kafka. Nothing is changed. Records are sampled; what was looked at is told, also when all is well.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from ottla.cli.arguments import Parser, add_connection, positive
from ottla.cli.client_settings import client_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, is_terminal, say, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.groups import Group, describe_groups, list_groups
from ottla.operations.advice.client_rules import advise_client, client_facts
from ottla.operations.advice.report import Advice, Report
from ottla.operations.jolokia_readings import read_any
from ottla.operations.metric_readings import DEFAULT_URL, VARIABLE, Rates, Reading

EXAMPLES = """
ottla advise --topic orders
ottla advise --topic orders --url http://127.0.0.1:9404      also what brokers and consumers do with it
ottla advise --group billing
ottla advise --client my-app --url http://127.0.0.1:9404     out of the metrics that clients push
ottla advise --topic orders --json
"""
SECONDS = 5
COLOUR, PLAIN = "\x1b[1;33m", "\x1b[0m"
NO_URL = (
    f"what brokers count (reads, batches, bytes that came): no metrics endpoint was named (--url URL, or ${VARIABLE})"
)


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        if options.topic is not None:
            report = _topic(client, options)
        elif options.group is not None:
            report = _group(client, options)
        else:
            report = _client(client, options)
    if options.json:
        print(json.dumps(as_document(report), indent=2, ensure_ascii=False))
    else:
        _print(report)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="ottla advise",
        description="Tell what to change about a topic, a group or a client, and what it will bring.",
        examples=EXAMPLES,
    )
    add_connection(parser)
    about = parser.add_mutually_exclusive_group(required=True)
    about.add_argument(
        "--topic", metavar="NAME", help="how it is written and read: batches, compression, keys, fetches"
    )
    about.add_argument("--group", metavar="NAME", help="its members, their speed, its commits")
    about.add_argument("--client", metavar="ID", help="a client id: what it pushes about itself")
    parser.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help=f"a broker's metrics endpoint or Jolokia agent; once for each broker (default: ${VARIABLE})",
    )
    parser.add_argument(
        "--seconds", type=positive, default=SECONDS, metavar="N", help=f"between two readings of metrics ({SECONDS})"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser


def _topic(client: Client, options: argparse.Namespace) -> Report:
    from ottla.operations.advice.topic_gathering import gather_topic, traffic_of  # noqa: PLC0415 (codecs)
    from ottla.operations.advice.topic_rules import advise_topic  # noqa: PLC0415

    try:
        facts = gather_topic(client, options.topic)
    except ClientError as problem:
        raise ToolError(f"topic {options.topic}: {problem}") from None
    before = _readings(options)  # our own reads are not counted
    if before:
        time.sleep(options.seconds)
        rates = [Rates(*pair) for pair in zip(before, _readings(options), strict=True)]
        facts.traffic = traffic_of(rates, options.topic)
        if facts.traffic is None:
            facts.unknown.append("what brokers count: none of the endpoints tells of the topic")
    else:
        facts.unknown.append(NO_URL)
    return advise_topic(facts)


def _group(client: Client, options: argparse.Namespace) -> Report:
    from ottla.operations.advice.group_gathering import gather_group  # noqa: PLC0415
    from ottla.operations.advice.group_rules import advise_group  # noqa: PLC0415

    try:
        return advise_group(gather_group(client, options.group))
    except ClientError as problem:
        raise ToolError(f"group {options.group}: {problem}") from None


def _client(client: Client, options: argparse.Namespace) -> Report:
    before = _readings(options)
    if not before:
        raise ToolError(
            "what a client pushes is told by a broker's metrics endpoint: --url URL, such as "
            f"{DEFAULT_URL}, or ${VARIABLE}"
        )
    time.sleep(options.seconds)
    now = _readings(options)
    facts = client_facts(options.client, before, now, groups_of(client, options.client))
    if facts is None:
        raise ToolError(
            f"no client {options.client} has pushed metrics lately: "
            "`ottla client-metrics set everything --metrics '*' --interval 10000` asks clients that connect for them"
        )
    return advise_client(facts)


def groups_of(client: Client, client_id: str) -> list[str]:
    """In which it is a member, as far as this login may see them."""
    try:
        answers = describe_groups(client, [listing.group_id for listing in list_groups(client)])
    except ClientError:
        return []
    return sorted(
        group.group_id
        for group in answers.values()
        if isinstance(group, Group) and any(member.client_id == client_id for member in group.members)
    )


def _readings(options: argparse.Namespace) -> list[Reading]:
    named = os.environ.get(VARIABLE)
    return [read_any(url) for url in options.url or ([named] if named else [])]


def as_document(report: Report) -> dict[str, object]:
    return {
        "subject": report.subject,
        "figures": {figure.name: figure.value for figure in report.figures},
        "advice": [{**each._asdict(), "estimates": dict(each.estimates)} for each in report.advice],
        "unknown": list(report.unknown),
    }


def _print(report: Report) -> None:
    print_table(("FIGURE", "VALUE"), report.figures)
    for each in report.advice:
        _print_advice(each)
    for what in report.unknown:
        warn(f"not looked at: {what}")
    count = len(report.advice)
    told = "nothing to advise" if not count else f"{count} piece{'' if count == 1 else 's'} of advice"
    warn(f"{report.subject}: {told}.")


def _print_advice(advice: Advice) -> None:
    word = f"{COLOUR}ADVICE{PLAIN}" if is_terminal(sys.stdout) else "ADVICE"
    print(word, end=" ")
    say(f"{advice.rule}: {advice.seen}")
    say(f"    change: {advice.change}")
    say(f"    brings: {advice.brings}")

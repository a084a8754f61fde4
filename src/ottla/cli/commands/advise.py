"""`ottla advise`: recommends changes to a topic, a group or a client, with the expected effect and the evidence.

It works with any Kafka cluster and changes nothing. Records are sampled. Items that could not be examined are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from ottla.base.text import escape_json
from ottla.cli.arguments import CONNECTION, Argument, OneOf, Parser, flag, positive
from ottla.cli.client_settings import client_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, is_terminal, print_line, warn
from ottla.client.client import Client
from ottla.client.errors import ClientError
from ottla.client.groups import Group, describe_groups, list_groups
from ottla.operations.advice.advice import Advice, Report
from ottla.operations.advice.client_rules import advise_client, client_facts
from ottla.operations.jolokia_readings import read_endpoint
from ottla.operations.metric_readings import DEFAULT_URL, URL_VARIABLE, Rates, Reading

EXAMPLES = """
ottla advise --topic orders
ottla advise --topic orders --url http://127.0.0.1:9404      includes the traffic of brokers and consumers
ottla advise --group billing
ottla advise --client my-app --url http://127.0.0.1:9404     from the metrics that clients push
ottla advise --topic orders --json
"""
SECONDS = 5
COLOUR, PLAIN = "\x1b[1;33m", "\x1b[0m"
NO_URL = f"broker metrics (reads, batches, bytes in): no metrics endpoint is given (--url URL, or ${URL_VARIABLE})"


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
        print(escape_json(json.dumps(as_document(report), indent=2, ensure_ascii=False)))
    else:
        _print(report)
    return 0


def _parser() -> Parser:
    return Parser(
        prog="ottla advise",
        description="Recommend changes to a topic, a group or a client, with the expected effect.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            OneOf(
                Argument(
                    "--topic", metavar="NAME", help="how it is written and read: batches, compression, keys, fetches"
                ),
                Argument("--group", metavar="NAME", help="its members, their speed, its commits"),
                Argument("--client", metavar="ID", help="a client id: the metrics that it pushes"),
                is_required=True,
            ),
            Argument(
                "--url",
                action="append",
                metavar="URL",
                help=f"a broker's metrics endpoint or Jolokia agent; once for each broker (default: ${URL_VARIABLE})",
            ),
            Argument(
                "--seconds",
                type=positive,
                default=SECONDS,
                metavar="N",
                help=f"between two readings of metrics ({SECONDS})",
            ),
            flag("--json", help="one JSON document"),
        ),
    )


def _topic(client: Client, options: argparse.Namespace) -> Report:
    from ottla.operations.advice.topic_rules import advise_topic  # noqa: PLC0415
    from ottla.operations.advice.topic_samples import collect_topic_facts, topic_traffic  # noqa: PLC0415 (codecs)

    try:
        facts = collect_topic_facts(client, options.topic)
    except ClientError as problem:
        raise ToolError(f"topic {options.topic}: {problem}") from None
    before = _readings(options)  # excludes this command's own reads
    if before:
        time.sleep(options.seconds)
        rates = [Rates(*pair) for pair in zip(before, _readings(options), strict=True)]
        facts.traffic = topic_traffic(rates, options.topic)
        if facts.traffic is None:
            facts.unknown.append("broker metrics: none of the endpoints has metrics of the topic")
    else:
        facts.unknown.append(NO_URL)
    return advise_topic(facts)


def _group(client: Client, options: argparse.Namespace) -> Report:
    from ottla.operations.advice.group_rules import advise_group  # noqa: PLC0415
    from ottla.operations.advice.group_samples import collect_group_facts  # noqa: PLC0415

    try:
        return advise_group(collect_group_facts(client, options.group))
    except ClientError as problem:
        raise ToolError(f"group {options.group}: {problem}") from None


def _client(client: Client, options: argparse.Namespace) -> Report:
    before = _readings(options)
    if not before:
        raise ToolError(
            "the metrics that a client pushes come from a broker's metrics endpoint: --url URL, such as "
            f"{DEFAULT_URL}, or ${URL_VARIABLE}"
        )
    time.sleep(options.seconds)
    now = _readings(options)
    facts = client_facts(options.client, before, now, groups_of(client, options.client))
    if facts is None:
        raise ToolError(
            f"no client {options.client} has pushed metrics lately: "
            "`ottla client-metrics set everything --metrics '*' --interval 10000` subscribes to those of new clients"
        )
    return advise_client(facts)


def groups_of(client: Client, client_id: str) -> list[str]:
    """The groups of a client, as far as this login may describe them."""
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
    named = os.environ.get(URL_VARIABLE)
    return [read_endpoint(url) for url in options.url or ([named] if named else [])]


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
        warn(f"not examined: {what}")
    count = len(report.advice)
    summary = "nothing to advise" if not count else f"{count} recommendation{'' if count == 1 else 's'}"
    warn(f"{report.subject}: {summary}.")


def _print_advice(advice: Advice) -> None:
    word = f"{COLOUR}ADVICE{PLAIN}" if is_terminal(sys.stdout) else "ADVICE"
    print(word, end=" ")
    print_line(f"{advice.rule}: {advice.observation}")
    print_line(f"    change: {advice.change}")
    print_line(f"    brings: {advice.effect}")

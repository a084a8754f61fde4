"""`ottla client-metrics`: manages client metrics subscriptions and shows pushed metrics (KIP-714).

Kafka has no API that returns pushed metrics, so they are read from the broker's metrics endpoint.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.base.regular_expressions import PatternError, compile_java_pattern
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser
from ottla.cli.client_settings import run_action
from ottla.cli.live_screen import METRICS_URL, metrics_url_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError
from ottla.client.client import Client
from ottla.client.configs import Resource, alter_configs, describe_configs, resources_with_configs
from ottla.operations.metric_readings import read_page

EXAMPLES = """
ottla client-metrics set everything --metrics '*' --interval 10000
ottla client-metrics set slow-producers --metrics org.apache.kafka.producer. --match 'client_id=orders-.*'
ottla client-metrics list
ottla client-metrics values --client 'orders-.*'
ottla client-metrics delete everything
"""
KEYS = ("interval.ms", "match", "metrics")
PREFIX = "ottla_client_"
_LINE = re.compile(rf"{PREFIX}(\w+)\{{(.*)\}} (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    return Parser(
        prog="ottla client-metrics",
        description="Manage client metrics subscriptions and show pushed metrics.",
        examples=EXAMPLES,
        arguments=CONNECTION,
        commands=(
            Command("list", "list the subscriptions", _list),
            Command(
                "set",
                "create or change a subscription",
                _set,
                Argument("name", metavar="NAME"),
                Argument("--metrics", metavar="PREFIXES", help="prefixes of metric names, commas between; * is all"),
                Argument("--interval", metavar="MS", help="time between two pushes of a client"),
                Argument("--match", metavar="NAME=REGEX,...", help="which clients, such as client_id=orders-.*"),
            ),
            Command("delete", "delete subscriptions", _delete, Argument("names", nargs="+", metavar="NAME")),
            Command(
                "values",
                "show pushed metrics, from a broker's metrics endpoint",
                _values,
                METRICS_URL,
                Argument("--client", type=_pattern, metavar="REGEX", help="only clients whose whole client id matches"),
            ),
        ),
    )


def _pattern(text: str) -> Any:
    try:
        return compile_java_pattern(text)
    except PatternError as problem:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {problem}") from None


def _list(client: Client, _options: argparse.Namespace) -> int:
    names = resources_with_configs(client, Resource.CLIENT_METRICS)
    found = describe_configs(client, Resource.CLIENT_METRICS, names)
    rows = []
    for name in sorted(found):
        values = {config.name: config.value or "" for config in found[name]}
        rows.append((name, *(values.get(key, "") for key in KEYS)))
    print_table(("subscription", *KEYS), rows, numbers=("interval.ms",))
    return 0


def _set(client: Client, options: argparse.Namespace) -> int:
    given = {"interval.ms": options.interval, "match": options.match, "metrics": options.metrics}
    changed = {key: value for key, value in given.items() if value is not None}
    alter_configs(client, Resource.CLIENT_METRICS, options.name, changed, [])
    print(f"Subscription {options.name} is set. Clients that connect from now on follow it.")
    return 0


def _delete(client: Client, options: argparse.Namespace) -> int:
    missing = sorted(set(options.names) - set(resources_with_configs(client, Resource.CLIENT_METRICS)))
    if missing:
        raise ToolError(f"unknown subscription {', '.join(missing)}")
    for name in options.names:
        alter_configs(client, Resource.CLIENT_METRICS, name, {}, list(KEYS))
        print(f"Deleted subscription {name}.")
    return 0


def _values(_client: Client, options: argparse.Namespace) -> int:
    page = read_page(metrics_url_of(options))
    rows = [row for row in metric_rows(page) if options.client is None or options.client.fullmatch(row[0])]
    print_table(("client id", "client", "metric", "of", "value"), sorted(rows), numbers=("value",))
    return 0


def metric_rows(page: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Client id, software, metric, attributes and value of each line about a client metric."""
    for line in page.splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        labels = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LABEL.findall(found[2])}
        software = f"{labels.pop('client_software_name', '')} {labels.pop('client_software_version', '')}".strip()
        client_id = labels.pop("client_id", "")
        labels.pop("client_instance_id", None)
        yield client_id, software, found[1], ",".join(f"{key}={value}" for key, value in labels.items()), found[3]

"""`ottla cluster`: who belongs to the cluster, what its brokers offer, how its metadata is kept; work at brokers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from ottla.cli.arguments import Parser, add_connection, not_negative
from ottla.cli.client_settings import client_of
from ottla.cli.cluster import maintenance, roll
from ottla.cli.cluster.balance import add_balance
from ottla.cli.cluster.quorum import COLUMNS, replication_rows
from ottla.cli.cluster.replication import add_replication_factor
from ottla.cli.tables import print_table
from ottla.cli.terminal import say
from ottla.client.client import Client
from ottla.client.cluster import api_versions, describe_cluster, describe_quorum, unregister_broker

EXAMPLES = """
ottla cluster info
ottla cluster apis
ottla cluster quorum
ottla cluster unregister 3
ottla cluster maintenance 2 --for 30m
ottla cluster roll --command 'systemctl restart ottla@{id}'
ottla cluster balance --dry-run         what would be moved so that everybody bears his share
ottla cluster balance
ottla cluster add 4                     broker 4 is new: give it its share
ottla cluster remove 2                  broker 2 goes: move everything off it
ottla cluster replication-factor 3 --internal
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        return options.action(client, options) or 0


def _parser() -> Parser:
    parser = Parser(
        prog="ottla cluster",
        description="Look at the cluster as a whole, move what it holds, work at its brokers.",
        examples=EXAMPLES,
    )
    add_connection(parser)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    info = commands.add_parser("info", help="the cluster's id and its brokers")
    info.set_defaults(action=_info)
    apis = commands.add_parser("apis", help="which APIs each broker offers")
    apis.set_defaults(action=_apis)
    quorum = commands.add_parser("quorum", help="the nodes that keep the metadata")
    quorum.set_defaults(action=_quorum)
    unregister = commands.add_parser("unregister", help="forget a broker that will not come back")
    unregister.add_argument("id", type=not_negative, metavar="ID")
    unregister.set_defaults(action=_unregister)
    for command in (info, apis, quorum, unregister):
        add_connection(command)
    maintenance.add_parser(commands)
    roll.add_parser(commands)
    add_balance(commands)
    add_replication_factor(commands)
    return parser


def _info(client: Client, _options: argparse.Namespace) -> None:
    found = describe_cluster(client, with_fenced=True)
    say(f"cluster {found.cluster_id}")
    rows = [
        (
            str(broker.broker_id),
            f"{broker.host}:{broker.port}",
            broker.rack or "",
            "fenced" if broker.is_fenced else "up",
            "controller" if broker.broker_id == found.controller_id else "",
        )
        for broker in sorted(found.brokers, key=lambda broker: broker.broker_id)
    ]
    print_table(("Broker", "Address", "Rack", "State", "Role"), rows, ("Broker",))


def _apis(client: Client, _options: argparse.Namespace) -> None:
    from ottla.cli.cluster.api_names import API_NAMES  # noqa: PLC0415 (rarely needed)

    for broker in client.cluster().brokers:
        offered = api_versions(client, broker.node_id).api_keys
        rows = [
            (
                str(broker.node_id),
                str(item.api_key),
                API_NAMES[item.api_key].name if item.api_key in API_NAMES else "?",
                f"{item.min_version}-{item.max_version}",
            )
            for item in sorted(offered, key=lambda item: item.api_key)
        ]
        print_table(("Broker", "Key", "API", "Versions"), rows, ("Broker", "Key"))


def _quorum(client: Client, _options: argparse.Namespace) -> None:
    rows = replication_rows(describe_quorum(client), int(time.time() * 1000), True)
    print_table(COLUMNS, rows, ("NodeId", "LogEndOffset", "Lag"))


def _unregister(client: Client, options: argparse.Namespace) -> None:
    unregister_broker(client, options.id)
    print(f"Broker {options.id} is forgotten.")

"""`kafka-cluster.sh`: print the cluster id and the endpoints, unregister brokers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from ottla.base.errors import Error
from ottla.cli.arguments import Argument, Command, flag
from ottla.cli.java.errors import run_reporting_errors
from ottla.cli.java.options import OptionError
from ottla.cli.kafka.commands import KafkaParser, client_of_servers, endpoint_type, servers
from ottla.cli.terminal import print_line
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster, unregister_broker
from ottla.client.errors import ClientError
from ottla.protocol.messages.cluster import DescribeClusterBroker

EXAMPLES = """
kafka-cluster.sh cluster-id --bootstrap-server 127.0.0.1:9092
kafka-cluster.sh list-endpoints --bootstrap-server 127.0.0.1:9092
kafka-cluster.sh unregister --bootstrap-server 127.0.0.1:9092 --id 3
"""
COLUMNS = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    options.command_config = options.command_config or options.config

    def body() -> int:
        with client_of_servers(options) as client:
            code: int = options.action(client, options)
            return code

    return run_reporting_errors(body)


def _parser() -> KafkaParser:
    connection = (
        servers("-b", "-C"),
        Argument("--config", metavar="FILE", help="old name of --command-config"),
        Argument("--command-config", "-c", metavar="FILE", help="file with properties of the client"),
    )
    return KafkaParser(
        prog="kafka-cluster.sh",
        description="Show the cluster id and endpoints, and unregister brokers.",
        examples=EXAMPLES,
        commands=(
            Command("cluster-id", "print the cluster's id", _cluster_id, *connection),
            Command(
                "unregister",
                "unregister a broker that was removed",
                _unregister,
                Argument("--id", "-i", type=int, required=True, metavar="N", help="the broker's id"),
                *connection,
            ),
            Command(
                "list-endpoints",
                "list brokers or controllers",
                _list_endpoints,
                flag("--include-fenced-brokers", help="also brokers that are fenced"),
                *connection,
            ),
        ),
    )


def _cluster_id(client: Client, options: argparse.Namespace) -> int:
    print_line(f"Cluster ID: {describe_cluster(client, endpoint_type=endpoint_type(options)).cluster_id}")
    return 0


def _unregister(client: Client, options: argparse.Namespace) -> int:
    try:
        unregister_broker(client, options.id)
    except ClientError as problem:
        if problem.error is not Error.UNSUPPORTED_VERSION:
            raise
        print("The target cluster does not support the broker unregistration API.")
        return 0
    print(f"Broker {options.id} is no longer registered.")
    return 0


def _list_endpoints(client: Client, options: argparse.Namespace) -> int:
    is_controllers = options.bootstrap_controller is not None
    if is_controllers and options.include_fenced_brokers:
        raise OptionError("The option --include-fenced-brokers is only supported with --bootstrap-server option")
    kind = endpoint_type(options)
    brokers = describe_cluster(client, endpoint_type=kind, with_fenced=options.include_fenced_brokers).brokers
    for line in endpoint_lines(sorted(brokers, key=lambda broker: broker.broker_id), is_controllers):
        print_line(line)
    return 0


def endpoint_lines(brokers: Sequence[DescribeClusterBroker], is_controllers: bool) -> Iterator[str]:
    """The table of Kafka's tool; controllers have no STATE column."""
    host_width = max((len(broker.host) for broker in brokers), default=100)
    rack_width = max((len(broker.rack) for broker in brokers if broker.rack), default=10)
    titles = [title for title in COLUMNS if title != "STATE" or not is_controllers]
    widths = [10, host_width, 10, rack_width, *([] if is_controllers else [10]), 15]
    yield _padded(titles, widths)
    for broker in brokers:
        state = [] if is_controllers else ["fenced" if broker.is_fenced else "unfenced"]
        kind = "controller" if is_controllers else "broker"
        cells = [str(broker.broker_id), broker.host, str(broker.port), broker.rack or "null", *state, kind]
        yield _padded(cells, widths)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))

"""The argparse parser of Kafka's tools with sub-commands, such as `kafka-cluster.sh cluster-id`.

Unlike ottla's own parser it ends with exit code 1 after a wrong command line and uses Kafka's error format.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final, NoReturn

from ottla.cli.arguments import Argument, OneOf, Parser
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.options import OptionError
from ottla.cli.terminal import EXIT_FAILED
from ottla.client.client import Client
from ottla.client.cluster import BROKERS, CONTROLLERS


class KafkaParser(Parser):
    """A parser with the error format of Kafka's tools."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_FAILED, f"{self.prog}: error: {message}{self._hint(message)}\n")


COMMAND_CONFIG: Final = Argument("--command-config", metavar="FILE", help="file with properties of the client")


def servers(*short: str, is_required: bool = True) -> OneOf:
    """The options for brokers or KRaft controllers; `short` are one-letter names such as -b and -C."""
    return OneOf(
        Argument("--bootstrap-server", *short[:1], metavar="SERVERS", help="brokers to connect to: host:port"),
        Argument(
            "--bootstrap-controller",
            *short[1:2],
            metavar="SERVERS",
            help="controllers to connect to instead of brokers",
        ),
        is_required=is_required,
    )


def client_of_servers(options: argparse.Namespace, client_id: str = "adminclient-1") -> Client:
    bootstrap: str | None = options.bootstrap_server or options.bootstrap_controller
    if bootstrap is None:
        raise OptionError("You must specify one of --bootstrap-server or --bootstrap-controller")
    return client_of_file(bootstrap, options.command_config, client_id)


def endpoint_type(options: argparse.Namespace) -> int:
    """The endpoint type of DescribeCluster requests: controllers only know controllers."""
    return CONTROLLERS if options.bootstrap_controller is not None else BROKERS

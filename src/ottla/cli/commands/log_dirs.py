"""`ottla log-dirs`: shows the log directories of brokers, their free space and their replicas."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from ottla.base.errors import Error
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, not_negative
from ottla.cli.client_settings import client_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import ToolError, is_terminal
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.log_dirs import LogDir, describe_log_dirs
from ottla.operations.sizes import size_text

EXAMPLES = """
ottla log-dirs list
ottla log-dirs describe --topic orders
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        for broker, folders in _folders(client, options.broker):
            options.action(broker, folders, options)
    return 0


def _parser() -> Parser:
    broker = Argument("--broker", type=not_negative, metavar="N", help="only this broker")
    return Parser(
        prog="ottla log-dirs",
        description="Show the log directories of brokers.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command("list", "list the directories and their free space", _list, broker),
            Command(
                "describe",
                "show the size of each partition",
                _describe,
                Argument("--topic", action="append", metavar="TOPIC", help="only this topic; can be repeated"),
                broker,
            ),
        ),
    )


def _folders(client: Client, wanted: int | None) -> Iterator[tuple[int, list[LogDir]]]:
    brokers = Admin(client).live_brokers()
    if wanted is not None and wanted not in brokers:
        raise ToolError(f"broker {wanted} is not in the cluster; brokers: {', '.join(map(str, sorted(brokers)))}")
    yield from describe_log_dirs(client, sorted(brokers) if wanted is None else [wanted]).items()


def _list(broker: int, folders: Sequence[LogDir], _options: argparse.Namespace) -> None:
    rows = [
        (
            str(broker),
            folder.path,
            str(len(folder.replicas)),
            size_cell(sum(replica.size_bytes for replica in folder.replicas)),
            size_cell(folder.usable_bytes),
            "ok" if folder.error is Error.NONE else folder.error.name.replace("_", " ").lower(),
        )
        for folder in folders
    ]
    print_table(("Broker", "Folder", "Partitions", "Used", "Free", "State"), rows, ("Partitions", "Used", "Free"))


def _describe(broker: int, folders: Sequence[LogDir], options: argparse.Namespace) -> None:
    rows = [
        (str(broker), folder.path, str(replica.partition), size_cell(replica.size_bytes))
        for folder in folders
        for replica in sorted(folder.replicas)
        if not options.topic or replica.partition.topic in options.topic
    ]
    print_table(("Broker", "Folder", "Partition", "Size"), rows, ("Size",))


def size_cell(size_bytes: int) -> str:
    """A size in readable units on a terminal, in bytes in a pipe."""
    return size_text(size_bytes) if is_terminal(sys.stdout) else str(size_bytes)

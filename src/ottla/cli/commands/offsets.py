"""`ottla offsets`: shows the first and next offsets of partitions, and the offset at a time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.base.names import TopicPartition
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag
from ottla.cli.client_settings import client_of
from ottla.cli.records.partition_filter import PartitionFilter, matching_partitions, parse_partitions, parse_timestamp
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET, Failures, OffsetAndTimestamp, list_offsets

EXAMPLES = """
ottla offsets list
ottla offsets list orders
ottla offsets list 'orders|audit' --at earliest
ottla offsets list orders --at 2026-11-15T08:00:00+01:00
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    at = None if options.at is None else parse_timestamp(options.at)
    with client_of(options) as client:
        code: int = options.action(client, options, at)
        return code


def _parser() -> Parser:
    return Parser(
        prog="ottla offsets",
        description="Show offsets of partitions.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "list",
                "list partitions with their first and next offset",
                _list,
                Argument("pattern", nargs="?", default=".*", metavar="REGEX", help="only topics that match"),
                Argument("--partitions", metavar="N,N", help="only these partitions"),
                Argument(
                    "--at", metavar="TIME", help="the offset at a time: a date, milliseconds since 1970, earliest"
                ),
                flag("--internal", help="also the cluster's own topics"),
                examples=EXAMPLES,
            ),
        ),
    )


def _list(client: Client, options: argparse.Namespace, at: int | None) -> int:
    choice = PartitionFilter.of_topic(options.pattern, parse_partitions(options.partitions), options.internal)
    partitions = matching_partitions(Admin(client).topics(), choice)
    if not partitions:
        raise ToolError(f"no partition matches {options.pattern}")
    if at is not None:
        found, failures = list_offsets(client, partitions, at)
        rows = [(*_name(item), _text(found[item])) for item in sorted(found)]
        print_table(("Topic", "Partition", "Offset"), rows, ("Partition", "Offset"))
        return _print_failures(failures)
    first, failures = list_offsets(client, partitions, EARLIEST)
    following, others = list_offsets(client, partitions, LATEST)
    both = sorted(first.keys() & following.keys())
    spans = [(*_name(item), *_span(first[item].offset, following[item].offset)) for item in both]
    print_table(("Topic", "Partition", "First", "Next", "Span"), spans, ("Partition", "First", "Next", "Span"))
    return _print_failures(failures | others)


def _name(partition: TopicPartition) -> tuple[str, str]:
    return partition.topic, str(partition.partition)


def _span(first: int, following: int) -> tuple[str, str, str]:
    return str(first), str(following), str(following - first)


def _text(found: OffsetAndTimestamp) -> str:
    return "none" if found.offset == NO_OFFSET else str(found.offset)


def _print_failures(failures: Failures) -> int:
    for partition, problem in failures.items():
        warn(f"{partition}: {problem}")
    return EXIT_FAILED if failures else 0

"""`ottla elect`: elects the preferred replicas, or any live replica, as leaders."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.arguments import CONNECTION, Argument, Parser, flag, not_negative
from ottla.cli.client_settings import client_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, UsageError, confirm, is_terminal, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.reassignments import Election, elect_leaders
from ottla.operations.reassignment.plan import check_json, parse_partitions

EXAMPLES = """
ottla elect                                     elect preferred leaders wherever they do not lead
ottla elect --topic orders --partition 2
ottla elect --election-type unclean --topic orders          asks for confirmation; scripts need --yes
"""
UNCLEAN_QUESTION = "The new leader may lack acknowledged records, which would be lost. Elect it?"
UNCLEAN_REFUSAL = "an unclean election may lose acknowledged records: confirm it with --yes"


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    kind = Election[options.election_type.upper()]
    if options.partition is not None and options.topic is None:
        raise UsageError("--partition requires --topic")
    if sum((options.all_topic_partitions, options.topic is not None, options.path_to_json_file is not None)) > 1:
        raise UsageError("--topic, --path-to-json-file and --all-topic-partitions exclude each other")
    listed = None if options.path_to_json_file is None else _read_partitions(options.path_to_json_file)
    if kind is Election.UNCLEAN and not options.yes and not _is_agreed():
        return EXIT_FAILED
    with client_of(options) as client:
        wanted = _wanted(client, options) if listed is None else listed
        return _report(client, elect_leaders(client, kind, wanted))


def _is_agreed() -> bool:
    """Ask for confirmation, because records may be lost. Without a terminal, --yes is required."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise UsageError(UNCLEAN_REFUSAL)
    return confirm(UNCLEAN_QUESTION)


def _parser() -> Parser:
    return Parser(
        prog="ottla elect",
        description="Elect partition leaders.",
        examples=EXAMPLES,
        arguments=(
            *CONNECTION,
            Argument(
                "--election-type",
                type=str.lower,
                choices=("preferred", "unclean"),
                default="preferred",
                help="preferred: the first replica (default); unclean: any live replica of a partition without a "
                "leader",
            ),
            Argument("--topic", metavar="TOPIC", help="only this topic"),
            Argument("--partition", type=not_negative, metavar="N", help="only this partition of the topic"),
            flag("--all-topic-partitions", help="all partitions that need it (default)"),
            Argument("--path-to-json-file", metavar="FILE", help="the partitions, in Kafka's form"),
            flag("--yes", "-y", help="elect unclean leaders without confirmation"),
        ),
    )


def _read_partitions(path: str) -> list[TopicPartition]:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    check_json(text, path)
    return parse_partitions(text)


def _wanted(client: Client, options: argparse.Namespace) -> list[TopicPartition] | None:
    if options.topic is None:
        return None
    if options.partition is not None:
        return [TopicPartition(options.topic, options.partition)]
    topic = Admin(client).topic(options.topic)
    return [TopicPartition(options.topic, partition.number) for partition in topic.partitions]


def _report(client: Client, results: dict[TopicPartition, BrokerError | None]) -> int:
    real = {name: problem for name, problem in sorted(results.items()) if not _is_unneeded(problem)}
    if not real:
        warn("All partitions already have the right leader.")
        return 0
    leaders = {
        TopicPartition(topic.name, partition.number): partition.leader
        for topic in Admin(client).topics(sorted({name.topic for name in real}))
        for partition in topic.partitions
    }
    rows = [
        (str(name), str(leaders.get(name, "none")), "elected" if problem is None else str(problem))
        for name, problem in real.items()
    ]
    print_table(("Partition", "Leader", "Result"), rows)
    return EXIT_FAILED if any(problem is not None for problem in real.values()) else 0


def _is_unneeded(problem: BrokerError | None) -> bool:
    return problem is not None and problem.error is Error.ELECTION_NOT_NEEDED

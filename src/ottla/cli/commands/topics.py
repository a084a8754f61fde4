"""`ottla topics`: creates, lists, describes, extends and deletes topics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.base.names import TopicPartition, id_text, topic_name_problem
from ottla.base.regular_expressions import PatternError, compile_java_pattern
from ottla.base.text import format_count
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag, parse_pairs, positive
from ottla.cli.client_settings import client_of
from ottla.cli.reports.topic_report import DescribeFilter, describe_lines, overrides, shown_partitions
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, confirm_unless_scripted, is_terminal, print_line
from ottla.client.admin import CLUSTER_DEFAULT, Admin, Partition, Topic
from ottla.client.errors import ClientError
from ottla.client.reassignments import Reassignment, reassignments_of
from ottla.operations.topic_summary import Moves, is_under_replicated, replication_factor

EXAMPLES = """
ottla topics create orders --partitions 3 --config retention.ms=86400000
ottla topics list
ottla topics describe orders
ottla topics describe orders --summary
ottla topics alter orders --partitions 6
ottla topics delete orders
"""
REPORTS = {
    "under-replicated-partitions": "with replicas that are not in sync",
    "under-min-isr-partitions": "below min.insync.replicas",
    "at-min-isr-partitions": "exactly at min.insync.replicas",
    "unavailable-partitions": "without a live leader",
}
REPLICATION_FACTOR_MAX = 32767
PARTITIONS_MAX = 2**31 - 1


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        code: int = options.action(Admin(client), options)
        return code


def _parser() -> Parser:
    return Parser(
        prog="ottla topics",
        description="Create, list, describe, grow and delete topics.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "create",
                "create topics",
                _create,
                Argument("names", nargs="+", metavar="NAME"),
                Argument(
                    "--partitions", type=positive, default=CLUSTER_DEFAULT, metavar="N", help="default: the broker's"
                ),
                Argument("--replication-factor", type=positive, default=CLUSTER_DEFAULT, metavar="N"),
                Argument("--config", action="append", default=[], metavar="KEY=VALUE", help="a setting of the topic"),
                flag("--if-not-exists", help="no error if the topic exists"),
            ),
            Command(
                "list",
                "list topics",
                _list,
                Argument("pattern", nargs="?", metavar="REGEX", help="only topics whose whole name matches"),
                flag("--internal", help="also the cluster's own topics"),
            ),
            Command(
                "describe",
                "show partitions and settings of topics",
                _describe,
                Argument("names", nargs="*", metavar="NAME", help="default: all topics"),
                flag("--problems", help="only partitions that lack a leader or replicas"),
                *(flag(f"--{name}", help=f"only partitions {what}") for name, what in REPORTS.items()),
                flag("--summary", help="topics in numbers: spread, skew, preferred leaders"),
                flag("--json", help="with --summary: as one JSON document"),
            ),
            Command(
                "alter",
                "add partitions to a topic",
                _alter,
                Argument("names", nargs=1, metavar="NAME"),
                Argument(
                    "--partitions", type=positive, required=True, metavar="N", help="the new number of partitions"
                ),
            ),
            Command(
                "delete",
                "delete topics with all their records",
                _delete,
                Argument("names", nargs="+", metavar="NAME"),
                flag("--yes", "-y", help="skip the confirmation"),
                flag("--if-exists", help="no error if a topic is missing"),
            ),
        ),
    )


def _create(admin: Admin, options: argparse.Namespace) -> int:
    configs = parse_pairs(options.config, allow_bare=False)
    if options.partitions > PARTITIONS_MAX or options.replication_factor > REPLICATION_FACTOR_MAX:
        raise ToolError(f"the maximum is {PARTITIONS_MAX} partitions and {REPLICATION_FACTOR_MAX} replicas")
    for name in options.names:
        problem = topic_name_problem(name)
        if problem is not None:
            raise ToolError(problem)
    for name in options.names:
        try:
            created = admin.create_topic(
                name,
                partitions=options.partitions,
                replication_factor=options.replication_factor,
                configs=configs,
            )
        except ClientError as refused:
            if refused.error is not Error.TOPIC_ALREADY_EXISTS or not options.if_not_exists:
                raise
            print(f"Topic {name} already exists.")
            continue
        print(f"Created topic {name} ({_partition_count(created.partitions)}).")
    return 0


def _list(admin: Admin, options: argparse.Namespace) -> int:
    topics = [topic for topic in admin.topics() if options.internal or not topic.is_internal]
    if options.pattern is not None:
        try:
            is_wanted = compile_java_pattern(options.pattern)
        except PatternError as problem:
            raise ToolError(f"{options.pattern!r} is not a regular expression: {problem}") from None
        topics = [topic for topic in topics if is_wanted.fullmatch(topic.name)]
    if not is_terminal(sys.stdout):
        for topic in topics:
            print(topic.name)
    elif topics:
        moves = reassignments_of(admin.client, topics)
        rows = [_topic_row(topic, moves) for topic in topics]
        print_table(("Topic", "Partitions", "Replicas", "State"), rows, ("Partitions", "Replicas"))
    else:
        print("No topics. Create one with: ottla topics create NAME")
    return 0


def _describe(admin: Admin, options: argparse.Namespace) -> int:
    wanted = DescribeFilter(
        under_replicated=options.problems or options.under_replicated_partitions,
        unavailable=options.problems or options.unavailable_partitions,
        under_min_isr=options.problems or options.under_min_isr_partitions,
        at_min_isr=options.at_min_isr_partitions,
    )
    if options.summary and wanted.is_partitions_only:
        raise UsageError("--summary is about whole topics: it does not go with a choice of partitions")
    if options.json and not options.summary:
        raise UsageError("--json needs --summary")
    if options.names:
        topics = _find(admin, options.names)
    else:  # a problem of an internal topic is a problem of the cluster
        topics = [topic for topic in admin.topics() if wanted.is_partitions_only or not topic.is_internal]
    topics = admin.describe([topic.name for topic in topics])
    if options.summary:
        from ottla.cli.reports.topic_summary_report import show_summaries  # noqa: PLC0415 (only needed here)

        show_summaries(admin, topics, options.json)
        return 0
    configs = admin.topic_configs(topic.name for topic in topics)
    brokers = admin.live_brokers()
    moves = reassignments_of(admin.client, topics)
    if not is_terminal(sys.stdout):
        for line in describe_lines(topics, configs, brokers, wanted, moves):
            print_line(line)
        return 0
    for topic in topics:
        partitions = shown_partitions(topic, configs[topic.name], brokers, wanted, moves)
        if wanted.is_partitions_only and not partitions:
            continue
        settings = ", ".join(overrides(configs[topic.name])) or "default settings"
        print_line(f"{topic.name}   id {id_text(topic.topic_id)}   {settings}")
        rows = [_partition_row(item, moves.get(TopicPartition(topic.name, item.number))) for item in partitions]
        print_table(("Partition", "Leader", "Replicas", "In sync", "Moving"), rows, ("Partition", "Leader"))
    return 0


def _alter(admin: Admin, options: argparse.Namespace) -> int:
    (topic,) = _find(admin, options.names)
    admin.create_partitions(topic.name, min(options.partitions, PARTITIONS_MAX))
    print(f"Topic {topic.name} has {format_count(options.partitions, 'partition')} now.")
    return 0


def _delete(admin: Admin, options: argparse.Namespace) -> int:
    topics = _find(admin, options.names, may_miss=options.if_exists)
    names = [topic.name for topic in topics]
    if not names:
        return 0
    question = f"Delete {format_count(len(names), 'topic')} with all records: {', '.join(names)}?"
    if not (options.yes or confirm_unless_scripted(question, "Nothing was deleted.")):
        return EXIT_FAILED
    admin.delete_topics(names)
    for name in names:
        print(f"Deleted topic {name}.")
    return 0


def _find(admin: Admin, names: Sequence[str], may_miss: bool = False) -> list[Topic]:
    """The topics with these names; the error about a missing one suggests a similar name."""
    topics = {topic.name: topic for topic in admin.topics()}
    missing = [name for name in names if name not in topics]
    if missing and not may_miss:
        from ottla.cli.arguments import closest_match  # noqa: PLC0415

        guess = closest_match(missing[0], topics)
        raise ToolError(f"topic {missing[0]} does not exist{f' (did you mean {guess}?)' if guess else ''}")
    return [topics[name] for name in dict.fromkeys(names) if name in topics]


def _health(topic: Topic, moves: Moves) -> str:
    if any(partition.leader < 0 for partition in topic.partitions):
        return "no leader"
    if any(is_under_replicated(topic.name, partition, moves) for partition in topic.partitions):
        return "under-replicated"
    return "ok"


def _topic_row(topic: Topic, moves: Moves) -> tuple[str, ...]:
    return topic.name, str(len(topic.partitions)), str(replication_factor(topic, moves)), _health(topic, moves)


def _partition_row(partition: Partition, move: Reassignment | None) -> tuple[str, ...]:
    leader = str(partition.leader) if partition.leader >= 0 else "none"
    cells = (str(partition.number), leader, ",".join(map(str, partition.replicas)), ",".join(map(str, partition.isr)))
    if move is None:
        return (*cells, "")
    return (*cells, " ".join([*(f"+{broker}" for broker in move.adding), *(f"-{broker}" for broker in move.removing)]))


def _partition_count(number: int) -> str:
    return "partitions as the cluster has it" if number < 0 else format_count(number, "partition")

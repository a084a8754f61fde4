"""`kafka-leader-election.sh`: elect the preferred replicas, or any live replica, as leaders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_text, run_reporting_errors
from ottla.cli.java.hash_order import partition_order
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, KafkaOptions, Option, OptionError
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, warn
from ottla.client.errors import BrokerError
from ottla.client.reassignments import Election, elect_leaders
from ottla.operations.reassignment.plan import parse_partitions

TOOL = "kafka-leader-election.sh"
SUMMARY = (
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas."
)
EXAMPLE = "--election-type preferred --all-topic-partitions"
CHOICES = ("topic", "all-topic-partitions", "path-to-json-file")
OLD_CONFIG = "admin.config"
OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option(OLD_CONFIG, "Old name of --command-config.", "file"),
    Option("election-type", "preferred, or unclean for partitions without a leader. Required.", "type"),
    Option("topic", "Elect in one partition of this topic.", "name"),
    Option("partition", "With --topic: which partition.", "number"),
    Option("all-topic-partitions", "Elect leaders wherever it is needed."),
    Option("path-to-json-file", 'Elect in {"partitions":[{"topic":"t","partition":0}]}.', "file"),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    if not arguments:
        options.print_usage_and_exit(SUMMARY)
    return run_reporting_errors(partial(_run, options))


def _run(options: KafkaOptions) -> int:
    kind = check_options(options)
    try:
        partitions = wanted_partitions(options)
    except FileNotFoundError as problem:
        raise ToolError(f"java.io.IOException: Unable to read file {problem.filename}") from None
    config = options.text("command-config")
    if options.has(OLD_CONFIG):
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
        config = config or options.text(OLD_CONFIG)
    with client_of_file(options.text("bootstrap-server") or "", config) as client:
        results = elect_leaders(client, kind, partitions)
    return print_results(kind, results)


def check_options(options: KafkaOptions) -> Election:
    """Reject what Kafka rejects, in the same order."""
    missing = [name for name in ("bootstrap-server", "election-type") if not options.has(name)]
    if missing:
        raise OptionError(f"Missing required option(s): {', '.join(missing)}")
    if sum(options.has(name) for name in CHOICES) != 1:
        raise OptionError(f"One and only one of the following options is required: {', '.join(CHOICES)}")
    if options.has("topic") and not options.has("partition"):
        raise OptionError("Missing required option(s): partition")
    if options.has("partition") and not options.has("topic"):
        raise OptionError("Option partition is only allowed if topic is used")
    text = options.text("election-type") or ""
    try:
        return Election[text.upper()]
    except KeyError:
        raise OptionError(f"Cannot parse argument '{text}' of option election-type") from None


def wanted_partitions(options: KafkaOptions) -> list[TopicPartition] | None:
    """The partitions of the options; None: all of them."""
    if options.has("topic"):
        return [TopicPartition(options.text("topic") or "", options.number("partition") or 0)]
    if options.has("all-topic-partitions"):
        return None
    with open(options.text("path-to-json-file") or "", encoding="utf-8") as file:
        return partition_order(parse_partitions(file.read()))  # in the order of a Java set


def print_results(kind: Election, results: dict[TopicPartition, BrokerError | None]) -> int:
    """Print the results in the order of Java's maps, as Kafka does."""
    failed = {partition: problem for partition, problem in results.items() if problem is not None}
    elected = partition_order([partition for partition in results if partition not in failed])
    unneeded = partition_order(
        [partition for partition, problem in failed.items() if problem.error is Error.ELECTION_NOT_NEEDED]
    )
    if elected:
        print_line(f"Successfully completed leader election ({kind.name}) for partitions {_names(elected)}")
    if unneeded:
        print_line(f"Valid replica already elected for partitions {_names(unneeded)}")
    real = {
        partition: failed[partition]
        for partition in partition_order([partition for partition in failed if partition not in unneeded])
    }
    for partition, problem in real.items():
        print_line(f"Error completing leader election ({kind.name}) for partition: {partition}: {java_text(problem)}")
    if real:
        warn(f"{len(real)} replica(s) could not be elected")
        return EXIT_FAILED
    return 0


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))

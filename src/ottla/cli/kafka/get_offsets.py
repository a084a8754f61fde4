"""`kafka-get-offsets.sh`: offsets of partitions by time, one line `topic:partition:offset` each."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_text, run_reporting_errors
from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    KafkaOptions,
    Option,
    OptionError,
    bootstrap_of,
)
from ottla.cli.records.partition_filter import (
    PartitionFilter,
    matching_partitions,
    parse_partitions,
    parse_rules,
    parse_time,
)
from ottla.cli.terminal import warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.offsets import NO_OFFSET, list_offsets

TOOL = "kafka-get-offsets.sh"
SUMMARY = "Print offsets of partitions: the first, the next, or the one at a time."
EXAMPLE = "--topic orders"
OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    Option("topic", "Only topics whose name matches this regular expression.", "topic"),
    Option("partitions", "Only these partitions, separated by commas.", "numbers"),
    Option("topic-partitions", "Several patterns at once, such as orders:0,audit:1-3,:0.", "patterns"),
    Option(
        "time",
        "latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered (-5), "
        "earliest-pending-upload (-6) or milliseconds since 1970; latest if not given.",
        "time",
    ),
    Option("exclude-internal-topics", "Leave out the cluster's own topics."),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, unreadable="Error occurred: ", example=EXAMPLE)
    if not arguments:
        options.print_usage_and_exit(SUMMARY)
    bootstrap = bootstrap_of(options)
    if bootstrap is None:
        options.print_usage_and_exit('Missing required argument "[bootstrap-server]"')
    if not all(":" in server for server in bootstrap.split(",")):
        options.print_usage_and_exit("Please provide valid host:port like host1:9091,host2:9092\n")

    def body() -> int:
        choice, time = _wanted(options)
        with client_of_file(bootstrap, options.text("command-config"), "GetOffsetShell") as client:
            return print_offsets(client, choice, time)

    return run_reporting_errors(body, "Error occurred: ")


def _wanted(options: KafkaOptions) -> tuple[PartitionFilter, int]:
    rules = options.text("topic-partitions")
    if rules is not None and (options.has("topic") or options.has("partitions")):
        raise OptionError("--topic-partitions cannot be used with --topic or --partitions")
    time = parse_time(options.text("time") or "latest")
    if rules is not None:
        return parse_rules(rules, not options.has("exclude-internal-topics")), time
    partitions = parse_partitions(options.text("partitions"))
    topic = options.text("topic")
    return PartitionFilter.of_topic(topic or ".*", partitions, not options.has("exclude-internal-topics")), time


def print_offsets(client: Client, choice: PartitionFilter, time: int) -> int:
    partitions = matching_partitions(Admin(client).topics(), choice)
    if not partitions:
        raise OptionError("Could not match any topic-partitions with the specified filters")
    found, failures = list_offsets(client, partitions, time)
    for partition in partitions:
        if partition in failures:
            warn(f"Skip getting offsets for topic-partition {partition} due to error: {java_text(failures[partition])}")
    for partition in sorted(found, key=str):
        if found[partition].offset != NO_OFFSET:
            print(f"{partition.topic}:{partition.partition}:{found[partition].offset}")
    return 0

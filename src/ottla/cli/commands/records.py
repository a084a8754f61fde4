"""`ottla records`: deletes records before an offset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.base.names import TopicPartition
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag, not_negative
from ottla.cli.client_settings import client_of
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, confirm_unless_scripted, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.offsets import delete_records

EXAMPLES = """
ottla records delete orders --partition 0 --before 100
ottla records delete orders --before end
ottla records delete --file offsets.json
"""
END = -1  # as an offset: all committed records


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    with client_of(options) as client:
        code: int = options.action(client, options)
        return code


def _parser() -> Parser:
    return Parser(
        prog="ottla records",
        description="Delete records below an offset.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "delete",
                "delete records below an offset",
                _delete,
                Argument("topic", nargs="?", metavar="TOPIC"),
                Argument("--partition", type=not_negative, metavar="N", help="default: all partitions"),
                Argument("--before", type=_offset, metavar="OFFSET", help="first offset to keep; end: keep none"),
                Argument("--file", metavar="FILE", help="JSON file in the form of kafka-delete-records.sh"),
                flag("--yes", "-y", help="skip the confirmation"),
                examples=EXAMPLES,
            ),
        ),
    )


def _delete(client: Client, options: argparse.Namespace) -> int:
    offsets = _wanted(client, options)
    names = ", ".join(f"{item} below {'the end' if offset == END else offset}" for item, offset in offsets.items())
    if not (options.yes or confirm_unless_scripted(f"Delete the records of {names}?", "Nothing was deleted.")):
        return EXIT_FAILED
    low_watermarks, failures = delete_records(client, offsets)
    rows = [(item.topic, str(item.partition), str(low_watermarks[item])) for item in sorted(low_watermarks)]
    if rows:
        print_table(("Topic", "Partition", "First"), rows, ("Partition", "First"))
    for partition, problem in failures.items():
        warn(f"{partition}: {problem}")
    return EXIT_FAILED if failures else 0


def _wanted(client: Client, options: argparse.Namespace) -> dict[TopicPartition, int]:
    if options.file is not None:
        from ottla.cli.records.offset_file import read_offsets  # noqa: PLC0415 (rarely needed)

        return read_offsets(options.file)
    if options.topic is None or options.before is None:
        raise UsageError("name a TOPIC and --before OFFSET, or give a --file")
    if options.partition is not None:
        return {TopicPartition(options.topic, options.partition): options.before}
    topics = Admin(client).topics([options.topic])
    if not topics:
        raise ToolError(f"topic {options.topic} does not exist")
    return {TopicPartition(options.topic, item.number): options.before for item in topics[0].partitions}


def _offset(text: str) -> int:
    return END if text == "end" else not_negative(text)

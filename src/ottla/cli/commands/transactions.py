"""`ottla transactions`: lists and describes transactions, finds and aborts hanging ones."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ottla.base.names import TopicPartition
from ottla.cli.arguments import CONNECTION, Argument, Command, Parser, flag, not_negative
from ottla.cli.client_settings import run_action
from ottla.cli.reports.transaction_report import MINUTE_MS, described_row, hanging_row, list_rows, producer_row
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, confirm_unless_scripted, is_terminal, print_line, warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.transactions import (
    ANY_DURATION,
    Marker,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from ottla.operations.hanging_transactions import SearchError, find_hanging

EXAMPLES = """
ottla transactions list
ottla transactions describe payments
ottla transactions producers orders
ottla transactions hanging orders
ottla transactions abort orders 0 --start-offset 1234
ottla transactions terminate payments
"""
HANGING_MINUTES = 15
LIST_COLUMNS = ("Transactional id", "Coordinator", "Producer", "State")
DESCRIBE_COLUMNS = (
    "Coordinator",
    "Transactional id",
    "Producer",
    "Epoch",
    "State",
    "Time-out ms",
    "Started",
    "For ms",
    "Partitions",
)
PRODUCER_COLUMNS = (
    "Topic",
    "Partition",
    "Producer",
    "Epoch",
    "Coordinator epoch",
    "Last sequence",
    "Last time",
    "Open since offset",
)
HANGING_COLUMNS = (
    "Topic",
    "Partition",
    "Producer",
    "Epoch",
    "Coordinator epoch",
    "Start offset",
    "Last time",
    "For minutes",
)


def run(arguments: Sequence[str]) -> int:
    return run_action(_parser().parse_args(arguments))


def _parser() -> Parser:
    yes = flag("--yes", "-y", help="skip the confirmation")
    return Parser(
        prog="ottla transactions",
        description="Manage transactions.",
        examples=EXAMPLES,
        shared=CONNECTION,
        commands=(
            Command(
                "list",
                "list transactional ids and their states",
                _list,
                Argument("pattern", nargs="?", metavar="REGEX", help="only ids that match"),
                Argument(
                    "--older-than",
                    type=not_negative,
                    default=ANY_DURATION,
                    metavar="MS",
                    help="only those running at least this long",
                ),
            ),
            Command("describe", "show transactional ids", _describe, Argument("ids", nargs="+", metavar="ID")),
            Command(
                "producers",
                "show the producers that partitions remember",
                _producers,
                Argument("topic", metavar="TOPIC"),
                Argument("partition", nargs="?", type=not_negative, metavar="PARTITION", help="default: all"),
            ),
            Command(
                "hanging",
                "find transactions that will never complete",
                _hanging,
                Argument("topic", nargs="?", metavar="TOPIC", help="default: all topics"),
                Argument(
                    "--minutes",
                    type=not_negative,
                    default=HANGING_MINUTES,
                    metavar="N",
                    help="without activity for this long",
                ),
            ),
            Command(
                "abort",
                "abort a hanging transaction in one partition",
                _abort,
                Argument("topic", metavar="TOPIC"),
                Argument("partition", type=not_negative, metavar="PARTITION"),
                Argument("--start-offset", type=not_negative, required=True, metavar="N", help="where it starts"),
                yes,
            ),
            Command(
                "terminate",
                "fence the producer of an id and abort its transaction",
                _terminate,
                Argument("id", metavar="ID"),
                yes,
            ),
        ),
    )


def _list(client: Client, options: argparse.Namespace) -> int:
    found = list_transactions(client, duration_ms=options.older_than, pattern=options.pattern)
    rows = sorted(list_rows(found))
    if rows:
        print_table(LIST_COLUMNS, rows, ("Coordinator", "Producer"))
    elif is_terminal(sys.stdout):
        print("No transactional ids.")
    return 0


def _describe(client: Client, options: argparse.Namespace) -> int:
    answers = describe_transactions(client, options.ids)
    now_ms = int(time.time() * 1000)
    rows = [described_row(found, now_ms) for found in answers.values() if not isinstance(found, BrokerError)]
    if rows:
        print_table(DESCRIBE_COLUMNS, rows, ("Coordinator", "Producer", "Epoch", "Time-out ms", "Started", "For ms"))
        sys.stdout.flush()
    for name, answer in answers.items():
        if isinstance(answer, BrokerError):
            warn(f"{name}: {answer}")
    return 0 if len(rows) == len(answers) else EXIT_FAILED


def _producers(client: Client, options: argparse.Namespace) -> int:
    partitions = [TopicPartition(options.topic, options.partition or 0)]
    if options.partition is None:
        topic = Admin(client).topic(options.topic)
        partitions = [TopicPartition(topic.name, item.number) for item in topic.partitions]
    found, failures = describe_producers(client, partitions)
    rows = [
        (partition.topic, str(partition.partition), *producer_row(state))
        for partition in sorted(found)
        for state in found[partition]
    ]
    if rows:
        print_table(PRODUCER_COLUMNS, rows, PRODUCER_COLUMNS[1:])
    for partition, problem in failures.items():
        warn(f"{partition}: {problem}")
    return EXIT_FAILED if failures else 0


def _hanging(client: Client, options: argparse.Namespace) -> int:
    now_ms = int(time.time() * 1000)
    try:
        found = find_hanging(client, options.topic, None, None, now_ms - MINUTE_MS * options.minutes)
    except SearchError as problem:
        raise ToolError(f"{problem.step}: {problem.problem}") from None
    if found:
        print_table(HANGING_COLUMNS, [hanging_row(item, now_ms) for item in found], HANGING_COLUMNS[1:])
    elif is_terminal(sys.stdout):
        print("No transaction hangs.")
    return 0


def _abort(client: Client, options: argparse.Namespace) -> int:
    partition = TopicPartition(options.topic, options.partition)
    found, failures = describe_producers(client, [partition])
    for problem in failures.values():
        raise problem
    for state in found[partition]:
        if state.current_txn_start_offset == options.start_offset:
            break
    else:
        raise ToolError(f"no open transaction starts at offset {options.start_offset} of partition {partition}")
    if not _is_sure(options, f"Abort the transaction of producer {state.producer_id} in {partition}?"):
        return EXIT_FAILED
    abort_transaction(
        client, Marker(partition, state.producer_id, state.producer_epoch, max(state.coordinator_epoch, 0))
    )
    print(f"Aborted the transaction of producer {state.producer_id} in {partition}.")
    return 0


def _terminate(client: Client, options: argparse.Namespace) -> int:
    answer = describe_transactions(client, [options.id])[options.id]  # fencing would create an unknown id
    if isinstance(answer, BrokerError):
        raise answer
    if not _is_sure(options, f"Fence the producer of {options.id} and abort its transaction?"):
        return EXIT_FAILED
    fence_producer(client, options.id)
    print_line(f"Fenced the producer of {options.id}; its state was {answer.state}.")
    return 0


def _is_sure(options: argparse.Namespace, question: str) -> bool:
    return options.yes or confirm_unless_scripted(question, "Nothing was changed.")

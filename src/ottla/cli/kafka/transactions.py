"""`kafka-transactions.sh`: list and describe transactions, find and abort hanging ones."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ottla import __version__
from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.cli.arguments import Argument, Command
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_sentence
from ottla.cli.java.options import INTEGER_MAX, KAFKA_VERSION, LONG_MAX
from ottla.cli.kafka.commands import COMMAND_CONFIG, KafkaParser
from ottla.cli.reports.transaction_report import (
    DESCRIBE_COLUMNS,
    HANGING_COLUMNS,
    LIST_COLUMNS,
    PRODUCER_COLUMNS,
    column_lines,
    described_row,
    hanging_row,
    list_rows,
    producer_row,
)
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, warn
from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.client.transactions import (
    ANY_DURATION,
    ListRefusedError,
    Marker,
    abort_transaction,
    describe_producers,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from ottla.operations.hanging_transactions import SearchError, find_hanging
from ottla.protocol.messages.transactions import ProducerState

EXAMPLES = """
kafka-transactions.sh --bootstrap-server 127.0.0.1:9092 list
kafka-transactions.sh --bootstrap-server 127.0.0.1:9092 describe --transactional-id payments
kafka-transactions.sh --bootstrap-server 127.0.0.1:9092 find-hanging --topic orders
"""
SHORT_MAX = 2**15 - 1
DETAIL = "Enable debug logging for additional detail."
NOT_NAMED = (
    "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or with "
    "--producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
)


class FailedError(ToolError):
    """A failure that Kafka's tool reports in one line."""

    def __init__(self, what: str, problem: ClientError | None = None, cause: str = "") -> None:
        cause = cause or ("" if problem is None else java_sentence(problem))
        super().__init__(f"{what}: {cause}. {DETAIL}" if cause else what)


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        with client_of_file(options.bootstrap_server, options.command_config) as client:
            options.action(client, options)
        return 0
    except (ClientError, ToolError) as problem:
        sys.stdout.flush()
        warn(str(problem))
        return EXIT_FAILED


def _parser() -> KafkaParser:
    return KafkaParser(
        prog="kafka-transactions.sh",
        description="List and describe transactions, find and abort hanging ones.",
        examples=EXAMPLES,
        arguments=(
            Argument("--bootstrap-server", required=True, metavar="host:port", help="brokers to connect to"),
            COMMAND_CONFIG,
            Argument("-v", "--version", action="version", version=f"{KAFKA_VERSION} (ottla {__version__})"),
        ),
        commands=(
            Command(
                "list",
                "list transactional ids",
                _list,
                Argument("--duration-filter", type=_long, default=ANY_DURATION, metavar="MS", help="only older ones"),
                Argument("--transactional-id-pattern", metavar="REGEX", help="only ids that match"),
            ),
            Command(
                "describe",
                "show one transactional id",
                _describe,
                Argument("--transactional-id", required=True, metavar="ID"),
            ),
            Command(
                "describe-producers",
                "show the producers of a partition",
                _describe_producers,
                Argument("--broker-id", type=_integer, metavar="N", help="query this replica instead of the leader"),
                Argument("--topic", required=True, metavar="TOPIC"),
                Argument("--partition", required=True, type=_integer, metavar="N"),
            ),
            Command(
                "abort",
                "abort a hanging transaction in one partition",
                _abort,
                Argument("--start-offset", type=_long, metavar="N", help="where the transaction starts"),
                Argument("--producer-id", type=_long, metavar="N", help="for brokers older than 3.0"),
                Argument("--producer-epoch", type=_short, metavar="N", help="for brokers older than 3.0"),
                Argument("--coordinator-epoch", type=_integer, metavar="N", help="for brokers older than 3.0"),
                Argument("--topic", required=True, metavar="TOPIC"),
                Argument("--partition", required=True, type=_integer, metavar="N"),
            ),
            Command(
                "find-hanging",
                "find transactions that will never complete",
                _find_hanging,
                Argument("--broker-id", type=_integer, metavar="N", help="search the partitions of this broker"),
                Argument("--max-transaction-timeout", type=_integer, default=15, metavar="MINUTES"),
                Argument("--topic", metavar="TOPIC", help="search this topic"),
                Argument("--partition", type=_integer, metavar="N", help="search this partition of the topic"),
            ),
            Command(
                "forceTerminateTransaction",
                "abort the open transaction of an id",
                _terminate,
                Argument("--transactionalId", required=True, metavar="ID"),
            ),
        ),
    )


def _list(client: Client, options: argparse.Namespace) -> None:
    try:
        found = list_transactions(client, duration_ms=options.duration_filter, pattern=options.transactional_id_pattern)
    except ListRefusedError as problem:
        cause = f"ListTransactions request sent to broker {problem.broker} failed with an unexpected exception"
        raise FailedError("Failed to list transactions", cause=cause) from None
    print_columns(LIST_COLUMNS, list_rows(found))


def _describe(client: Client, options: argparse.Namespace) -> None:
    name = options.transactional_id
    answer = describe_transactions(client, [name])[name]
    if isinstance(answer, BrokerError):
        why = {
            Error.TRANSACTIONAL_ID_NOT_FOUND: "failed because the ID could not be found",
            Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "failed due to authorization failure",
        }.get(answer.error, "failed due to unexpected error")
        cause = f"DescribeTransactions request for transactionalId `{name}` {why}"
        raise FailedError(f"Failed to describe transaction state of transactional-id `{name}`", cause=cause)
    print_columns(DESCRIBE_COLUMNS, [described_row(answer, int(time.time() * 1000))])


def _describe_producers(client: Client, options: argparse.Namespace) -> None:
    partition = TopicPartition(options.topic, options.partition)
    queried = "leader" if options.broker_id is None else f"broker {options.broker_id}"
    failure = f"Failed to describe producers for partition {partition} on {queried}"
    states = producers_of(client, partition, options.broker_id, failure)
    print_columns(PRODUCER_COLUMNS, [producer_row(state) for state in states])


def producers_of(client: Client, place: TopicPartition, broker_id: int | None, failure: str) -> list[ProducerState]:
    try:
        found, failures = describe_producers(client, [place], broker_id)
    except ClientError as problem:
        raise FailedError(failure, problem) from None
    for refused in failures.values():
        raise FailedError(failure, refused)
    return found[place]


def _abort(client: Client, options: argparse.Namespace) -> None:
    marker = marker_of(client, options)
    try:
        abort_transaction(client, marker)
    except ClientError as problem:
        raise FailedError(f"Failed to abort transaction {marker_text(marker)}", problem) from None


def marker_of(client: Client, options: argparse.Namespace) -> Marker:
    partition = TopicPartition(options.topic, options.partition)
    if options.start_offset is not None:
        return open_marker(client, partition, options.start_offset)
    if options.producer_id is None:
        raise FailedError(NOT_NAMED)
    for name in ("producer_epoch", "coordinator_epoch"):
        if getattr(options, name) is None:
            raise FailedError(f"Missing required argument --{name.replace('_', '-')}")
    # A partition reports -1 before a producer's first marker; coordinator epochs start at 0.
    return Marker(partition, options.producer_id, options.producer_epoch, max(options.coordinator_epoch, 0))


def open_marker(client: Client, place: TopicPartition, start_offset: int) -> Marker:
    states = producers_of(client, place, None, f"Failed to validate producer state for partition {place}")
    for state in states:
        if state.current_txn_start_offset == start_offset:
            return Marker(place, state.producer_id, state.producer_epoch, max(state.coordinator_epoch, 0))
    raise FailedError(f"Could not find any open transactions starting at offset {start_offset} on partition {place}")


def marker_text(marker: Marker) -> str:
    return (
        f"AbortTransactionSpec(topicPartition={marker.partition}, producerId={marker.producer_id}, "
        f"producerEpoch={marker.producer_epoch}, coordinatorEpoch={marker.coordinator_epoch})"
    )


def _find_hanging(client: Client, options: argparse.Namespace) -> None:
    if options.topic is None and options.broker_id is None:
        raise FailedError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if options.partition is not None and options.topic is None:
        raise FailedError("The --partition argument requires --topic to be provided")
    now_ms = int(time.time() * 1000)
    try:
        found = find_hanging(
            client,
            options.topic,
            options.partition,
            options.broker_id,
            now_ms - 60_000 * options.max_transaction_timeout,
        )
    except SearchError as problem:
        raise FailedError(problem.step, problem.problem) from None
    print_columns(HANGING_COLUMNS, [hanging_row(item, now_ms) for item in found])


def _terminate(client: Client, options: argparse.Namespace) -> None:
    name = options.transactionalId
    try:
        fence_producer(client, name)
    except BrokerError:
        cause = f"InitProducerId request for transactionalId `{name}` failed due to unexpected error"
        raise FailedError(f"Failed to force terminate transactionalId `{name}`", cause=cause) from None


def print_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in column_lines(columns, rows):
        print_line(line)


def _integer(text: str) -> int:
    return _number(text, INTEGER_MAX, "Integer")


def _long(text: str) -> int:
    return _number(text, LONG_MAX, "Long")


def _short(text: str) -> int:
    return _number(text, SHORT_MAX, "Short")


def _number(text: str, most: int, kind: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = most + 1
    if abs(number) > most:
        raise argparse.ArgumentTypeError(f"could not convert '{text}' to {kind}")
    return number

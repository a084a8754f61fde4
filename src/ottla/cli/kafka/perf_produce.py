"""`kafka-producer-perf-test.sh`: measure the throughput and the latency of a producer."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import NoReturn

from ottla.cli.arguments import Argument, OneOf, Parser, flag
from ottla.cli.client_settings import command_properties
from ottla.cli.perf.library_metrics import LibraryMetrics
from ottla.cli.perf.load_generator import (
    Load,
    LoadGenerator,
    Payload,
    chosen_payload,
    counted_payload,
    random_payload,
    read_payloads,
)
from ottla.cli.records.console_producer import MAX_BLOCK_MS, producer_settings, wait_for_topic
from ottla.cli.terminal import EXIT_FAILED, ToolError

TOOL = "kafka-producer-perf-test"
CLIENT_ID = "perf-producer-client"
TRANSACTION_MS = 3000
EXAMPLES = """
kafka-producer-perf-test.sh --bootstrap-server 127.0.0.1:9092 --topic t \\
    --num-records 1000000 --record-size 100 --throughput -1
"""
DEPRECATED = {
    "producer_props": ("producer-props", "command-property"),
    "producer_config": ("producer.config", "command-config"),
}


class PerfParser(Parser):
    """A parser with the exit code and the error format of Kafka's script."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"argument {missing.partition(',')[0]} is required"
        self.exit(EXIT_FAILED, f"{self.prog}: error: {message}\n")


def run(arguments: Sequence[str]) -> int:
    parser = make_parser()
    if not arguments:
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    check(parser, options)
    payload = make_payload(options)
    properties = client_properties(parser, options)
    for name, (old, new) in DEPRECATED.items():
        if getattr(options, name) is not None:
            print(f"Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead.")
    transaction_ms = transactions(options, properties)
    bootstrap = properties.pop("bootstrap.servers")
    wait_for_topic(bootstrap, options.topic, properties, MAX_BLOCK_MS)
    load = Load(
        topic=options.topic,
        records=options.num_records,
        records_per_second=options.throughput,
        payload=payload,
        warmup_records=max(options.warmup_records, 0),
        interval_ms=options.reporting_interval,
        transaction_ms=transaction_ms,
    )
    if load.warmup_records:
        print(
            f"Warmup first {load.warmup_records} records. "
            "Steady state results will print after the complete test summary."
        )
    return generate(bootstrap, properties, load, has_metrics=options.print_metrics)


def generate(bootstrap: str, properties: dict[str, str], load: Load, *, has_metrics: bool) -> int:
    """Run the load and print Kafka's summary."""
    metrics = LibraryMetrics("producer", properties["client.id"])
    settings = producer_settings(bootstrap, properties) | (metrics.settings() if has_metrics else {})
    generator = LoadGenerator(f"{TOOL}.sh", settings, load, say=_say)
    code = generator.run()
    now_ms = generator.last_ms
    print(generator.statistics.total_line(now_ms))
    if generator.steady_state is not None:
        print(generator.steady_state.total_line(now_ms))
    if has_metrics:
        metrics.wait(generator.producer.poll)
        print("\n".join(metrics.lines()))
    return code


def _number(kind: str, limit: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdecimal()) or not -limit <= int(text) < limit:
            raise argparse.ArgumentTypeError(f'could not convert {text!r} to {kind} (For input string: "{text}")')
        return int(text)

    return number


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'could not convert {text!r} to Double (For input string: "{text}")') from None


LONG = _number("Long", 2**63)


def make_parser() -> PerfParser:
    return PerfParser(
        prog=TOOL,
        usage=f"{TOOL}.sh --topic TOPIC --num-records N --throughput N [options]",
        description="Measure how fast records can be written.",
        examples=EXAMPLES,
        arguments=(
            Argument("--bootstrap-server", metavar="HOST:PORT", help="brokers to connect to; wins over the properties"),
            Argument("--topic", required=True, metavar="TOPIC", help="topic to write to"),
            Argument("--num-records", required=True, type=LONG, metavar="N", help="how many records to write"),
            Argument(
                "--throughput", required=True, type=_double, metavar="N", help="records a second at most; -1: no limit"
            ),
            OneOf(
                Argument("--record-size", type=_number("Integer", 2**31), metavar="BYTES", help="random letters"),
                Argument("--payload-file", metavar="FILE", help="choose payloads of this file by chance"),
                flag("--payload-monotonic", help="the numbers 0, 1, 2 and so on"),
                is_required=True,
            ),
            Argument("--payload-delimiter", default="\\n", metavar="TEXT", help="separator of payloads in the file"),
            Argument(
                "--command-property",
                nargs="+",
                metavar="KEY=VALUE",
                help="properties of the producer; they override a file",
            ),
            Argument("--producer-props", nargs="+", metavar="KEY=VALUE", help="old name of --command-property"),
            Argument("--command-config", metavar="FILE", help="file with properties of the producer"),
            Argument("--producer.config", dest="producer_config", metavar="FILE", help="old name of --command-config"),
            flag("--print-metrics", help="print the client's metrics at the end"),
            Argument("--transactional-id", metavar="ID", help="write in transactions under this id"),
            Argument("--transaction-duration-ms", type=LONG, metavar="MS", help="length of a transaction (3000)"),
            Argument("--warmup-records", type=LONG, default=0, metavar="N", help="exclude these from the steady state"),
            Argument("--reporting-interval", type=LONG, default=5000, metavar="MS", help="between lines (5000)"),
        ),
    )


def check(parser: PerfParser, options: argparse.Namespace) -> None:
    """Reject what Kafka rejects, in its order and wording."""
    if options.num_records <= 0:
        parser.error("--num-records should be greater than zero.")
    if options.warmup_records >= options.num_records:
        parser.error(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    if options.record_size is not None and options.record_size <= 0:
        parser.error("--record-size should be greater than zero.")
    sources = (options.bootstrap_server, options.command_property, options.producer_props)
    if all(source is None for source in (*sources, options.producer_config, options.command_config)):
        parser.error(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or "
            "--command-config must be specified."
        )
    if options.command_property is not None and options.producer_props is not None:
        parser.error("--command-property and --producer-props cannot be specified together.")
    if options.command_config is not None and options.producer_config is not None:
        parser.error("--command-config and --producer.config cannot be specified together.")
    if options.transaction_duration_ms is not None and options.transaction_duration_ms <= 0:
        parser.error("--transaction-duration-ms should be greater than zero.")
    if options.reporting_interval <= 0:
        parser.error("--reporting-interval should be greater than zero.")


def make_payload(options: argparse.Namespace) -> Payload:
    if options.payload_file is not None:
        print(f"Reading payloads from: {os.path.abspath(options.payload_file)}", flush=True)
        delimiter = "\n" if options.payload_delimiter == "\\n" else options.payload_delimiter
        payloads = read_payloads(options.payload_file, delimiter.encode("utf-8", "surrogateescape"))
        print(f"Number of records read: {len(payloads)}", flush=True)
        return chosen_payload(payloads)
    return counted_payload if options.payload_monotonic else random_payload(options.record_size)


def client_properties(parser: PerfParser, options: argparse.Namespace) -> dict[str, str]:
    config = options.command_config or options.producer_config
    properties = command_properties(config)
    for pair in options.command_property or options.producer_props or ():
        name, is_pair, value = pair.partition("=")
        if not (name and is_pair and value) or "=" in value:
            raise ToolError(f"Invalid property: {pair}")
        properties[name] = value
    if options.bootstrap_server is not None:
        properties["bootstrap.servers"] = options.bootstrap_server
    if "bootstrap.servers" not in properties:
        parser.error("no broker is given: use --bootstrap-server HOST:PORT or the property bootstrap.servers")
    properties.setdefault("client.id", CLIENT_ID)
    return properties


def transactions(options: argparse.Namespace, properties: dict[str, str]) -> int | None:
    """The duration of a transaction, or None; sets the property transactional.id."""
    duration: int | None = options.transaction_duration_ms
    if duration is None and options.transactional_id is None and "transactional.id" not in properties:
        return None
    if options.transactional_id is not None:
        properties["transactional.id"] = options.transactional_id
    properties.setdefault("transactional.id", f"performance-producer-{uuid.uuid4()}")
    return TRANSACTION_MS if duration is None else duration


def _say(line: str) -> None:
    print(line, flush=True)

"""`ottla perf`: measures the throughput of producers and consumers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from ottla.base.names import TopicPartition
from ottla.cli.arguments import (
    BOOTSTRAP,
    Argument,
    Command,
    Parser,
    bootstrap_of,
    flag,
    not_negative,
    parse_pairs,
    positive,
)
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.perf.load_generator import (
    PERCENTILES,
    Load,
    LoadGenerator,
    Summary,
    chosen_payload,
    random_payload,
    read_payloads,
)
from ottla.cli.perf.load_reader import LoadReader, ReadFigures, ReadPlan
from ottla.cli.progress_bar import RecordProgressBar
from ottla.cli.records.console_consumer import DEFAULTS
from ottla.cli.records.console_producer import CODECS, MAX_BLOCK_MS, producer_settings, wait_for_topic
from ottla.cli.tables import print_table
from ottla.cli.terminal import warn
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.librdkafka_properties import translate
from ottla.client.offsets import EARLIEST, LATEST, list_offsets

RECORDS = 1_000_000
RECORD_BYTES = 100
QUIET_INTERVAL_MS = 2**62  # no lines between: the progress bar shows the rate
TIMEOUT_MS = 5000
EXAMPLES = """
ottla perf produce load --records 1000000 --size 100
ottla perf produce load --size 1000 --rate 50000 --compression lz4
ottla perf consume load
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    code: int = options.action(options)
    return code


def _parser() -> Parser:
    client = (
        BOOTSTRAP,
        Argument("--command-config", metavar="FILE", help="file with properties of the client"),
        Argument("--command-property", action="append", default=[], metavar="KEY=VALUE"),
    )
    topic = Argument("topic", metavar="TOPIC")
    return Parser(
        prog="ottla perf",
        description="Measure how fast records can be written and read.",
        examples=EXAMPLES,
        commands=(
            Command(
                "produce",
                "write records and measure",
                _produce,
                topic,
                *client,
                Argument("--records", type=positive, default=RECORDS, metavar="N", help="how many (default 1000000)"),
                Argument(
                    "--size", type=positive, default=RECORD_BYTES, metavar="BYTES", help="of a record (default 100)"
                ),
                Argument("--payload-file", metavar="FILE", help="records are lines of this file, chosen by chance"),
                Argument(
                    "--rate", type=not_negative, default=0, metavar="N", help="records a second (default: no limit)"
                ),
                Argument("--acks", choices=("0", "1", "all"), default="all"),
                Argument("--compression", choices=CODECS, default="none", metavar="CODEC", help=", ".join(CODECS)),
                description="Write records and measure.",
            ),
            Command(
                "consume",
                "read records and measure",
                _consume,
                topic,
                *client,
                Argument(
                    "--records",
                    type=positive,
                    metavar="N",
                    help="how many (default: all existing ones; 1000000 with --from-latest or a --group)",
                ),
                flag("--from-latest", help="only new records"),
                Argument("--group", metavar="ID", help="read as a member of this group (default: no group)"),
                Argument(
                    "--timeout-ms",
                    type=positive,
                    default=TIMEOUT_MS,
                    metavar="MS",
                    help="stop after this time without a record",
                ),
                description="Read records and measure.",
            ),
        ),
    )


def _produce(options: argparse.Namespace) -> int:
    bootstrap, properties = bootstrap_of(options), _properties(options)
    if options.payload_file is not None:
        payload = chosen_payload(read_payloads(options.payload_file, b"\n"))
    else:
        payload = random_payload(options.size)
    wait_for_topic(bootstrap, options.topic, properties, MAX_BLOCK_MS)
    own = {"client.id": "ottla-perf", "acks": options.acks, "compression.type": options.compression}
    load = Load(options.topic, options.records, options.rate, payload, interval_ms=QUIET_INTERVAL_MS)
    generator = LoadGenerator("ottla perf", producer_settings(bootstrap, own, properties), load, say=print)
    with RecordProgressBar("writing", options.records) as meter:
        code = generator.run(meter.set_count)
    print_table(("figure", "value"), produced_rows(generator.statistics.summary(generator.last_ms)), ("value",))
    return code


def _consume(options: argparse.Namespace) -> int:
    bootstrap, properties = bootstrap_of(options), _properties(options)
    settings: dict[str, Any] = dict(DEFAULTS) | translate({"client.id": "ottla-perf"} | properties)
    settings |= {"bootstrap.servers": bootstrap, "group.id": options.group or f"ottla-perf-{time.time_ns()}"}
    until_end = options.records is None and options.group is None and not options.from_latest
    settings |= {"auto.offset.reset": "latest" if options.from_latest else "earliest"}
    settings |= {"enable.partition.eof": str(until_end).lower()}
    with make_client(bootstrap, dict(properties)) as client:
        client.cluster()  # fail now if no broker is reachable
        reading = ReadPlan(
            topic=options.topic,
            include=None,
            records=sys.maxsize if until_end else options.records or RECORDS,
            timeout_ms=options.timeout_ms,
            interval_ms=QUIET_INTERVAL_MS,
            from_latest=options.from_latest,
            has_group=options.group is not None,
            until_end=until_end,
        )
        reader = LoadReader(Admin(client), settings, reading)
        total = _span(client, reader.partitions()) if until_end else reading.records
        with RecordProgressBar("reading", total) as meter:
            figures = reader.run(lambda _: None, meter.set_count)
    if figures.records < reading.records and not reader.is_done:
        warn(f"Stopped after {figures.records} records: no more arrived within {options.timeout_ms} ms.")
    print_table(("figure", "value"), consumed_rows(figures), ("value",))
    return 0


def produced_rows(summary: Summary) -> list[tuple[str, str]]:
    rows = [
        ("records", f"{summary.records}"),
        ("records/s", f"{summary.records_per_second:.0f}"),
        ("MiB/s", f"{summary.mebibytes_per_second:.2f}"),
        ("latency mean ms", f"{summary.latency_ms:.2f}"),
    ]
    pairs = zip(PERCENTILES, summary.percentiles_ms, strict=True)
    rows += [(f"latency {part * 100:g} % ms", f"{value}") for part, value in pairs]
    return [*rows, ("latency max ms", f"{summary.latency_max_ms}")]


def consumed_rows(figures: ReadFigures) -> list[tuple[str, str]]:
    """The figures as table rows; the final wait does not count."""
    seconds = max(figures.last_record_ms - figures.start_ms, 1) / 1000
    return [
        ("records", f"{figures.records}"),
        ("records/s", f"{figures.records / seconds:.0f}"),
        ("MiB/s", f"{figures.mebibytes / seconds:.2f}"),
        ("seconds", f"{seconds:.3f}"),
    ]


def _span(client: Client, places: Sequence[tuple[str, int]]) -> int:
    """The maximum number of records, for the progress bar."""
    partitions = [TopicPartition(*partition) for partition in places]
    first, following = (list_offsets(client, partitions, moment)[0] for moment in (EARLIEST, LATEST))
    return sum(following[item].offset - first[item].offset for item in first.keys() & following.keys())


def _properties(options: argparse.Namespace) -> dict[str, str]:
    properties = command_properties(options.command_config)
    return properties | parse_pairs(options.command_property, allow_bare=False)

"""`kafka-consumer-perf-test.sh`: measure the throughput of a consumer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ottla.cli.arguments import parse_pairs
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    LONG_MAX,
    ZOOKEEPER,
    KafkaOptions,
    Option,
    OptionError,
    bootstrap_of,
    topic_pattern,
)
from ottla.cli.java.times import format_java_date
from ottla.cli.perf.library_metrics import LibraryMetrics
from ottla.cli.perf.load_reader import LoadReader, ReadFigures, ReadPlan
from ottla.cli.records.console_consumer import DEFAULTS
from ottla.client.admin import Admin
from ottla.client.librdkafka_properties import translate

TOOL = "kafka-consumer-perf-test.sh"
SUMMARY = "Measure how fast records can be read."
CLIENT_ID = "perf-consumer-client"
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"
FETCH_BYTES = 1024 * 1024
SOCKET_BYTES = 2 * 1024 * 1024
TIMEOUT_MS = 10_000
INTERVAL_MS = 5000
GROUP_NUMBERS = 100_000
FIGURES = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)

OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    COMMAND_CONFIG,
    Option("topic", "Topic to read.", "name"),
    Option("include", "Regular expression of topics to read.", "regex"),
    Option("num-records", "How many records to read. Required.", "count"),
    Option("messages", "Old name of --num-records.", "count"),
    Option("group", "Consumer group to read as (default: a random one).", "id"),
    Option("fetch-size", "Bytes of a partition in one answer (default 1048576).", "bytes"),
    Option("from-latest", "Start with new records instead of the oldest one."),
    Option("socket-buffer-size", "Bytes of the socket's receive buffer (default 2097152).", "bytes"),
    Option("timeout", "Stop after this time without a record (default 10000).", "ms", bare_value=str(TIMEOUT_MS)),
    Option("reporting-interval", "Time between two lines of --show-detailed-stats (default 5000).", "ms"),
    Option("show-detailed-stats", "A line for every interval instead of one at the end."),
    Option("hide-header", "Leave out the line with the names of the columns."),
    Option("date-format", f"How times are written (default {DATE_FORMAT}).", "pattern"),
    Option("print-metrics", "Print the client's metrics at the end."),
    Option("command-property", "A property of the consumer.", "key=value", is_repeatable=True),
    Option("consumer.config", "Old name of --command-config.", "file"),
    Option("new-consumer", "Old option without effect."),
    Option("threads", "Old option without effect.", "count"),
    Option("num-fetch-threads", "Old option without effect.", "count"),
)


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example="--topic orders --num-records 1000000")
    if not options.values:
        options.print_usage_and_exit(SUMMARY)
    bootstrap = bootstrap_of(options)
    check_options(options, bootstrap is not None)
    assert bootstrap is not None
    properties = client_properties(options)
    write_date = partial(format_java_date, options.text("date-format") or DATE_FORMAT)
    write_date(0)  # reject an invalid pattern before anything is read
    with make_client(bootstrap, dict(properties)) as client:
        reading = make_reading(options)
        client.cluster()  # fail now if no broker is reachable
        if not options.has("hide-header"):
            print(header(options.has("show-detailed-stats")), flush=True)
        metrics = LibraryMetrics("consumer", properties.get("client.id", CLIENT_ID))
        settings = consumer_settings(bootstrap, options, properties)
        settings |= metrics.settings() if options.has("print-metrics") else {}
        return measure(options, LoadReader(Admin(client), settings, reading), metrics, write_date)


def measure(
    options: KafkaOptions, reader: LoadReader, metrics: LibraryMetrics, write_date: Callable[[int], str]
) -> int:
    """Read the records and print Kafka's lines."""
    is_detailed = options.has("show-detailed-stats")

    def on_window(window: ReadFigures) -> None:
        if is_detailed:
            print(window_line(window, reader.records, reader.bytes, write_date), flush=True)

    has_metrics = options.has("print-metrics")
    figures = reader.run(on_window, before_close=partial(metrics.wait, reader.consumer.poll) if has_metrics else None)
    if figures.records < reader.reading.records:
        print(
            "WARNING: Exiting before consuming the expected number of records: timeout "
            f"({reader.reading.timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    if not is_detailed:
        print(total_line(figures, write_date))
    if has_metrics:
        print("\n".join(metrics.lines()))
    return 0


def check_options(options: KafkaOptions, has_bootstrap: bool) -> None:
    """Reject what Kafka rejects."""
    if options.has("topic") == options.has("include"):
        options.print_usage_and_exit("Exactly one of the following arguments is required: [topic], [include]")
    if options.has("messages") == options.has("num-records"):
        options.print_usage_and_exit("Exactly one of the following arguments is required: [messages], [num-records]")
    if not has_bootstrap:
        options.print_usage_and_exit('Missing required argument "[bootstrap-server]"')
    if options.has("consumer.config") and options.has("command-config"):
        options.print_usage_and_exit(
            "Exactly one of the following arguments is required: [consumer.config], [command-config]"
        )
    if options.has("messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.")
    if options.has("consumer.config"):
        print("Warning: --consumer.config is deprecated. Use --command-config instead.")


def make_reading(options: KafkaOptions) -> ReadPlan:
    include = options.text("include")
    records = options.number("num-records", LONG_MAX)
    timeout_ms = options.number("timeout", LONG_MAX)
    interval_ms = options.number("reporting-interval", LONG_MAX)
    if interval_ms is not None and interval_ms <= 0:
        raise OptionError("Reporting interval must be greater than 0.")
    return ReadPlan(
        topic=options.text("topic"),
        include=topic_pattern(include) if include is not None else None,
        records=records if records is not None else options.number("messages", LONG_MAX) or 0,
        timeout_ms=TIMEOUT_MS if timeout_ms is None else timeout_ms,
        interval_ms=INTERVAL_MS if interval_ms is None else interval_ms,
        from_latest=options.has("from-latest"),
        has_group=True,
    )


def client_properties(options: KafkaOptions) -> dict[str, str]:
    config = options.text("command-config") or options.text("consumer.config")
    properties = command_properties(config)
    return properties | parse_pairs(options.texts("command-property"))


def consumer_settings(bootstrap: str, options: KafkaOptions, properties: dict[str, str]) -> dict[str, Any]:
    """The consumer's properties; the options override them, as in Kafka."""
    settings = dict(DEFAULTS) | translate({"client.id": CLIENT_ID} | properties)
    fetch_bytes = options.number("fetch-size") or FETCH_BYTES
    settings["bootstrap.servers"] = bootstrap
    settings["group.id"] = options.text("group") or f"perf-consumer-{random.randrange(GROUP_NUMBERS)}"  # noqa: S311
    settings["auto.offset.reset"] = "latest" if options.has("from-latest") else "earliest"
    settings["max.partition.fetch.bytes"] = fetch_bytes
    settings["socket.receive.buffer.bytes"] = options.number("socket-buffer-size") or SOCKET_BYTES
    settings["check.crcs"] = "false"
    settings["enable.partition.eof"] = "false"
    settings["enable.auto.offset.store"] = "true"
    return settings


def header(is_detailed: bool) -> str:
    return ("time, threadId, " if is_detailed else "start.time, end.time, ") + FIGURES


def total_line(figures: ReadFigures, write_date: Callable[[int], str]) -> str:
    seconds = max(figures.end_ms - figures.start_ms, 1) / 1000
    fetch_seconds = max(figures.fetch_ms, 1) / 1000
    return (
        f"{write_date(figures.start_ms)}, {write_date(figures.end_ms)}, "
        f"{figures.mebibytes:.4f}, {figures.mebibytes / seconds:.4f}, "
        f"{figures.records}, {figures.records / seconds:.4f}, {figures.join_ms}, {figures.fetch_ms}, "
        f"{figures.mebibytes / fetch_seconds:.4f}, {figures.records / fetch_seconds:.4f}"
    )


def window_line(window: ReadFigures, records: int, size_bytes: int, write_date: Callable[[int], str]) -> str:
    """One interval: totals so far, rates of the interval."""
    seconds = max(window.end_ms - window.start_ms, 1) / 1000
    fetch_seconds = window.fetch_ms / 1000
    mebibyte_rate = window.mebibytes / fetch_seconds if fetch_seconds > 0 else 0.0
    record_rate = window.records / fetch_seconds if fetch_seconds > 0 else 0.0
    return (
        f"{write_date(window.end_ms)}, 0, {size_bytes / 1024 / 1024:.4f}, {window.mebibytes / seconds:.4f}, "
        f"{records}, {window.records / seconds:.4f}, {window.join_ms}, {window.fetch_ms}, "
        f"{mebibyte_rate:.4f}, {record_rate:.4f}"
    )

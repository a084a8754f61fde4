"""`ottla consume`: prints the records of a topic, optionally sorted by time, or writes them to a file or topic."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from ottla.cli.arguments import BOOTSTRAP, Argument, Parser, bootstrap_of, flag, not_negative, parse_pairs, positive
from ottla.cli.client_settings import command_properties
from ottla.cli.records.console_consumer import (
    EARLIEST,
    LATEST,
    ConsumePlan,
    Printer,
    Sink,
    consumer_settings,
    read_and_print,
)
from ottla.cli.records.formatters import COLOURS, DefaultFormatter, Formatter
from ottla.cli.records.json_records import JsonFormatter
from ottla.cli.records.schema_records import KeyValueReader, SchemaFormatter, SchemaJsonFormatter, open_registry
from ottla.cli.records.sorted_output import SortingSink, TopicWriter
from ottla.cli.terminal import UsageError, escape_bytes, is_terminal, warn
from ottla.operations.records.formats import FORMATS_HELP, make_format
from ottla.operations.schema_registry.client_config import URL, address_of, without_registry

COLUMNS = ("timestamp", "partition", "offset", "headers", "key")
ISOLATION = {"committed": "read_committed", "uncommitted": "read_uncommitted"}
EXAMPLES = """
ottla consume orders                           new records, until Ctrl-C
ottla consume orders --from-beginning -n 10    the ten oldest
ottla consume orders --until-end --json --output orders.jsonl
ottla consume orders --until-end --order time --to-topic orders-sorted
ottla consume prices --show key --key-format int --value-format struct:price=double,unit=string
ottla consume orders --from-beginning --registry http://127.0.0.1:8081
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    properties = command_properties(options.command_config)
    properties |= parse_pairs(options.command_property, allow_bare=False)
    plan = ConsumePlan(
        topic=options.topic,
        partition=options.partition,
        offset=_offset(options),
        group=options.group,
        max_messages=options.max_messages,
        timeout_ms=options.timeout_ms,
        until_end=options.until_end or (options.order == "time" and options.max_messages is None),
        must_exist=True,
    )
    bootstrap = bootstrap_of(options)
    own = {"client.id": "ottla-consume", "isolation.level": ISOLATION[options.isolation]}
    settings = consumer_settings(bootstrap, plan, own, without_registry(properties))
    if is_terminal(sys.stderr) and plan.offset == LATEST and plan.group is None:
        warn(f"Waiting for new records in {plan.topic}. Ctrl-C stops; --from-beginning shows the old ones.")
    with ExitStack() as stack:
        sink = _sink(options, bootstrap, properties, stack)
        try:
            read_and_print(settings, properties, plan, sink)
        except (KeyboardInterrupt, SystemExit):
            if options.order is None:
                sink.finish()  # Ctrl-C is the normal end: keep the records that were read
            raise
        sink.finish()
    if options.to_topic is not None or options.output is not None:
        _print_count(sink.count, options.to_topic or options.output)
    return 0


def _parser() -> Parser:
    return Parser(
        prog="ottla consume",
        usage="ottla consume TOPIC [options]",
        description="Print the records of a topic.",
        examples=EXAMPLES,
        arguments=(
            Argument("topic", metavar="TOPIC"),
            BOOTSTRAP,
            flag("--from-beginning", help="start with the oldest record"),
            Argument("--partition", type=not_negative, metavar="N", help="read only this partition"),
            Argument("--offset", metavar="N", help="with --partition: a number, earliest or latest"),
            Argument("--group", metavar="ID", help="read as a member of this consumer group"),
            Argument("-n", "--max-messages", type=positive, metavar="N", help="stop after this number of records"),
            Argument("--timeout-ms", type=positive, metavar="MS", help="stop after this time without a record"),
            flag("--until-end", help="stop at the current end of the topic"),
            Argument("--isolation", choices=ISOLATION, default="uncommitted", help="which transactions count"),
            Argument("--order", choices=("time",), help="sort by timestamp over all partitions before writing"),
            Argument("--memory-mb", type=positive, default=64, metavar="N", help="memory for --order (default 64)"),
            Argument("--to-topic", metavar="TOPIC", help="write the records to this topic instead"),
            Argument("--to-partition", type=not_negative, metavar="N", help="with --to-topic (--order: default 0)"),
            Argument("--output", metavar="FILE", help="write to a file instead of standard output"),
            Argument("--show", default="", metavar="LIST", help=f"also print these: {','.join(COLUMNS)} or all"),
            flag("--json", help="one JSON object a line (short for --format json)"),
            Argument("--format", choices=("text", "json"), default="text", help="how records are written"),
            *(
                Argument(f"--{part}-format", default="string", metavar="NAME", help=FORMATS_HELP)
                for part in ("key", "value")
            ),
            Argument("--registry", metavar="URL", help=f"decode by a schema registry (default: {URL})"),
            Argument("--command-config", metavar="FILE", help="file with properties of the consumer"),
            Argument("--command-property", action="append", default=[], metavar="KEY=VALUE"),
        ),
    )


def _offset(options: argparse.Namespace) -> int:
    if options.offset is not None and options.partition is None:
        raise UsageError("--offset needs --partition: offsets differ between partitions")
    if options.group is not None and (options.partition is not None or options.until_end):
        raise UsageError("--group assigns the partitions: it excludes --partition and --until-end")
    if options.from_beginning and options.offset is not None:
        raise UsageError("--from-beginning and --offset exclude each other")
    is_bounded = options.from_beginning or options.until_end or options.order is not None
    text = options.offset or ("earliest" if is_bounded else "latest")
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    if not (text.isascii() and text.isdecimal()) or int(text) >= 2**63:
        raise UsageError(f"--offset {text!r} is neither a number nor earliest nor latest")
    return int(text)


def _sink(options: argparse.Namespace, bootstrap: str, properties: dict[str, str], stack: ExitStack) -> Sink:
    """The destination of the records: standard output, a file or a topic, sorted on request."""
    if options.to_topic is not None and (options.output is not None or options.show or _is_json(options)):
        raise UsageError("--to-topic copies records unchanged: it excludes --output, --show and --json")
    if options.to_partition is not None and options.to_topic is None:
        raise UsageError("--to-partition needs --to-topic")
    if options.order is not None and options.group is not None:
        raise UsageError("--order reads to the end of all partitions: it excludes --group")
    sink: Sink
    if options.to_topic is not None:
        if options.to_topic == options.topic:
            raise UsageError("--to-topic must differ from the topic that is read")
        partition = 0 if options.to_partition is None and options.order is not None else options.to_partition
        sink = TopicWriter(bootstrap, options.to_topic, partition, properties)
    else:
        file = stack.enter_context(open(options.output, "wb")) if options.output is not None else None  # noqa: SIM115
        sink = Printer(_formatter(options, properties, is_terminal(sys.stdout) and file is None), file=file)
    return stack.enter_context(SortingSink(sink, options.memory_mb << 20)) if options.order is not None else sink


def _formatter(options: argparse.Namespace, properties: dict[str, str], is_for_people: bool) -> Formatter:
    key, value = make_format(options.key_format), make_format(options.value_format)
    address = address_of(properties, options.registry)
    schemas = None
    if address is not None:
        if options.registry and (options.key_format, options.value_format) != ("string", "string"):
            raise UsageError("--registry decodes keys and values: it does not go with --key-format and --value-format")
        schemas = KeyValueReader(open_registry(address), must_have_schema=False)
    if _is_json(options):
        return JsonFormatter(key, value) if schemas is None else SchemaJsonFormatter(schemas)
    wanted = COLUMNS if options.show == "all" else tuple(filter(None, options.show.split(",")))
    for name in wanted:
        if name not in COLUMNS:
            raise UsageError(f"--show {name}: use {', '.join(COLUMNS)} or all")
    properties = {f"print.{name}": "true" for name in wanted}
    colours = COLOURS if is_for_people and "NO_COLOR" not in os.environ else None
    formatter = DefaultFormatter(properties, escape_bytes if is_for_people else bytes, colours)
    if schemas is not None:
        return SchemaFormatter(formatter, schemas, reads_keys="key" in wanted)
    formatter.key, formatter.value = key.text, value.text
    return formatter


def _is_json(options: argparse.Namespace) -> bool:
    return bool(options.json) or options.format == "json"


def _print_count(count: int, place: str) -> None:
    if is_terminal(sys.stderr):
        warn(f"Wrote {count} record{'' if count == 1 else 's'} to {place}.")

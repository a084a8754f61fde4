"""`ottla consume`: print the records of a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ottla.cli.arguments import Parser, add_bootstrap, bootstrap_of, not_negative, positive
from ottla.cli.client_settings import load_properties, parse_pairs
from ottla.cli.consuming import EARLIEST, LATEST, Plan, Printer, consumer_settings, read_and_print
from ottla.cli.deserializers import NAMES
from ottla.cli.formatters import DefaultFormatter, Formatter, JsonFormatter
from ottla.cli.terminal import UsageError, escape_bytes, is_terminal, warn

COLUMNS = ("timestamp", "partition", "offset", "headers", "key")
EXAMPLES = """
ottla consume orders                           new records, until Ctrl-C
ottla consume orders --from-beginning -n 10    the ten oldest
ottla consume orders --from-beginning --until-end --json > orders.jsonl
ottla consume orders --show key,offset --partition 0 --offset 42
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    properties = load_properties(options.command_config) if options.command_config else {}
    properties |= parse_pairs(options.command_property, allow_bare=False)
    plan = Plan(
        topic=options.topic,
        partition=options.partition,
        offset=_offset(options),
        group=options.group,
        max_messages=options.max_messages,
        timeout_ms=options.timeout_ms,
        until_end=options.until_end,
        must_exist=True,
    )
    printer = Printer(_formatter(options))
    settings = consumer_settings(bootstrap_of(options), plan, {"client.id": "ottla-consume"}, properties)
    if is_terminal(sys.stderr) and plan.offset == LATEST and plan.group is None:
        warn(f"Waiting for new records in {plan.topic}. Ctrl-C stops; --from-beginning shows the old ones.")
    read_and_print(settings, properties, plan, printer)
    return 0


def _parser() -> Parser:
    parser = Parser(prog="ottla consume", description="Print the records of a topic.", examples=EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap(parser)
    parser.add_argument("--from-beginning", action="store_true", help="start with the oldest record")
    parser.add_argument("--partition", type=not_negative, metavar="N", help="read only this partition")
    parser.add_argument("--offset", metavar="N", help="with --partition: a number, earliest or latest")
    parser.add_argument("--group", metavar="ID", help="read as a member of this consumer group")
    parser.add_argument("-n", "--max-messages", type=positive, metavar="N", help="stop after so many records")
    parser.add_argument("--timeout-ms", type=positive, metavar="MS", help="stop when nothing came for so long")
    parser.add_argument("--until-end", action="store_true", help="stop at the end of what is there now")
    parser.add_argument("--show", default="", metavar="LIST", help=f"print these too: {','.join(COLUMNS)} or all")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    for part in ("key", "value"):
        parser.add_argument(f"--{part}-format", choices=NAMES, default="string", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--command-config", metavar="FILE", help="file with properties of the consumer")
    parser.add_argument("--command-property", action="append", default=[], metavar="KEY=VALUE")
    return parser


def _offset(options: argparse.Namespace) -> int:
    if options.offset is not None and options.partition is None:
        raise UsageError("--offset needs --partition: offsets of different partitions have nothing in common")
    if options.group is not None and (options.partition is not None or options.until_end):
        raise UsageError("--group shares out the partitions itself: it does not go with --partition or --until-end")
    if options.from_beginning and options.offset is not None:
        raise UsageError("--from-beginning and --offset exclude each other")
    text = options.offset or ("earliest" if options.from_beginning or options.until_end else "latest")
    if text in ("earliest", "latest"):
        return EARLIEST if text == "earliest" else LATEST
    if not (text.isascii() and text.isdecimal()) or int(text) >= 2**63:
        raise UsageError(f"--offset {text!r} is neither a number nor earliest nor latest")
    return int(text)


def _formatter(options: argparse.Namespace) -> Formatter:
    if options.json:
        return JsonFormatter()
    wanted = COLUMNS if options.show == "all" else tuple(filter(None, options.show.split(",")))
    for name in wanted:
        if name not in COLUMNS:
            raise UsageError(f"--show {name}: there are only {', '.join(COLUMNS)} and all")
    properties = {f"print.{name}": "true" for name in wanted}
    properties |= {"key.deserializer": options.key_format, "value.deserializer": options.value_format}
    return DefaultFormatter(properties, escape_bytes if is_terminal(sys.stdout) else bytes)

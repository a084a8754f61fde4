"""`ottla search`: finds records of a topic by text, RE2 expression, key, header or field.

Rules:
1. Hits go to stdout as they are found; the progress bar, figures and unread ranges go to stderr.
2. Exit code 0: everything requested was read. 1: something was not, and stderr names it. 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence

from ottla.cli.arguments import CONNECTION, Argument, Parser, flag, not_negative, positive
from ottla.cli.client_settings import client_of, command_properties
from ottla.cli.progress_bar import ByteProgressBar
from ottla.cli.records.formatters import COLOURS, DefaultFormatter
from ottla.cli.records.formatters import Message as Shown
from ottla.cli.records.partition_filter import parse_timestamp
from ottla.cli.records.schema_records import open_registry
from ottla.cli.terminal import EXIT_FAILED, EXIT_INTERRUPTED, UsageError, escape_bytes, is_terminal, warn
from ottla.operations.messages.export import csv_header, csv_line, decoded_bytes, json_line
from ottla.operations.messages.expressions.parser import ExpressionError, parse
from ottla.operations.messages.expressions.syntax import Expression, Text
from ottla.operations.messages.field_masks import Masks, parse_rule
from ottla.operations.messages.message import Message
from ottla.operations.messages.message_decoder import Decoder
from ottla.operations.messages.offset_ranges import OffsetBound, OffsetWindow
from ottla.operations.messages.search import Progress, Search, SearchLimits, Summary
from ottla.operations.schema_registry.client_config import URL, address_of
from ottla.operations.schema_registry.serdes import SchemaDecoder

EXAMPLES = """
ottla search orders refund                          text in keys, values or headers
ottla search orders '/timeout|refused/i'            an RE2 expression
ottla search orders 'value.user.id = 42 and not value.state = "done"'
ottla search orders 'key = "c-17" or header.trace ~ /^ab/' --from 2h
ottla search orders --from 2026-11-15T08:00 --to 2026-11-15T09:00 --json > hour.jsonl
"""
AGO = re.compile(r"([0-9]+)(s|m|h|d)")
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
COLUMNS = ("timestamp", "partition", "offset", "key")
UNREAD_LINES_MAX = 20


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    expression = _expression(options)
    window = _window(options, int(time.time() * 1000))
    search = Search(
        lambda: client_of(options),
        window,
        expression,
        limits=SearchLimits(hits=options.max_messages, seconds=options.max_seconds),
        decoder=Decoder(options.topic, _registry(options)),
        masks=_masks(options),
        is_newest_first=options.newest_first,
        with_aborted=options.with_aborted,
    )
    return _print_hits(search, _writer(options), options)


def _parser() -> Parser:
    return Parser(
        prog="ottla search",
        usage="ottla search TOPIC [EXPRESSION] [options]",
        description="Find records of a topic. All existing records are read, whole batches at a time.",
        examples=EXAMPLES,
        arguments=(
            Argument("topic", metavar="TOPIC"),
            Argument("expression", nargs="?", default="", metavar="EXPRESSION", help="default: every record"),
            *CONNECTION,
            Argument("--text", metavar="TEXT", help="search for exactly this text instead of an expression"),
            Argument("--from", dest="from_", metavar="TIME", help="from a date, milliseconds since 1970 or 2h ago on"),
            Argument("--to", metavar="TIME", help="up to the first record at or after this time"),
            Argument("--from-offset", type=not_negative, metavar="N", help="from this offset on"),
            Argument("--to-offset", type=not_negative, metavar="N", help="up to and without this offset"),
            Argument("--partition", type=not_negative, action="append", metavar="N", help="only this one; repeatable"),
            Argument("-n", "--max-messages", type=positive, metavar="N", help="stop after this number of hits"),
            Argument("--max-seconds", type=positive, metavar="N", help="stop after this time"),
            flag("--newest-first", help="start at the end of every partition"),
            flag("--with-aborted", help="also records of aborted transactions"),
            flag("--json", help="one JSON object a line (short for --format json)"),
            Argument("--format", choices=("text", "json", "csv"), default="text", help="how hits are written"),
            flag("--count", help="print only the number of hits"),
            Argument("--mask", action="append", default=[], metavar="TOPIC:FIELD", help="hide a field; repeatable"),
            Argument("--registry", metavar="URL", help=f"decode by a schema registry (default: {URL})"),
        ),
    )


def _expression(options: argparse.Namespace) -> Expression:
    if options.text is not None:
        if options.expression or not options.text:
            raise UsageError("--text replaces the expression and must not be empty")
        return Text(options.text)
    try:
        return parse(options.expression)
    except ExpressionError as problem:
        raise UsageError(f"{options.expression!r}: {problem}") from None


def _window(options: argparse.Namespace, now_ms: int) -> OffsetWindow:
    if options.from_ is not None and options.from_offset is not None:
        raise UsageError("--from and --from-offset exclude each other")
    if options.to is not None and options.to_offset is not None:
        raise UsageError("--to and --to-offset exclude each other")
    return OffsetWindow(
        options.topic,
        frozenset(options.partition or ()),
        _bound(options.from_, options.from_offset, now_ms),
        _bound(options.to, options.to_offset, now_ms),
    )


def _bound(text: str | None, offset: int | None, now_ms: int) -> OffsetBound:
    if text is None or text in ("earliest", "latest"):
        return OffsetBound(offset=offset)
    ago = AGO.fullmatch(text)
    if ago is not None:
        return OffsetBound(time_ms=max(0, now_ms - int(ago[1]) * UNITS_MS[ago[2]]))
    moment = parse_timestamp(text)
    if moment < 0:
        raise UsageError(f"{text!r} is not a time: write 2026-11-15T08:00:00, milliseconds since 1970, or 2h")
    return OffsetBound(time_ms=moment)


def _registry(options: argparse.Namespace) -> SchemaDecoder | None:
    properties = command_properties(getattr(options, "command_config", None))
    address = address_of(properties, options.registry)  # a local user can reach every address anyway
    return None if address is None else open_registry(address)


def _masks(options: argparse.Namespace) -> Masks:
    return Masks([parse_rule(text) for text in options.mask], options.topic)


def _writer(options: argparse.Namespace) -> Callable[[Message], bytes]:
    form = "json" if options.json else options.format
    if form == "json":
        return lambda message: f"{json_line(options.topic, message)}\n".encode()
    if form == "csv":
        return lambda message: csv_line(message).encode("utf-8", "replace")
    is_for_people = is_terminal(sys.stdout)
    colours = COLOURS if is_for_people and "NO_COLOR" not in os.environ else None
    formatter = DefaultFormatter(
        {f"print.{name}": "true" for name in COLUMNS}, escape_bytes if is_for_people else bytes, colours
    )

    def format_message(message: Message) -> bytes:
        record = message.record
        kind = "" if record.timestamp_ms < 0 else "LogAppendTime" if record.is_log_append_time else "CreateTime"
        key, value = decoded_bytes(message)
        headers = list(record.headers)
        return formatter.format(
            Shown(options.topic, record.partition, record.offset, kind, record.timestamp_ms, key, value, headers)
        )

    return format_message


def _print_hits(search: Search, format_message: Callable[[Message], bytes], options: argparse.Namespace) -> int:
    previous = signal.signal(signal.SIGINT, lambda *_: _request_stop(search))
    out = sys.stdout.buffer
    if options.format == "csv" and not options.json and not options.count:
        out.write(csv_header().encode())
    started = time.monotonic()
    try:
        with _SearchProgressBar("searching", 0) as meter:
            for event in search.events():
                if isinstance(event, Message):
                    if not options.count:
                        meter.clear()
                        out.write(format_message(event))
                        if is_terminal(sys.stdout):
                            out.flush()
                elif isinstance(event, Progress):
                    meter.show(event)
                else:
                    summary = event
    finally:
        signal.signal(signal.SIGINT, previous)
    if options.count:
        out.write(f"{summary.progress.hits}\n".encode())
    out.flush()
    return _print_summary(summary, time.monotonic() - started)


def _request_stop(search: Search) -> None:
    """The first Ctrl-C ends the search with a summary, the second one ends it immediately."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    search.stop()


def _print_summary(summary: Summary, seconds: float) -> int:
    found = summary.progress
    if is_terminal(sys.stderr):
        speed = found.records / max(seconds, 0.001)
        warn(f"{found.hits:,} of {found.records:,} records in {seconds:.1f} s, {speed:,.0f} records/s.")
    if summary.limit is not None and is_terminal(sys.stderr):
        warn(f"Not everything was read: {summary.limit}.")
    shown = [item for item in summary.unread if item.is_failure or summary.is_stopped]
    for item in shown[:UNREAD_LINES_MAX]:
        warn(f"not read: {item}")
    if len(shown) > UNREAD_LINES_MAX:
        warn(f"not read: {len(shown) - UNREAD_LINES_MAX} more ranges of offsets")
    if summary.is_stopped:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if summary.has_failures else 0


class _SearchProgressBar(ByteProgressBar):
    """`searching [########............]  40 %  312,000 records/s, 3 hits`"""

    progress = Progress(0, 0, 0, 0, 0)

    def show(self, progress: Progress) -> None:
        self.progress = progress
        self.total_bytes = max(progress.total, 1)
        self.add(progress.done - self.done_bytes)

    def line(self, now: float) -> str:
        bar = super().line(now).rpartition("%")[0]
        speed = self.progress.records / max(now - self._started, 0.001)
        return f"{bar}%  {speed:,.0f} records/s, {self.progress.hits:,} hits"

"""`ottla produce`: writes records to a topic, from the command line, a file or standard input."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ottla.cli.arguments import BOOTSTRAP, Argument, Parser, bootstrap_of, not_negative, parse_pairs
from ottla.cli.client_settings import command_properties
from ottla.cli.progress_bar import ByteProgressBar
from ottla.cli.records.console_producer import (
    CODECS,
    MAX_BLOCK_MS,
    ConsoleProducer,
    parse_lines,
    producer_settings,
    send_all,
    wait_for_topic,
)
from ottla.cli.records.json_records import JsonReader, TypedReader
from ottla.cli.records.line_reader import Headers, Line, LineReader, RecordReader
from ottla.cli.records.schema_records import open_registry, serializer_format
from ottla.cli.terminal import UsageError, is_terminal, stdin_bytes, warn
from ottla.operations.records.deserializers import DeserializationError
from ottla.operations.records.formats import FORMATS_HELP, FieldFormat, make_format
from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import address_of, without_registry
from ottla.operations.schema_registry.folders import read_draft_file
from ottla.operations.schema_registry.serdes import SchemaChoice, Serializer

EXAMPLES = """
ottla produce orders 'first order' 'second order'
ottla produce orders --key-separator :      type lines such as  42:a chair  and end with Ctrl-D
ottla produce orders --file orders.txt --compression zstd
ottla produce orders --format json '{"key": "42", "value": {"item": "chair"}, "headers": [["source", "shop"]]}'
ottla produce orders --registry http://127.0.0.1:8081 --value-schema order.avsc '{"item": "chair"}'
ottla produce prices --value-format struct:price=double,unit=string '{"price": 9.5, "unit": "EUR"}'
"""
DELIVERY_MS = 30_000
PARTS = ("key", "value")
METER_LINES = 256  # lines between two updates of the progress bar
ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_intermixed_args(arguments)  # messages may follow options
    properties = command_properties(options.command_config)
    properties |= parse_pairs(options.command_property, allow_bare=False)
    bootstrap = bootstrap_of(options)
    lines = _lines(options, properties)
    properties = without_registry(properties)
    wait_for_topic(bootstrap, options.topic, properties, MAX_BLOCK_MS)
    own = {
        "client.id": "ottla-produce",
        "delivery.timeout.ms": DELIVERY_MS,
        "compression.type": options.compression,
    }
    sender = ConsoleProducer("ottla produce", options.topic, producer_settings(bootstrap, own, properties), properties)
    is_prompting = not (options.messages or options.file) and is_terminal(sys.stdin) and is_terminal(sys.stdout)
    code = send_all(sender, lines, is_prompting=is_prompting, partition=options.partition)
    if is_terminal(sys.stderr):
        warn(f"Wrote {sender.stored} record{'' if sender.stored == 1 else 's'} to {options.topic}.")
    return code


def _parser() -> Parser:
    return Parser(
        prog="ottla produce",
        usage="ottla produce TOPIC [MESSAGE ...] [options]",
        description="Write records to a topic.",
        examples=EXAMPLES,
        arguments=(
            Argument("topic", metavar="TOPIC"),
            Argument("messages", nargs="*", metavar="MESSAGE", help="default: each line of standard input is one"),
            BOOTSTRAP,
            Argument("--file", metavar="FILE", help="read lines from a file instead of standard input"),
            Argument("--format", choices=("text", "json"), default="text", help="json: each line is one record"),
            *(Argument(f"--{part}-format", default="string", metavar="NAME", help=FORMATS_HELP) for part in PARTS),
            Argument("--registry", metavar="URL", help="keys and values are JSON, written by schemas of a registry"),
            *_schema_arguments("key", "keys stay text"),
            *_schema_arguments("value", "the newest of TOPIC-value"),
            Argument("--key", metavar="KEY", help="key of every record"),
            Argument("--key-separator", metavar="TEXT", help="lines are key, this text, value (\\t is a tab)"),
            Argument("--header", action="append", default=[], metavar="NAME=VALUE", help="header of every record"),
            Argument("--null-marker", metavar="TEXT", help="keys and values that are this text become null"),
            Argument("--partition", type=not_negative, metavar="N", help="default: by the key"),
            Argument("--compression", choices=CODECS, default="none", metavar="CODEC", help=", ".join(CODECS)),
            Argument("--command-config", metavar="FILE", help="file with properties of the producer"),
            Argument("--command-property", action="append", default=[], metavar="KEY=VALUE"),
        ),
    )


def _schema_arguments(part: str, usual: str) -> tuple[Argument, ...]:
    return (
        Argument(f"--{part}-subject", metavar="NAME", help=f"write with its newest schema (default: {usual})"),
        Argument(f"--{part}-schema", metavar="FILE", help="register this schema and write with it"),
        Argument(f"--{part}-message", metavar="NAME", help="message of a Protobuf schema (the first)"),
    )


def _lines(options: argparse.Namespace, properties: Mapping[str, str] = MappingProxyType({})) -> Iterator[Line]:
    """The records, with the fixed key and headers of the options."""
    if options.key is not None and options.key_separator is not None:
        raise UsageError("--key and --key-separator exclude each other")
    if options.messages and options.file is not None:
        raise UsageError("messages and --file exclude each other")
    try:
        key_format, value_format = make_format(options.key_format), make_format(options.value_format)
        serializers = _serializers(options, properties)
        if serializers is not None:
            key_format = serializer_format(serializers[0], options.format) if serializers[0] else key_format
            value_format = serializer_format(serializers[1], options.format)
        key = None if options.key is None else key_format.encode(options.key)
    except DeserializationError as problem:
        raise UsageError(str(problem)) from None
    headers: Headers = [
        (name, value.encode("utf-8", "surrogateescape"))
        for name, value in parse_pairs(options.header, allow_bare=False).items()
    ]
    return _add_fixed_fields(_read(options, _reader(options, key_format, value_format)), key, headers)


def _serializers(
    options: argparse.Namespace, properties: Mapping[str, str]
) -> tuple[Serializer | None, Serializer] | None:
    """The serializers of keys and values, if a registry is named; queries the registry."""
    named = [
        part
        for part in ("key", "value")
        for end in ("subject", "schema", "message")
        if _part_option(options, part, end)
    ]
    address = address_of(properties, options.registry)
    if address is None or (options.registry is None and not named):
        if named:
            raise UsageError(f"--{named[0]}-subject, --{named[0]}-schema and --{named[0]}-message need --registry")
        return None
    if options.value_format != "string" or (options.key_format != "string" and "key" in named):
        raise UsageError("a schema excludes other formats: omit --key-format or --value-format")
    client = open_registry(address).client
    found = [_serializer(client, options, part) if part == "value" or part in named else None for part in PARTS]
    assert found[1] is not None
    return found[0], found[1]


def _serializer(client: RegistryClient, options: argparse.Namespace, part: str) -> Serializer:
    file = _part_option(options, part, "schema")
    draft = None if file is None else read_draft_file(Path(file))
    subject = _part_option(options, part, "subject") or f"{options.topic}-{part}"
    return Serializer(client, SchemaChoice(subject, draft, message=_part_option(options, part, "message")))


def _part_option(options: argparse.Namespace, part: str, end: str) -> str | None:
    found: str | None = getattr(options, f"{part}_{end}")
    return found


def _reader(options: argparse.Namespace, key: FieldFormat, value: FieldFormat) -> RecordReader:
    """The parser of lines."""
    if options.format == "json":
        if options.key_separator is not None or options.null_marker is not None:
            raise UsageError("JSON lines contain keys and null: --key-separator and --null-marker apply only to text")
        return JsonReader(key, value)
    properties = {}
    if options.key_separator is not None:
        properties = {"parse.key": "true", "key.separator": ESCAPES.get(options.key_separator, options.key_separator)}
    if options.null_marker is not None:
        properties["null.marker"] = options.null_marker
    reader = LineReader(properties)
    is_plain = (key.name, value.name) == ("string", "string")
    return reader if is_plain else TypedReader(reader, key, value)


def _read(options: argparse.Namespace, reader: RecordReader) -> Iterator[Line]:
    if options.messages:
        for number, text in enumerate(options.messages, 1):
            yield reader.parse(text.encode("utf-8", "surrogateescape"), number)
    elif options.file is not None:
        with open(options.file, "rb") as stream, ByteProgressBar("sending", os.fstat(stream.fileno()).st_size) as meter:
            for number, line in enumerate(parse_lines(reader, stream, False)):
                yield line
                if number % METER_LINES == 0:
                    meter.add(stream.tell() - meter.done_bytes)
    else:
        yield from parse_lines(reader, stdin_bytes(), is_terminal(sys.stdin) and is_terminal(sys.stdout))


def _add_fixed_fields(lines: Iterator[Line], key: bytes | None, headers: Headers) -> Iterator[Line]:
    if key is None and not headers:
        yield from lines
    for line in lines:
        yield line._replace(key=line.key if key is None else key, headers=headers + line.headers)

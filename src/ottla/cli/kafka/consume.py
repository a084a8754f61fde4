"""`kafka-console-consumer.sh`: records of a topic become lines of standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ottla.cli.arguments import parse_pairs
from ottla.cli.client_settings import command_properties, load_properties
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
)
from ottla.cli.kafka.produce import renamed
from ottla.cli.patterns import topic_pattern
from ottla.cli.records.consuming import EARLIEST, LATEST, Plan, Printer, consumer_settings, read_and_print
from ottla.cli.records.formatters import FORMATTER_NAMES, Clean, Formatter, make_formatter
from ottla.cli.terminal import ToolError, escape_bytes, is_terminal, warn
from ottla.client.errors import ClientError
from ottla.operations.records.deserializers import deserializer

TOOL = "kafka-console-consumer.sh"
SUMMARY = "Print the records of a topic."
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
DEFAULT_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
UNLIMITED = -1
# Confluent's tools, and the class with which they print records.
SCHEMA_FORMATTERS = {
    "avro": "io.confluent.kafka.formatter.AvroMessageFormatter",
    "json-schema": "io.confluent.kafka.formatter.json.JsonSchemaMessageFormatter",
    "protobuf": "io.confluent.kafka.formatter.protobuf.ProtobufMessageFormatter",
}

OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    COMMAND_CONFIG,
    Option("topic", "Topic to read.", "name"),
    Option("include", "Regular expression of topics to read.", "regex"),
    Option("whitelist", "Old name of --include.", "regex"),
    Option("partition", "Partition to read.", "number"),
    Option("offset", "With --partition: a number, earliest or latest (default).", "offset"),
    Option("from-beginning", "Start with the oldest record instead of the next new one."),
    Option("group", "Consumer group to read as; without it all partitions are read.", "id"),
    Option("max-messages", "Stop after so many records.", "number"),
    Option("timeout-ms", "Stop when no record came for so long.", "ms"),
    Option("isolation-level", "read_committed or read_uncommitted (default).", "level"),
    Option("skip-message-on-error", "Leave out records that cannot be printed instead of stopping."),
    Option("formatter", "DefaultMessageFormatter, OffsetsMessageFormatter and so on.", "class"),
    Option("formatter-property", "What is printed: print.key=true, key.separator=: and so on.", "key=value", many=True),
    Option("property", "Old name of --formatter-property.", "key=value", many=True),
    Option("formatter-config", "File with properties of the formatter.", "file"),
    Option("key-deserializer", "Kafka's class that reads keys, such as IntegerDeserializer.", "class"),
    Option("value-deserializer", "Kafka's class that reads values.", "class"),
    Option("command-property", "A property of the consumer.", "key=value", many=True),
    Option("consumer-property", "Old name of --command-property.", "key=value", many=True),
    Option("consumer.config", "Old name of --command-config.", "file"),
    Option("enable-systest-events", "Print shutdown_complete at the end."),
    Option("new-consumer", "Old option without effect."),
)
RENAMED = {
    "consumer-property": "command-property",
    "consumer.config": "command-config",
    "property": "formatter-property",
}


def run(arguments: Sequence[str], tool: str = TOOL, formatter: str | None = None) -> int:
    """`formatter` is the class that prints records unless told otherwise."""
    options = KafkaOptions(tool, SUMMARY, OPTIONS, arguments, example="--topic orders --from-beginning")
    if not options.values:
        options.refuse(SUMMARY)
    bootstrap = bootstrap_of(options)
    check_options(options, bootstrap is not None)
    assert bootstrap is not None
    for old, new in RENAMED.items() if formatter is None else ():  # Confluent's tools still have the old names
        renamed(options, old, new, (old, new), "Option")
    sys.stdout.flush()
    properties = client_properties(options)
    plan = make_plan(options, properties)
    printer = Printer(
        choose_formatter(options, formatter or DEFAULT_FORMATTER), skip_errors=options.has("skip-message-on-error")
    )
    single = {"client.id": "console-consumer", "isolation.level": _isolation_level(options)}
    settings = consumer_settings(bootstrap, plan, single, properties)
    is_told = True
    try:
        read_and_print(settings, properties, plan, printer)
        _events(options)
    except (BrokenPipeError, ClientError):
        is_told = False  # nobody reads it any more, or there was no broker: that deserves no total
        raise
    finally:
        if is_told:
            warn(f"Processed a total of {printer.count} messages")
    return 0


def check_options(options: KafkaOptions, has_bootstrap: bool) -> None:
    """Refuse what Kafka refuses."""
    if options.has("topic") == (options.has("include") or options.has("whitelist")):
        options.refuse("Exactly one of the following arguments is required: [topic], [include]")
    if not has_bootstrap:
        options.refuse('Missing required argument "[bootstrap-server]"')
    if options.has("partition") and not options.has("topic"):
        options.refuse("The topic is required when partition is specified.")
    if options.has("offset") and not options.has("partition"):
        options.refuse("The partition is required when offset is specified.")
    if options.has("from-beginning") and options.has("offset"):
        options.refuse("Options from-beginning and offset cannot be specified together.")
    if options.has("group") and options.has("partition"):
        options.refuse("Options group and partition cannot be specified together.")


def make_plan(options: KafkaOptions, properties: dict[str, str]) -> Plan:
    """What the options and the consumer's properties say about what to read."""
    include = options.text("include") or options.text("whitelist")
    group = _group(options, properties)
    max_messages = options.number("max-messages")
    timeout_ms = options.number("timeout-ms", LONG_MAX)
    return Plan(
        topic=options.text("topic"),
        include=topic_pattern(include) if include is not None else None,
        partition=options.number("partition"),
        offset=_offset(options, properties),
        group=None if options.has("partition") else group,
        max_messages=None if max_messages == UNLIMITED else max_messages,
        timeout_ms=timeout_ms if timeout_ms is None or timeout_ms >= 0 else None,
        may_create=True,
    )


def client_properties(options: KafkaOptions) -> dict[str, str]:
    config = options.text("command-config") or options.text("consumer.config")
    properties = command_properties(config)
    return properties | parse_pairs(options.texts("consumer-property") + options.texts("command-property"))


def choose_formatter(options: KafkaOptions, usual: str = DEFAULT_FORMATTER) -> Formatter:
    config = options.text("formatter-config")
    properties = load_properties(config) if config is not None else {}
    properties |= parse_pairs(options.texts("property") + options.texts("formatter-property"))
    for name in ("key", "value"):
        given = options.text(f"{name}-deserializer")
        if given:
            properties[f"{name}.deserializer"] = given
    for name in ("key", "value", "headers"):
        given = properties.get(f"{name}.deserializer")
        if given is not None and deserializer(given) is None:
            warn(f"warning: the deserializer {given} is not known: bytes are printed as they are")
    clean = escape_bytes if is_terminal(sys.stdout) else _as_it_is
    name = options.text("formatter") or usual
    if name in SCHEMA_FORMATTERS.values():
        return _schema_formatter(properties, clean)
    formatter = make_formatter(name, properties, clean)
    if formatter is None:
        raise ToolError(
            f"the formatter {name} is not known: org.apache.kafka.tools.consumer has {', '.join(FORMATTER_NAMES)}"
        )
    return formatter


def _schema_formatter(properties: dict[str, str], clean: Clean) -> Formatter:
    from ottla.cli.records.schema_choice import registry_address  # noqa: PLC0415 (few need it)
    from ottla.cli.records.schema_records import confluent_formatter  # noqa: PLC0415

    return confluent_formatter(properties, registry_address(properties), clean)


def _group(options: KafkaOptions, properties: dict[str, str]) -> str | None:
    groups = {group for group in (options.text("group"), properties.get("group.id")) if group}
    if len(groups) > 1:
        listed = ", ".join(f"'{group}'" for group in sorted(groups))
        options.refuse(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', "
            f"or via '--consumer.config') do not match. Detected group ids: {listed}"
        )
    return next(iter(groups), None)


def _offset(options: KafkaOptions, properties: dict[str, str]) -> int:
    reset = properties.get("auto.offset.reset")
    if options.has("from-beginning"):
        if reset not in (None, "earliest"):
            options.refuse(
                f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
                "please remove one option"
            )
        return EARLIEST
    text = options.text("offset")
    if text is None:
        return EARLIEST if reset == "earliest" else LATEST
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    if not (text.isascii() and text.isdecimal()) or int(text) > LONG_MAX:
        options.refuse(
            f"The provided offset value '{text}' is incorrect. "
            "Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return int(text)


def _isolation_level(options: KafkaOptions) -> str:
    level = options.text("isolation-level") or "read_uncommitted"
    if level not in ISOLATION_LEVELS:
        raise OptionError(
            f"Invalid value {level} for configuration isolation.level: "
            f"String must be one of: {', '.join(ISOLATION_LEVELS)}"
        )
    return level


def _events(options: KafkaOptions) -> None:
    if options.has("enable-systest-events"):
        print("shutdown_complete", flush=True)


def _as_it_is(data: bytes) -> bytes:
    return data

"""`kafka-console-consumer.sh`: print records on standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

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
    topic_pattern,
)
from ottla.cli.kafka.produce import check_deprecated_option
from ottla.cli.records.console_consumer import EARLIEST, LATEST, ConsumePlan, Printer, consumer_settings, read_and_print
from ottla.cli.records.formatters import FORMATTER_NAMES, Clean, Formatter, make_formatter
from ottla.cli.terminal import ToolError, escape_bytes, is_terminal, warn
from ottla.client.errors import ClientError
from ottla.operations.records.deserializers import deserializer

TOOL = "kafka-console-consumer.sh"
SUMMARY = "Print the records of a topic."
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
DEFAULT_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
UNLIMITED = -1
# Confluent's tools and their formatter classes.
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
    Option("max-messages", "Stop after this number of records.", "number"),
    Option("timeout-ms", "Stop after this time without a record.", "ms"),
    Option("isolation-level", "read_committed or read_uncommitted (default).", "level"),
    Option("skip-message-on-error", "Leave out records that cannot be printed instead of stopping."),
    Option("formatter", "DefaultMessageFormatter, OffsetsMessageFormatter and so on.", "class"),
    Option(
        "formatter-property",
        "What to print: print.key=true, key.separator=: and so on.",
        "key=value",
        is_repeatable=True,
    ),
    Option("property", "Old name of --formatter-property.", "key=value", is_repeatable=True),
    Option("formatter-config", "File with properties of the formatter.", "file"),
    Option("key-deserializer", "Kafka's class that reads keys, such as IntegerDeserializer.", "class"),
    Option("value-deserializer", "Kafka's class that reads values.", "class"),
    Option("command-property", "A property of the consumer.", "key=value", is_repeatable=True),
    Option("consumer-property", "Old name of --command-property.", "key=value", is_repeatable=True),
    Option("consumer.config", "Old name of --command-config.", "file"),
    Option("enable-systest-events", "Print shutdown_complete at the end."),
    Option("new-consumer", "Old option without effect."),
)
DEPRECATED_OPTIONS = {
    "consumer-property": "command-property",
    "consumer.config": "command-config",
    "property": "formatter-property",
}


def run(arguments: Sequence[str], tool: str = TOOL, formatter: str | None = None) -> int:
    """Run the tool; `formatter` is the default formatter class."""
    options = KafkaOptions(tool, SUMMARY, OPTIONS, arguments, example="--topic orders --from-beginning")
    if not options.values:
        options.print_usage_and_exit(SUMMARY)
    bootstrap = bootstrap_of(options)
    check_options(options, bootstrap is not None)
    assert bootstrap is not None
    # Confluent's tools still use the old names
    for old, new in DEPRECATED_OPTIONS.items() if formatter is None else ():
        check_deprecated_option(options, old, new, (old, new), "Option")
    sys.stdout.flush()
    properties = client_properties(options)
    plan = make_plan(options, properties)
    printer = Printer(
        choose_formatter(options, formatter or DEFAULT_FORMATTER), skip_errors=options.has("skip-message-on-error")
    )
    single = {"client.id": "console-consumer", "isolation.level": _isolation_level(options)}
    settings = consumer_settings(bootstrap, plan, single, properties)
    prints_total = True
    try:
        read_and_print(settings, properties, plan, printer)
        _print_systest_events(options)
    except (BrokenPipeError, ClientError):
        prints_total = False  # stdout is closed, or no broker was reached: print no total
        raise
    finally:
        if prints_total:
            warn(f"Processed a total of {printer.count} messages")
    return 0


# Confluent's tools.
run_avro = partial(run, tool="kafka-avro-console-consumer", formatter=SCHEMA_FORMATTERS["avro"])
run_json_schema = partial(run, tool="kafka-json-schema-console-consumer", formatter=SCHEMA_FORMATTERS["json-schema"])
run_protobuf = partial(run, tool="kafka-protobuf-console-consumer", formatter=SCHEMA_FORMATTERS["protobuf"])


def check_options(options: KafkaOptions, has_bootstrap: bool) -> None:
    """Reject what Kafka rejects."""
    if options.has("topic") == (options.has("include") or options.has("whitelist")):
        options.print_usage_and_exit("Exactly one of the following arguments is required: [topic], [include]")
    if not has_bootstrap:
        options.print_usage_and_exit('Missing required argument "[bootstrap-server]"')
    if options.has("partition") and not options.has("topic"):
        options.print_usage_and_exit("The topic is required when partition is specified.")
    if options.has("offset") and not options.has("partition"):
        options.print_usage_and_exit("The partition is required when offset is specified.")
    if options.has("from-beginning") and options.has("offset"):
        options.print_usage_and_exit("Options from-beginning and offset cannot be specified together.")
    if options.has("group") and options.has("partition"):
        options.print_usage_and_exit("Options group and partition cannot be specified together.")


def make_plan(options: KafkaOptions, properties: dict[str, str]) -> ConsumePlan:
    """The records to read, from the options and the consumer's properties."""
    include = options.text("include") or options.text("whitelist")
    group = _group(options, properties)
    max_messages = options.number("max-messages")
    timeout_ms = options.number("timeout-ms", LONG_MAX)
    return ConsumePlan(
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


def choose_formatter(options: KafkaOptions, default_formatter: str = DEFAULT_FORMATTER) -> Formatter:
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
            warn(f"warning: unknown deserializer {given}: bytes are printed unchanged")
    clean = escape_bytes if is_terminal(sys.stdout) else _identity
    name = options.text("formatter") or default_formatter
    if name in SCHEMA_FORMATTERS.values():
        return _schema_formatter(properties, clean)
    formatter = make_formatter(name, properties, clean)
    if formatter is None:
        raise ToolError(f"unknown formatter {name}: org.apache.kafka.tools.consumer has {', '.join(FORMATTER_NAMES)}")
    return formatter


def _schema_formatter(properties: dict[str, str], clean: Clean) -> Formatter:
    from ottla.cli.records.schema_records import confluent_formatter, registry_address  # noqa: PLC0415 (rarely needed)

    return confluent_formatter(properties, registry_address(properties), clean)


def _group(options: KafkaOptions, properties: dict[str, str]) -> str | None:
    groups = {group for group in (options.text("group"), properties.get("group.id")) if group}
    if len(groups) > 1:
        listed = ", ".join(f"'{group}'" for group in sorted(groups))
        options.print_usage_and_exit(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', "
            f"or via '--consumer.config') do not match. Detected group ids: {listed}"
        )
    return next(iter(groups), None)


def _offset(options: KafkaOptions, properties: dict[str, str]) -> int:
    reset = properties.get("auto.offset.reset")
    if options.has("from-beginning"):
        if reset not in (None, "earliest"):
            options.print_usage_and_exit(
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
        options.print_usage_and_exit(
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


def _print_systest_events(options: KafkaOptions) -> None:
    if options.has("enable-systest-events"):
        print("shutdown_complete", flush=True)


def _identity(data: bytes) -> bytes:
    return data

"""`kafka-console-producer.sh`: write lines of standard input as records."""

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
)
from ottla.cli.records.console_producer import (
    CODECS,
    MAX_BLOCK_MS,
    ConsoleProducer,
    parse_lines,
    producer_settings,
    send_all,
    wait_for_topic,
)
from ottla.cli.records.line_reader import LineReader, RecordReader
from ottla.cli.terminal import ToolError, is_terminal, stdin_bytes

TOOL = "kafka-console-producer.sh"
SUMMARY = "Write lines of standard input to a topic."
LINE_READERS = ("LineMessageReader", "ConsoleProducer$LineMessageReader")
# Confluent's tools and their reader classes.
SCHEMA_READERS = {
    "avro": "io.confluent.kafka.formatter.AvroMessageReader",
    "json-schema": "io.confluent.kafka.formatter.json.JsonSchemaMessageReader",
    "protobuf": "io.confluent.kafka.formatter.protobuf.ProtobufMessageReader",
}
KINDS = dict(zip(SCHEMA_READERS.values(), ("avro", "json schema", "protobuf"), strict=True))
ACKS = ("all", "-1", "0", "1")

OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    COMMAND_CONFIG,
    Option("topic", "Topic to write to. Required.", "name"),
    Option("command-property", "A property of the producer.", "key=value", is_repeatable=True),
    Option("producer-property", "Old name of --command-property.", "key=value", is_repeatable=True),
    Option("producer.config", "Old name of --command-config.", "file"),
    Option(
        "reader-property",
        "How lines are read: parse.key=true, key.separator=: and so on.",
        "key=value",
        is_repeatable=True,
    ),
    Option("property", "Old name of --reader-property.", "key=value", is_repeatable=True),
    Option("reader-config", "File with properties for reading lines.", "file"),
    Option("line-reader", "Class that reads lines: only Kafka's LineMessageReader.", "class"),
    Option(
        "compression-codec", "none, gzip, snappy, lz4 or zstd; gzip if named without one.", "codec", bare_value="gzip"
    ),
    Option("sync", "Wait for each record before the next one is read."),
    Option("request-required-acks", "Acknowledgements to wait for: 0, 1, -1 or all (default).", "acks"),
    Option("request-timeout-ms", "Maximum time until a broker acknowledges.", "ms"),
    Option("timeout", "How long records wait for a batch to fill (linger.ms).", "ms"),
    Option("batch-size", "Bytes of a batch.", "bytes"),
    Option("max-partition-memory-bytes", "Old name of --batch-size.", "bytes"),
    Option("max-memory-bytes", "Memory for unsent records.", "bytes"),
    Option("max-block-ms", "How long to wait for the topic (default 60000).", "ms"),
    Option("message-send-max-retries", "How often to try again.", "number"),
    Option("retry-backoff-ms", "How long to wait before trying again.", "ms"),
    Option("metadata-expiry-ms", "How long metadata stays fresh.", "ms"),
    Option("socket-buffer-size", "Bytes of the socket's send buffer.", "bytes"),
)

# Option -> property of the producer.
NUMBERS = {
    "request-timeout-ms": "request.timeout.ms",
    "timeout": "linger.ms",
    "max-partition-memory-bytes": "batch.size",
    "batch-size": "batch.size",
    "max-memory-bytes": "buffer.memory",
    "message-send-max-retries": "retries",
    "retry-backoff-ms": "retry.backoff.ms",
    "metadata-expiry-ms": "metadata.max.age.ms",
    "socket-buffer-size": "send.buffer.bytes",
}
DEPRECATED_OPTIONS = {
    "producer-property": "command-property",
    "producer.config": "command-config",
    "property": "reader-property",
}


def run(arguments: Sequence[str], tool: str = TOOL, line_reader: str | None = None) -> int:
    """Run the tool; `line_reader` is the default reader class."""
    options = KafkaOptions(tool, SUMMARY, OPTIONS, arguments, example="--topic orders")
    if not options.values:
        options.print_usage_and_exit(SUMMARY)
    options.check_required_args("topic")
    bootstrap = bootstrap_of(options)
    if bootstrap is None:
        options.print_usage_and_exit('Missing required argument "[bootstrap-server]"')
    # Confluent's tools still use the old names
    for old, new in DEPRECATED_OPTIONS.items() if line_reader is None else ():
        check_deprecated_option(options, old, new, (new, old), "Warning:")
    if options.has("max-partition-memory-bytes"):
        print(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache Kafka 5.0. "
            "Use --batch-size instead."
        )
    topic = options.text("topic") or ""
    properties = client_properties(options)
    reader = make_reader(options, line_reader)
    max_block_ms = options.number("max-block-ms", LONG_MAX)
    wait_for_topic(bootstrap, topic, properties, MAX_BLOCK_MS if max_block_ms is None else max(max_block_ms, 1))
    settings = producer_settings(bootstrap, option_properties(options), {"client.id": "console-producer"}, properties)
    sender = ConsoleProducer(tool, topic, settings, properties, is_synchronous=options.has("sync"))
    is_prompting = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    lines = parse_lines(reader, stdin_bytes(), is_prompting)
    return send_all(sender, lines, is_prompting=is_prompting)


# Confluent's tools.
run_avro = partial(run, tool="kafka-avro-console-producer", line_reader=SCHEMA_READERS["avro"])
run_json_schema = partial(run, tool="kafka-json-schema-console-producer", line_reader=SCHEMA_READERS["json-schema"])
run_protobuf = partial(run, tool="kafka-protobuf-console-producer", line_reader=SCHEMA_READERS["protobuf"])


def make_reader(options: KafkaOptions, default_reader: str | None = None) -> RecordReader:
    name = options.text("line-reader") or default_reader
    if name is not None and name not in KINDS and name.rpartition(".")[2] not in LINE_READERS:
        raise ToolError(f"unknown line reader {name}: only org.apache.kafka.tools.LineMessageReader is supported")
    config = options.text("reader-config")
    properties = load_properties(config) if config is not None else {}
    properties |= parse_pairs(options.texts("property") + options.texts("reader-property"))
    if name not in KINDS:
        return LineReader(properties)
    from ottla.cli.records.schema_records import confluent_reader  # noqa: PLC0415 (rarely needed)

    return confluent_reader(properties, KINDS[name], options.text("topic") or "")


def client_properties(options: KafkaOptions) -> dict[str, str]:
    """The producer's properties from a file and from the command line, which overrides the file."""
    config = options.text("command-config") or options.text("producer.config")
    properties = command_properties(config)
    return properties | parse_pairs(options.texts("producer-property") + options.texts("command-property"))


def option_properties(options: KafkaOptions) -> dict[str, str]:
    """The producer properties of single options."""
    found = {}
    for option, name in NUMBERS.items():
        number = options.number(option, LONG_MAX)
        if number is not None:
            found[name] = str(number)
    codec = options.text("compression-codec")
    if codec is not None:
        found["compression.type"] = _one_of(codec.lower(), CODECS, "compression.type")
    acks = options.text("request-required-acks")
    if acks is not None:
        found["acks"] = _one_of(acks, ACKS, "acks")
    return found


def check_deprecated_option(options: KafkaOptions, old: str, new: str, both: tuple[str, str], word: str) -> None:
    """Print Kafka's warning for a deprecated option; reject it together with the new one."""
    if options.has(old) and options.has(new):
        options.print_usage_and_exit(f"Options --{both[0]} and --{both[1]} cannot be specified together.")
    if options.has(old):
        print(f"{word} --{old} is deprecated and will be removed in a future version. Use --{new} instead.")


def _one_of(value: str, known: Sequence[str], name: str) -> str:
    if value not in known:
        raise OptionError(f"Invalid value {value} for configuration {name}: String must be one of: {', '.join(known)}")
    return value

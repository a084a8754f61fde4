"""Records as lines; the expected bytes were printed by Kafka's console consumer."""

from __future__ import annotations

import pytest

from ottla.cli.records.formatters import COLOURS, DefaultFormatter, Message, make_formatter
from ottla.cli.terminal import escape_bytes
from ottla.operations.records.deserializers import DeserializationError

MESSAGE = Message("t", 2, 7, "CreateTime", 1794736824367, b"k1", b"v1", [("h1", b"a"), ("h2", b"b")])
EMPTY = Message("t", 0, 0, "", -1, None, None, [])


def formatted(message: Message, **properties: str) -> bytes:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return DefaultFormatter(named, bytes).format(message)


def test_only_the_value_is_printed_by_default() -> None:
    assert formatted(MESSAGE) == b"v1\n"
    assert formatted(EMPTY) == b"null\n"


def test_columns_are_in_kafkas_order() -> None:
    everything = {
        f"print_{name}": "true" for name in ("key", "headers", "timestamp", "offset", "partition", "epoch", "delivery")
    }
    assert formatted(MESSAGE, **everything) == (
        b"CreateTime:1794736824367\tPartition:2\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\th1:a,h2:b\tk1\tv1\n"
    )
    assert formatted(EMPTY, **everything) == (
        b"NO_TIMESTAMP\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    )


def test_separators_and_the_null_literal_can_be_chosen() -> None:
    properties = {
        "print_key": "true",
        "print_headers": "true",
        "key_separator": "::",
        "headers_separator": ";",
        "null_literal": "NIL",
        "line_separator": "<>",
    }
    assert formatted(MESSAGE, **properties) == b"h1:a;h2:b::k1::v1<>"
    assert formatted(EMPTY, **properties) == b"NO_HEADERS::NIL::NIL<>"


def test_without_any_column_nothing_is_printed() -> None:
    assert formatted(MESSAGE, print_value="false") == b""
    assert formatted(MESSAGE, print_value="false", print_key="true") == b"k1\n"


def test_deserializers_are_applied_to_their_part() -> None:
    message = MESSAGE._replace(key=b"\x00\x00\x00\x05", headers=[("h", b"\xff")])
    properties = {
        "print_key": "true",
        "print_headers": "true",
        "key_deserializer": "org.apache.kafka.common.serialization.IntegerDeserializer",
        "headers_deserializer": "hex",
        "value_deserializer": "unknown",
    }
    assert formatted(message, **properties) == b"h:ff\t5\tv1\n"


def test_on_a_terminal_control_characters_are_escaped_but_separators_are_not() -> None:
    formatter = DefaultFormatter({"print.key": "true"}, escape_bytes)
    message = MESSAGE._replace(key=b"\x1b[2J", value=b"a\x9b\xff\r\xc2\x9b\xe2\x80\xae")
    assert formatter.format(message) == b"\\x1b[2J\ta\\x9b\\xff\\r\\x9b\\u202e\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org.apache.kafka.tools.consumer.DefaultMessageFormatter", b"v1\n"),
        ("kafka.tools.DefaultMessageFormatter", b"v1\n"),
        ("org.apache.kafka.tools.consumer.LoggingMessageFormatter", b"v1\n"),
        ("org.apache.kafka.tools.consumer.NoOpMessageFormatter", b""),
    ],
)
def test_formatters_are_known_by_kafkas_names(name: str, expected: bytes) -> None:
    formatter = make_formatter(name, {}, bytes)
    assert formatter is not None
    assert formatter.format(MESSAGE) == expected


def test_other_formatters_are_unknown() -> None:
    assert make_formatter("Foo", {}, bytes) is None


def test_colours_surround_columns_and_never_the_value() -> None:
    properties = {"print.key": "true", "print.offset": "true"}
    line = DefaultFormatter(properties, escape_bytes, COLOURS).format(MESSAGE._replace(key=b"\x1b[2J"))
    assert line == b"\x1b[2mOffset:7\x1b[0m\t\x1b[36m\\x1b[2J\x1b[0m\tv1\n"


OFFSET_KEY = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
OFFSET_VALUE = b"\x00\x03" + (7).to_bytes(8, "big") + b"\x00\x00\x00\x02\x00\x00" + (99).to_bytes(8, "big")


def test_committed_offsets_are_json_without_a_line_end() -> None:
    formatter = make_formatter("org.apache.kafka.tools.consumer.OffsetsMessageFormatter", {}, bytes)
    assert formatter is not None
    assert formatter.format(MESSAGE._replace(key=OFFSET_KEY, value=OFFSET_VALUE)) == (
        b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":3}},'
        b'"value":{"version":3,"data":{"offset":7,"leaderEpoch":2,"metadata":"","commitTimestamp":99}}}'
    )
    assert formatter.format(MESSAGE._replace(key=OFFSET_KEY, value=None)).endswith(b'"value":null}')


def test_a_formatter_of_internal_topics_skips_other_records() -> None:
    formatter = make_formatter("kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter", {}, bytes)
    assert formatter is not None
    assert formatter.format(MESSAGE._replace(key=OFFSET_KEY, value=OFFSET_VALUE)) == b""
    assert formatter.format(MESSAGE._replace(key=b"\x7f\xff")) == b""
    assert formatter.format(MESSAGE._replace(key=None)) == b""


@pytest.mark.parametrize("value", [b"", b"\x00\x03", b"\x00\x63" + OFFSET_VALUE[2:]])
def test_garbage_in_an_internal_topic_is_reported(value: bytes) -> None:
    formatter = make_formatter("OffsetsMessageFormatter", {}, bytes)
    assert formatter is not None
    with pytest.raises(DeserializationError, match="Could not read record at offset 7 due to"):
        formatter.format(MESSAGE._replace(key=OFFSET_KEY, value=value))

"""Records as lines; the expected bytes were printed by Kafka's console consumer."""

from __future__ import annotations

import json

import pytest

from ottla.cli.formatters import DefaultFormatter, JsonFormatter, Message, make_formatter
from ottla.cli.terminal import escape_bytes

MESSAGE = Message("t", 2, 7, "CreateTime", 1794736824367, b"k1", b"v1", [("h1", b"a"), ("h2", b"b")])
EMPTY = Message("t", 0, 0, "", -1, None, None, [])


def formatted(message: Message, **properties: str) -> bytes:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return DefaultFormatter(named, bytes).format(message)


def test_only_the_value_is_printed_unless_more_is_asked_for() -> None:
    assert formatted(MESSAGE) == b"v1\n"
    assert formatted(EMPTY) == b"null\n"


def test_columns_stand_in_kafkas_order() -> None:
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


def test_other_formatters_are_not_known() -> None:
    assert make_formatter("Foo", {}, bytes) is None


def test_json_has_everything_on_one_line() -> None:
    line = JsonFormatter().format(MESSAGE._replace(value=b"a\nb\xff"))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1794736824367,
        "key": "k1",
        "value": "a\nb\ufffd",
        "headers": [["h1", "a"], ["h2", "b"]],
    }
    assert json.loads(JsonFormatter().format(EMPTY))["timestamp"] is None

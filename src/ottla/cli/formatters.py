"""Records as bytes to print: Kafka's message formatters.

Pure: a record comes in as a Message, bytes go out. `clean` is applied to everything that others wrote (keys, values,
headers); on a terminal it escapes control characters, in a pipe it does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ottla.cli.deserializers import Deserializer, deserializer

Clean = Callable[[bytes], bytes]

# The logging one prints the same; what it also logs is below the level at which Kafka's tools log.
DEFAULT_FORMATTERS = ("DefaultMessageFormatter", "LoggingMessageFormatter")


class Message(NamedTuple):
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_type: str  # CreateTime, LogAppendTime, or "" if there is no timestamp
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Formatter(Protocol):
    """What turns a message into bytes for stdout."""

    def format(self, message: Message) -> bytes: ...


class DefaultFormatter:
    """The columns that were asked for, with separators between and a line end after them."""

    def __init__(self, properties: Mapping[str, str], clean: Clean) -> None:
        self.clean = clean
        self.columns = [make for name, default, make in self._known() if _flag(properties, name, default)]
        self.separator = _bytes(properties, "key.separator", "\t")
        self.line_end = _bytes(properties, "line.separator", "\n")
        self.headers_separator = _bytes(properties, "headers.separator", ",")
        self.null = _bytes(properties, "null.literal", "null")
        self.key = _deserializer(properties, "key.deserializer")
        self.value = _deserializer(properties, "value.deserializer")
        self.header = _deserializer(properties, "headers.deserializer")
        if self.columns == [self._value_column]:
            self.format = self._value_only  # type: ignore[method-assign]  # by far the most frequent case

    def format(self, message: Message) -> bytes:
        if not self.columns:
            return b""
        return self.separator.join(make(message) for make in self.columns) + self.line_end

    def _value_only(self, message: Message) -> bytes:
        return self._field(self.value, message.value) + self.line_end

    def _known(self) -> list[tuple[str, bool, Callable[[Message], bytes]]]:
        return [
            ("print.timestamp", False, _timestamp),
            ("print.partition", False, lambda message: b"Partition:%d" % message.partition),
            ("print.offset", False, lambda message: b"Offset:%d" % message.offset),
            ("print.delivery", False, lambda _: b"Delivery:NOT_PRESENT"),  # only share groups have a count
            ("print.epoch", False, lambda _: b"Epoch:NOT_PRESENT"),  # Kafka's tool drops the epoch, too
            ("print.headers", False, self._headers_column),
            ("print.key", False, lambda message: self._field(self.key, message.key)),
            ("print.value", True, self._value_column),
        ]

    def _value_column(self, message: Message) -> bytes:
        return self._field(self.value, message.value)

    def _headers_column(self, message: Message) -> bytes:
        if not message.headers:
            return b"NO_HEADERS"
        pairs = (self.clean(name.encode()) + b":" + self._field(self.header, value) for name, value in message.headers)
        return self.headers_separator.join(pairs)

    def _field(self, deserialize: Deserializer | None, data: bytes | None) -> bytes:
        if data is None:
            return self.null
        return self.clean(deserialize(data) if deserialize is not None else data)


class NoOpFormatter:
    """Prints nothing: for counting."""

    def format(self, message: Message) -> bytes:
        del message
        return b""


class JsonFormatter:
    """One JSON object a line, for programs; bytes that are not UTF-8 become replacement characters."""

    def format(self, message: Message) -> bytes:
        fields = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp if message.timestamp_type else None,
            "key": None if message.key is None else _text(message.key),
            "value": None if message.value is None else _text(message.value),
            "headers": [[name, None if value is None else _text(value)] for name, value in message.headers],
        }
        return json.dumps(fields).encode() + b"\n"


def make_formatter(name: str, properties: Mapping[str, str], clean: Clean) -> Formatter | None:
    """By Kafka's class name, of today or of old; None if there is none."""
    simple = name.rpartition(".")[2]
    if simple in DEFAULT_FORMATTERS:
        return DefaultFormatter(properties, clean)
    return NoOpFormatter() if simple == "NoOpMessageFormatter" else None


def _timestamp(message: Message) -> bytes:
    if not message.timestamp_type:
        return b"NO_TIMESTAMP"
    return f"{message.timestamp_type}:{message.timestamp}".encode()


def _flag(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name)
    return default if text is None else text.strip().lower() == "true"


def _bytes(properties: Mapping[str, str], name: str, default: str) -> bytes:
    return properties.get(name, default).encode("utf-8", "surrogateescape")


def _deserializer(properties: Mapping[str, str], name: str) -> Deserializer | None:
    given = properties.get(name)
    return deserializer(given) if given is not None else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")

"""Kafka's message formatters: records as bytes to print. Pure.

`clean` is applied to untrusted data (keys, values, headers): it escapes control characters on a terminal and does
nothing in a pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ottla.cli.records.line_reader import is_enabled, property_bytes
from ottla.operations.records.coordinator_records import (
    TRANSACTION_RECORDS,
    Kinds,
    UnknownRecordError,
    compact,
    read_record,
)
from ottla.operations.records.deserializers import DeserializationError, Deserializer, deserializer
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.coordinator_records import GROUP_RECORDS

Clean = Callable[[bytes], bytes]

# LoggingMessageFormatter prints the same; its log level is below that of Kafka's tools.
DEFAULT_FORMATTERS = ("DefaultMessageFormatter", "LoggingMessageFormatter")

PLAIN = b"\x1b[0m"
COLOURS = {
    "print.timestamp": b"\x1b[2m",
    "print.partition": b"\x1b[2m",
    "print.offset": b"\x1b[2m",
    "print.headers": b"\x1b[35m",
    "print.key": b"\x1b[36m",
}

# Formatter -> the record types of its topic, and the ones that it prints.
COORDINATOR_FORMATTERS: dict[str, tuple[Kinds, Collection[int]]] = {
    "OffsetsMessageFormatter": (GROUP_RECORDS, (0, 1)),
    "GroupMetadataMessageFormatter": (GROUP_RECORDS, (2,)),
    "TransactionLogMessageFormatter": (TRANSACTION_RECORDS, (0,)),
}
FORMATTER_NAMES = (*DEFAULT_FORMATTERS, "NoOpMessageFormatter", *COORDINATOR_FORMATTERS)


class Message(NamedTuple):
    """One consumed record."""

    topic: str
    partition: int
    offset: int
    timestamp_type: str  # CreateTime, LogAppendTime, or "" if there is no timestamp
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Formatter(Protocol):
    """Converts a message into bytes for stdout."""

    def format(self, message: Message) -> bytes: ...


class DefaultFormatter:
    """Prints the selected columns with separators and a line end."""

    def __init__(self, properties: Mapping[str, str], clean: Clean, colours: Mapping[str, bytes] | None = None) -> None:
        self.clean = clean
        self.columns = [
            coloured(make, colours.get(name)) if colours else make
            for name, default, make in self._known()
            if is_enabled(properties, name, default)
        ]
        self.separator = property_bytes(properties, "key.separator", "\t")
        self.line_end = property_bytes(properties, "line.separator", "\n")
        self.headers_separator = property_bytes(properties, "headers.separator", ",")
        self.null = property_bytes(properties, "null.literal", "null")
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

    def _known(self) -> list[tuple[str, str, Callable[[Message], bytes]]]:
        return [
            ("print.timestamp", "false", _timestamp),
            ("print.partition", "false", lambda message: b"Partition:%d" % message.partition),
            ("print.offset", "false", lambda message: b"Offset:%d" % message.offset),
            ("print.delivery", "false", lambda _: b"Delivery:NOT_PRESENT"),  # only share groups have a delivery count
            ("print.epoch", "false", lambda _: b"Epoch:NOT_PRESENT"),  # Kafka's tool does not print it either
            ("print.headers", "false", self._headers_column),
            ("print.key", "false", lambda message: self._field(self.key, message.key)),
            ("print.value", "true", self._value_column),
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


class CoordinatorFormatter:
    """Prints records of a coordinator's topic as JSON without line ends, as Kafka does."""

    def __init__(self, kinds: Kinds, wanted: Collection[int], clean: Clean) -> None:
        self.kinds = kinds
        self.wanted = wanted  # other record types print nothing
        self.clean = clean

    def format(self, message: Message) -> bytes:
        if message.key is None:
            return b""
        try:
            record = read_record(self.kinds, message.key, message.value)
        except UnknownRecordError:
            return b""
        except ProtocolError as problem:
            raise DeserializationError(f"Could not read record at offset {message.offset} due to: {problem}") from None
        if record.kind not in self.wanted:
            return b""
        value = None if record.value is None else {"version": record.version, "data": record.value_json()}
        text = compact({"key": {"type": record.kind, "data": record.key_json()}, "value": value})
        return self.clean(text.encode())


def coloured(make: Callable[[Message], bytes], colour: bytes | None) -> Callable[[Message], bytes]:
    """The column with ANSI codes for a colour."""
    if colour is None:
        return make
    return lambda message: colour + make(message) + PLAIN


def make_formatter(name: str, properties: Mapping[str, str], clean: Clean) -> Formatter | None:
    """Create a formatter by Kafka's current or former class name; None if it is unknown."""
    simple = name.replace("$", ".").rpartition(".")[2]
    if simple in DEFAULT_FORMATTERS:
        return DefaultFormatter(properties, clean)
    if simple in COORDINATOR_FORMATTERS:
        return CoordinatorFormatter(*COORDINATOR_FORMATTERS[simple], clean)
    return NoOpFormatter() if simple == "NoOpMessageFormatter" else None


def _timestamp(message: Message) -> bytes:
    if not message.timestamp_type:
        return b"NO_TIMESTAMP"
    return f"{message.timestamp_type}:{message.timestamp}".encode()


def _deserializer(properties: Mapping[str, str], name: str) -> Deserializer | None:
    given = properties.get(name)
    return deserializer(given) if given is not None else None

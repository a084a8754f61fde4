"""Records as bytes to print: Kafka's message formatters.

Pure: a record comes in as a Message, bytes go out. `clean` is applied to everything that others wrote (keys, values,
headers); on a terminal it escapes control characters, in a pipe it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ottla.operations.records.coordinator_records import (
    TRANSACTION_RECORDS,
    Kinds,
    UnknownRecordError,
    compact,
    read_record,
)
from ottla.operations.records.deserializers import DeserializationError, Deserializer, deserializer
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.group_records import GROUP_RECORDS

Clean = Callable[[bytes], bytes]

# The logging one prints the same; what it also logs is below the level at which Kafka's tools log.
DEFAULT_FORMATTERS = ("DefaultMessageFormatter", "LoggingMessageFormatter")

PLAIN = b"\x1b[0m"
COLOURS = {
    "print.timestamp": b"\x1b[2m",
    "print.partition": b"\x1b[2m",
    "print.offset": b"\x1b[2m",
    "print.headers": b"\x1b[35m",
    "print.key": b"\x1b[36m",
}

# Formatter -> the kinds of records of its topic, and which of them it prints.
COORDINATOR_FORMATTERS: dict[str, tuple[Kinds, Collection[int]]] = {
    "OffsetsMessageFormatter": (GROUP_RECORDS, (0, 1)),
    "GroupMetadataMessageFormatter": (GROUP_RECORDS, (2,)),
    "TransactionLogMessageFormatter": (TRANSACTION_RECORDS, (0,)),
}
FORMATTER_NAMES = (*DEFAULT_FORMATTERS, "NoOpMessageFormatter", *COORDINATOR_FORMATTERS)


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

    def __init__(self, properties: Mapping[str, str], clean: Clean, colours: Mapping[str, bytes] | None = None) -> None:
        self.clean = clean
        self.columns = [
            painted(make, colours.get(name)) if colours else make
            for name, default, make in self._known()
            if _flag(properties, name, default)
        ]
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


class CoordinatorFormatter:
    """Records of a coordinator's topic as JSON, one after the other without line ends, as Kafka prints them."""

    def __init__(self, kinds: Kinds, wanted: Collection[int], clean: Clean) -> None:
        self.kinds = kinds
        self.wanted = wanted  # other kinds of records print nothing
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


def painted(make: Callable[[Message], bytes], colour: bytes | None) -> Callable[[Message], bytes]:
    """The same column between a colour and its end."""
    if colour is None:
        return make
    return lambda message: colour + make(message) + PLAIN


def make_formatter(name: str, properties: Mapping[str, str], clean: Clean) -> Formatter | None:
    """By Kafka's class name, of today or of old; None if there is none."""
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


def _flag(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name)
    return default if text is None else text.strip().lower() == "true"


def _bytes(properties: Mapping[str, str], name: str, default: str) -> bytes:
    return properties.get(name, default).encode("utf-8", "surrogateescape")


def _deserializer(properties: Mapping[str, str], name: str) -> Deserializer | None:
    given = properties.get(name)
    return deserializer(given) if given is not None else None

"""Records that were written with schemas of a registry, as lines of text: for our tools and under Confluent's names.

Rules:
1. Nothing that somebody wrote ends a consumer: what cannot be decoded is shown as hexadecimal, and the reason is told
   on stderr, once for each.
2. A line that does not fit its schema ends a producer: nothing wrong is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ottla.cli.records.formatters import Clean, DefaultFormatter, Formatter, Message
from ottla.cli.records.line_reader import Line, LineError, LineReader
from ottla.cli.terminal import UsageError, warn
from ottla.operations.messages.decoding import BINARY, NULL, Decoded, Decoder
from ottla.operations.messages.documents import dump, whole_characters
from ottla.operations.messages.expressions.matching import NO_DOCUMENT
from ottla.operations.records.deserializers import DeserializationError
from ottla.operations.records.field_formats import FieldError, FieldFormat, make_format, text_value
from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.operations.schema_registry.decoders import make_decoder
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.registry import Registry
from ottla.operations.schema_registry.serializing import Serializer, read_document

REASONS_MAX = 1000  # that are remembered, so that each is told once


class Shown(NamedTuple):
    """A key or value for people: JSON, text or hexadecimal, and its schema."""

    text: str | None
    decoded: Decoded


class Reasons:
    """Tells why records are shown as bytes, once for each reason."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, message: Message, part: str, reason: str) -> None:
        if reason in self._told or len(self._told) >= REASONS_MAX:
            return
        self._told.add(reason)
        place = f"{message.topic}-{message.partition} offset {message.offset}"
        warn(f"warning: the {part} at {place} is shown as hexadecimal: {reason}")


def open_registry(address: RegistryAddress) -> Registry:
    """Raises UsageError for what is no address."""
    try:
        return Registry(address)
    except SchemaError as problem:
        raise UsageError(str(problem)) from None


class PartReader:
    """What keys and values say, as text. `must_have_schema`: what has none is no text but a fault."""

    def __init__(self, registry: Registry, write: Callable[[Any], str] = dump, *, must_have_schema: bool) -> None:
        self.registry = registry
        self.write = write
        self.must_have_schema = must_have_schema
        self.reasons = Reasons()
        self.decoders: dict[str, Decoder] = {}

    def read(self, message: Message) -> tuple[Shown, Shown]:
        if message.topic not in self.decoders:
            self.decoders[message.topic] = Decoder(message.topic, self.registry)
        key, value = self.decoders[message.topic].decode(message.key, message.value, message.headers)
        return self._shown(message, "key", message.key, key), self._shown(message, "value", message.value, value)

    def _shown(self, message: Message, part: str, data: bytes | None, decoded: Decoded) -> Shown:
        if data is None or decoded.format == NULL:
            return Shown(None, decoded)
        if self.must_have_schema and decoded.schema_id is None and decoded.problem is None:
            decoded = Decoded(BINARY, problem="Unknown magic byte!")
        if decoded.problem is None and decoded.format != BINARY:
            if decoded.is_own_json:
                return Shown(data.decode("utf-8", "surrogateescape"), decoded)
            try:
                return Shown(whole_characters(self.write(decoded.document)), decoded)
            except RecursionError:
                decoded = decoded._replace(problem="it is nested too deep to be shown")
        if decoded.problem is not None:
            self.reasons.tell(message, part, decoded.problem)
        return Shown(data.hex(), decoded._replace(document=NO_DOCUMENT))


class SchemaFormatter:
    """Decodes, then prints as Kafka's formatter does; keys only if `reads_keys`."""

    def __init__(
        self, formatter: DefaultFormatter, reader: PartReader, *, reads_keys: bool, id_separator: bytes | None = None
    ) -> None:
        self.formatter = formatter
        self.reader = reader
        self.reads_keys = reads_keys
        self.id_separator = id_separator

    def format(self, message: Message) -> bytes:
        key, value = self.reader.read(message if self.reads_keys else message._replace(key=None))
        text = message._replace(key=self._bytes(key) if self.reads_keys else message.key, value=self._bytes(value))
        return self.formatter.format(text)

    def _bytes(self, shown: Shown) -> bytes | None:
        if shown.text is None:
            return None
        data = shown.text.encode("utf-8", "surrogateescape")
        if self.id_separator is None or shown.decoded.schema_id is None:
            return data
        return data + self.id_separator + str(shown.decoded.schema_id).encode()


class SchemaJsonFormatter:
    """One JSON object a line; what cannot be decoded is `{"hex": …, "problem": …}`."""

    def __init__(self, reader: PartReader) -> None:
        self.reader = reader

    def format(self, message: Message) -> bytes:
        key, value = map(_json_text, self.reader.read(message))
        fields = {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp if message.timestamp_type else None,
        }
        headers = [[name, None if content is None else text_value(content)] for name, content in message.headers]
        start = json.dumps(fields)[:-1]
        line = f'{start}, "key": {key}, "value": {value}, "headers": {json.dumps(headers)}}}\n'
        return line.encode("utf-8", "surrogateescape")


def _json_text(shown: Shown) -> str:
    text, decoded = shown
    if text is None:
        return "null"
    if decoded.document is not NO_DOCUMENT:
        return text
    if decoded.problem is not None or decoded.format == BINARY:
        return json.dumps({"hex": text, "problem": decoded.problem})
    return json.dumps(text)


class SchemaReader:
    """Lines whose keys and values are JSON; None is for a part that stays as it is written."""

    def __init__(
        self, reader: LineReader, key: Serializer | FieldFormat | None, value: Serializer | FieldFormat | None
    ) -> None:
        self.reader = reader
        self.key = key
        self.value = value

    def parse(self, line: bytes, number: int) -> Line:
        text = self.reader.parse(line, number)
        return text._replace(
            key=_encoded(self.key, text.key, number, "key"), value=_encoded(self.value, text.value, number, "value")
        )


def field_format(serializer: Serializer, line_format: str) -> FieldFormat:
    """A schema as the format of a key or value; in lines of text it is JSON, lines of JSON have it as it is."""

    def encode(value: Any) -> bytes:
        try:
            return serializer.encode(read_document(value) if line_format == "text" else value)
        except SchemaError as problem:
            raise FieldError(str(problem)) from None

    text = make_format("string")
    return FieldFormat(serializer.subject, encode, text.decode, text.text)


def _encoded(format_: Serializer | FieldFormat | None, data: bytes | None, number: int, part: str) -> bytes | None:
    if data is None or format_ is None:
        return data
    try:
        if isinstance(format_, FieldFormat):
            return format_.encode(data.decode("utf-8", "surrogateescape"))
        document = read_document(data)
        # As Confluent's serializers: null is no value at all.
        return None if document is None else format_.encode(document)
    except (SchemaError, FieldError, DeserializationError) as problem:
        raise LineError(f"line {number}, {part}: {problem}") from None


def confluent_formatter(properties: Mapping[str, str], address: RegistryAddress, clean: Clean) -> Formatter:
    """Confluent's message formatters, by their properties. Raises SchemaError."""
    own_names = is_true(properties, "preserve.json.field.name")
    registry = Registry(address, partial(make_decoder, style="confluent", own_names=own_names))
    separator = properties.get("schema.id.separator", "\t").encode("utf-8", "surrogateescape")
    return SchemaFormatter(
        DefaultFormatter(properties, clean),
        PartReader(registry, _compact, must_have_schema=True),
        reads_keys=is_true(properties, "print.key") and "key.deserializer" not in properties,
        id_separator=separator if is_true(properties, "print.schema.ids") else None,
    )


def _compact(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str)


def is_true(properties: Mapping[str, str], name: str, default: str = "false") -> bool:
    return properties.get(name, default).strip().lower() == "true"

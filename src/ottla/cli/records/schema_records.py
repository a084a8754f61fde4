"""Records with schemas of a registry as lines of text, for ottla's tools and Confluent's console tools.

Rules:
1. Invalid data never stops a consumer: it is printed as hexadecimal, with the reason once on stderr.
2. A line that does not match its schema stops a producer: invalid data is never sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.cli.records.formatters import Clean, DefaultFormatter, Formatter, Message
from ottla.cli.records.line_reader import Line, LineError, LineReader, is_enabled
from ottla.cli.terminal import ToolError, UsageError, warn
from ottla.operations.messages.expressions.evaluator import NO_DOCUMENT
from ottla.operations.messages.json_documents import dump, replace_lone_surrogates
from ottla.operations.messages.message_decoder import BINARY, NULL, Decoded, Decoder
from ottla.operations.records.deserializers import DeserializationError
from ottla.operations.records.formats import FieldError, FieldFormat, make_format, text_value
from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import URL, RegistryAddress, address_of
from ottla.operations.schema_registry.decoders import make_decoder
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.folders import read_draft_file
from ottla.operations.schema_registry.schemas import TYPES, UnregisteredSchema, read_draft
from ottla.operations.schema_registry.serdes import (
    TOPIC_NAME,
    SchemaChoice,
    SchemaDecoder,
    Serializer,
    read_document,
    subject_name,
)

REASONS_MAX = 1000  # remembered reasons, each of which is printed once


class DecodedText(NamedTuple):
    """A decoded key or value: JSON, text or hexadecimal, and its schema."""

    text: str | None
    decoded: Decoded


class ReasonWarnings:
    """Prints why records are shown as hexadecimal, once for each reason."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn_once(self, message: Message, part: str, reason: str) -> None:
        if reason in self._told or len(self._told) >= REASONS_MAX:
            return
        self._told.add(reason)
        origin = f"{message.topic}-{message.partition} offset {message.offset}"
        warn(f"warning: the {part} at {origin} is shown as hexadecimal: {reason}")


def open_registry(address: RegistryAddress) -> SchemaDecoder:
    """Open a registry. Raises UsageError for an invalid address."""
    try:
        return SchemaDecoder(address)
    except SchemaError as problem:
        raise UsageError(str(problem)) from None


class KeyValueReader:
    """Decodes keys and values into text. With `must_have_schema`, data without a schema id is an error."""

    def __init__(self, registry: SchemaDecoder, write: Callable[[Any], str] = dump, *, must_have_schema: bool) -> None:
        self.registry = registry
        self.write = write
        self.must_have_schema = must_have_schema
        self.reasons = ReasonWarnings()
        self.decoders: dict[str, Decoder] = {}

    def read(self, message: Message) -> tuple[DecodedText, DecodedText]:
        if message.topic not in self.decoders:
            self.decoders[message.topic] = Decoder(message.topic, self.registry)
        key, value = self.decoders[message.topic].decode(message.key, message.value, message.headers)
        return self._shown(message, "key", message.key, key), self._shown(message, "value", message.value, value)

    def _shown(self, message: Message, part: str, data: bytes | None, decoded: Decoded) -> DecodedText:
        if data is None or decoded.format == NULL:
            return DecodedText(None, decoded)
        if self.must_have_schema and decoded.schema_id is None and decoded.problem is None:
            decoded = Decoded(BINARY, problem="Unknown magic byte!")
        if decoded.problem is None and decoded.format != BINARY:
            if decoded.are_bytes_searchable:
                return DecodedText(data.decode("utf-8", "surrogateescape"), decoded)
            try:
                return DecodedText(replace_lone_surrogates(self.write(decoded.document)), decoded)
            except RecursionError:
                decoded = decoded._replace(problem="it is nested too deeply to be printed")
        if decoded.problem is not None:
            self.reasons.warn_once(message, part, decoded.problem)
        return DecodedText(data.hex(), decoded._replace(document=NO_DOCUMENT))


class SchemaFormatter:
    """Decodes a record and prints it with Kafka's formatter; decodes keys only if `reads_keys`."""

    def __init__(
        self,
        formatter: DefaultFormatter,
        reader: KeyValueReader,
        *,
        reads_keys: bool,
        id_separator: bytes | None = None,
    ) -> None:
        self.formatter = formatter
        self.reader = reader
        self.reads_keys = reads_keys
        self.id_separator = id_separator

    def format(self, message: Message) -> bytes:
        key, value = self.reader.read(message if self.reads_keys else message._replace(key=None))
        text = message._replace(key=self._bytes(key) if self.reads_keys else message.key, value=self._bytes(value))
        return self.formatter.format(text)

    def _bytes(self, shown: DecodedText) -> bytes | None:
        if shown.text is None:
            return None
        data = shown.text.encode("utf-8", "surrogateescape")
        if self.id_separator is None or shown.decoded.schema_id is None:
            return data
        return data + self.id_separator + str(shown.decoded.schema_id).encode()


class SchemaJsonFormatter:
    """Prints one JSON object per line; undecodable data is `{"hex": …, "problem": …}`."""

    def __init__(self, reader: KeyValueReader) -> None:
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


def _json_text(shown: DecodedText) -> str:
    text, decoded = shown
    if text is None:
        return "null"
    if decoded.document is not NO_DOCUMENT:
        return text
    if decoded.problem is not None or decoded.format == BINARY:
        return json.dumps({"hex": text, "problem": decoded.problem})
    return json.dumps(text)


class SchemaReader:
    """Parses lines whose keys and values are JSON; a part without a format stays text."""

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


def serializer_format(serializer: Serializer, line_format: str) -> FieldFormat:
    """A schema as the format of a key or value. In lines of text it is JSON text, in JSON lines a JSON value."""

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
        # As in Confluent's serializers, JSON null becomes a null value.
        return None if document is None else format_.encode(document)
    except (SchemaError, FieldError, DeserializationError) as problem:
        raise LineError(f"line {number}, {part}: {problem}") from None


def confluent_formatter(properties: Mapping[str, str], address: RegistryAddress, clean: Clean) -> Formatter:
    """Create Confluent's message formatters from their properties. Raises SchemaError."""
    own_names = is_enabled(properties, "preserve.json.field.name")
    registry = SchemaDecoder(address, partial(make_decoder, style="confluent", own_names=own_names))
    separator = properties.get("schema.id.separator", "\t").encode("utf-8", "surrogateescape")
    return SchemaFormatter(
        DefaultFormatter(properties, clean),
        KeyValueReader(registry, _compact, must_have_schema=True),
        reads_keys=is_enabled(properties, "print.key") and "key.deserializer" not in properties,
        id_separator=separator if is_enabled(properties, "print.schema.ids") else None,
    )


def _compact(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str)


# ---- properties of Confluent's console producers
#
# schema.registry.url                            the registry (http://localhost:8081)
# value.schema, value.schema.file                the schema, as text or in a file
# value.schema.id                                or the id of a registered one
# value.refs                                     its references: [{"name": …, "subject": …, "version": …}]
# value.subject.name.strategy                    TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy
# value.schema.full.name                         the message of a Protobuf schema (the first)
# auto.register.schemas, use.latest.version, normalize.schemas
# Keys have the same properties if `parse.key` is true and `key.serializer` is not set.
DEFAULT_URL = "http://localhost:8081"


def registry_address(properties: Mapping[str, str]) -> RegistryAddress:
    found = address_of({URL: DEFAULT_URL, **properties})
    assert found is not None
    return found


def confluent_reader(properties: Mapping[str, str], kind: str, topic: str) -> SchemaReader:
    """Create Confluent's message reader; `kind` is the schema type. Raises ToolError, UsageError."""
    try:
        client = RegistryClient(registry_address(properties))
        value = Serializer(client, _choice(client, properties, kind, topic, is_key=False), "confluent")
        key: Serializer | FieldFormat | None = None
        if is_enabled(properties, "parse.key"):
            key = _plain_key(properties) or Serializer(
                client, _choice(client, properties, kind, topic, is_key=True), "confluent"
            )
    except SchemaError as problem:
        raise ToolError(str(problem)) from None
    return SchemaReader(LineReader(properties), key, value)


def _choice(
    client: RegistryClient, properties: Mapping[str, str], kind: str, topic: str, *, is_key: bool
) -> SchemaChoice:
    part = "key" if is_key else "value"
    draft = _draft(client, properties, kind, part)
    strategy = properties.get(f"{part}.subject.name.strategy", TOPIC_NAME)
    schema = None if strategy.endswith(f".{TOPIC_NAME}") or strategy == TOPIC_NAME else client.with_references(draft)
    return SchemaChoice(
        subject_name(strategy, topic, schema, is_key=is_key),
        draft,
        is_registered=is_enabled(properties, "auto.register.schemas", "true"),
        use_latest=is_enabled(properties, "use.latest.version"),
        normalize=is_enabled(properties, "normalize.schemas"),
        message=properties.get(f"{part}.schema.full.name"),
    )


def _draft(client: RegistryClient, properties: Mapping[str, str], kind: str, part: str) -> UnregisteredSchema:
    by_id, text, file = (properties.get(f"{part}.schema{end}") for end in (".id", "", ".file"))
    if by_id is not None:
        if not by_id.strip().isdecimal():
            raise UsageError(f"Error parsing {part}.schema.id as int")
        draft = client.draft(int(by_id))
        if draft.kind != kind:
            raise ToolError(f"schema {by_id} is of type {TYPES[draft.kind]}, and not {TYPES[kind]}")
        return draft
    if text is None and file is None:
        raise UsageError(
            f"Must provide the {part} schema in either {part}.schema, {part}.schema.id, or {part}.schema.file"
        )
    draft = UnregisteredSchema(kind, text) if text is not None else read_draft_file(Path(str(file)), kind)
    try:
        references = json.loads(properties.get(f"{part}.refs", "[]"))
    except ValueError:
        raise UsageError(f"{part}.refs is not JSON") from None
    return read_draft(draft.body() | {"references": references})


def _plain_key(properties: Mapping[str, str]) -> FieldFormat | None:
    """The format of one of Kafka's own key serializers; None if none is named."""
    name = properties.get("key.serializer")
    if name is None:
        return None
    short = name.rpartition(".")[2].removesuffix("Serializer").lower()
    try:
        return make_format({"integer": "int", "bytearray": "string"}.get(short, short))
    except FieldError:
        raise UsageError(f"unknown serializer {name}") from None

"""Serializer and deserializer for records with schemas of a registry.

The schema for writing is chosen as in Confluent's serializers: `auto.register.schemas` registers the schema,
`use.latest.version` takes the latest version of the subject, otherwise the schema must already be registered.
For reading:
1. Schemas are cached, missing ones for a while. A registry that does not answer is not called for a while, so a search
   over millions of messages does not wait millions of times.
2. Every failure is a SchemaError.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.operations.schema_registry.decoders import Decode, Style, make_decoder, make_encoder
from ottla.operations.schema_registry.errors import SchemaError, UnreachableError
from ottla.operations.schema_registry.framing import SchemaName, frame
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, Schema, UnregisteredSchema

TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
STRATEGIES = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)


class SchemaChoice(NamedTuple):
    """The schema to write with; without a draft the latest version of the subject."""

    subject: str
    draft: UnregisteredSchema | None = None
    is_registered: bool = True  # whether to register a draft that the subject lacks
    use_latest: bool = False
    normalize: bool = False
    message: str | None = None  # full name of a Protobuf message


class Serializer:
    """Encodes the keys or the values of one topic."""

    def __init__(self, client: RegistryClient, choice: SchemaChoice, style: Style = "plain") -> None:
        """Reads the schema from the registry. Raises SchemaError."""
        self.subject = choice.subject
        self.schema_id, schema = choose_schema(client, choice)
        self._encode = make_encoder(schema, style, choice.message)

    def encode(self, document: Any) -> bytes:
        """Raises SchemaError for a document that does not match."""
        return frame(self.schema_id, self._encode(document))

    def __repr__(self) -> str:
        return f"<Serializer {self.subject} id={self.schema_id}>"


def choose_schema(client: RegistryClient, choice: SchemaChoice) -> tuple[int, Schema]:
    """The ID to write, and the self-contained schema. Raises SchemaError."""
    subject, draft = choice.subject, choice.draft
    if draft is not None and choice.is_registered:
        return client.register(subject, draft, normalize=choice.normalize), client.with_references(draft)
    if draft is None or choice.use_latest:
        latest = client.version(subject)
        return latest.schema_id, client.with_references(latest.draft)
    found = client.lookup(subject, draft, normalize=choice.normalize)
    return found.schema_id, client.with_references(draft)


def subject_name(strategy: str, topic: str, schema: Schema | None, *, is_key: bool) -> str:
    """The subject by one of Confluent's strategies, with or without its package. Raises SchemaError."""
    simple = strategy.rpartition(".")[2]
    if simple == TOPIC_NAME:
        return f"{topic}-{'key' if is_key else 'value'}"
    if simple not in STRATEGIES:
        raise SchemaError(f"unknown strategy {strategy!r}: use {', '.join(STRATEGIES)}")
    if schema is None:
        raise SchemaError(f"{simple} needs a schema to name the subject after")
    name = record_name(schema)
    return name if simple == RECORD_NAME else f"{topic}-{name}"


def record_name(schema: Schema) -> str:
    """The full name of the record that a schema describes. Raises SchemaError."""
    if schema.kind not in (AVRO, JSON_SCHEMA):
        from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

        return str(Messages(schema).message_class((0,)).DESCRIPTOR.full_name)
    document = json.loads(schema.text)
    found: Mapping[str, Any] = document if isinstance(document, dict) else {}
    name = str(found.get("name" if schema.kind == AVRO else "title") or "")
    if not name:
        raise SchemaError("the schema has no name to derive the subject from")
    space = found.get("namespace") if schema.kind == AVRO and "." not in name else None
    return f"{space}.{name}" if space else name


def read_document(text: str | bytes) -> Any:
    """JSON with exact numbers. Raises SchemaError."""
    try:
        return json.loads(text, parse_float=_parse_float, parse_constant=_refuse)
    except (ValueError, RecursionError):
        shown = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
        raise SchemaError(f"{shown[:80]!r} is not JSON") from None


def _parse_float(text: str) -> float | Decimal:
    """A float if it has all digits."""
    number = float(text)
    exact = Decimal(text)
    return number if Decimal(repr(number)) == exact else exact


def _refuse(name: str) -> None:
    raise ValueError(name)


# ---- deserializer
SCHEMAS_MAX = 1000
RETRY_AFTER_S = 10.0  # time without calls after a registry failed
MISSING_S = 30.0  # time for which a missing schema is cached


class SchemaDecoder:
    """Decodes records, with a cache of schemas. Thread-safe."""

    def __init__(
        self,
        address: RegistryAddress,
        make_decoder: Callable[[Schema], Decode] = make_decoder,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = RegistryClient(address, monotonic)
        self._make_decoder = make_decoder
        self._monotonic = monotonic
        self._known: OrderedDict[SchemaName, tuple[str, Decode]] = OrderedDict()
        self._missing: dict[SchemaName, tuple[float, str]] = {}  # expiry and reason
        self._unavailable_until: tuple[float, str] = (float("-inf"), "")
        self._lock = threading.Lock()

    def decode(self, name: SchemaName, data: bytes) -> tuple[str, Any]:
        """The document in the bytes after the ID. Raises SchemaError."""
        kind, decode = self._decoder(name)
        try:
            return kind, decode(data)
        except SchemaError:
            raise
        except Exception as problem:  # noqa: BLE001 (what a decoder raises for strange bytes is anything)
            words = f"{type(problem).__name__}: {problem}"[:200]
            raise SchemaError(f"the bytes do not fit schema {name}: {words}") from None

    def _decoder(self, name: SchemaName) -> tuple[str, Decode]:
        with self._lock:
            found = self._known.get(name)
            if found is not None:
                self._known.move_to_end(name)
                return found
            now = self._monotonic()
            for until, why in (self._missing.get(name, (now, "")), self._unavailable_until):
                if now < until:
                    raise SchemaError(why)
            try:
                schema = self.client.schema(name)
                found = (schema.kind, self._make_decoder(schema))
            except UnreachableError as problem:
                self._unavailable_until = (now + RETRY_AFTER_S, str(problem))
                raise
            except SchemaError as problem:
                if len(self._missing) >= SCHEMAS_MAX:
                    self._missing.clear()
                self._missing[name] = (now + MISSING_S, str(problem))
                raise
            self._known[name] = found
            if len(self._known) > SCHEMAS_MAX:
                self._known.popitem(last=False)
            return found

    def __repr__(self) -> str:
        return f"<SchemaDecoder {self.client.address.url} schemas={len(self._known)}>"

"""From documents to the bytes of a record: which schema it is, asked once, then its id and the encoded document.

As Confluent's serializers choose: `auto.register.schemas` registers the schema, `use.latest.version` takes the newest
one of the subject, and without both the schema must be there already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.decoders import Style, make_encoder
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.framing import frame
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, Draft, Schema

TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
STRATEGIES = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)


class Choice(NamedTuple):
    """Which schema to write with. Without a draft it is the newest one of the subject."""

    subject: str
    draft: Draft | None = None
    is_registered: bool = True  # whether a draft that the subject does not have is registered
    use_latest: bool = False
    normalize: bool = False
    message: str | None = None  # full name of a Protobuf message


class Serializer:
    """Encodes the keys or the values of one topic."""

    def __init__(self, client: RegistryClient, choice: Choice, style: Style = "plain") -> None:
        """Asks the registry. Raises SchemaError."""
        self.subject = choice.subject
        self.schema_id, schema = choose(client, choice)
        self._encode = make_encoder(schema, style, choice.message)

    def encode(self, document: Any) -> bytes:
        """Raises SchemaError for documents that do not fit."""
        return frame(self.schema_id, self._encode(document))

    def __repr__(self) -> str:
        return f"<Serializer {self.subject} id={self.schema_id}>"


def choose(client: RegistryClient, choice: Choice) -> tuple[int, Schema]:
    """The id to write and the schema with all that it needs. Raises SchemaError."""
    subject, draft = choice.subject, choice.draft
    if draft is not None and choice.is_registered:
        return client.register(subject, draft, normalize=choice.normalize), client.whole(draft)
    if draft is None or choice.use_latest:
        latest = client.version(subject)
        return latest.schema_id, client.whole(latest.draft)
    found = client.lookup(subject, draft, normalize=choice.normalize)
    return found.schema_id, client.whole(draft)


def subject_name(strategy: str, topic: str, schema: Schema | None, *, is_key: bool) -> str:
    """By one of Confluent's strategies, with or without its package. Raises SchemaError."""
    simple = strategy.rpartition(".")[2]
    if simple == TOPIC_NAME:
        return f"{topic}-{'key' if is_key else 'value'}"
    if simple not in STRATEGIES:
        raise SchemaError(f"there is no strategy {strategy!r}: use {', '.join(STRATEGIES)}")
    if schema is None:
        raise SchemaError(f"{simple} needs a schema to name the subject after")
    name = record_name(schema)
    return name if simple == RECORD_NAME else f"{topic}-{name}"


def record_name(schema: Schema) -> str:
    """The full name of what a schema describes. Raises SchemaError."""
    if schema.kind not in (AVRO, JSON_SCHEMA):
        from ottla.operations.schema_registry.formats.protobuf import Messages  # noqa: PLC0415

        return str(Messages(schema).at((0,)).DESCRIPTOR.full_name)
    document = json.loads(schema.text)
    found: Mapping[str, Any] = document if isinstance(document, dict) else {}
    name = str(found.get("name" if schema.kind == AVRO else "title") or "")
    if not name:
        raise SchemaError("the schema has no name to call its subject by")
    space = found.get("namespace") if schema.kind == AVRO and "." not in name else None
    return f"{space}.{name}" if space else name


def read_document(text: str | bytes) -> Any:
    """JSON with numbers as exact as they were written. Raises SchemaError."""
    try:
        return json.loads(text, parse_float=_exact, parse_constant=_refuse)
    except (ValueError, RecursionError):
        shown = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
        raise SchemaError(f"{shown[:80]!r} is not JSON") from None


def _exact(text: str) -> float | Decimal:
    """A double if it holds all digits."""
    number = float(text)
    exact = Decimal(text)
    return number if Decimal(repr(number)) == exact else exact


def _refuse(name: str) -> None:
    raise ValueError(name)

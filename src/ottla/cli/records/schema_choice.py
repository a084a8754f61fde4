"""Which schemas a producer writes with, out of the properties that Confluent's console producers have.

    schema.registry.url                            the registry (http://localhost:8081)
    value.schema, value.schema.file                the schema, as text or in a file
    value.schema.id                                or one that the registry has
    value.refs                                     what it refers to: [{"name": …, "subject": …, "version": …}]
    value.subject.name.strategy                    TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy
    value.schema.full.name                         which message of a Protobuf schema (the first)
    auto.register.schemas, use.latest.version, normalize.schemas
The same for keys, if `parse.key` is true and there is no `key.serializer`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.records.line_reader import LineReader
from ottla.cli.records.schema_records import SchemaReader, is_true
from ottla.cli.terminal import ToolError, UsageError
from ottla.operations.records.field_formats import FieldError, FieldFormat, make_format
from ottla.operations.schema_registry.addresses import URL, RegistryAddress, address_of
from ottla.operations.schema_registry.client import RegistryClient
from ottla.operations.schema_registry.errors import SchemaError
from ottla.operations.schema_registry.folders import read_draft_file
from ottla.operations.schema_registry.schemas import TYPES, Draft, read_draft
from ottla.operations.schema_registry.serializing import TOPIC_NAME, Choice, Serializer, subject_name

DEFAULT_URL = "http://localhost:8081"


def registry_address(properties: Mapping[str, str]) -> RegistryAddress:
    found = address_of({URL: DEFAULT_URL, **properties})
    assert found is not None
    return found


def confluent_reader(properties: Mapping[str, str], kind: str, topic: str) -> SchemaReader:
    """What Confluent's message readers do; `kind` is the format. Raises ToolError, UsageError."""
    try:
        client = RegistryClient(registry_address(properties))
        value = Serializer(client, _choice(client, properties, kind, topic, is_key=False), "confluent")
        key: Serializer | FieldFormat | None = None
        if is_true(properties, "parse.key"):
            key = _plain_key(properties) or Serializer(
                client, _choice(client, properties, kind, topic, is_key=True), "confluent"
            )
    except SchemaError as problem:
        raise ToolError(str(problem)) from None
    return SchemaReader(LineReader(properties), key, value)


def _choice(client: RegistryClient, properties: Mapping[str, str], kind: str, topic: str, *, is_key: bool) -> Choice:
    part = "key" if is_key else "value"
    draft = _draft(client, properties, kind, part)
    strategy = properties.get(f"{part}.subject.name.strategy", TOPIC_NAME)
    schema = None if strategy.endswith(f".{TOPIC_NAME}") or strategy == TOPIC_NAME else client.whole(draft)
    return Choice(
        subject_name(strategy, topic, schema, is_key=is_key),
        draft,
        is_registered=is_true(properties, "auto.register.schemas", "true"),
        use_latest=is_true(properties, "use.latest.version"),
        normalize=is_true(properties, "normalize.schemas"),
        message=properties.get(f"{part}.schema.full.name"),
    )


def _draft(client: RegistryClient, properties: Mapping[str, str], kind: str, part: str) -> Draft:
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
    draft = Draft(kind, text) if text is not None else read_draft_file(Path(str(file)), kind)
    try:
        references = json.loads(properties.get(f"{part}.refs", "[]"))
    except ValueError:
        raise UsageError(f"{part}.refs is not JSON") from None
    return read_draft(draft.body() | {"references": references})


def _plain_key(properties: Mapping[str, str]) -> FieldFormat | None:
    """Keys by one of Kafka's own serializers."""
    name = properties.get("key.serializer")
    if name is None:
        return None
    short = name.rpartition(".")[2].removesuffix("Serializer").lower()
    try:
        return make_format({"integer": "int", "bytearray": "string"}.get(short, short))
    except FieldError:
        raise UsageError(f"the serializer {name} is not known") from None

"""Which reader a `parse` step needs: made of what the user wrote and the files that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.operations.schema_registry.addresses import RegistryAddress
from ottla.operations.schema_registry.formats.avro import flat
from ottla.operations.schema_registry.formats.protobuf import Messages
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, PROTOBUF
from ottla.pipelines.steps.parsing.avro import AvroDecoder, parse_avro
from ottla.pipelines.steps.parsing.binaries import BinaryReader
from ottla.pipelines.steps.parsing.debezium import debezium_reader
from ottla.pipelines.steps.parsing.grok import read_grok
from ottla.pipelines.steps.parsing.json_format import JsonReader
from ottla.pipelines.steps.parsing.lookup import SchemaLookup, read_avsc, read_folder
from ottla.pipelines.steps.parsing.patterns import for_re2, group_names
from ottla.pipelines.steps.parsing.protobuf import ProtobufDecoder, find_message, read_descriptors, spark_schema
from ottla.pipelines.steps.parsing.reader import Reader
from ottla.pipelines.steps.parsing.registry_lookup import RegistryLookup, newest_schema
from ottla.pipelines.steps.parsing.schemas import SchemaError, checked, parse_type, read_schema, type_name
from ottla.pipelines.steps.parsing.texts import NESTED, CsvReader, PatternReader, PlainText
from ottla.pipelines.steps.parsing.times import Times, read_times

if TYPE_CHECKING:
    from ottla.pipelines.steps.parse import Parse

TEXT_COLUMN = "text"


def choose_reader(spec: Parse, folder: str, registry: RegistryAddress | None = None) -> tuple[Reader, list[str]]:
    """The reader, and the fields that the schema itself calls required. Raises SchemaError and GrokError."""
    times = read_times(spec.timestamp_format)
    if spec.format == "json":
        schema, required = read_schema(_json_schema(spec, registry), folder)
        return JsonReader(schema, times, spec.strict), required
    if spec.format == "debezium":
        return debezium_reader(read_schema(spec.schema, folder)[0], times), []  # a deletion has only the key
    if spec.format == "csv":
        schema, required = read_schema(spec.schema, folder)
        _refuse_nested(schema)
        return CsvReader(schema, times, spec.delimiter, spec.quote, spec.null_text), required
    if spec.format == "avro":
        return _avro_reader(spec, folder, registry), []
    if spec.format == "protobuf":
        return _protobuf_reader(spec, folder, registry), []
    if spec.format == "text":
        return PlainText(_given(spec, folder) or T.StructType([T.StructField(TEXT_COLUMN, T.StringType())])), []
    return _pattern_reader(spec, folder, times), []


def _json_schema(spec: Parse, registry: RegistryAddress | None) -> object:
    if spec.subject is None or spec.schema is not None:
        return spec.schema
    return json.loads(newest_schema(registry, spec.subject, JSON_SCHEMA).text)


def _avro_reader(spec: Parse, folder: str, registry: RegistryAddress | None) -> BinaryReader:
    text = spec.schema
    if text is None and spec.subject is not None:
        text = flat(newest_schema(registry, spec.subject, AVRO))
    elif isinstance(text, dict):
        text = json.dumps(text)
    elif not str(text).lstrip().startswith("{"):
        text = read_avsc(Path(folder, str(text)))
    part = parse_avro(str(text))
    assert isinstance(part.spark, T.StructType)
    lookup: SchemaLookup = read_folder(Path(folder, spec.schemas) if spec.schemas else None, str(text))
    if registry is not None and spec.encoding == "confluent" and spec.schemas is None:
        lookup = RegistryLookup(registry)
    return BinaryReader(checked(part.spark), AvroDecoder(str(text), spec.encoding, lookup))


def _protobuf_reader(spec: Parse, folder: str, registry: RegistryAddress | None) -> BinaryReader:
    message = spec.message
    if spec.schema is None and spec.subject is not None:
        found = Messages(newest_schema(registry, spec.subject, PROTOBUF))
        descriptors, message = found.descriptors, message or found.at((0,)).DESCRIPTOR.full_name
    else:
        descriptors = read_descriptors(Path(folder, str(spec.schema)))
    assert message is not None
    schema = checked(spark_schema(find_message(descriptors, message)))
    encoding: Literal["raw", "confluent"] = "confluent" if spec.encoding == "confluent" else "raw"
    lookup = RegistryLookup(registry) if registry is not None and encoding == "confluent" else None
    return BinaryReader(schema, ProtobufDecoder(descriptors, message, encoding, spec.strict, lookup))


def _pattern_reader(spec: Parse, folder: str, times: Times) -> PatternReader:
    assert spec.pattern is not None
    if spec.format == "grok":
        pattern, groups, types = read_grok(spec.pattern, spec.patterns)
    else:
        pattern, types = for_re2(spec.pattern), {}
        groups = tuple((name, name) for name in group_names(spec.pattern))
    given = _given(spec, folder)
    names = dict(groups)
    if given is not None and not set(given.names) <= set(names):
        missing = next(name for name in given.names if name not in names)
        raise SchemaError(f"the pattern has no group for field {missing!r}; it has {', '.join(names)}")
    chosen = {entry.name: entry.dataType for entry in given.fields} if given else {}
    fields = [T.StructField(name, chosen.get(name) or parse_type(types.get(name, "string"))) for name in names]
    schema = T.StructType(fields)
    _refuse_nested(schema)
    return PatternReader(schema, pattern, groups, times)


def _given(spec: Parse, folder: str) -> T.StructType | None:
    return None if spec.schema is None else read_schema(spec.schema, folder)[0]


def _refuse_nested(schema: T.StructType) -> None:
    for entry in schema.fields:
        if isinstance(entry.dataType, NESTED):
            raise SchemaError(f"field {entry.name!r}: text cannot hold {type_name(entry.dataType)}")

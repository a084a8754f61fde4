"""`parse`: from the bytes of a record to columns. Unreadable records die with a reason.

Formats: json, debezium, csv, avro, protobuf, regex, grok, text. The result has the fields of the schema, and the
columns named in `keep` (key, topic, partition, offset, timestamp, headers, or columns of an earlier step). A record
without value (a tombstone) dies, is filtered, or is kept with all fields null, depending on `tombstone`. In the format
debezium it deletes its key.

`choose_reader` selects the reader of a format from the step's fields and the files that it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.operations.schema_registry.client_config import RegistryAddress
from ottla.operations.schema_registry.formats.avro import inline_references
from ottla.operations.schema_registry.formats.protobuf import Messages
from ottla.operations.schema_registry.framing import KEY_HEADER, VALUE_HEADER
from ottla.operations.schema_registry.schemas import AVRO, JSON_SCHEMA, PROTOBUF
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.avro import AvroDecoder, parse_avro
from ottla.pipelines.steps.parsing.debezium import debezium_reader, deletion_text
from ottla.pipelines.steps.parsing.json_format import JsonReader
from ottla.pipelines.steps.parsing.patterns import (
    GrokError,
    check_pattern,
    group_names,
    read_grok,
    to_re2,
    unnamed_groups,
)
from ottla.pipelines.steps.parsing.protobuf import ProtobufDecoder, find_message, read_descriptors, spark_schema
from ottla.pipelines.steps.parsing.reader import READ, SOURCE, BinaryReader, Reader, first_true, quoted, shown
from ottla.pipelines.steps.parsing.schema_lookup import (
    RegistryLookup,
    SchemaLookup,
    newest_schema,
    read_avsc,
    read_schema_folder,
)
from ottla.pipelines.steps.parsing.schemas import (
    SchemaError,
    parse_type,
    read_schema,
    schema_file,
    type_name,
    validate_schema,
)
from ottla.pipelines.steps.parsing.text_formats import NESTED, CsvReader, PatternReader, PlainText
from ottla.pipelines.steps.parsing.time_formats import TimeFormats, format_problem, read_times
from ottla.pipelines.steps.step import StepError, StepKind

FORMATS = ("json", "debezium", "csv", "avro", "protobuf", "regex", "grok", "text")
ONLY_FOR = {
    "pattern": ("regex", "grok"), "patterns": ("grok",), "delimiter": ("csv",), "quote": ("csv",),
    "null_text": ("csv",), "message": ("protobuf",), "schemas": ("avro",),
    "subject": ("json", "avro", "protobuf"), "strict": ("json", "protobuf"),
    "timestamp_format": ("json", "debezium", "csv", "regex", "grok"),
    "required": ("json", "csv", "avro", "protobuf", "regex", "grok", "text"),
}  # fmt: skip
ENCODINGS = {
    "avro": ("raw", "single-object", "confluent"),
    "json": ("raw", "confluent"),
    "protobuf": ("raw", "confluent"),
}

TEXT_COLUMN = "text"


@dataclass(frozen=True, kw_only=True)
class Parse:
    """Convert the bytes of records to columns."""

    format: Literal["json", "debezium", "csv", "avro", "protobuf", "regex", "grok", "text"] = field(
        metadata={"doc": ", ".join(FORMATS)}
    )
    schema: str | dict[str, object] | None = field(
        default=None,
        metadata={"doc": "name: type pairs, a DDL text, or a file (.json, .yaml, .ddl, .avsc, .proto, .desc)"},
    )
    column: str = field(default="value", metadata={"doc": "the column to read"})
    keep: list[str] = field(default_factory=list, metadata={"doc": "columns to carry along, e.g. key, timestamp"})
    required: list[str] = field(default_factory=list, metadata={"doc": "fields without which a record dies"})
    strict: bool = field(
        default=False, metadata={"doc": "records with fields that the schema does not know die (json, protobuf)"}
    )
    tombstone: Literal["die", "filter", "keep"] | None = field(
        default=None, metadata={"doc": "handling of records without value: die (default; debezium: keep), filter"}
    )
    timestamp_format: str | dict[str, str] | None = field(
        default=None,
        metadata={
            "doc": "iso (default), epoch seconds, epoch milliseconds, httpdate, or a pattern; or one for each field"
        },
    )
    pattern: str | None = field(default=None, metadata={"doc": "regular expression with named groups, or grok pattern"})
    patterns: dict[str, str] = field(default_factory=dict, metadata={"doc": "your own grok patterns, by name"})
    delimiter: str = field(default=",", metadata={"doc": "between CSV fields"})
    quote: str = field(default='"', metadata={"doc": "around CSV fields"})
    null_text: str = field(default="", metadata={"doc": "CSV text for null"})
    message: str | None = field(default=None, metadata={"doc": "name of the Protobuf message"})
    encoding: Literal["raw", "single-object", "confluent"] = field(
        default="raw",
        metadata={"doc": "prefix of the data: none, Avro's single-object header, or a schema id"},
    )
    subject: str | None = field(
        default=None, metadata={"doc": "subject of the registry whose newest schema is used, instead of `schema`"}
    )
    schemas: str | None = field(default=None, metadata={"doc": "folder with writers' Avro schemas: ID.avsc"})
    charset: str = field(default="utf-8", metadata={"doc": "of text: utf-8 or iso-8859-1"})
    KIND: ClassVar[StepKind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        yield from self._misplaced()
        if self.subject is not None and self.schema is not None:
            yield "subject", "a schema and a subject exclude each other", "remove one of them"
        if (
            self.schema is None
            and self.subject is None
            and self.format in ("json", "debezium", "csv", "avro", "protobuf")
        ):
            yield "schema", f"{self.format} needs a schema", "write `schema: {field: type, …}` or the name of a file"
        if self.format in ("json", "debezium", "csv") and self.schema is not None and not _is_file(self.schema):
            yield from self._schema_problems()
        if self.format == "protobuf" and not self.message and self.subject is None:
            yield "message", "protobuf needs the name of the message", ""
        if self.charset.lower() not in ("utf-8", "iso-8859-1"):
            yield "charset", f"{self.charset!r} is not known", "utf-8 or iso-8859-1"
        if self.encoding not in ENCODINGS.get(self.format, ("raw",)):
            yield "encoding", f"{self.format} is not written {self.encoding}", ""
        for text in (
            [self.timestamp_format]
            if isinstance(self.timestamp_format, str)
            else (self.timestamp_format or {}).values()
        ):
            problem = format_problem(text)
            if problem:
                yield (
                    "timestamp_format",
                    problem,
                    "iso, epoch seconds, epoch milliseconds, httpdate, or a pattern (yyyy-MM-dd HH:mm:ss)",
                )
        yield from self._pattern_problems()

    def files(self) -> Iterator[tuple[str, str]]:
        is_text = self.format == "avro" and str(self.schema).lstrip().startswith("{")
        if self.format in ("avro", "protobuf") and isinstance(self.schema, str) and not is_text:
            yield "schema", self.schema
        yield from (("schema", file) for file in schema_file(self.schema))
        if self.schemas:
            yield "schemas", f"{self.schemas}/*.avsc"

    def apply(self, frame: Frame) -> Frame:
        try:
            reader, required = choose_reader(self, frame.context.folder, frame.context.registry)
        except (SchemaError, GrokError) as problem:
            raise StepError(str(problem), field=self.field_of(problem)) from None
        self._check_names(frame, reader)
        frame = self._without_tombstones(frame)
        frame = self._read(frame, reader)
        frame = self._judged(frame, reader, [*required, *(name for name in self.required if name not in required)])
        return replace(frame, rows=frame.rows.drop(SOURCE, READ), event_time=None)

    def field_of(self, problem: SchemaError | GrokError) -> str:
        """The field to name in an error of the reader."""
        if isinstance(problem, GrokError):
            return "pattern"
        return "subject" if self.subject is not None else "schema"

    # Reading

    def _read(self, frame: Frame, reader: Reader) -> Frame:
        value = F.col(quoted(self.column))
        source = self._text(value) if reader.INPUT == "text" else self._framed(value.cast("binary"), frame)
        if self._deletes(frame):
            source = F.coalesce(source, deletion_text(F.col("_key")))
        rows = frame.rows.withColumn(SOURCE, frame.if_alive(source))
        rows = rows.withColumn(READ, reader.read(F.col(SOURCE)))
        kept = [F.col(quoted(name)) for name in self.keep]
        fields = [reader.value(name).alias(name) for name in reader.schema.names]
        return replace(frame, rows=rows.select(*kept, *fields, *frame.hidden, SOURCE, READ))

    def _framed(self, value: Column, frame: Frame) -> Column:
        """Newer serializers write the schema id into a header."""
        header = {"value": VALUE_HEADER, "key": KEY_HEADER}.get(self.column)
        if self.encoding != "confluent" or frame.context.registry is None or header is None:
            return value
        if "_headers" not in frame.rows.columns:
            return value
        named = F.filter(F.col("_headers"), lambda each: (each["key"] == header) & each["value"].isNotNull())
        return F.when(F.size(named) > 0, F.concat(F.element_at(named, -1)["value"], value)).otherwise(value)

    def _text(self, value: Column) -> Column:
        if self.encoding == "confluent":
            is_marked = F.substring(value.cast("binary"), 1, 1) == F.lit(bytearray(1))
            value = F.when(is_marked, F.substring(value.cast("binary"), 6, 1 << 30)).otherwise(value)
        if self.charset.lower() == "iso-8859-1":
            return F.decode(value.cast("binary"), "ISO-8859-1")
        return value.cast("string")

    def _without_tombstones(self, frame: Frame) -> Frame:
        is_null = F.col(quoted(self.column)).isNull()
        if self.tombstone == "filter":
            return frame.mark_filtered_unless(~is_null)
        if self.format == "debezium" and self.tombstone != "die":
            has_key = F.col("_key").isNotNull() if self._deletes(frame) else F.lit(False)
            return frame.mark_dead(is_null & ~has_key, "no value (tombstone), and no key")
        return frame if self.tombstone == "keep" else frame.mark_dead(is_null, "no value (tombstone)")

    def _deletes(self, frame: Frame) -> bool:
        """Whether records without value are deletions."""
        return self.format == "debezium" and self.tombstone in (None, "keep") and "_key" in frame.rows.columns

    def _judged(self, frame: Frame, reader: Reader, required: list[str]) -> Frame:
        unknown = [name for name in required if name.split(".")[0] not in reader.schema.names]
        if unknown:
            raise StepError(f"required field {unknown[0]!r} is not in the schema", field="required")
        faults = reader.reject_rules()
        if reader.INPUT == "text" and self.charset.lower() == "utf-8":
            not_text = F.concat(F.lit("not UTF-8 text: "), shown(F.make_valid_utf8(F.col(SOURCE))))
            faults = [(~F.is_valid_utf8(F.col(SOURCE)), not_text), *faults]
        faults += [(_path(name).isNull(), F.lit(f"missing required field `{name}`")) for name in required]
        if not faults:
            return frame
        has_value = F.col(SOURCE).isNotNull()
        is_bad = reduce(Column.__or__, [F.coalesce(condition, F.lit(False)) for condition, _ in faults])
        return frame.mark_dead(has_value & is_bad, first_true(faults))

    # Checking

    def _misplaced(self) -> Iterator[tuple[str, str, str]]:
        for name, formats in ONLY_FOR.items():
            default = type(self).__dataclass_fields__[name].default
            if getattr(self, name) not in (default, {}, [], None) and self.format not in formats:
                yield name, f"means nothing for {self.format}", f"only for {' and '.join(formats)}"

    def _schema_problems(self) -> Iterator[tuple[str, str, str]]:
        try:
            schema, _ = read_schema(self.schema, ".")
        except SchemaError as problem:
            yield "schema", str(problem), ""
            return
        if self.format == "debezium":
            try:
                debezium_reader(schema, TimeFormats())
            except SchemaError as problem:
                yield "schema", str(problem), ""
        for name in self.required:
            if name.split(".")[0] not in schema.names:
                yield "required", f"field {name!r} is not in the schema", f"there are: {', '.join(schema.names)}"

    def _pattern_problems(self) -> Iterator[tuple[str, str, str]]:
        if self.format not in ("regex", "grok"):
            return
        if not self.pattern:
            yield "pattern", f"{self.format} needs a pattern", ""
        elif self.format == "grok":
            try:
                read_grok(self.pattern, self.patterns)
            except GrokError as wrong:
                yield "pattern", f"{self.pattern!r} {wrong}", ""
        else:
            problem = check_pattern(to_re2(self.pattern))
            if problem:
                yield "pattern", f"{self.pattern!r} is not a regular expression: {problem}", ""
            elif unnamed_groups(self.pattern):
                yield "pattern", "has groups without a name", "write (?P<name>…) for a field, (?:…) for none"

    def _check_names(self, frame: Frame, reader: Reader) -> None:
        for name in (self.column, *self.keep):
            if name not in frame.columns:
                where = "column" if name == self.column else "keep"
                raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", where)
        for name in reader.schema.names:
            if name.lower() in {kept.lower() for kept in self.keep}:
                raise StepError(f"{name!r} is in keep and a field of the schema", "rename one of them before", "keep")


def _is_file(schema: object) -> bool:
    return isinstance(schema, str) and "." in schema and " " not in schema.strip()


def _path(name: str) -> Column:
    return F.col(".".join(quoted(part) for part in name.split(".")))


def choose_reader(spec: Parse, folder: str, registry: RegistryAddress | None = None) -> tuple[Reader, list[str]]:
    """The reader, and the fields that the schema declares as required. Raises SchemaError and GrokError."""
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
        text = inline_references(newest_schema(registry, spec.subject, AVRO))
    elif isinstance(text, dict):
        text = json.dumps(text)
    elif not str(text).lstrip().startswith("{"):
        text = read_avsc(Path(folder, str(text)))
    part = parse_avro(str(text))
    assert isinstance(part.spark, T.StructType)
    lookup: SchemaLookup = read_schema_folder(Path(folder, spec.schemas) if spec.schemas else None, str(text))
    if registry is not None and spec.encoding == "confluent" and spec.schemas is None:
        lookup = RegistryLookup(registry)
    return BinaryReader(validate_schema(part.spark), AvroDecoder(str(text), spec.encoding, lookup))


def _protobuf_reader(spec: Parse, folder: str, registry: RegistryAddress | None) -> BinaryReader:
    message = spec.message
    if spec.schema is None and spec.subject is not None:
        found = Messages(newest_schema(registry, spec.subject, PROTOBUF))
        descriptors, message = found.descriptors, message or found.message_class((0,)).DESCRIPTOR.full_name
    else:
        descriptors = read_descriptors(Path(folder, str(spec.schema)))
    assert message is not None
    schema = validate_schema(spark_schema(find_message(descriptors, message)))
    encoding: Literal["raw", "confluent"] = "confluent" if spec.encoding == "confluent" else "raw"
    lookup = RegistryLookup(registry) if registry is not None and encoding == "confluent" else None
    return BinaryReader(schema, ProtobufDecoder(descriptors, message, encoding, spec.strict, lookup))


def _pattern_reader(spec: Parse, folder: str, times: TimeFormats) -> PatternReader:
    assert spec.pattern is not None
    if spec.format == "grok":
        pattern, groups, types = read_grok(spec.pattern, spec.patterns)
    else:
        pattern, types = to_re2(spec.pattern), {}
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

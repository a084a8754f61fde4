"""`parse`: from the bytes of a record to columns. What cannot be read dies, with a reason that says what was wrong.

Formats: json, debezium, csv, avro, protobuf, regex, grok, text. The result has the fields of the schema, and the
columns named in `keep` (key, topic, partition, offset, timestamp, headers, or what an earlier step made).
A record without value (a tombstone) dies, is filtered, or is kept with all fields null: `tombstone` says which. To
debezium it is the deletion of its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.operations.schema_registry.framing import KEY_HEADER, VALUE_HEADER
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.choose import choose_reader
from ottla.pipelines.steps.parsing.debezium import debezium_reader, deletion_text
from ottla.pipelines.steps.parsing.grok import GrokError, read_grok
from ottla.pipelines.steps.parsing.patterns import check_pattern, for_re2, unnamed_groups
from ottla.pipelines.steps.parsing.reader import READ, SOURCE, Reader, first_of, quoted, shown
from ottla.pipelines.steps.parsing.schemas import SchemaError, read_schema
from ottla.pipelines.steps.parsing.times import Times, problem_of
from ottla.pipelines.steps.step import Kind, StepError

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


@dataclass(frozen=True, kw_only=True)
class Parse:
    """Turn the bytes of records into columns."""

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
        default=None, metadata={"doc": "what becomes of records without value: die (default; debezium: keep), filter"}
    )
    timestamp_format: str | dict[str, str] | None = field(
        default=None,
        metadata={
            "doc": "iso (default), epoch seconds, epoch milliseconds, httpdate, or a pattern; or one for each field"
        },
    )
    pattern: str | None = field(default=None, metadata={"doc": "regular expression with named groups, or grok pattern"})
    patterns: dict[str, str] = field(default_factory=dict, metadata={"doc": "grok patterns of your own, by name"})
    delimiter: str = field(default=",", metadata={"doc": "between CSV fields"})
    quote: str = field(default='"', metadata={"doc": "around CSV fields"})
    null_text: str = field(default="", metadata={"doc": "what stands in CSV for no value"})
    message: str | None = field(default=None, metadata={"doc": "name of the Protobuf message"})
    encoding: Literal["raw", "single-object", "confluent"] = field(
        default="raw",
        metadata={"doc": "what stands before the data: nothing, Avro's single-object mark, or a schema id"},
    )
    subject: str | None = field(
        default=None, metadata={"doc": "subject of the registry whose newest schema is read by, instead of `schema`"}
    )
    schemas: str | None = field(default=None, metadata={"doc": "folder with writers' Avro schemas: ID.avsc"})
    charset: str = field(default="utf-8", metadata={"doc": "of text: utf-8 or iso-8859-1"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        yield from self._misplaced()
        if self.subject is not None and self.schema is not None:
            yield "subject", "a schema and a subject exclude each other", "leave one of them out"
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
            problem = problem_of(text)
            if problem:
                yield (
                    "timestamp_format",
                    problem,
                    "iso, epoch seconds, epoch milliseconds, httpdate, or a pattern (yyyy-MM-dd HH:mm:ss)",
                )
        yield from self._pattern_problems()

    def apply(self, frame: Frame) -> Frame:
        try:
            reader, required = choose_reader(self, frame.around.folder, frame.around.registry)
        except (SchemaError, GrokError) as problem:
            raise StepError(str(problem), field=self.field_of(problem)) from None
        self._check_names(frame, reader)
        frame = self._without_tombstones(frame)
        frame = self._read(frame, reader)
        frame = self._judged(frame, reader, [*required, *(name for name in self.required if name not in required)])
        return replace(frame, rows=frame.rows.drop(SOURCE, READ), event_time=None)

    def field_of(self, problem: SchemaError | GrokError) -> str:
        """Which of our fields a reader complains about."""
        if isinstance(problem, GrokError):
            return "pattern"
        return "subject" if self.subject is not None else "schema"

    # reading

    def _read(self, frame: Frame, reader: Reader) -> Frame:
        value = F.col(quoted(self.column))
        source = self._text(value) if reader.TAKES == "text" else self._framed(value.cast("binary"), frame)
        if self._deletes(frame):
            source = F.coalesce(source, deletion_text(F.col("_key")))
        rows = frame.rows.withColumn(SOURCE, frame.alive(source))
        rows = rows.withColumn(READ, reader.read(F.col(SOURCE)))
        kept = [F.col(quoted(name)) for name in self.keep]
        fields = [reader.value(name).alias(name) for name in reader.schema.names]
        return replace(frame, rows=rows.select(*kept, *fields, *frame.hidden, SOURCE, READ))

    def _framed(self, value: Column, frame: Frame) -> Column:
        """Newer serializers write what stands before the data into a header."""
        header = {"value": VALUE_HEADER, "key": KEY_HEADER}.get(self.column)
        if self.encoding != "confluent" or frame.around.registry is None or header is None:
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
            return frame.keep(~is_null)
        if self.format == "debezium" and self.tombstone != "die":
            has_key = F.col("_key").isNotNull() if self._deletes(frame) else F.lit(False)
            return frame.kill(is_null & ~has_key, "no value (tombstone), and no key")
        return frame if self.tombstone == "keep" else frame.kill(is_null, "no value (tombstone)")

    def _deletes(self, frame: Frame) -> bool:
        """Whether records without value are deletions."""
        return self.format == "debezium" and self.tombstone in (None, "keep") and "_key" in frame.rows.columns

    def _judged(self, frame: Frame, reader: Reader, required: list[str]) -> Frame:
        unknown = [name for name in required if name.split(".")[0] not in reader.schema.names]
        if unknown:
            raise StepError(f"required field {unknown[0]!r} is not in the schema", field="required")
        faults = reader.faults()
        if reader.TAKES == "text" and self.charset.lower() == "utf-8":
            not_text = F.concat(F.lit("not UTF-8 text: "), shown(F.make_valid_utf8(F.col(SOURCE))))
            faults = [(~F.is_valid_utf8(F.col(SOURCE)), not_text), *faults]
        faults += [(_path(name).isNull(), F.lit(f"missing required field `{name}`")) for name in required]
        if not faults:
            return frame
        has_value = F.col(SOURCE).isNotNull()
        is_bad = reduce(Column.__or__, [F.coalesce(condition, F.lit(False)) for condition, _ in faults])
        return frame.kill(has_value & is_bad, first_of(faults))

    # checking

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
                debezium_reader(schema, Times())
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
            problem = check_pattern(for_re2(self.pattern))
            if problem:
                yield "pattern", f"{self.pattern!r} is no regular expression: {problem}", ""
            elif unnamed_groups(self.pattern):
                yield "pattern", "has groups without a name", "write (?P<name>…) for a field, (?:…) for none"

    def _check_names(self, frame: Frame, reader: Reader) -> None:
        for name in (self.column, *self.keep):
            if name not in frame.columns:
                where = "column" if name == self.column else "keep"
                raise StepError(f"there is no column {name!r}", f"there are: {', '.join(frame.columns)}", where)
        for name in reader.schema.names:
            if name.lower() in {kept.lower() for kept in self.keep}:
                raise StepError(f"{name!r} is both kept and a field of the schema", "rename one of them before", "keep")


def _is_file(schema: object) -> bool:
    return isinstance(schema, str) and "." in schema and " " not in schema.strip()


def _path(name: str) -> Column:
    return F.col(".".join(quoted(part) for part in name.split(".")))

"""JSON, read by Spark's own parser inside the JVM, once.

Spark is lenient where a pipeline must not be: it takes the first of two objects in one record, whatever stands behind
an object, single quotes, NaN, numbers without limit, and "12:30" as a time of today. So a record is read as the first
of a list of two, where nothing else can stand, and options close the rest; why exactly a record is bad is only looked
at when it is. A record whose one closing brace is its last byte ends with its object in any case: it is read as it is,
which spares a fifth of the time.
Of equal keys in one object the last one counts. A number may be read as a text field, an object as well (its JSON).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.parsing.reader import SOURCE, Fault, first_of, no_such_value, quoted, read_field, shown
from ottla.pipelines.steps.parsing.schemas import type_name
from ottla.pipelines.steps.parsing.times import Times, to_time

BAD = "_bad"
OPTIONS = {"columnNameOfCorruptRecord": BAD, "allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
BLANKS = " \t\r\n"
ALONE, IN_LIST = "alone", "in_list"  # the two ways to read a record: one of them is null
BEFORE, LIST, BEHIND = '{"list":[', "list", ",null]}"  # what a record is read between
LENGTH = 2
BRACE = "}"
ANOTHER_OBJECT = r"\}[\s,]*\{"


@dataclass(frozen=True)
class JsonReader:
    schema: T.StructType
    times: Times = field(default_factory=Times)
    is_strict: bool = False
    TAKES: ClassVar[Literal["text", "bytes"]] = "text"

    @property
    def written(self) -> T.StructType:
        """What stands in the record."""
        return self.schema

    def raw(self, name: str) -> Column:
        """A field of the result as it was written."""
        return inside(name)

    def read(self, source: Column) -> Column:
        written = _as_written(self.written)
        has_no_more = _ends_with_its_only_brace(source)
        as_list = T.StructType([T.StructField(LIST, T.ArrayType(written))])
        return F.struct(
            F.when(has_no_more, _from_json(source, written)).alias(ALONE),
            F.when(~has_no_more, _from_json(F.concat(F.lit(BEFORE), source, F.lit(BEHIND)), as_list)).alias(IN_LIST),
        )

    def value(self, name: str) -> Column:
        return _typed(self.raw(name), self.schema[name].dataType, name, self.times)

    def faults(self) -> list[Fault]:
        source = F.col(SOURCE)
        is_there = read_field(ALONE).isNotNull() | _first_of_list().isNotNull()
        is_good = is_there & _is_alone() & F.coalesce(*(read_field(way)[BAD] for way in (ALONE, IN_LIST))).isNull()
        choices = [
            (~is_good, self._why_bad()),
            *self._wrong_times(),
            *self._infinities(),
        ]
        if self.is_strict:
            unknown = F.array_except(F.json_object_keys(source), F.array(*map(F.lit, self.schema.names)))
            choices.append((F.size(unknown) > 0, F.concat(F.lit("unknown field "), shown(unknown[0]))))
        return choices

    def _why_bad(self) -> Column:
        """Only ever computed for records that Spark's parser refused."""
        source = F.col(SOURCE)
        start = F.substring(F.ltrim(source, F.lit(BLANKS)), 1, 1)
        is_empty = reduce(Column.__and__, [inside(name).isNull() for name in self.written.names])
        is_text = F.get_json_object(source, "$").isNull() | (is_empty & F.try_parse_json(source).isNull())
        return first_of(
            [
                (F.btrim(source, F.lit(BLANKS)) == "", F.lit("empty value")),
                (is_text, F.concat(F.lit("not JSON: "), shown(source))),
                (start != "{", F.concat(F.lit("not a JSON object: "), shown(source))),
                (~_is_alone() & source.rlike(ANOTHER_OBJECT), F.lit("more than one JSON object")),
                (~_is_alone(), F.lit("something stands behind the JSON object")),
                *self._wrong_fields(self.written, ()),
            ],
            F.lit("a value inside a list or map does not fit the schema"),
        )

    def _wrong_fields(self, schema: T.StructType, above: tuple[str, ...]) -> Iterator[Fault]:
        for entry in schema.fields:
            path = (*above, entry.name)
            written = F.get_json_object(F.col(SOURCE), f"${''.join(_step(name) for name in path)}")
            read = inside(*path)
            is_wrong = read.isNull() & written.isNotNull() & (written != "null")
            yield is_wrong, no_such_value(".".join(path), written, type_name(entry.dataType))
            if isinstance(entry.dataType, T.StructType):
                yield from self._wrong_fields(entry.dataType, path)

    def _wrong_times(self) -> Iterator[Fault]:
        for entry in self.schema.fields:
            raw, made = self.raw(entry.name), F.col(quoted(entry.name))
            if isinstance(entry.dataType, T.TimestampType | T.DateType):
                hint = self.times.words(entry.name, raw)
                yield made.isNull() & raw.isNotNull(), no_such_value(entry.name, raw, type_name(entry.dataType), hint)
            elif _has_times(entry.dataType):
                yield (
                    ~_fits(raw, made, entry.dataType),
                    F.lit(f"field `{entry.name}`: a timestamp in it cannot be read"),
                )

    def _infinities(self) -> Iterator[Fault]:
        for entry in self.schema.fields:
            if isinstance(entry.dataType, T.DoubleType | T.FloatType):
                text = f"field `{entry.name}`: the number is too large for {type_name(entry.dataType)}"
                yield F.abs(F.col(quoted(entry.name))) == float("inf"), F.lit(text)


def inside(*path: str) -> Column:
    """A field of what was read of the record."""
    return F.coalesce(*(reduce(Column.getField, path, way) for way in (read_field(ALONE), _first_of_list())))


def _first_of_list() -> Column:
    return read_field(IN_LIST)[LIST][0]


def _is_alone() -> Column:
    has_length = F.size(read_field(IN_LIST)[LIST]) == LENGTH
    return read_field(ALONE).isNotNull() | F.coalesce(has_length, F.lit(False))


def _ends_with_its_only_brace(source: Column) -> Column:
    """In bytes: to count characters costs as much as to read a field."""
    before = F.substring(source.cast("binary"), F.lit(1), F.octet_length(source) - 1)
    return source.endswith(BRACE) & ~F.contains(before, F.lit(bytearray(BRACE.encode())))


def _from_json(text: Column, schema: T.StructType) -> Column:
    return F.from_json(text, T.StructType([*schema.fields, T.StructField(BAD, T.StringType())]), OPTIONS)


def _step(name: str) -> str:
    return f"['{name}']"


def _as_written(wanted: T.StructType) -> T.StructType:
    """As the parser shall read it: times as text, everything else as it is."""
    return T.StructType([T.StructField(entry.name, _written_type(entry.dataType)) for entry in wanted.fields])


def _written_type(wanted: T.DataType) -> T.DataType:
    if isinstance(wanted, T.TimestampType | T.DateType):
        return T.StringType()
    if isinstance(wanted, T.StructType):
        return _as_written(wanted)
    if isinstance(wanted, T.ArrayType):
        return T.ArrayType(_written_type(wanted.elementType))
    if isinstance(wanted, T.MapType):
        return T.MapType(T.StringType(), _written_type(wanted.valueType))
    return wanted


def _has_times(wanted: T.DataType) -> bool:
    return _written_type(wanted) != wanted


def _typed(raw: Column, wanted: T.DataType, name: str, times: Times) -> Column:
    """Times made of text, wherever they are; all else as it was read."""
    if not _has_times(wanted):
        return raw
    if isinstance(wanted, T.StructType):
        inner = [
            _typed(raw.getField(entry.name), entry.dataType, f"{name}.{entry.name}", times).alias(entry.name)
            for entry in wanted.fields
        ]
        return F.when(raw.isNotNull(), F.struct(*inner))
    if isinstance(wanted, T.ArrayType):
        return F.transform(raw, lambda element: _typed(element, wanted.elementType, name, times))
    if isinstance(wanted, T.MapType):
        return F.transform_values(raw, lambda _, entry: _typed(entry, wanted.valueType, name, times))
    return to_time(raw, wanted, times.of(name))


def _fits(raw: Column, made: Column, wanted: T.DataType) -> Column:
    """Nothing that was written became null on the way."""
    if not _has_times(wanted):
        return F.lit(True)
    if isinstance(wanted, T.StructType):
        found = F.lit(True)
        for entry in wanted.fields:
            found = found & _fits(raw.getField(entry.name), made.getField(entry.name), entry.dataType)
        return found
    if isinstance(wanted, T.ArrayType):
        pairs = F.zip_with(raw, made, lambda old, new: _fits(old, new, wanted.elementType))
        return F.coalesce(F.forall(pairs, lambda same: same), F.lit(True))
    if isinstance(wanted, T.MapType):
        pairs = F.zip_with(F.map_values(raw), F.map_values(made), lambda old, new: _fits(old, new, wanted.valueType))
        return F.coalesce(F.forall(pairs, lambda same: same), F.lit(True))
    return raw.isNull() | made.isNotNull()

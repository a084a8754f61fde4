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

from ottla.pipelines.steps.parsing.json_values import as_written, fits, has_infinity, has_small, is_changed, typed
from ottla.pipelines.steps.parsing.reader import SOURCE, Fault, first_of, no_such_value, quoted, read_field, shown
from ottla.pipelines.steps.parsing.schemas import type_name
from ottla.pipelines.steps.parsing.times import Times

BAD = "_bad"
# In the language of the United States "1,25" is 125 for Spark: commas are left out of a decimal that is written as
# text. In that of Switzerland numbers have the same point, and what has a comma is no number.
LANGUAGE = "de-CH"
OPTIONS = {
    "columnNameOfCorruptRecord": BAD,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
    "locale": LANGUAGE,
}
BLANKS = " \t\r\n"
ALONE, IN_LIST = "alone", "in_list"  # the two ways to read a record: one of them is null
BEFORE, LIST, BEHIND = '{"list":[', "list", ",null]}"  # what a record is read between
LENGTH = 2
BRACE = "}"
ANOTHER_OBJECT = r"\}[\s,]*\{"
# One of the two escapes that make a character together: Spark writes a question mark for it. To look for them costs
# some per cent of the time, so that only strict reading does.
HALF_CHARACTER = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F])"
)
HALF_WORDS = "an escape \\ud800 to \\udfff is half a character without the other"
NUMBER_INSIDE = "a number in it is too large"


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
        written = as_written(self.written)
        has_no_more = _ends_with_its_only_brace(source)
        as_list = T.StructType([T.StructField(LIST, T.ArrayType(written))])
        return F.struct(
            F.when(has_no_more, _from_json(source, written)).alias(ALONE),
            F.when(~has_no_more, _from_json(F.concat(F.lit(BEFORE), source, F.lit(BEHIND)), as_list)).alias(IN_LIST),
        )

    def value(self, name: str) -> Column:
        return typed(self.raw(name), self.schema[name].dataType, name, self.times)

    def faults(self) -> list[Fault]:
        source = F.col(SOURCE)
        is_there = read_field(ALONE).isNotNull() | _first_of_list().isNotNull()
        is_good = is_there & _is_alone() & F.coalesce(*(read_field(way)[BAD] for way in (ALONE, IN_LIST))).isNull()
        choices = [
            (~is_good, self._why_bad()),
            *self._wrong_values(),
            *self._infinities(),
        ]
        if self.is_strict:
            unknown = F.array_except(F.json_object_keys(source), F.array(*map(F.lit, self.schema.names)))
            choices.append((F.size(unknown) > 0, F.concat(F.lit("unknown field "), shown(unknown[0]))))
            choices.append((source.rlike(HALF_CHARACTER), F.lit(HALF_WORDS)))
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

    def _wrong_values(self) -> Iterator[Fault]:
        """What the parser has read and what is no value of the type all the same."""
        for entry in self.schema.fields:
            raw, made, kind = self.raw(entry.name), F.col(quoted(entry.name)), entry.dataType
            if isinstance(kind, T.TimestampType | T.DateType | T.ByteType):
                hint = None if isinstance(kind, T.ByteType) else self.times.words(entry.name, raw)
                text = no_such_value(entry.name, raw.cast("string"), type_name(kind), hint)
                yield made.isNull() & raw.isNotNull(), text
            elif is_changed(kind):
                yield ~fits(raw, made, kind), F.lit(f"field `{entry.name}`: {_what_is_wrong_in(kind)}")

    def _infinities(self) -> Iterator[Fault]:
        for entry in self.schema.fields:
            is_plain = isinstance(entry.dataType, T.DoubleType | T.FloatType)
            words = f"the number is too large for {type_name(entry.dataType)}" if is_plain else NUMBER_INSIDE
            found = has_infinity(F.col(quoted(entry.name)), entry.dataType)
            if found is not None:
                yield found, F.lit(f"field `{entry.name}`: {words}")


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


def _what_is_wrong_in(kind: T.DataType) -> str:
    return "a value in it does not fit" if has_small(kind) else "a timestamp in it cannot be read"

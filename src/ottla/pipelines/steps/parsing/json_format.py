"""JSON, read once with Spark's own parser in the JVM.

Spark accepts invalid input: the first of two objects in one record, anything after an object, single quotes, NaN,
numbers without limit, and "12:30" as a time of today. So a record is read as the first element of a list of two, where
nothing else can follow, and options forbid the rest; the exact reason is computed only for bad records. If the only
closing brace of a record is its last byte, nothing can follow the object, and it is read directly, which saves a fifth
of the time. Of equal keys in one object the last one wins. A text field accepts numbers, and objects as their JSON.

Some types are parsed as another type and converted afterwards. Times are read as text, because the parser guesses. A
byte is read as a short, because 200 would become -56. Of equal keys in a map the parser keeps all, and lookups return
the first; here the last one wins, as in objects. Numbers beyond the range become infinite and are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.parsing.reader import (
    SOURCE,
    RejectRule,
    first_true,
    invalid_value_text,
    quoted,
    read_field,
    shown,
)
from ottla.pipelines.steps.parsing.schemas import type_name
from ottla.pipelines.steps.parsing.time_formats import TimeFormats, to_time

CORRUPT_RECORD = "_bad"
# With an English locale, Spark drops commas from decimals in text: "1,25" becomes 125. The Swiss locale has the same
# decimal point and rejects commas.
LOCALE = "de-CH"
OPTIONS = {
    "columnNameOfCorruptRecord": CORRUPT_RECORD,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
    "locale": LOCALE,
}
WHITESPACE = " \t\r\n"
SINGLE, IN_LIST = "alone", "in_list"  # the two ways to read a record: one of them is null
LIST_PREFIX, LIST, LIST_SUFFIX = '{"list":[', "list", ",null]}"  # wraps a record in a list of two
LENGTH = 2
BRACE = "}"
ANOTHER_OBJECT = r"\}[\s,]*\{"
# A lone surrogate escape: Spark replaces it with a question mark. The check costs some percent of the time, so only
# strict mode does it.
LONE_SURROGATE = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F])"
)
LONE_SURROGATE_TEXT = "an escape \\ud800 to \\udfff without its second half"
NUMBER_INSIDE = "a number in it is too large"


@dataclass(frozen=True)
class JsonReader:
    schema: T.StructType
    times: TimeFormats = field(default_factory=TimeFormats)
    is_strict: bool = False
    INPUT: ClassVar[Literal["text", "bytes"]] = "text"

    @property
    def written(self) -> T.StructType:
        """The schema of the record."""
        return self.schema

    def raw(self, name: str) -> Column:
        """A field of the result as parsed."""
        return parsed_field(name)

    def read(self, source: Column) -> Column:
        written = parser_schema(self.written)
        has_no_more = _ends_with_its_only_brace(source)
        as_list = T.StructType([T.StructField(LIST, T.ArrayType(written))])
        return F.struct(
            F.when(has_no_more, _from_json(source, written)).alias(SINGLE),
            F.when(~has_no_more, _from_json(F.concat(F.lit(LIST_PREFIX), source, F.lit(LIST_SUFFIX)), as_list)).alias(
                IN_LIST
            ),
        )

    def value(self, name: str) -> Column:
        return typed(self.raw(name), self.schema[name].dataType, name, self.times)

    def reject_rules(self) -> list[RejectRule]:
        source = F.col(SOURCE)
        is_there = read_field(SINGLE).isNotNull() | _first_of_list().isNotNull()
        is_good = (
            is_there
            & _is_single_object()
            & F.coalesce(*(read_field(way)[CORRUPT_RECORD] for way in (SINGLE, IN_LIST))).isNull()
        )
        choices = [
            (~is_good, self._why_bad()),
            *self._wrong_values(),
            *self._infinities(),
        ]
        if self.is_strict:
            unknown = F.array_except(F.json_object_keys(source), F.array(*map(F.lit, self.schema.names)))
            choices.append((F.size(unknown) > 0, F.concat(F.lit("unknown field "), shown(unknown[0]))))
            choices.append((source.rlike(LONE_SURROGATE), F.lit(LONE_SURROGATE_TEXT)))
        return choices

    def _why_bad(self) -> Column:
        """Computed only for records that Spark's parser rejected."""
        source = F.col(SOURCE)
        start = F.substring(F.ltrim(source, F.lit(WHITESPACE)), 1, 1)
        is_empty = reduce(Column.__and__, [parsed_field(name).isNull() for name in self.written.names])
        is_text = F.get_json_object(source, "$").isNull() | (is_empty & F.try_parse_json(source).isNull())
        return first_true(
            [
                (F.btrim(source, F.lit(WHITESPACE)) == "", F.lit("empty value")),
                (is_text, F.concat(F.lit("not JSON: "), shown(source))),
                (start != "{", F.concat(F.lit("not a JSON object: "), shown(source))),
                (~_is_single_object() & source.rlike(ANOTHER_OBJECT), F.lit("more than one JSON object")),
                (~_is_single_object(), F.lit("the JSON object is followed by other text")),
                *self._wrong_fields(self.written, ()),
            ],
            F.lit("a value inside a list or map does not fit the schema"),
        )

    def _wrong_fields(self, schema: T.StructType, above: tuple[str, ...]) -> Iterator[RejectRule]:
        for entry in schema.fields:
            path = (*above, entry.name)
            written = F.get_json_object(F.col(SOURCE), f"${''.join(_json_path_step(name) for name in path)}")
            read = parsed_field(*path)
            is_wrong = read.isNull() & written.isNotNull() & (written != "null")
            yield is_wrong, invalid_value_text(".".join(path), written, type_name(entry.dataType))
            if isinstance(entry.dataType, T.StructType):
                yield from self._wrong_fields(entry.dataType, path)

    def _wrong_values(self) -> Iterator[RejectRule]:
        """Values that the parser accepted but that do not fit their type."""
        for entry in self.schema.fields:
            raw, made, kind = self.raw(entry.name), F.col(quoted(entry.name)), entry.dataType
            if isinstance(kind, T.TimestampType | T.DateType | T.ByteType):
                hint = None if isinstance(kind, T.ByteType) else self.times.hint(entry.name, raw)
                text = invalid_value_text(entry.name, raw.cast("string"), type_name(kind), hint)
                yield made.isNull() & raw.isNotNull(), text
            elif needs_conversion(kind):
                yield ~has_no_lost_value(raw, made, kind), F.lit(f"field `{entry.name}`: {_what_is_wrong_in(kind)}")

    def _infinities(self) -> Iterator[RejectRule]:
        for entry in self.schema.fields:
            is_plain = isinstance(entry.dataType, T.DoubleType | T.FloatType)
            words = f"the number is too large for {type_name(entry.dataType)}" if is_plain else NUMBER_INSIDE
            found = has_infinity(F.col(quoted(entry.name)), entry.dataType)
            if found is not None:
                yield found, F.lit(f"field `{entry.name}`: {words}")


def parsed_field(*path: str) -> Column:
    """A field of the parsed record."""
    return F.coalesce(*(reduce(Column.getField, path, way) for way in (read_field(SINGLE), _first_of_list())))


def _first_of_list() -> Column:
    return read_field(IN_LIST)[LIST][0]


def _is_single_object() -> Column:
    has_length = F.size(read_field(IN_LIST)[LIST]) == LENGTH
    return read_field(SINGLE).isNotNull() | F.coalesce(has_length, F.lit(False))


def _ends_with_its_only_brace(source: Column) -> Column:
    """On bytes: counting characters costs as much as reading a field."""
    before = F.substring(source.cast("binary"), F.lit(1), F.octet_length(source) - 1)
    return source.endswith(BRACE) & ~F.contains(before, F.lit(bytearray(BRACE.encode())))


def _from_json(text: Column, schema: T.StructType) -> Column:
    return F.from_json(text, T.StructType([*schema.fields, T.StructField(CORRUPT_RECORD, T.StringType())]), OPTIONS)


def _json_path_step(name: str) -> str:
    return f"['{name}']"


def _what_is_wrong_in(kind: T.DataType) -> str:
    return "a value in it does not fit" if has_byte(kind) else "a timestamp in it cannot be read"


def parser_schema(wanted: T.StructType) -> T.StructType:
    """The schema for the parser."""
    return T.StructType([T.StructField(entry.name, _written_type(entry.dataType)) for entry in wanted.fields])


def needs_conversion(wanted: T.DataType) -> bool:
    """Whether values of this type are converted after parsing."""
    return _has(wanted, T.TimestampType, T.DateType, T.ByteType, T.MapType)


def has_byte(wanted: T.DataType) -> bool:
    return _has(wanted, T.ByteType)


def typed(raw: Column, wanted: T.DataType, name: str, times: TimeFormats) -> Column:
    """The value converted from its parsed form; other types are unchanged."""
    if not needs_conversion(wanted):
        return raw
    if isinstance(wanted, T.StructType):
        inner = [
            typed(raw.getField(entry.name), entry.dataType, f"{name}.{entry.name}", times).alias(entry.name)
            for entry in wanted.fields
        ]
        return F.when(raw.isNotNull(), F.struct(*inner))
    if isinstance(wanted, T.ArrayType):
        return F.transform(raw, lambda element: typed(element, wanted.elementType, name, times))
    if isinstance(wanted, T.MapType):
        entries = _last_of_equal_keys(raw)
        if not needs_conversion(wanted.valueType):
            return entries
        return F.transform_values(entries, lambda _, entry: typed(entry, wanted.valueType, name, times))
    if isinstance(wanted, T.ByteType):
        return raw.try_cast(wanted)
    return to_time(raw, wanted, times.format_of(name))


def has_no_lost_value(raw: Column, made: Column, wanted: T.DataType) -> Column:
    """Whether no value became null in the conversion."""
    if not needs_conversion(wanted):
        return F.lit(True)
    if isinstance(wanted, T.StructType):
        found = F.lit(True)
        for entry in wanted.fields:
            found = found & has_no_lost_value(raw.getField(entry.name), made.getField(entry.name), entry.dataType)
        return found
    if isinstance(wanted, T.ArrayType):
        pairs = F.zip_with(raw, made, lambda old, new: has_no_lost_value(old, new, wanted.elementType))
        return F.coalesce(F.forall(pairs, lambda same: same), F.lit(True))
    if isinstance(wanted, T.MapType):
        if not needs_conversion(wanted.valueType):
            return F.lit(True)
        values = F.map_values(_last_of_equal_keys(raw))
        pairs = F.zip_with(values, F.map_values(made), lambda old, new: has_no_lost_value(old, new, wanted.valueType))
        return F.coalesce(F.forall(pairs, lambda same: same), F.lit(True))
    return raw.isNull() | made.isNotNull()


def has_infinity(value: Column, kind: T.DataType) -> Column | None:
    """Whether it contains an infinite number, at any depth; None if the type has no such numbers."""
    if isinstance(kind, T.DoubleType | T.FloatType):
        return F.abs(value) == float("inf")
    if not _has(kind, T.DoubleType, T.FloatType):
        return None
    if isinstance(kind, T.StructType):
        inner = [has_infinity(value.getField(entry.name), entry.dataType) for entry in kind.fields]
        return reduce(Column.__or__, [_is_true(found) for found in inner if found is not None])
    if isinstance(kind, T.ArrayType):
        return F.exists(value, lambda each: _is_true(has_infinity(each, kind.elementType)))
    assert isinstance(kind, T.MapType)
    return F.exists(F.map_values(value), lambda each: _is_true(has_infinity(each, kind.valueType)))


def _is_true(found: Column | None) -> Column:
    return F.lit(False) if found is None else F.coalesce(found, F.lit(False))


def _written_type(wanted: T.DataType) -> T.DataType:
    if isinstance(wanted, T.TimestampType | T.DateType):
        return T.StringType()
    if isinstance(wanted, T.ByteType):
        return T.ShortType()
    if isinstance(wanted, T.StructType):
        return parser_schema(wanted)
    if isinstance(wanted, T.ArrayType):
        return T.ArrayType(_written_type(wanted.elementType))
    if isinstance(wanted, T.MapType):
        return T.MapType(T.StringType(), _written_type(wanted.valueType))
    return wanted


def _has(kind: T.DataType, *kinds: type[T.DataType]) -> bool:
    if isinstance(kind, kinds):
        return True
    if isinstance(kind, T.StructType):
        return any(_has(entry.dataType, *kinds) for entry in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has(kind.elementType, *kinds)
    return isinstance(kind, T.MapType) and _has(kind.valueType, *kinds)


def _last_of_equal_keys(entries: Column) -> Column:
    """Only maps with equal keys are rebuilt."""
    keys, values = F.map_keys(entries), F.map_values(entries)
    different = F.array_distinct(keys)
    last = F.transform(
        different, lambda key: F.get(values, F.size(keys) - F.array_position(F.reverse(keys), key).cast("int"))
    )
    return F.when(F.size(different) < F.size(keys), F.map_from_arrays(different, last)).otherwise(entries)

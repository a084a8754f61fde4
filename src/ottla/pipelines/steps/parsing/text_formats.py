"""Formats with text fields: CSV, regular expressions and grok patterns. Types are converted afterwards, the same for
all.

An empty field is null. Numbers, Booleans, times and decimals are read as Spark SQL reads them from text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.steps.parsing.reader import (
    READ,
    SOURCE,
    RejectRule,
    arrow_function,
    invalid_value_text,
    quoted,
    read_field,
    shown,
)
from ottla.pipelines.steps.parsing.schemas import type_name
from ottla.pipelines.steps.parsing.time_formats import TimeFormats, to_time

CORRUPT_RECORD = "_bad"
LINE_END = r"\r?\n\z"
JAVA_NUMBER_SUFFIXES = ("d", "D", "f", "F")  # 1.5d is a number in Java
NESTED = (T.ArrayType, T.MapType, T.StructType, T.BinaryType)


@dataclass(frozen=True)
class PlainText:
    """The whole text as one field."""

    schema: T.StructType
    INPUT: ClassVar[Literal["text", "bytes"]] = "text"

    def read(self, source: Column) -> Column:
        return F.struct(source.alias(self.schema.names[0]))

    def value(self, name: str) -> Column:
        return read_field(name)

    def reject_rules(self) -> list[RejectRule]:
        return []


@dataclass(frozen=True)
class CsvReader:
    """One line of comma-separated values, read with Spark's own parser."""

    schema: T.StructType
    times: TimeFormats = field(default_factory=TimeFormats)
    delimiter: str = ","
    quote: str = '"'
    null_text: str = ""
    INPUT: ClassVar[Literal["text", "bytes"]] = "text"

    def read(self, source: Column) -> Column:
        fields = [T.StructField(name, T.StringType()) for name in (*self.schema.names, CORRUPT_RECORD)]
        options = {
            "columnNameOfCorruptRecord": CORRUPT_RECORD, "sep": self.delimiter, "quote": self.quote, "escape":
            self.quote, "nullValue": self.null_text, "emptyValue": "", "multiLine": "true",
        }  # fmt: skip
        return F.from_csv(_without_end(source), _ddl(T.StructType(fields)), options)

    def value(self, name: str) -> Column:
        return to_type(read_field(name), self.schema[name].dataType, self.times.format_of(name))

    def reject_rules(self) -> list[RejectRule]:
        source = F.col(SOURCE)
        count = len(self.schema.names)
        return [
            (F.trim(source) == "", F.lit("empty value")),
            (F.col(READ).isNull(), F.concat(F.lit("not CSV: "), shown(source))),
            (
                read_field(CORRUPT_RECORD).isNotNull(),
                F.concat(F.lit(f"not the {count} fields of the schema: "), shown(source)),
            ),
            (self._has_lines(source), F.concat(F.lit("more than one line: "), shown(source))),
            *type_faults(self.schema, self.times),
        ]

    def _has_lines(self, source: Column) -> Column:
        """Line breaks outside of quotes, which Spark's parser would include in the last field."""
        quote, line = re.escape(self.quote), _without_end(source)
        bare = F.regexp_replace(line, f"{quote}[^{quote}]*{quote}", "") if quote else line
        return F.contains(source, F.lit("\n")) & F.contains(bare, F.lit("\n"))


@dataclass(frozen=True)
class PatternReader:
    """Named groups of a regular expression. RE2 runs in time linear in the length of the text."""

    schema: T.StructType
    pattern: str
    groups: tuple[tuple[str, str], ...]  # (field, group of the pattern)
    times: TimeFormats = field(default_factory=TimeFormats)
    INPUT: ClassVar[Literal["text", "bytes"]] = "text"

    def read(self, source: Column) -> Column:
        pattern, groups = self.pattern, tuple(group for _, group in self.groups)
        result = T.StructType([T.StructField(name, T.StringType()) for name, _ in self.groups])

        def extract(texts: pa.Array) -> pa.Array:
            found = pc.extract_regex(texts, pattern=pattern)
            columns = [found.field(group) for group in groups]
            return pa.StructArray.from_arrays(columns, names=result.names, mask=found.is_null())

        return arrow_function(extract, result)(source)

    def value(self, name: str) -> Column:
        text = read_field(name)
        return to_type(F.when(text != "", text), self.schema[name].dataType, self.times.format_of(name))

    def reject_rules(self) -> list[RejectRule]:
        no_match = (F.col(READ).isNull(), F.concat(F.lit("does not match the pattern: "), shown(F.col(SOURCE))))
        return [no_match, *type_faults(self.schema, self.times)]


def to_type(text: Column, wanted: T.DataType, written: str) -> Column:
    if isinstance(wanted, T.StringType):
        return text
    if isinstance(wanted, T.TimestampType | T.DateType):
        return to_time(text, wanted, written)
    return parse_number(F.trim(text), wanted)


def parse_number(text: Column, wanted: T.DataType) -> Column:
    """Null for invalid numbers. Spark would turn overflows into infinity, which only its name may give, and accept
    Java's number suffixes."""
    value = text.try_cast(wanted)
    if not isinstance(wanted, T.DoubleType | T.FloatType):
        return value
    is_infinite = F.abs(value) == float("inf")
    has_letter = reduce(Column.__or__, (text.endswith(letter) for letter in JAVA_NUMBER_SUFFIXES))
    is_none = (is_infinite & text.rlike("[0-9]")) | (~is_infinite & has_letter)
    return F.when(is_none, F.lit(None)).otherwise(value)


def type_faults(schema: T.StructType, times: TimeFormats) -> Iterator[RejectRule]:
    for entry in schema.fields:
        if isinstance(entry.dataType, T.StringType):
            continue
        raw, made = read_field(entry.name), F.col(quoted(entry.name))
        hint = times.hint(entry.name, raw) if isinstance(entry.dataType, T.TimestampType | T.DateType) else None
        is_wrong = made.isNull() & raw.isNotNull() & (raw != "")
        yield is_wrong, invalid_value_text(entry.name, raw, type_name(entry.dataType), hint)


def _without_end(source: Column) -> Column:
    return F.when(source.endswith("\n"), F.regexp_replace(source, LINE_END, "")).otherwise(source)


def _ddl(schema: T.StructType) -> str:
    return ", ".join(f"{quoted(name)} string" for name in schema.names)

"""Formats whose fields are text: CSV, regular expressions and grok patterns. Types come afterwards, the same for all.

An empty field is null. Numbers, booleans, times and decimals are read as Spark's SQL reads them from text.
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
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

from ottla.pipelines.steps.parsing.reader import (
    READ,
    SOURCE,
    Fault,
    arrow_function,
    no_such_value,
    quoted,
    read_field,
    shown,
)
from ottla.pipelines.steps.parsing.schemas import type_name
from ottla.pipelines.steps.parsing.times import Times, to_time

BAD = "_bad"
LINE_END = r"\r?\n\z"
LETTERS = ("d", "D", "f", "F")  # 1.5d is a number in Java
NESTED = (T.ArrayType, T.MapType, T.StructType, T.BinaryType)


@dataclass(frozen=True)
class PlainText:
    """The whole text as one field."""

    schema: T.StructType
    TAKES: ClassVar[Literal["text", "bytes"]] = "text"

    def read(self, source: Column) -> Column:
        return F.struct(source.alias(self.schema.names[0]))

    def value(self, name: str) -> Column:
        return read_field(name)

    def faults(self) -> list[Fault]:
        return []


@dataclass(frozen=True)
class CsvReader:
    """One line of comma-separated values, read by Spark's own parser."""

    schema: T.StructType
    times: Times = field(default_factory=Times)
    delimiter: str = ","
    quote: str = '"'
    null_text: str = ""
    TAKES: ClassVar[Literal["text", "bytes"]] = "text"

    def read(self, source: Column) -> Column:
        fields = [T.StructField(name, T.StringType()) for name in (*self.schema.names, BAD)]
        options = {
            "columnNameOfCorruptRecord": BAD, "sep": self.delimiter, "quote": self.quote, "escape": self.quote,
            "nullValue": self.null_text, "emptyValue": "", "multiLine": "true",
        }  # fmt: skip
        return F.from_csv(_without_end(source), _ddl(T.StructType(fields)), options)

    def value(self, name: str) -> Column:
        return typed(read_field(name), self.schema[name].dataType, self.times.of(name))

    def faults(self) -> list[Fault]:
        source = F.col(SOURCE)
        count = len(self.schema.names)
        return [
            (F.trim(source) == "", F.lit("empty value")),
            (F.col(READ).isNull(), F.concat(F.lit("not CSV: "), shown(source))),
            (read_field(BAD).isNotNull(), F.concat(F.lit(f"not the {count} fields of the schema: "), shown(source))),
            (self._has_lines(source), F.concat(F.lit("more than one line: "), shown(source))),
            *wrong_types(self.schema, self.times),
        ]

    def _has_lines(self, source: Column) -> Column:
        """Outside of quotes. Spark's parser takes them for a part of the last field."""
        quote, line = re.escape(self.quote), _without_end(source)
        bare = F.regexp_replace(line, f"{quote}[^{quote}]*{quote}", "") if quote else line
        return F.contains(source, F.lit("\n")) & F.contains(bare, F.lit("\n"))


@dataclass(frozen=True)
class PatternReader:
    """Named groups of a regular expression. RE2 reads it: its time grows with the length of the text and no faster."""

    schema: T.StructType
    pattern: str
    groups: tuple[tuple[str, str], ...]  # field, group of the pattern
    times: Times = field(default_factory=Times)
    TAKES: ClassVar[Literal["text", "bytes"]] = "text"

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
        return typed(F.when(text != "", text), self.schema[name].dataType, self.times.of(name))

    def faults(self) -> list[Fault]:
        no_match = (F.col(READ).isNull(), F.concat(F.lit("does not match the pattern: "), shown(F.col(SOURCE))))
        return [no_match, *wrong_types(self.schema, self.times)]


def typed(text: Column, wanted: T.DataType, written: str) -> Column:
    if isinstance(wanted, T.StringType):
        return text
    if isinstance(wanted, T.TimestampType | T.DateType):
        return to_time(text, wanted, written)
    return number(F.trim(text), wanted)


def number(text: Column, wanted: T.DataType) -> Column:
    """Null for what does not fit. Spark makes infinity of digits that are too many, where only the word means it, and
    takes Java's letters behind a number."""
    value = text.try_cast(wanted)
    if not isinstance(wanted, T.DoubleType | T.FloatType):
        return value
    is_infinite = F.abs(value) == float("inf")
    has_letter = reduce(Column.__or__, (text.endswith(letter) for letter in LETTERS))
    is_none = (is_infinite & text.rlike("[0-9]")) | (~is_infinite & has_letter)
    return F.when(is_none, F.lit(None)).otherwise(value)


def wrong_types(schema: T.StructType, times: Times) -> Iterator[Fault]:
    for entry in schema.fields:
        if isinstance(entry.dataType, T.StringType):
            continue
        raw, made = read_field(entry.name), F.col(quoted(entry.name))
        hint = times.words(entry.name, raw) if isinstance(entry.dataType, T.TimestampType | T.DateType) else None
        is_wrong = made.isNull() & raw.isNotNull() & (raw != "")
        yield is_wrong, no_such_value(entry.name, raw, type_name(entry.dataType), hint)


def _without_end(source: Column) -> Column:
    return F.when(source.endswith("\n"), F.regexp_replace(source, LINE_END, "")).otherwise(source)


def _ddl(schema: T.StructType) -> str:
    return ", ".join(f"{quoted(name)} string" for name in schema.names)

"""Formats that Python decodes record by record, in Arrow batches: what they share.

A decoder turns bytes into a dict for the schema or raises DecodeError. A record that cannot be decoded, or whose values
Arrow cannot hold, becomes a struct with nothing but `_problem`; never an exception, which would end the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)
from pyspark.sql.pandas.types import to_arrow_type

from ottla.pipelines.steps.parsing.reader import Fault, arrow_function, read_field

PROBLEM = "_problem"
REASON_CHARACTERS_MAX = 300
MICROS_MAX = 253_402_300_800_000_000  # the year 10,000
MICROS_MIN = -62_135_596_800_000_000  # the year 1

Row = dict[str, Any]


class DecodeError(ValueError):
    """The text says why."""


class Decoder(Protocol):
    """Travels to the executors."""

    def decode(self, value: bytes) -> Row: ...


@dataclass(frozen=True)
class BinaryReader:
    schema: T.StructType
    decoder: Decoder
    TAKES: ClassVar[Literal["text", "bytes"]] = "bytes"

    def read(self, source: Column) -> Column:
        result = T.StructType([*self.schema.fields, T.StructField(PROBLEM, T.StringType())])
        decode = self.decoder.decode

        def decode_all(values: pa.Array) -> pa.Array:
            return to_structs([decoded(value, decode) for value in values.to_pylist()], result)

        return arrow_function(decode_all, result)(source)

    def value(self, name: str) -> Column:
        return read_field(name)

    def faults(self) -> list[Fault]:
        return [(read_field(PROBLEM).isNotNull(), read_field(PROBLEM))]


def decoded(value: bytes | None, decode: Callable[[bytes], Row]) -> Row | None:
    if value is None:
        return None
    try:
        return decode(value)
    except DecodeError as error:
        return failed(error)


def failed(error: BaseException) -> Row:
    return {PROBLEM: f"{error}"[:REASON_CHARACTERS_MAX]}


def to_structs(rows: Sequence[Row | None], schema: T.StructType) -> pa.Array:
    """Rows as Arrow structs; a row that does not fit becomes a problem."""
    wanted = to_arrow_type(schema, timezone="UTC")
    try:
        return pa.array(rows, type=wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_fitting(row, wanted) for row in rows], type=wanted)


def timestamp_micros(micros: int) -> int:
    """The same, if it is a moment that everybody can hold; raises DecodeError."""
    if not MICROS_MIN <= micros < MICROS_MAX:
        raise DecodeError(f"timestamp {micros} µs is outside the years 1 to 9999")
    return micros


def _fitting(row: Row | None, wanted: pa.DataType) -> Row | None:
    try:
        pa.array([row], type=wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return failed(DecodeError(f"a value does not fit its type: {error}"))
    return row

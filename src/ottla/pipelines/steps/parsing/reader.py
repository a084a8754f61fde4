"""The common interface of formats: text or bytes in, one struct out, and a sentence for unreadable records.

The path of a record through `parse`:
1. `_source` is the input: text (validated) or bytes;
2. `read` creates the struct `_read` from it;
3. `value` creates each field of the result from `_read`;
4. `reject_rules` returns conditions that kill the record, evaluated for every record, each with a sentence that is only
   computed for dead ones.

Binary formats are decoded in Python, in Arrow batches. A decoder returns a dict for the schema or raises DecodeError.
An undecodable record, or one whose values Arrow rejects, becomes a struct with only `_problem`; never an exception,
which would end the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)
from pyspark.sql.pandas.types import to_arrow_type

SOURCE = "_source"
READ = "_read"
SHOWN_CHARACTERS = 80  # characters of a bad value in a reason


RejectRule = tuple[Column, Column]  # condition of a bad record, and its reason

PROBLEM = "_problem"
REASON_CHARACTERS_MAX = 300
MICROS_MAX = 253_402_300_800_000_000  # the year 10,000
MICROS_MIN = -62_135_596_800_000_000  # the year 1
Row = dict[str, Any]


class Reader(Protocol):
    """One format with one schema; pickled to the executors."""

    INPUT: ClassVar[Literal["text", "bytes"]]

    @property
    def schema(self) -> T.StructType: ...

    def read(self, source: Column) -> Column: ...

    def value(self, name: str) -> Column: ...

    def reject_rules(self) -> list[RejectRule]: ...


def arrow_function(function: Callable[[Any], Any], result: T.DataType) -> Callable[[Column], Column]:
    """A function over Arrow arrays as a function over columns; Spark reads its type from the annotations."""
    made: Callable[[Column], Column] = F.arrow_udf(function, result)  # type: ignore[attr-defined]
    return made


def quoted(name: str) -> str:
    """A column name in backticks, for dots and blanks."""
    return f"`{name.replace('`', '``')}`"


def read_field(name: str) -> Column:
    return F.col(READ).getField(name)


def shown(text: Column) -> Column:
    """A value in a reason: quoted, and truncated if long."""
    cut = F.concat(F.substring(text, 1, SHOWN_CHARACTERS), F.lit("…"))
    return F.concat(F.lit('"'), F.when(F.length(text) > SHOWN_CHARACTERS, cut).otherwise(text), F.lit('"'))


def first_true(choices: Sequence[RejectRule], otherwise: Column | None = None) -> Column:
    """The text of the first true condition, otherwise the default or null."""
    found = otherwise if otherwise is not None else F.lit(None).cast("string")
    for condition, text in reversed(choices):
        found = F.when(condition, text).otherwise(found)
    return found


def invalid_value_text(name: str, text: Column, kind: str, hint: Column | None = None) -> Column:
    words = [F.lit(f"field `{name}`: "), shown(text), F.lit(f" is no {kind}")]
    return F.concat(*words, *([] if hint is None else [hint]))


class DecodeError(ValueError):
    """The text has the reason."""


class Decoder(Protocol):
    """Pickled to the executors."""

    def decode(self, value: bytes) -> Row: ...


@dataclass(frozen=True)
class BinaryReader:
    schema: T.StructType
    decoder: Decoder
    INPUT: ClassVar[Literal["text", "bytes"]] = "bytes"

    def read(self, source: Column) -> Column:
        result = T.StructType([*self.schema.fields, T.StructField(PROBLEM, T.StringType())])
        decode = self.decoder.decode

        def decode_all(values: pa.Array) -> pa.Array:
            return to_structs([decode_or_problem(value, decode) for value in values.to_pylist()], result)

        return arrow_function(decode_all, result)(source)

    def value(self, name: str) -> Column:
        return read_field(name)

    def reject_rules(self) -> list[RejectRule]:
        return [(read_field(PROBLEM).isNotNull(), read_field(PROBLEM))]


def decode_or_problem(value: bytes | None, decode: Callable[[bytes], Row]) -> Row | None:
    if value is None:
        return None
    try:
        return decode(value)
    except DecodeError as error:
        return problem_row(error)


def problem_row(error: BaseException) -> Row:
    return {PROBLEM: f"{error}"[:REASON_CHARACTERS_MAX]}


def to_structs(rows: Sequence[Row | None], schema: T.StructType) -> pa.Array:
    """Rows as Arrow structs; a row that does not fit becomes a problem."""
    wanted = to_arrow_type(schema, timezone="UTC")
    try:
        return pa.array(rows, type=wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([_row_or_problem(row, wanted) for row in rows], type=wanted)


def timestamp_micros(micros: int) -> int:
    """Return the value if it is within the supported years. Raises DecodeError."""
    if not MICROS_MIN <= micros < MICROS_MAX:
        raise DecodeError(f"timestamp {micros} µs is outside the years 1 to 9999")
    return micros


def _row_or_problem(row: Row | None, wanted: pa.DataType) -> Row | None:
    try:
        pa.array([row], type=wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return problem_row(DecodeError(f"a value does not fit its type: {error}"))
    return row

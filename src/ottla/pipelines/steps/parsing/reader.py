"""What every format has in common: text or bytes in, one struct out, and a sentence for what could not be read.

The way of a record through `parse`:
1. `_source` is what is read: text (checked to be text) or bytes;
2. `read` makes the struct `_read` of it;
3. `value` makes each field of the result from `_read`;
4. `faults` tells from all of these what kills the record: conditions, which every record pays for, and a sentence for
   each, which is only written for records that die.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql import types as T  # noqa: N812 (everybody's name for it)

SOURCE = "_source"
READ = "_read"
SHOWN_CHARACTERS = 80  # of a bad value in a reason


Fault = tuple[Column, Column]  # what is true of a bad record, and what to say then


class Reader(Protocol):
    """One format with one schema; what it holds travels to the executors."""

    TAKES: ClassVar[Literal["text", "bytes"]]

    @property
    def schema(self) -> T.StructType: ...

    def read(self, source: Column) -> Column: ...

    def value(self, name: str) -> Column: ...

    def faults(self) -> list[Fault]: ...


def arrow_function(function: Callable[[Any], Any], result: T.DataType) -> Callable[[Column], Column]:
    """A function over Arrow arrays as one over columns; its annotations tell Spark what it is."""
    made: Callable[[Column], Column] = F.arrow_udf(function, result)  # type: ignore[attr-defined]
    return made


def quoted(name: str) -> str:
    """A column name, dots and blanks included, as Spark's functions want it."""
    return f"`{name.replace('`', '``')}`"


def read_field(name: str) -> Column:
    return F.col(READ).getField(name)


def shown(text: Column) -> Column:
    """A value in a reason: in quotes, cut when long."""
    cut = F.concat(F.substring(text, 1, SHOWN_CHARACTERS), F.lit("…"))
    return F.concat(F.lit('"'), F.when(F.length(text) > SHOWN_CHARACTERS, cut).otherwise(text), F.lit('"'))


def first_of(choices: Sequence[Fault], otherwise: Column | None = None) -> Column:
    """The text of the first condition that is true, else the other one or null."""
    found = otherwise if otherwise is not None else F.lit(None).cast("string")
    for condition, text in reversed(choices):
        found = F.when(condition, text).otherwise(found)
    return found


def no_such_value(name: str, text: Column, kind: str, hint: Column | None = None) -> Column:
    words = [F.lit(f"field `{name}`: "), shown(text), F.lit(f" is no {kind}")]
    return F.concat(*words, *([] if hint is None else [hint]))

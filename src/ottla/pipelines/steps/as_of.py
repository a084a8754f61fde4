"""Each row with what was valid at its time: the newest row of another stream that is not after it, of the same key.

The rows of both streams are put into one line for each key, in the order of their time, the other stream's first where
times are equal. A stream holds them until the watermark has passed them (event_time_buffer.py): then no version that
could matter is still to come, whatever the order of arrival was. What is remembered for good is one version of each
key, the rows of the table. A batch sorts once.

Of two versions with the same key and time the later in its partition counts; where that is not known their content
decides, in batch and stream alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql.types import StructType

from ottla.pipelines.model.row_order import INSTANT, SOURCE_ORDER
from ottla.pipelines.steps.event_time import timed, untimed
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, plain_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

WHOSE, PLACE, KEY = "_0_whose", "_1_place", "_key_"  # WHOSE and PLACE stand first: rows of one time are sorted by them
VERSION, ROW = 0, 1


class Sides:
    """Both streams in one: the columns of ours, and those of theirs, which are null in our rows and the other way."""

    def __init__(self, ours: DataFrame, theirs: DataFrame, keys: Sequence[tuple[str, str]]) -> None:
        """`theirs` has PLACE; no column of it is called as one of ours."""
        self.our_names = ours.columns
        self.their_names = [name for name in theirs.columns if name != PLACE]
        self.keys = [f"{KEY}{at}" for at in range(len(keys))]
        self.ours, self.theirs, self.pairs = ours, theirs, keys

    def __repr__(self) -> str:
        return f"Sides({', '.join(self.our_names)} | {', '.join(self.their_names)})"

    def rows(self, our_time: str, their_time: str, delay_ms: int) -> DataFrame:
        mine = self.ours.select(
            F.lit(ROW).alias(WHOSE),
            F.lit("").alias(PLACE),
            F.unix_micros(_column(our_time)).alias(INSTANT),
            *(_column(our).alias(name) for name, (our, _) in zip(self.keys, self.pairs, strict=True)),
            *(_column(name) for name in self.our_names),
            *(_nothing(self.theirs, name) for name in self.their_names),
        )
        known = reduce(Column.__and__, (_column(their).isNotNull() for _, their in self.pairs))
        other = self.theirs.filter(known).select(
            F.lit(VERSION).alias(WHOSE),
            _column(PLACE),
            F.unix_micros(_column(their_time)).alias(INSTANT),
            *(_column(their).alias(name) for name, (_, their) in zip(self.keys, self.pairs, strict=True)),
            *(
                _column(their_time).alias(name) if name == our_time else _nothing(self.ours, name)
                for name in self.our_names
            ),
            *(untimed(_column(name), name) for name in self.their_names),
        )
        both = mine.unionByName(other)
        names = [name for name in both.columns if name != our_time]
        return both.select(*map(_column, names), timed(_column(our_time), our_time, delay_ms))


def with_versions(sides: Sides, rows: DataFrame, time: str, is_left: bool) -> DataFrame:
    """Our rows with INSTANT and the columns of the version that was valid; without one only if `is_left`."""
    kept = [*sides.our_names, INSTANT, *sides.their_names]
    if rows.isStreaming:
        schema = plain_schema(rows)
        holder = Versions(rows.columns, schema, sides.their_names, is_left)
        keyed = rows.groupBy(*sides.keys)
        made = keyed.transformWithState(holder, schema, "Append", "EventTime", eventTimeColumnName=time)
        return made.select(*map(_column, kept))
    line = Over.partitionBy(*sides.keys).orderBy(INSTANT, WHOSE, PLACE).rowsBetween(Over.unboundedPreceding, 0)
    version = F.when(F.col(WHOSE) == VERSION, F.struct(*map(_column, sides.their_names)))
    found = rows.withColumn("_version", F.last(version, ignorenulls=True).over(line)).filter(F.col(WHOSE) == ROW)
    if not is_left:
        found = found.filter(F.col("_version").isNotNull())
    valid = {name: F.col("_version").getField(name) for name in sides.their_names}
    return found.withColumns(valid).select(*map(_column, kept))


def placed(theirs: DataFrame) -> Column:
    """Text that sorts as the rows lie in their partition; a hash of the content where that does not tell them apart."""
    content = F.md5(F.to_json(F.struct(*(_column(name) for name in sorted(theirs.columns)))))
    if any(name not in theirs.columns for name in SOURCE_ORDER):
        return content.alias(PLACE)
    topic, partition, offset = map(F.col, SOURCE_ORDER)
    number = F.format_string("%010d:%020d:", partition, offset)
    return F.concat(F.hex(topic), F.lit(":"), number, content).alias(PLACE)


class Versions(EventTimeBuffer):
    """Holds rows and versions until the watermark has passed them, then puts them together."""

    def __init__(self, columns: Sequence[str], schema: StructType, theirs: Sequence[str], is_left: bool) -> None:
        super().__init__(columns, schema)
        self.theirs = [self.columns.index(name) for name in theirs]
        self.whose = self.columns.index(WHOSE)
        self.is_left = is_left
        self.version_schema = StructType([schema.fields[at] for at in self.theirs])

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.version = handle.getValueState("version", self.version_schema)

    def released(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        before: Values | None = self.version.get() if self.version.exists() else None
        made, version = self.put_together(rows, before)
        if version is not None and version is not before:
            self.version.update(version)
        return made

    def put_together(self, rows: list[Values], version: Values | None) -> tuple[list[Values], Values | None]:
        """Rows in order, and the version before them; what comes out, and the version after them."""
        made: list[Values] = []
        for row in rows:
            if row[self.whose] == VERSION:
                version = tuple(row[at] for at in self.theirs)
            elif version is not None or self.is_left:
                values = list(row)
                for at, value in zip(self.theirs, version or [None] * len(self.theirs), strict=True):
                    values[at] = value
                made.append(tuple(values))
        return made, version


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _nothing(rows: DataFrame, name: str) -> Column:
    return F.lit(None).cast(rows.schema[name].dataType).alias(name)

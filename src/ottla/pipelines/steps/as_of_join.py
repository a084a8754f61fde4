"""As-of join: each row with the newest row of another stream, of the same key, that is not later than it.

The rows of both streams are merged per key in time order, with the other stream's first at equal times. A stream holds
them until the watermark has passed them (event_time_buffer.py): then no relevant version can still arrive, regardless
of the order of arrival. The lasting state is one version per key, the rows of the table. A batch sorts once.

Of two versions with the same key and time, the later one in its partition wins. If that order is unknown, the content
decides, in batch and stream alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql.types import StructType

from ottla.pipelines.model.row_order import SOURCE_ORDER, TIME_MICROS
from ottla.pipelines.steps.event_time import with_watermark_metadata, without_watermark_metadata
from ottla.pipelines.steps.event_time_buffer import EventTimeBuffer, Values, schema_without_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

# WHOSE and PLACE come first: rows of the same time are sorted by them
SIDE, POSITION_KEY, KEY = "_0_whose", "_1_place", "_key_"
VERSION, ROW = 0, 1


class JoinSides:
    """Both streams as one: our columns and theirs, each null in the rows of the other side."""

    def __init__(self, ours: DataFrame, theirs: DataFrame, keys: Sequence[tuple[str, str]]) -> None:
        """`theirs` has PLACE; its column names differ from ours."""
        self.our_names = ours.columns
        self.their_names = [name for name in theirs.columns if name != POSITION_KEY]
        self.keys = [f"{KEY}{at}" for at in range(len(keys))]
        self.ours, self.theirs, self.pairs = ours, theirs, keys

    def __repr__(self) -> str:
        return f"JoinSides({', '.join(self.our_names)} | {', '.join(self.their_names)})"

    def rows(self, our_time: str, their_time: str, delay_ms: int) -> DataFrame:
        mine = self.ours.select(
            F.lit(ROW).alias(SIDE),
            F.lit("").alias(POSITION_KEY),
            F.unix_micros(_column(our_time)).alias(TIME_MICROS),
            *(_column(our).alias(name) for name, (our, _) in zip(self.keys, self.pairs, strict=True)),
            *(_column(name) for name in self.our_names),
            *(_null_column(self.theirs, name) for name in self.their_names),
        )
        known = reduce(Column.__and__, (_column(their).isNotNull() for _, their in self.pairs))
        other = self.theirs.filter(known).select(
            F.lit(VERSION).alias(SIDE),
            _column(POSITION_KEY),
            F.unix_micros(_column(their_time)).alias(TIME_MICROS),
            *(_column(their).alias(name) for name, (_, their) in zip(self.keys, self.pairs, strict=True)),
            *(
                _column(their_time).alias(name) if name == our_time else _null_column(self.ours, name)
                for name in self.our_names
            ),
            *(without_watermark_metadata(_column(name), name) for name in self.their_names),
        )
        both = mine.unionByName(other)
        names = [name for name in both.columns if name != our_time]
        return both.select(*map(_column, names), with_watermark_metadata(_column(our_time), our_time, delay_ms))


def join_versions(sides: JoinSides, rows: DataFrame, time: str, is_left: bool) -> DataFrame:
    """Our rows with INSTANT and the columns of the valid version; rows without a version only if `is_left`."""
    kept = [*sides.our_names, TIME_MICROS, *sides.their_names]
    if rows.isStreaming:
        schema = schema_without_metadata(rows)
        holder = VersionProcessor(rows.columns, schema, sides.their_names, is_left)
        keyed = rows.groupBy(*sides.keys)
        made = keyed.transformWithState(holder, schema, "Append", "EventTime", eventTimeColumnName=time)
        return made.select(*map(_column, kept))
    line = (
        Over.partitionBy(*sides.keys).orderBy(TIME_MICROS, SIDE, POSITION_KEY).rowsBetween(Over.unboundedPreceding, 0)
    )
    version = F.when(F.col(SIDE) == VERSION, F.struct(*map(_column, sides.their_names)))
    found = rows.withColumn("_version", F.last(version, ignorenulls=True).over(line)).filter(F.col(SIDE) == ROW)
    if not is_left:
        found = found.filter(F.col("_version").isNotNull())
    valid = {name: F.col("_version").getField(name) for name in sides.their_names}
    return found.withColumns(valid).select(*map(_column, kept))


def position_text(theirs: DataFrame) -> Column:
    """Text that sorts like the rows in their partition; a hash of the content if the position is unknown."""
    content = F.md5(F.to_json(F.struct(*(_column(name) for name in sorted(theirs.columns)))))
    if any(name not in theirs.columns for name in SOURCE_ORDER):
        return content.alias(POSITION_KEY)
    topic, partition, offset = map(F.col, SOURCE_ORDER)
    number = F.format_string("%010d:%020d:", partition, offset)
    return F.concat(F.hex(topic), F.lit(":"), number, content).alias(POSITION_KEY)


class VersionProcessor(EventTimeBuffer):
    """Holds rows and versions until the watermark has passed them, then joins them."""

    def __init__(self, columns: Sequence[str], schema: StructType, theirs: Sequence[str], is_left: bool) -> None:
        super().__init__(columns, schema)
        self.theirs = [self.columns.index(name) for name in theirs]
        self.whose = self.columns.index(SIDE)
        self.is_left = is_left
        self.version_schema = StructType([schema.fields[at] for at in self.theirs])

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.version = handle.getValueState("version", self.version_schema)

    def process_rows(self, key: Values, rows: list[Values], watermark_ms: int) -> Iterable[Values]:  # noqa: ARG002
        before: Values | None = self.version.get() if self.version.exists() else None
        made, version = self.join_in_order(rows, before)
        if version is not None and version is not before:
            self.version.update(version)
        return made

    def join_in_order(self, rows: list[Values], version: Values | None) -> tuple[list[Values], Values | None]:
        """Join rows in order, starting with the previous version; return the output and the last version."""
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


def _null_column(rows: DataFrame, name: str) -> Column:
    return F.lit(None).cast(rows.schema[name].dataType).alias(name)

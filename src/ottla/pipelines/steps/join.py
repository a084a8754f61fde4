"""`join` and `union`: rows of two streams, or of a stream and a table.

    join: {with_stream: payments, on: [order], within: 10 minutes}            # two streams
    join: {with_stream: payments, on: {order: order_id}, after: 1 hour, kind: left}
    join: {table: prices.csv, on: [product]}                                  # a file (CSV, JSON, Parquet)
    join: {sqlite: shop.db, table: products, on: [product], kind: left}
    join: {newest_of: customers, on: [customer]}                              # a compacted topic as a table
    join: {as_of: rates, on: [currency]}                                      # the value at the time of the row

Two streams need a watermark each, and a time bound: rows are kept until nothing can match them any more, and a left,
right or full join then emits the unmatched rows. Null keys match nothing. Columns of the other side whose names are
taken get a prefix. A table is read when the pipeline starts. With `newest_of` the whole topic is read again in every
batch, and the newest record of each key counts: for small or compacted topics. With `as_of` a row gets the newest row
of the other stream that is not later (as_of_join.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    NullType,
    NumericType,
    StringType,
)

from ottla.pipelines.model.row_order import SOURCE_ORDER, TIME_MICROS, RowOrder
from ottla.pipelines.model.specs import Duration
from ottla.pipelines.steps.as_of_join import POSITION_KEY, JoinSides, join_versions, position_text
from ottla.pipelines.steps.columns import loses_digits, require_columns
from ottla.pipelines.steps.event_time import (
    RECORD_TIME,
    require_event_time,
    rows_with_watermark,
    with_watermark_metadata,
    without_watermark_metadata,
)
from ottla.pipelines.steps.frame import ALIVE, FATE, HIDDEN_COLUMNS, SOURCE_RECORD, Frame
from ottla.pipelines.steps.join_tables import file_table, postgres_table, sqlite_table
from ottla.pipelines.steps.lateness import track_late_rows
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import StepError, StepKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


NEWEST, RECORD_TIME_COLUMN = "_newest", "_at"
PARTITION = SOURCE_ORDER[:2]
OTHER_PREFIX = "_other_"  # temporary prefix of the other side's columns

JoinKind = Literal["inner", "left", "right", "full", "semi"]


@dataclass(frozen=True, kw_only=True)
class Join:
    """Join rows of two streams, or of a stream and a table."""

    with_stream: str | None = field(default=None, metadata={"doc": "another stream of the pipeline"})
    table: str | None = field(default=None, metadata={"doc": "file (.csv, .json, .parquet), or table of the database"})
    sqlite: str | None = field(default=None, metadata={"doc": "file of a SQLite database that has the table"})
    postgres: str | None = field(
        default=None, metadata={"doc": "PostgreSQL that has the table: postgresql://user@host/database"}
    )
    on: list[str] | dict[str, str] = field(
        metadata={"doc": "columns that must be equal; other names on the other side: {ours: theirs}"}
    )
    kind: JoinKind = field(default="inner", metadata={"doc": "inner, left, right, full, semi"})
    within: Duration | None = field(
        default=None, metadata={"doc": "how far apart in time two rows may be, before or after"}
    )
    after: Duration | None = field(
        default=None, metadata={"doc": "maximum time from our row to the other stream's row"}
    )
    newest_of: str | None = field(
        default=None, metadata={"doc": "a stream that is read as a table: the newest row of each key"}
    )
    as_of: str | None = field(
        default=None, metadata={"doc": "a stream of changes: the newest row of each key that is not after ours"}
    )
    prefix: str | None = field(
        default=None, metadata={"doc": "before names of the other side that are taken (its name and _)"}
    )
    KIND: ClassVar[StepKind] = "merges"
    ORDER_MATTERS: ClassVar[str] = "only with `newest_of`: the table is what its topic holds when the batch runs"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if sum(map(bool, (self.with_stream, self.table, self.newest_of, self.as_of))) != 1:
            yield "", "has no partner", "set one of with_stream, table, newest_of and as_of"
        if not self.on:
            yield "on", "names no column", ""
        if self.sqlite and self.postgres:
            yield "postgres", "the table is in one database", "give sqlite or postgres"
        is_two_streams = bool(self.with_stream)
        if is_two_streams and (self.within is None) == (self.after is None):
            yield "within", "two streams need a time bound", "set within, or after"
        if not is_two_streams and (self.within is not None or self.after is not None):
            yield "within", "a table has no time", "remove within and after"
        if not is_two_streams and self.kind in ("right", "full"):
            yield "kind", f"a table never ends, so {self.kind} has no result", "use inner, left or semi"
        if self.as_of and self.kind == "semi":
            yield "kind", "semi returns no columns of the other stream", "use inner or left"

    def files(self) -> Iterator[tuple[str, str]]:
        if self.sqlite:
            yield "sqlite", self.sqlite
        elif self.table and not self.postgres:
            yield "table", self.table

    @property
    def with_streams(self) -> list[str]:
        return [self.as_of] if self.as_of else []

    def apply(self, frame: Frame) -> Frame:
        if self.as_of is not None:
            return self._as_of(frame, frame.context.stream(self.as_of).drop_marked())
        if self.with_stream is not None:
            return self._with_stream(frame, frame.context.stream(self.with_stream).drop_marked())
        return self._with_table(frame, self._newest(frame) if self.newest_of else self._table(frame))

    def row_order(self, before: RowOrder) -> RowOrder:
        """A row waits for its partner in the other stream and may be overtaken; with `as_of` rows are in time order."""
        if self.as_of:
            return RowOrder((TIME_MICROS,))
        return RowOrder() if self.with_stream else before

    # two streams

    def _with_stream(self, frame: Frame, other: Frame) -> Frame:
        ours, theirs = require_event_time(frame), self._their_time(other)
        frame, other = self._with_keys(frame, other)
        frame, other = track_late_rows(frame), track_late_rows(other, passage=frame.applied_steps[-1])
        left = self._visible_rows(rows_with_watermark(frame), frame)
        right = _prefix_columns(self._visible_rows(rows_with_watermark(other), other), theirs, other.watermark_ms or 0)
        near = F.col(f"`{ours}`"), F.col(f"`{OTHER_PREFIX}{theirs}`")
        self._check_keys(left, right)
        condition = self._equal(left, right) & self._within_bound(*near)
        joined = left.join(right, condition, _spark_kind(self.kind))
        rows, time = self._columns(joined, left.columns, right.columns, ours, theirs)
        return replace(frame.stateful(1).joined(other, rows, time), watermark_ms=self._delay_ms(frame, other))

    def _as_of(self, frame: Frame, other: Frame) -> Frame:
        ours, theirs = require_event_time(frame), self._their_time(other)
        frame, other = self._with_keys(frame, other)
        frame, other = track_late_rows(frame), track_late_rows(other, passage=frame.applied_steps[-1])
        left = self._visible_rows(frame.rows, frame)
        right = _prefix_columns(
            self._visible_rows(other.rows.withColumn(POSITION_KEY, position_text(other.rows)), other)
        )
        right = right.withColumnRenamed(OTHER_PREFIX + POSITION_KEY, POSITION_KEY)
        self._check_keys(left, right)
        sides = JoinSides(left, right, [(our, OTHER_PREFIX + their) for our, their in self._key_pairs().items()])
        delay_ms = max(frame.watermark_ms or 0, other.watermark_ms or 0)
        valid = join_versions(sides, sides.rows(ours, OTHER_PREFIX + theirs, delay_ms), ours, self.kind == "left")
        rows, time = self._columns(valid, [*left.columns, TIME_MICROS], sides.their_names, ours, theirs)
        return replace(frame.stateful(1).joined(other, rows, time, (TIME_MICROS,)), watermark_ms=delay_ms)

    def _with_keys(self, frame: Frame, other: Frame) -> tuple[Frame, Frame]:
        """Rows with null keys match nothing: they stay only in outer joins. Filtering here instead of in Spark keeps
        the watermark advancing: Spark would filter before the watermark."""
        require_columns(frame, list(self._key_pairs()), "on")
        theirs = [their for their in self._key_pairs().values() if their in other.rows.columns]
        if self.kind not in ("left", "full"):
            frame = frame.filter_counted(_all_not_null(self._key_pairs()))
        if self.kind not in ("right", "full") and theirs:
            frame, other = frame.filter_counted_with(other, _all_not_null(theirs))
        return frame, other

    def _their_time(self, other: Frame) -> str:
        try:
            return require_event_time(other)
        except StepError as problem:
            name, field = (self.as_of, "as_of") if self.as_of else (self.with_stream, "with_stream")
            raise StepError(f"stream {name}: {problem.cause}", problem.cure, field) from None

    def _within_bound(self, ours: Column, theirs: Column) -> Column:
        bound = self.within if self.within is not None else self.after
        assert bound is not None
        span = F.expr(f"INTERVAL {bound.sql}")
        from_ = ours - span if self.within is not None else ours
        return theirs.between(from_, ours + span)

    def _delay_ms(self, frame: Frame, other: Frame) -> int:
        bound = int(self.within if self.within is not None else self.after or 0)
        return max(frame.watermark_ms or 0, other.watermark_ms or 0) + bound

    def _visible_rows(self, rows: DataFrame, frame: Frame) -> DataFrame:
        names = [name for name in rows.columns if name not in HIDDEN_COLUMNS or name == frame.event_time]
        return rows.select(*(f"`{name}`" for name in names))

    # A stream and a table

    def _table(self, frame: Frame) -> DataFrame:
        assert self.table is not None
        spark, folder = frame.context.spark, frame.context.folder
        if self.sqlite:
            return sqlite_table(spark, folder, self.sqlite, self.table)
        if self.postgres:
            return postgres_table(spark, self.postgres, self.table)
        kinds = frame.rows.select(*map(quoted, frame.columns)).schema
        texts = [
            their
            for our, their in self._key_pairs().items()
            if our in kinds.names and isinstance(kinds[our].dataType, StringType)
        ]
        return file_table(spark, folder, self.table, texts)

    def _newest(self, frame: Frame) -> DataFrame:
        assert self.newest_of is not None
        try:
            table = frame.context.table(self.newest_of)
        except KeyError:
            raise StepError(f"there is no stream {self.newest_of!r}", "", "newest_of") from None
        return newest_rows(table, list(self._key_pairs().values()))

    def _with_table(self, frame: Frame, table: DataFrame) -> Frame:
        right = _prefix_columns(table)
        self._check_names(frame.columns, right.columns)
        joined = frame.rows.join(right, self._equal(frame.rows, right), _spark_kind(self.kind))
        rows, _ = self._columns(joined, frame.rows.columns, right.columns, None, None)
        return replace(frame, rows=rows, needs_count=True)

    # columns

    def _key_pairs(self) -> dict[str, str]:
        return dict(self.on) if isinstance(self.on, dict) else {name: name for name in self.on}

    def _check_names(self, ours: list[str], theirs: list[str]) -> None:
        for our, their in self._key_pairs().items():
            if our not in ours:
                raise StepError(f"there is no column {our!r}", f"there are: {', '.join(ours)}", "on")
            if OTHER_PREFIX + their not in theirs:
                raise StepError(f"the other side has no column {their!r}", f"it has: {_names(theirs)}", "on")

    def _check_keys(self, ours: DataFrame, theirs: DataFrame) -> None:
        """For two streams: Spark's operators compare text and number keys inconsistently."""
        self._check_names(ours.columns, theirs.columns)
        for our, their in self._key_pairs().items():
            kinds = ours.schema[our].dataType, theirs.schema[OTHER_PREFIX + their].dataType
            if _is_text_and_number(*kinds):
                cause = f"{our} is {kinds[0].simpleString()}, and {their} of the other side {kinds[1].simpleString()}"
                raise StepError(cause, "cast one of them before", "on")

    def _equal(self, ours: DataFrame, theirs: DataFrame) -> Column:
        equal = (
            _equal_keys(
                F.col(f"`{our}`"), F.col(f"`{their}`"), ours.schema[our].dataType, theirs.schema[their].dataType
            )
            for our, their in ((our, OTHER_PREFIX + their) for our, their in self._key_pairs().items())
        )
        # Spark's full join of two streams matches null keys: it looks up whole keys in its state.
        known = (F.col(f"`{our}`").isNotNull() for our in self._key_pairs())
        return reduce(Column.__and__, (*equal, *known))

    def _columns(
        self, joined: DataFrame, ours: list[str], theirs: list[str], our_time: str | None, their_time: str | None
    ) -> tuple[DataFrame, str | None]:
        """One column per key pair, and the other side's columns under free names. The time is ours, or theirs if
        ours may be null."""
        pairs = self._key_pairs()
        is_theirs = self.kind == "right"
        chosen = [_key_or_value(name, pairs, self.kind) for name in ours if name != our_time]
        if our_time:
            chosen.append(
                F.col(f"`{our_time}`")
                if not is_theirs
                else without_watermark_metadata(F.col(f"`{our_time}`"), our_time)
            )
        if self.kind == "semi":
            return joined.select(*chosen), our_time
        named = {
            name: self._unused_name(name.removeprefix(OTHER_PREFIX), ours)
            for name in theirs
            if name.removeprefix(OTHER_PREFIX) not in pairs.values()
        }
        for name, new in named.items():
            column = F.col(f"`{name}`")
            keeps_time = is_theirs and name == f"{OTHER_PREFIX}{their_time}"
            chosen.append(column.alias(new) if keeps_time else without_watermark_metadata(column, new))
        time = named.get(f"{OTHER_PREFIX}{their_time}") if is_theirs else our_time
        return joined.select(*chosen), time

    def _unused_name(self, name: str, taken: list[str]) -> str:
        prefix = self.prefix or f"{self.with_stream or self.newest_of or self.as_of or 'table'}_"
        return f"{prefix}{name}" if name in taken else name


def _is_text_and_number(one: DataType, other: DataType) -> bool:
    return any(isinstance(a, StringType) and isinstance(b, NumericType) for a, b in ((one, other), (other, one)))


def _equal_keys(our: Column, their: Column, ours: DataType, theirs: DataType) -> Column:
    """Compare text and integers as text: Spark would read "007" as 7, and fail on text that is not a number. A
    number with a fraction has many text forms, so it is compared as double."""
    if not _is_text_and_number(ours, theirs):
        return _equal_numbers(our, their, ours, theirs)
    if isinstance(ours, IntegralType) or isinstance(theirs, IntegralType):
        return our.cast("string") == their.cast("string")
    return our.try_cast("double") == their.try_cast("double")


def _equal_numbers(our: Column, their: Column, ours: DataType, theirs: DataType) -> Column:
    """Spark compares with a double as doubles, where 9007199254740993 equals ...992, and rounds decimals that need
    more than 38 digits. In these cases the exact side must also equal the other one in its own type."""
    equal = our == their
    for exact, other, kind, others in ((our, their, ours, theirs), (their, our, theirs, ours)):
        if isinstance(kind, LongType | DecimalType) and isinstance(others, DoubleType | FloatType):
            return equal & (exact == other.try_cast(kind))
        if isinstance(kind, DecimalType) and isinstance(others, DecimalType) and loses_digits(kind, others):
            return equal & (
                exact == other.try_cast(kind) if kind.scale >= others.scale else exact.try_cast(others) == other
            )
    return equal


def _all_not_null(names: Iterable[str]) -> Column:
    return reduce(Column.__and__, (F.col(quoted(name)).isNotNull() for name in names))


def newest_rows(table: Frame, keys: list[str]) -> DataFrame:
    """The newest row of each record key (or of these columns, for null keys), dead rows included: a record without
    value removes the row of its key, as in compaction. The last record of a partition is the newest; across
    partitions (after partitions were added) the one with the latest time."""
    rows = table.rows
    key = [F.col("_key")] if "_key" in rows.columns else []
    columns = [F.when(F.col("_key").isNull(), F.col(f"`{name}`")) if key else F.col(f"`{name}`") for name in keys]
    by = [*key, *(column.alias(f"_key_{at}") for at, column in enumerate(columns))]
    names = [name for name in rows.columns if name not in HIDDEN_COLUMNS or name == FATE]
    found = rows.select(*by, *_record_position(table), F.struct(*(F.col(f"`{name}`") for name in names)).alias(NEWEST))
    groups = ["_key"] * len(key) + [f"_key_{at}" for at in range(len(columns))]
    whole = F.struct(RECORD_TIME_COLUMN, NEWEST)
    ends = found.groupBy(*groups, *PARTITION).agg(F.max_by(whole, "_offset").alias(NEWEST))
    place = F.struct(f"{NEWEST}.{RECORD_TIME_COLUMN}", *PARTITION)
    newest = ends.groupBy(*groups).agg(F.max_by(f"{NEWEST}.{NEWEST}", place).alias(NEWEST))
    return newest.select(f"{NEWEST}.*").filter(F.col(FATE) == ALIVE).drop(FATE)


def _record_position(table: Frame) -> list[Column]:
    """Partition, offset and time of a row's record; constants if unknown."""
    known = set(table.rows.columns) if table.has_origin else set()
    place = [(name if name in known else None, name) for name in (*PARTITION, "_offset")]
    place.append((RECORD_TIME if RECORD_TIME in known else None, RECORD_TIME_COLUMN))
    return [(F.lit(0) if name is None else F.col(name)).alias(new) for name, new in place]


def _prefix_columns(rows: DataFrame, time: str | None = None, delay_ms: int = 0) -> DataFrame:
    columns = [
        with_watermark_metadata(F.col(f"`{name}`"), OTHER_PREFIX + name, delay_ms)
        if name == time
        else F.col(f"`{name}`").alias(OTHER_PREFIX + name)
        for name in rows.columns
    ]
    return rows.select(*columns)


def _key_or_value(name: str, pairs: dict[str, str], kind: str) -> Column:
    ours = F.col(f"`{name}`")
    if name in pairs and kind in ("right", "full"):
        return F.coalesce(ours, F.col(f"`{OTHER_PREFIX}{pairs[name]}`")).alias(name)
    return ours


def _spark_kind(kind: JoinKind) -> str:
    return {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer", "semi": "left_semi"}[
        kind
    ]


def _names(theirs: list[str]) -> str:
    return ", ".join(name.removeprefix(OTHER_PREFIX) for name in theirs)


@dataclass(frozen=True, kw_only=True)
class Union:
    """Add the rows of another stream. Columns are matched by name; a missing one is null."""

    with_stream: str = field(metadata={"doc": "the other stream"})
    KIND: ClassVar[StepKind] = "merges"

    def apply(self, frame: Frame) -> Frame:
        other = frame.context.stream(self.with_stream).drop_marked()
        # dead rows after the union are found by their source record only
        if SOURCE_RECORD in (*frame.rows.columns, *other.rows.columns):
            frame, other = frame.with_source_record(), other.with_source_record()
        _check_types(frame, other, self.with_stream)
        event_time = frame.event_time if frame.event_time == other.event_time else None
        rows = frame.rows.unionByName(other.rows, allowMissingColumns=True)
        both = frame.joined(other, rows, event_time)
        if not (frame.has_origin and other.has_origin):
            return both
        return replace(both, rows=rows, has_origin=True)


def _check_types(frame: Frame, other: Frame, name: str) -> None:
    """Spark would convert text to numbers and times, "007" to "7", and fail on other text. It would round decimals
    with many integer digits on one side and many fraction digits on the other."""
    for column in frame.columns:
        if column in other.columns:
            ours, theirs = (each.rows.schema[column].dataType for each in (frame, other))
            is_text = ours != theirs and StringType() in (ours, theirs) and NullType() not in (ours, theirs)
            if is_text or loses_digits(ours, theirs):
                cause = f"{column} is {ours.simpleString()}, and in stream {name} {theirs.simpleString()}"
                raise StepError(cause, "cast one of them before", "with_stream")

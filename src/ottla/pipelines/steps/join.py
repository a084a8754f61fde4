"""`join`: rows of two streams that belong together, or a stream's rows with what a table knows.

    join: {with_stream: payments, on: [order], within: 10 minutes}            # two streams
    join: {with_stream: payments, on: {order: order_id}, after: 1 hour, kind: left}
    join: {table: prices.csv, on: [product]}                                  # a file (CSV, JSON, Parquet)
    join: {sqlite: shop.db, table: products, on: [product], kind: left}
    join: {newest_of: customers, on: [customer]}                              # a stream of a compacted topic as a table
    join: {as_of: rates, on: [currency]}                                      # what was valid at the time of the row

Two streams need a watermark each, and a bound in time: rows are kept until nothing can match them any more, and a left,
right or full join then gives the rows without partner. A row without key matches nothing. Columns of the other side
whose names are taken get a prefix. A table is read when the pipeline starts. With `newest_of` the whole topic is read
again at every batch, and the newest record of each key counts: for topics that are small, or compacted. With `as_of`
a row gets the newest row of the other stream that is not after it: see as_of.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    NumericType,
    StringType,
)

from ottla.pipelines.model.fields import Duration
from ottla.pipelines.model.row_order import INSTANT, SOURCE_ORDER, RowOrder
from ottla.pipelines.steps.as_of import PLACE, Sides, placed, with_versions
from ottla.pipelines.steps.columns import lose_digits, need_columns
from ottla.pipelines.steps.event_time import RECORD_TIME, needed_time, timed, timed_rows, untimed
from ottla.pipelines.steps.frame import ALIVE, FATE, HIDDEN, Frame
from ottla.pipelines.steps.lateness import watch_late
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import Kind, StepError
from ottla.pipelines.steps.tables import file_table, postgres_table, sqlite_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEWEST, AT = "_newest", "_at"
PARTITION = SOURCE_ORDER[:2]
SIDE = "_other_"  # before the other side's columns while both are at hand

JoinKind = Literal["inner", "left", "right", "full", "semi"]


@dataclass(frozen=True, kw_only=True)
class Join:
    """Put together what belongs together: rows of two streams, or of a stream and a table."""

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
        default=None, metadata={"doc": "how long after ours the other stream's row may come"}
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
    KIND: ClassVar[Kind] = "merges"
    ORDER_MATTERS: ClassVar[str] = "only with `newest_of`: the table is what its topic holds when the batch runs"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if sum(map(bool, (self.with_stream, self.table, self.newest_of, self.as_of))) != 1:
            yield "", "with what?", "give one of with_stream, table, newest_of and as_of"
        if not self.on:
            yield "on", "names no column", ""
        if self.sqlite and self.postgres:
            yield "postgres", "the table is in one database", "give sqlite or postgres"
        is_two_streams = bool(self.with_stream)
        if is_two_streams and (self.within is None) == (self.after is None):
            yield "within", "two streams need a bound in time", "give within, or after"
        if not is_two_streams and (self.within is not None or self.after is not None):
            yield "within", "a table has no time", "leave within and after out"
        if not is_two_streams and self.kind in ("right", "full"):
            yield "kind", f"a table never ends, so {self.kind} cannot be told", "use inner, left or semi"
        if self.as_of and self.kind == "semi":
            yield "kind", "semi gives nothing of what was valid", "use inner or left"

    @property
    def with_streams(self) -> list[str]:
        return [self.as_of] if self.as_of else []

    def apply(self, frame: Frame) -> Frame:
        if self.as_of is not None:
            return self._as_of(frame, frame.around.stream(self.as_of).settle())
        if self.with_stream is not None:
            return self._with_stream(frame, frame.around.stream(self.with_stream).settle())
        return self._with_table(frame, self._newest(frame) if self.newest_of else self._table(frame))

    def row_order(self, before: RowOrder) -> RowOrder:
        """A row waits for its partner of the other stream, and later ones pass by; with `as_of` for its time."""
        if self.as_of:
            return RowOrder((INSTANT,))
        return RowOrder() if self.with_stream else before

    # two streams

    def _with_stream(self, frame: Frame, other: Frame) -> Frame:
        ours, theirs = needed_time(frame), self._their_time(other)
        frame, other = self._with_keys(frame, other)
        frame, other = watch_late(frame), watch_late(other, passage=frame.passages[-1])
        left = self._known(timed_rows(frame), frame)
        right = _sided(self._known(timed_rows(other), other), theirs, other.watermark_ms or 0)
        near = F.col(f"`{ours}`"), F.col(f"`{SIDE}{theirs}`")
        self._check_keys(left, right)
        condition = self._equal(left, right) & self._near(*near)
        joined = left.join(right, condition, _spark_kind(self.kind))
        rows, time = self._columns(joined, left.columns, right.columns, ours, theirs)
        return replace(frame.stateful(1).joined(other, rows, time), watermark_ms=self._delay_ms(frame, other))

    def _as_of(self, frame: Frame, other: Frame) -> Frame:
        ours, theirs = needed_time(frame), self._their_time(other)
        frame, other = self._with_keys(frame, other)
        frame, other = watch_late(frame), watch_late(other, passage=frame.passages[-1])
        left = self._known(frame.rows, frame)
        right = _sided(self._known(other.rows.withColumn(PLACE, placed(other.rows)), other))
        right = right.withColumnRenamed(SIDE + PLACE, PLACE)
        self._check_keys(left, right)
        sides = Sides(left, right, [(our, SIDE + their) for our, their in self._pairs().items()])
        delay_ms = max(frame.watermark_ms or 0, other.watermark_ms or 0)
        valid = with_versions(sides, sides.rows(ours, SIDE + theirs, delay_ms), ours, self.kind == "left")
        rows, time = self._columns(valid, [*left.columns, INSTANT], sides.their_names, ours, theirs)
        return replace(frame.stateful(1).joined(other, rows, time, (INSTANT,)), watermark_ms=delay_ms)

    def _with_keys(self, frame: Frame, other: Frame) -> tuple[Frame, Frame]:
        """Rows without key match nothing: they take part only where rows without partner come out, too. Said here and
        not left to Spark, which would filter them before the watermark: it would not move with them."""
        need_columns(frame, list(self._pairs()), "on")
        theirs = [their for their in self._pairs().values() if their in other.rows.columns]
        if self.kind not in ("left", "full"):
            frame = frame.taking_part(_all_known(self._pairs()))
        if self.kind not in ("right", "full") and theirs:
            frame, other = frame.taking_part_with(other, _all_known(theirs))
        return frame, other

    def _their_time(self, other: Frame) -> str:
        try:
            return needed_time(other)
        except StepError as problem:
            name, field = (self.as_of, "as_of") if self.as_of else (self.with_stream, "with_stream")
            raise StepError(f"stream {name}: {problem.cause}", problem.cure, field) from None

    def _near(self, ours: Column, theirs: Column) -> Column:
        bound = self.within if self.within is not None else self.after
        assert bound is not None
        span = F.expr(f"INTERVAL {bound.sql}")
        from_ = ours - span if self.within is not None else ours
        return theirs.between(from_, ours + span)

    def _delay_ms(self, frame: Frame, other: Frame) -> int:
        bound = int(self.within if self.within is not None else self.after or 0)
        return max(frame.watermark_ms or 0, other.watermark_ms or 0) + bound

    def _known(self, rows: DataFrame, frame: Frame) -> DataFrame:
        names = [name for name in rows.columns if name not in HIDDEN or name == frame.event_time]
        return rows.select(*(f"`{name}`" for name in names))

    # a stream and a table

    def _table(self, frame: Frame) -> DataFrame:
        assert self.table is not None
        spark, folder = frame.around.spark, frame.around.folder
        if self.sqlite:
            return sqlite_table(spark, folder, self.sqlite, self.table)
        if self.postgres:
            return postgres_table(spark, self.postgres, self.table)
        kinds = frame.rows.select(*map(quoted, frame.columns)).schema
        texts = [
            their
            for our, their in self._pairs().items()
            if our in kinds.names and isinstance(kinds[our].dataType, StringType)
        ]
        return file_table(spark, folder, self.table, texts)

    def _newest(self, frame: Frame) -> DataFrame:
        assert self.newest_of is not None
        try:
            table = frame.around.table(self.newest_of)
        except KeyError:
            raise StepError(f"there is no stream {self.newest_of!r}", "", "newest_of") from None
        return newest_rows(table, list(self._pairs().values()))

    def _with_table(self, frame: Frame, table: DataFrame) -> Frame:
        right = _sided(table)
        self._check_names(frame.columns, right.columns)
        joined = frame.rows.join(right, self._equal(frame.rows, right), _spark_kind(self.kind))
        rows, _ = self._columns(joined, frame.rows.columns, right.columns, None, None)
        return replace(frame, rows=rows, needs_count=True)

    # columns

    def _pairs(self) -> dict[str, str]:
        return dict(self.on) if isinstance(self.on, dict) else {name: name for name in self.on}

    def _check_names(self, ours: list[str], theirs: list[str]) -> None:
        for our, their in self._pairs().items():
            if our not in ours:
                raise StepError(f"there is no column {our!r}", f"there are: {', '.join(ours)}", "on")
            if SIDE + their not in theirs:
                raise StepError(f"the other side has no column {their!r}", f"it has: {_names(theirs)}", "on")

    def _check_keys(self, ours: DataFrame, theirs: DataFrame) -> None:
        """Of two streams: keys of text and numbers would not be told apart by all of Spark in the same way."""
        self._check_names(ours.columns, theirs.columns)
        for our, their in self._pairs().items():
            kinds = ours.schema[our].dataType, theirs.schema[SIDE + their].dataType
            if _is_text_and_number(*kinds):
                cause = f"{our} is {kinds[0].simpleString()}, and {their} of the other side {kinds[1].simpleString()}"
                raise StepError(cause, "cast one of them before", "on")

    def _equal(self, ours: DataFrame, theirs: DataFrame) -> Column:
        equal = (
            _same(F.col(f"`{our}`"), F.col(f"`{their}`"), ours.schema[our].dataType, theirs.schema[their].dataType)
            for our, their in ((our, SIDE + their) for our, their in self._pairs().items())
        )
        # Spark's full join of two streams would find null equal to null: it looks up whole keys in its state.
        known = (F.col(f"`{our}`").isNotNull() for our in self._pairs())
        return reduce(Column.__and__, (*equal, *known))

    def _columns(
        self, joined: DataFrame, ours: list[str], theirs: list[str], our_time: str | None, their_time: str | None
    ) -> tuple[DataFrame, str | None]:
        """One of each pair of keys, and the other side's columns under names that are free. The time is ours, or theirs
        where ours may be missing."""
        pairs = self._pairs()
        is_theirs = self.kind == "right"
        chosen = [_key_or_value(name, pairs, self.kind) for name in ours if name != our_time]
        if our_time:
            chosen.append(F.col(f"`{our_time}`") if not is_theirs else untimed(F.col(f"`{our_time}`"), our_time))
        if self.kind == "semi":
            return joined.select(*chosen), our_time
        named = {
            name: self._free(name.removeprefix(SIDE), ours)
            for name in theirs
            if name.removeprefix(SIDE) not in pairs.values()
        }
        for name, new in named.items():
            column = F.col(f"`{name}`")
            keeps_time = is_theirs and name == f"{SIDE}{their_time}"
            chosen.append(column.alias(new) if keeps_time else untimed(column, new))
        time = named.get(f"{SIDE}{their_time}") if is_theirs else our_time
        return joined.select(*chosen), time

    def _free(self, name: str, taken: list[str]) -> str:
        prefix = self.prefix or f"{self.with_stream or self.newest_of or self.as_of or 'table'}_"
        return f"{prefix}{name}" if name in taken else name


def _is_text_and_number(one: DataType, other: DataType) -> bool:
    return any(isinstance(a, StringType) and isinstance(b, NumericType) for a, b in ((one, other), (other, one)))


def _same(our: Column, their: Column, ours: DataType, theirs: DataType) -> Column:
    """Text and a whole number are compared as text: Spark would read "007" as 7, and end the run where a text is no
    number. The same number with a fraction may be written in many ways."""
    if not _is_text_and_number(ours, theirs):
        return _equal_numbers(our, their, ours, theirs)
    if isinstance(ours, IntegralType) or isinstance(theirs, IntegralType):
        return our.cast("string") == their.cast("string")
    return our.try_cast("double") == their.try_cast("double")


def _equal_numbers(our: Column, their: Column, ours: DataType, theirs: DataType) -> Column:
    """Spark compares with a double as doubles, where 9007199254740993 is ...992, and rounds decimals that have no room
    in 38 digits. There the side with all the digits must be what the other one is in its type."""
    equal = our == their
    for exact, other, kind, others in ((our, their, ours, theirs), (their, our, theirs, ours)):
        if isinstance(kind, LongType | DecimalType) and isinstance(others, DoubleType | FloatType):
            return equal & (exact == other.try_cast(kind))
        if isinstance(kind, DecimalType) and isinstance(others, DecimalType) and lose_digits(kind, others):
            return equal & (
                exact == other.try_cast(kind) if kind.scale >= others.scale else exact.try_cast(others) == other
            )
    return equal


def _all_known(names: Iterable[str]) -> Column:
    return reduce(Column.__and__, (F.col(quoted(name)).isNotNull() for name in names))


def newest_rows(table: Frame, keys: list[str]) -> DataFrame:
    """The newest row of each record key (or of these columns, for records without key), rows that died included: a
    record without value takes its key's row away, as compaction does. Of a partition the last record is the newest, of
    several partitions, as they are where some were added, the one with the latest time."""
    rows = table.rows
    key = [F.col("_key")] if "_key" in rows.columns else []
    columns = [F.when(F.col("_key").isNull(), F.col(f"`{name}`")) if key else F.col(f"`{name}`") for name in keys]
    by = [*key, *(column.alias(f"_key_{at}") for at, column in enumerate(columns))]
    names = [name for name in rows.columns if name not in HIDDEN or name == FATE]
    found = rows.select(*by, *_place(table), F.struct(*(F.col(f"`{name}`") for name in names)).alias(NEWEST))
    groups = ["_key"] * len(key) + [f"_key_{at}" for at in range(len(columns))]
    whole = F.struct(AT, NEWEST)
    ends = found.groupBy(*groups, *PARTITION).agg(F.max_by(whole, "_offset").alias(NEWEST))
    place = F.struct(f"{NEWEST}.{AT}", *PARTITION)
    newest = ends.groupBy(*groups).agg(F.max_by(f"{NEWEST}.{NEWEST}", place).alias(NEWEST))
    return newest.select(f"{NEWEST}.*").filter(F.col(FATE) == ALIVE).drop(FATE)


def _place(table: Frame) -> list[Column]:
    """Where a row's record lies, and its time; nothing of that where it is not known."""
    known = set(table.rows.columns) if table.has_origin else set()
    place = [(name if name in known else None, name) for name in (*PARTITION, "_offset")]
    place.append((RECORD_TIME if RECORD_TIME in known else None, AT))
    return [(F.lit(0) if name is None else F.col(name)).alias(new) for name, new in place]


def _sided(rows: DataFrame, time: str | None = None, delay_ms: int = 0) -> DataFrame:
    columns = [
        timed(F.col(f"`{name}`"), SIDE + name, delay_ms) if name == time else F.col(f"`{name}`").alias(SIDE + name)
        for name in rows.columns
    ]
    return rows.select(*columns)


def _key_or_value(name: str, pairs: dict[str, str], kind: str) -> Column:
    ours = F.col(f"`{name}`")
    if name in pairs and kind in ("right", "full"):
        return F.coalesce(ours, F.col(f"`{SIDE}{pairs[name]}`")).alias(name)
    return ours


def _spark_kind(kind: JoinKind) -> str:
    return {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer", "semi": "left_semi"}[
        kind
    ]


def _names(theirs: list[str]) -> str:
    return ", ".join(name.removeprefix(SIDE) for name in theirs)

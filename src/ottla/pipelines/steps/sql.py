"""`sql`: one SELECT over the stream, and over the other streams and tables that the step names.

    sql: |
      SELECT page, count(*) AS views FROM stream GROUP BY page

A stream of a compacted topic can be read as a table: `newest_of: {customers: [id]}` gives the newest row of each record
key (of these columns, for records without key), read again in every batch, as in `join`.

Spark gets text that is written from the checked tree (expressions/query.py). Aggregates keep state: put a `watermark`
before, or the state of a stream grows without end. Rows that a WHERE on the stream alone removes count as filtered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 (the usual alias)
from pyspark.sql import types as T  # noqa: N812 (the usual alias)

from ottla.pipelines.expressions.problems import SqlError
from ottla.pipelines.expressions.query import STREAM, Query, Where, grouping_columns, read_query, where_of
from ottla.pipelines.model.row_order import RowOrder, unique_by
from ottla.pipelines.steps.columns import require_columns
from ottla.pipelines.steps.frame import ALIVE, FATE, Frame
from ottla.pipelines.steps.join import newest_rows
from ottla.pipelines.steps.join_tables import file_table
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import StepError, StepKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Stateful operators in Spark's plan text.
STATEFUL = re.compile(r"^\W*(?:Aggregate|Distinct|Deduplicate\w*|GlobalLimit|Window)\b", re.MULTILINE)
PARSED = 100  # queries: each is read for its problems, its plan and its description
TABLE_DEAD = "dead_table"  # number of unreadable records of a table


@dataclass(frozen=True, kw_only=True)
class Sql:
    """The result of one SELECT over the stream."""

    query: str = field(metadata={"doc": "SELECT … FROM stream …"})
    streams: dict[str, str] = field(default_factory=dict, metadata={"doc": "name in the query: stream of the pipeline"})
    tables: dict[str, str] = field(default_factory=dict, metadata={"doc": "name in the query: file with a table"})
    newest_of: dict[str, list[str]] = field(
        default_factory=dict, metadata={"doc": "stream that is read as a table: the columns that are its key"}
    )
    KIND: ClassVar[StepKind] = "merges"

    @property
    def with_streams(self) -> list[str]:
        return list(self.streams.values())

    def files(self) -> Iterator[tuple[str, str]]:
        yield from (("tables", file) for file in self.tables.values())

    def parsed(self) -> Query:
        """Raises SqlError."""
        return _read(self.query, (*self.streams, *self.tables, *self.newest_of))

    def problems(self) -> Iterator[tuple[str, str, str]]:
        names = [*self.streams, *self.tables, *self.newest_of]
        try:
            query = self.parsed()
        except SqlError as problem:
            yield "query", str(problem), ""
            return
        if not self.newest_of and STREAM not in query.tables.values():
            yield "query", "does not read the stream", "write FROM stream"
        if STREAM in names or len({name.lower() for name in names}) < len(names):
            yield "streams", "names must be unique, and `stream` is this stream", ""

    def apply(self, frame: Frame) -> Frame:
        try:
            query = self.parsed()
        except SqlError as problem:
            raise StepError(str(problem), field="query") from None
        spark = frame.context.spark
        others = {name.lower(): frame.context.stream(stream).drop_marked() for name, stream in self.streams.items()}
        rows = {
            STREAM: visible(frame),
            **{name: visible(other) for name, other in others.items()},
            **{name.lower(): file_table(spark, frame.context.folder, file) for name, file in self.tables.items()},
            **{name.lower(): self._newest(frame, name) for name in self.newest_of},
        }
        frame, rows[STREAM] = _counted(frame, where_of(query.tree), rows[STREAM])
        result = _run(spark, query, rows)
        used = [rows[name] for name in set(query.tables.values())]
        if frame.is_streaming and (self.streams or _keeps_state(result, used)):
            frame = replace(
                frame, applied_steps=(*frame.applied_steps[:-1], replace(frame.applied_steps[-1], has_state=True))
            )
        _check_names(result.columns)
        _check_inner_names(result.schema)
        if STREAM not in query.tables.values() and (frame.is_streaming or frame.context.is_counting):
            raise StepError("does not read the stream", "write FROM stream", "query")  # its rows would not be counted
        event_time = frame.event_time if frame.event_time in result.columns else None
        made = frame.merged(result, event_time)
        for other in others.values():
            made = made.joined(other, made.rows, event_time)
        return made

    def row_order(self, before: RowOrder) -> RowOrder:  # noqa: ARG002
        columns = grouping_columns(self.query)
        return RowOrder() if columns is None else unique_by(columns)

    def _newest(self, frame: Frame, name: str) -> DataFrame:
        try:
            table = frame.context.table(name)
        except KeyError:
            raise StepError(f"there is no stream {name!r}", "", "newest_of") from None
        for column in self.newest_of[name]:
            if column not in table.columns:
                raise StepError(f"{name} has no column {column!r}", f"it has: {', '.join(table.columns)}", "newest_of")
        if not frame.context.is_streaming:  # a stream reads the table in every batch
            _, rows = frame.context.observe(table.rows, [F.count_if(F.col(FATE) < ALIVE).alias(TABLE_DEAD)])
            table = replace(table, rows=rows)
        return newest_rows(table, list(self.newest_of[name]))


@lru_cache(PARSED)
def _read(text: str, tables: tuple[str, ...]) -> Query:
    return read_query(text, tables)


def visible(frame: Frame) -> DataFrame:
    require_columns(frame, frame.columns)
    return frame.rows.select(*map(quoted, frame.columns))


def _counted(frame: Frame, where: Where | None, rows: DataFrame) -> tuple[Frame, DataFrame]:
    """Count the rows that the query's WHERE will remove: they are filtered."""
    if where is None or not frame.context.counts_filtered:
        return frame, rows
    is_left_out = ~F.coalesce(F.expr(where.condition), F.lit(False))
    try:
        name, counted = frame.context.observe(rows.alias(where.alias), [F.count_if(is_left_out).alias("filtered")])
    except AnalysisException:  # for the whole query Spark reports the problem with its position
        return frame, rows
    last = replace(frame.applied_steps[-1], filter_observations=(name,))
    return replace(frame, applied_steps=(*frame.applied_steps[:-1], last)), counted


def _keeps_state(result: DataFrame, tables: list[DataFrame]) -> bool:
    """Whether Spark keeps state for the query, according to its plan; assumed if the plan is remote."""
    found = _stateful_parts(result)
    return found is None or found > sum(_stateful_parts(table) or 0 for table in tables)


def _stateful_parts(rows: DataFrame) -> int | None:
    """None if unknown."""
    if not hasattr(rows, "_jdf"):
        return None
    return len(STATEFUL.findall(str(rows._jdf.queryExecution().analyzed().toString())))


def _check_names(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.startswith("_"):
            raise StepError(f"column {name!r}: names that start with _ are reserved", "write AS another_name", "query")
        if name.lower() in seen:
            raise StepError(f"two columns are called {name!r}", "write AS another_name behind one of them", "query")
        seen.add(name.lower())


def _check_inner_names(schema: T.StructType) -> None:
    """JSON keeps only one of two equal names in a struct: the other value would be lost."""
    for entry in schema.fields:
        name = equal_name(entry.dataType)
        if name is not None:
            raise StepError(
                f"column {entry.name!r} has a struct with two fields {name!r}", "give one another name", "query"
            )


def equal_name(kind: T.DataType) -> str | None:
    """A name of two fields in the same struct, at any depth."""
    if isinstance(kind, T.StructType):
        twice = (name for name, count in Counter(kind.names).items() if count > 1)
        inner = (equal_name(entry.dataType) for entry in kind.fields)
        return next((name for name in (*twice, *inner) if name is not None), None)
    if isinstance(kind, T.ArrayType):
        return equal_name(kind.elementType)
    return equal_name(kind.keyType) or equal_name(kind.valueType) if isinstance(kind, T.MapType) else None


def _run(spark: SparkSession, query: Query, rows: Mapping[str, DataFrame]) -> DataFrame:
    """Pass the tables with the text: no view is left behind, and it works over Spark Connect."""
    numbers = {name: f"table{number}" for number, name in enumerate(rows)}
    given: dict[str, Any] = {numbers[name]: rows[name] for name in set(query.tables.values())}
    return spark.sql(query.text({name: f"{{{number}}}" for name, number in numbers.items()}), **given)

"""Rows into a table, exactly once: the rows and the batch number are written in one database transaction.

Rows are staged first (staging.py): the plan runs once, in parallel, and the driver sends them to the database in
bounded memory. A batch that the database already has is recognized by number and identity and skipped. A broken
connection is reopened: whether an unanswered commit succeeded is read from the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError
from ottla.pipelines.sinks.batch_ledger import BatchCheck, LastBatch, is_written
from ottla.pipelines.sinks.external_offsets import Offsets, batch_end_offsets, reject_different_start
from ottla.pipelines.sinks.postgresql import PostgresSession
from ottla.pipelines.sinks.sql_tables import ColumnKind, Table, TableColumn
from ottla.pipelines.sinks.sqlite import SqliteSession
from ottla.pipelines.sinks.staging import StagedBatch, local_path, read_batches, staging_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


READ_ROWS = 20_000
ATTEMPTS_MAX = 6
WAIT_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)

Answer = TypeVar("Answer")

NEWEST, ROW = "_newest", "_row"
FOLDED_KINDS: tuple[ColumnKind, ...] = ("json", "float")


class Session(Protocol):
    """One database transaction; leaving it with an exception rolls back."""

    @property
    def RETRIABLE_ERRORS(self) -> tuple[type[Exception], ...]:  # noqa: N802
        """The exceptions of a broken connection."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *problem: object) -> None: ...
    def prepare(self, table: Table, columns: list[TableColumn]) -> None: ...
    def last_batch(self, query: str, table: str) -> LastBatch | None: ...
    def last_batches(self, table: str) -> dict[str, LastBatch]: ...
    def delete_batch(self, query: str, table: str) -> None: ...
    def has_table(self, table: Table) -> bool: ...
    def count(self, table: Table) -> int: ...
    def clear(self, table: Table) -> None: ...
    def store_batch(self, query: str, table: str, recorded: LastBatch) -> None: ...
    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int: ...
    def offsets(self, query: str) -> Offsets: ...
    def store_offsets(self, query: str, offsets: Offsets) -> None: ...
    def commit(self) -> None: ...


@dataclass(frozen=True)
class DatabaseSink:
    """`keeps_offsets`: store the end offsets of the source in the same transaction (external_offsets.py)."""

    table: Table
    begin_at: int | None = None
    keeps_offsets: bool = False
    checkpoint: str = ""  # of the query; required for keeps_offsets
    started_at: Offsets | None = None  # the offsets at which the query started
    has_single_query: ClassVar[bool] = False
    may_forget_batches: ClassVar[bool] = False

    @property
    def place(self) -> str:
        return f"table {self.table.name}"

    def last_batches(self) -> Mapping[str, LastBatch]:
        """Empty if the table does not exist: its ledger entries describe rows of a dropped table."""
        return self.with_retries(
            lambda session: session.last_batches(self.table.name) if session.has_table(self.table) else {}
        )

    def session(self) -> Session:
        raise NotImplementedError

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.insert(rows, batch)

    def insert(self, rows: DataFrame, batch: Batch) -> int:
        """Return the number of rows written; 0 if the database has the batch already."""
        columns = self.table.columns(rows.schema)
        self.table.check_rows(columns)
        staging = staging_for(batch, f"table-{self.table.name}")
        wanted = newest_rows(with_deletion_flag(to_storable(rows, columns), self.table), self.table, columns)
        try:
            staged = staging.pin(wanted, batch.batch_id)
        except Exception as problem:
            refused = deletion_error(problem, self.table)
            if refused is not None:
                raise refused from problem
            raise
        offsets = batch_end_offsets(rows.sparkSession, self.checkpoint, batch.batch_id) if self.keeps_offsets else None
        source = StagedRows(rows.sparkSession, staged)
        count = self.with_retries(lambda session: self._transaction(session, columns, batch, source, offsets))
        staging.release(staged)
        return count

    def _transaction(
        self, session: Session, columns: list[TableColumn], batch: Batch, source: StagedRows, offsets: Offsets | None
    ) -> int:
        if not session.has_table(self.table):  # ledger entries of a dropped table of this name do not apply
            for query in session.last_batches(self.table.name):
                session.delete_batch(query, self.table.name)
        session.prepare(self.table, columns)
        recorded = session.last_batch(batch.query, self.table.name)
        if is_written(self._batch_check(session, batch, source.staged, recorded), recorded):
            return 0
        source.staged.reject_if_released(f"table {self.table.name}")
        count = session.insert(self.table, columns, source.batches())
        session.store_batch(batch.query, self.table.name, LastBatch(batch.batch_id, source.staged.identity))
        if offsets is not None:
            session.store_offsets(batch.query, offsets)
        session.commit()
        return count

    def _batch_check(
        self, session: Session, batch: Batch, staged: StagedBatch, recorded: LastBatch | None
    ) -> BatchCheck:
        """With offsets in the database, a new checkpoint may continue where the old one ended: batch 0 is then
        valid."""
        subject = f"query {batch.query}, table {self.table.name}"
        begin_at = self.begin_at
        if self.keeps_offsets and batch.batch_id == 0 and recorded is not None and begin_at is None:
            if recorded != (0, staged.identity):
                reject_different_start(subject, self.started_at, session.offsets(batch.query))
            begin_at = 0
        return BatchCheck(batch.batch_id, staged.identity, subject, begin_at)

    def with_retries(self, work: Callable[[Session], Answer]) -> Answer:
        """Retry on connection errors. Raises SinkError after the last attempt."""
        for attempt in range(ATTEMPTS_MAX):
            session = self.session()
            try:
                with session:
                    return work(session)
            except session.RETRIABLE_ERRORS as problem:
                if attempt == ATTEMPTS_MAX - 1:
                    said = " ".join(str(problem).split())  # driver messages may have several lines
                    raise SinkError(f"{self.place}: the database does not answer: {said}") from problem
                time.sleep(WAIT_SECONDS[attempt])
        raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True)
class SqliteSink(DatabaseSink):
    """A table in a SQLite file on the driver's machine."""

    path: str = ""

    @property
    def place(self) -> str:
        return f"table {self.table.name} of {self.path}"

    def last_batches(self) -> Mapping[str, LastBatch]:
        return super().last_batches() if Path(self.path).exists() else {}

    def session(self) -> Session:
        return SqliteSession(self.path)


@dataclass(frozen=True)
class PostgresSink(DatabaseSink):
    """A table in PostgreSQL; `connection` is a psycopg connection string and is never shown."""

    connection: str = field(default="", repr=False)

    def session(self) -> Session:
        return PostgresSession(self.connection)


class StagedRows:
    """Staged rows, read file by file in the driver."""

    def __init__(self, spark: SparkSession, staged: StagedBatch) -> None:
        self.spark = spark
        self.staged = staged

    def __repr__(self) -> str:
        return f"StagedRows({len(self.staged.files)} files)"

    def batches(self) -> Iterator[Any]:
        for each in self.staged.files:
            if local_path(each.path) is not None:
                yield from read_batches(each.path, READ_ROWS)
            else:
                yield from self.spark.read.parquet(each.path).toArrow().to_batches(READ_ROWS)


def to_storable(rows: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """Convert columns to storable types: nested values to JSON, intervals and similar types to text, timestamps to
    microseconds."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    from ottla.pipelines.sinks.encoding import JSON_OPTIONS, null_non_finite  # noqa: PLC0415

    kept = []
    kinds: Mapping[str, str] = {column.name: column.kind for column in columns}
    for each in rows.schema.fields:
        column = F.col("`" + each.name.replace("`", "``") + "`")
        kind = kinds.get(each.name)
        if kind == "json":
            column = F.to_json(null_non_finite(column, each.dataType), JSON_OPTIONS)
        elif kind == "text":
            column = column.cast("string")
        elif kind == "timestamp":
            column = F.unix_micros(column)  # Parquet's older timestamp type ends in the year 2262
        kept.append(column.alias(each.name))
    return rows.select(*kept)


def sqlite_table(path: str, table: str, *, query: str, folder: str, **options: Any) -> ForeachBatch:
    """For foreachBatch. `options`: mode, key, newest_by, delete_by, create, and fields of DatabaseSink."""
    return ForeachBatch(SqliteSink(**_table_options(table, options), path=path), query, folder)


def postgres_table(connection: str, table: str, *, query: str, folder: str, **options: Any) -> ForeachBatch:
    """For foreachBatch. `options`: mode, key, newest_by, delete_by, create, and fields of DatabaseSink."""
    return ForeachBatch(PostgresSink(**_table_options(table, options), connection=connection), query, folder)


def _table_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    own = {key: options.pop(key) for key in ("mode", "create", "newest_by", "delete_by") if key in options}
    key = options.pop("key", ())
    return {"table": Table(name, key=(key,) if isinstance(key, str) else tuple(key), **own), **options}


def newest_rows(rows: DataFrame, table: Table, columns: Sequence[TableColumn]) -> DataFrame:
    """The newest row of each key, without the columns that only define the order. The rows are in storable form.

    After a shuffle, rows of one key are in any task and any order, and the result must not depend on that. The newest
    row has the greatest `newest_by`, then the last `order`. Rows equal in both (a join made them from one record) are
    distinguished by content, so a repeated batch keeps the same one.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    if not may_have_duplicates(table, columns):
        return rows
    order = table.order or ()
    row = F.struct(*(F.col(_quoted(name)) for name in rows.columns if name not in order))
    told = [] if table.newest_by is None else [_comparable(rows, table.newest_by)]
    places = [column.alias(f"_{at}") for at, column in enumerate([*told, *map(F.col, order)])]
    keys = [F.col(_quoted(name)).alias(f"_key_{at}") for at, name in enumerate(table.key)]
    newest = F.max(F.struct(*places, row.alias(ROW))).alias(NEWEST)  # null sorts first
    return rows.groupBy(*keys).agg(newest).select(f"{NEWEST}.{ROW}.*")


def may_have_duplicates(table: Table, columns: Sequence[TableColumn]) -> bool:
    """Whether a batch may contain two rows of one key. Rows without any order were grouped by the key
    (model/row_order.py), so grouping again would be a needless shuffle. But values that Spark distinguishes may be
    equal in the table, such as JSON texts, or NaN and null."""
    if table.mode != "upsert" or (table.order is None and table.newest_by is None):
        return False
    merged = any(column.kind in FOLDED_KINDS for column in columns if column.name in table.key)
    return bool(table.order) or table.newest_by is not None or merged


def with_deletion_flag(rows: DataFrame, table: Table) -> DataFrame:
    """The column `delete_by` last, true or false. A deleting row without a key fails the plan before rows are staged,
    so a corrected pipeline can repeat the batch."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if table.delete_by is None:
        return rows
    if table.delete_by not in rows.columns or rows.schema[table.delete_by].dataType.typeName() != "boolean":
        raise SinkError(f"table {table.name}: delete_by: there is no boolean column {table.delete_by!r}")
    others = [F.col(_quoted(name)) for name in rows.columns if name != table.delete_by]
    deletes = F.coalesce(F.col(_quoted(table.delete_by)), F.lit(False))
    without = [(F.col(_quoted(name)).isNull(), name) for name in table.key]
    for is_null, name in without:
        deletes = F.when(
            deletes & is_null, F.raise_error(F.lit(_missing_key_text(table, name))).cast("boolean")
        ).otherwise(deletes)
    return rows.select(*others, deletes.alias(table.delete_by))


def deletion_error(problem: Exception, table: Table) -> SinkError | None:
    """The SinkError for a plan that `with_deletion_flag` made fail."""
    texts = [_missing_key_text(table, name) for name in table.key]
    return next((SinkError(text) for text in texts if text in str(problem)), None)


def _missing_key_text(table: Table, name: str) -> str:
    return (
        f"table {table.name}: a row that deletes has no value in the key column {name!r}: take it from the key of the"
        " record, or let such rows die (rule)"
    )


def _comparable(rows: DataFrame, name: str) -> Column:
    """Spark sorts NaN last; here NaN counts as null."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    column = F.col(_quoted(name))
    is_float = rows.schema[name].dataType.typeName() in ("float", "double")
    return F.when(~F.isnan(column), column) if is_float else column


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

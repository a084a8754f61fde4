"""Rows into a table, exactly once: the rows, and which batch they are, are one transaction of the database.

The rows are pinned first (staging.py), so the plan runs once, in parallel, and what the driver then sends to the
database never fills its memory. A batch that the database already has is recognised by its number and identity and
left out. A connection that breaks is opened again: whether a commit that was not answered came through is what the
database says, not what we believe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from ottla.pipelines.sinks.batch import Batch, ForeachBatch, SinkError
from ottla.pipelines.sinks.external_offsets import Offsets, planned_offsets, refuse_other_start
from ottla.pipelines.sinks.ledger import Question, Recorded, is_written
from ottla.pipelines.sinks.newest import newest_rows, refused_deletion, with_deletions
from ottla.pipelines.sinks.postgresql import PostgresSession
from ottla.pipelines.sinks.sqlite import SqliteSession
from ottla.pipelines.sinks.staged_files import read_batches
from ottla.pipelines.sinks.staging import Staged, local_path, staging_for
from ottla.pipelines.sinks.tables import Table, TableColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_ROWS = 20_000
ATTEMPTS_MAX = 6
WAIT_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)

Answer = TypeVar("Answer")


class Session(Protocol):
    """One transaction with a database; leaving it with an exception rolls back."""

    @property
    def LOST(self) -> tuple[type[Exception], ...]:  # noqa: N802
        """What a connection that broke looks like."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *problem: object) -> None: ...
    def prepare(self, table: Table, columns: list[TableColumn]) -> None: ...
    def recorded(self, query: str, table: str) -> Recorded | None: ...
    def remembered(self, table: str) -> dict[str, Recorded]: ...
    def forget(self, query: str, table: str) -> None: ...
    def has_table(self, table: Table) -> bool: ...
    def count(self, table: Table) -> int: ...
    def clear(self, table: Table) -> None: ...
    def record(self, query: str, table: str, recorded: Recorded) -> None: ...
    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int: ...
    def offsets(self, query: str) -> Offsets: ...
    def keep_offsets(self, query: str, offsets: Offsets) -> None: ...
    def commit(self) -> None: ...


@dataclass(frozen=True)
class DatabaseSink:
    """`keeps_offsets`: the offsets to which the source was read go into the same transaction (external_offsets.py)."""

    table: Table
    begin_at: int | None = None
    keeps_offsets: bool = False
    checkpoint: str = ""  # of the query; needed for the offsets
    started_at: Offsets | None = None  # where the query began to read
    is_exclusive: ClassVar[bool] = False
    is_forgetful: ClassVar[bool] = False

    @property
    def place(self) -> str:
        return f"table {self.table.name}"

    def remembered(self) -> Mapping[str, Recorded]:
        """Nothing where the table is gone: what the ledger says is about rows that are gone, too."""
        return self.patiently(
            lambda session: session.remembered(self.table.name) if session.has_table(self.table) else {}
        )

    def session(self) -> Session:
        raise NotImplementedError

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.insert(rows, batch)

    def insert(self, rows: DataFrame, batch: Batch) -> int:
        """How many rows were written: none if the database has the batch already."""
        columns = self.table.columns(rows.schema)
        self.table.check_rows(columns)
        staging = staging_for(batch, f"table-{self.table.name}")
        wanted = newest_rows(with_deletions(storable(rows, columns), self.table), self.table, columns)
        try:
            staged = staging.pin(wanted, batch.batch_id)
        except Exception as problem:
            refused = refused_deletion(problem, self.table)
            if refused is not None:
                raise refused from problem
            raise
        offsets = planned_offsets(rows.sparkSession, self.checkpoint, batch.batch_id) if self.keeps_offsets else None
        source = StagedRows(rows.sparkSession, staged)
        count = self.patiently(lambda session: self._transaction(session, columns, batch, source, offsets))
        staging.release(staged)
        return count

    def _transaction(
        self, session: Session, columns: list[TableColumn], batch: Batch, source: StagedRows, offsets: Offsets | None
    ) -> int:
        if not session.has_table(self.table):  # what was remembered of an earlier table of this name is not of this one
            for query in session.remembered(self.table.name):
                session.forget(query, self.table.name)
        session.prepare(self.table, columns)
        recorded = session.recorded(batch.query, self.table.name)
        if is_written(self._question(session, batch, source.staged, recorded), recorded):
            return 0
        source.staged.refuse_if_released(f"table {self.table.name}")
        count = session.insert(self.table, columns, source.batches())
        session.record(batch.query, self.table.name, Recorded(batch.batch_id, source.staged.identity))
        if offsets is not None:
            session.keep_offsets(batch.query, offsets)
        session.commit()
        return count

    def _question(self, session: Session, batch: Batch, staged: Staged, recorded: Recorded | None) -> Question:
        """With offsets in the database a new checkpoint may go on where the old one was: batch 0 is then no doubt."""
        subject = f"query {batch.query}, table {self.table.name}"
        begin_at = self.begin_at
        if self.keeps_offsets and batch.batch_id == 0 and recorded is not None and begin_at is None:
            if recorded != (0, staged.identity):
                refuse_other_start(subject, self.started_at, session.offsets(batch.query))
            begin_at = 0
        return Question(batch.batch_id, staged.identity, subject, begin_at)

    def patiently(self, work: Callable[[Session], Answer]) -> Answer:
        """Raises SinkError when the database does not answer, also after several attempts."""
        for attempt in range(ATTEMPTS_MAX):
            session = self.session()
            try:
                with session:
                    return work(session)
            except session.LOST as problem:
                if attempt == ATTEMPTS_MAX - 1:
                    said = " ".join(str(problem).split())  # a driver's words may be several lines
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

    def remembered(self) -> Mapping[str, Recorded]:
        return super().remembered() if Path(self.path).exists() else {}

    def session(self) -> Session:
        return SqliteSession(self.path)


@dataclass(frozen=True)
class PostgresSink(DatabaseSink):
    """A table in PostgreSQL; `connection` is what psycopg takes, and is never shown."""

    connection: str = field(default="", repr=False)

    def session(self) -> Session:
        return PostgresSession(self.connection)


class StagedRows:
    """Pinned rows, file by file, in the driver."""

    def __init__(self, spark: SparkSession, staged: Staged) -> None:
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


def storable(rows: DataFrame, columns: list[TableColumn]) -> DataFrame:
    """These columns as a table takes them: nested values as JSON, intervals and the like as text, timestamps as
    microseconds. The others stay as they are."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 (this package is imported without Spark)

    from ottla.pipelines.sinks.encoding import JSON_OPTIONS, finite  # noqa: PLC0415

    kept = []
    kinds: Mapping[str, str] = {column.name: column.kind for column in columns}
    for each in rows.schema.fields:
        column = F.col("`" + each.name.replace("`", "``") + "`")
        kind = kinds.get(each.name)
        if kind == "json":
            column = F.to_json(finite(column, each.dataType), JSON_OPTIONS)
        elif kind == "text":
            column = column.cast("string")
        elif kind == "timestamp":
            column = F.unix_micros(column)  # Parquet's older type for timestamps ends in the year 2262
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

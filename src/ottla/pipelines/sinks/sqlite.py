"""A transaction with SQLite.

SQLite has no types for dates and decimals: timestamps and dates are ISO 8601 text (UTC, with Z), decimals are text with
all digits, Booleans are 0 and 1. NaN is NULL, because SQLite has none; infinity is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from decimal import Context, Decimal
from typing import Any, Self

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE, Offsets, offsets_from_rows, offsets_to_rows
from ottla.pipelines.sinks.sql_tables import (
    LEDGER_TABLE,
    STORED_ALIAS,
    ColumnKind,
    Table,
    TableColumn,
    conflict_clause,
    create_statement,
    is_newer,
    quoted,
    quoted_list,
    row_values,
)

BUSY_SECONDS = 30.0
SORTABLE_FUNCTION = "ottla_sortable"  # SQL function: decimals are stored as text
DECIMAL_DIGITS = 38  # maximum before and after the decimal point
# An existing column may have another type.
COMPARISON_CASTS: Mapping[ColumnKind, str] = {
    "integer": "CAST({} AS INTEGER)",
    "float": "CAST({} AS REAL)",
    "decimal": f"{SORTABLE_FUNCTION}({{}})",
}
TYPES: Mapping[ColumnKind, str] = {
    "boolean": "INTEGER",
    "integer": "INTEGER",
    "float": "REAL",
    "decimal": "TEXT",
    "text": "TEXT",
    "json": "TEXT",
    "binary": "BLOB",
    "date": "TEXT",
    "timestamp": "TEXT",
    "local_timestamp": "TEXT",
}


class SqliteSession:
    """Opened for one batch."""

    RETRIABLE_ERRORS: tuple[type[Exception], ...] = ()

    def __init__(self, path: str) -> None:
        self.path = path
        self._database: sqlite3.Connection | None = None

    def __repr__(self) -> str:
        return f"SqliteSession({self.path}, {'open' if self._database else 'closed'})"

    def __enter__(self) -> Self:
        try:
            self._database = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            self._database.create_function(SORTABLE_FUNCTION, 1, sortable_decimal, deterministic=True)
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as problem:
            raise SinkError(f"{self.path}: {problem}") from problem
        return self

    def __exit__(self, *problem: object) -> None:
        assert self._database is not None
        self._database.close()  # uncommitted changes are rolled back

    @property
    def database(self) -> sqlite3.Connection:
        assert self._database is not None
        return self._database

    def prepare(self, table: Table, columns: list[TableColumn]) -> None:
        run = self.database.execute
        self._make_ledger()
        existing = {row[1]: row[2] for row in run(f"PRAGMA table_info({table.quoted})")}
        if existing:
            table.check_existing(columns, existing, TYPES)
        elif table.create:
            run(create_statement(table, columns, TYPES))
        else:
            raise SinkError(f"{self.path} has no table {table.name}: create it, or let it be created (create: true)")
        if table.key and existing:
            self._check_key(table)

    def _make_ledger(self) -> None:
        columns = "(query TEXT, sink TEXT, batch INTEGER, identity TEXT, UNIQUE (query, sink))"
        self.database.execute(f"CREATE TABLE IF NOT EXISTS {LEDGER_TABLE} {columns}")

    def _check_key(self, table: Table) -> None:
        for row in self.database.execute(f"PRAGMA index_list({table.quoted})").fetchall():
            names = [each[2] for each in self.database.execute(f"PRAGMA index_info({quoted(row[1])})")]
            if row[2] and sorted(names) == sorted(table.key):
                return
        raise SinkError(
            f"table {table.name} has no unique index on {', '.join(table.key)}, which upsert needs:"
            f" CREATE UNIQUE INDEX … ON {table.quoted} ({quoted_list(table.key)})"
        )

    def last_batch(self, query: str, table: str) -> LastBatch | None:
        statement = f"SELECT batch, identity FROM {LEDGER_TABLE} WHERE query = ? AND sink = ?"  # noqa: S608
        row = self.database.execute(statement, (query, table)).fetchone()
        return None if row is None else LastBatch(int(row[0]), str(row[1]))

    def last_batches(self, table: str) -> dict[str, LastBatch]:
        self._make_ledger()
        statement = f"SELECT query, batch, identity FROM {LEDGER_TABLE} WHERE sink = ?"  # noqa: S608
        found = self.database.execute(statement, (table,)).fetchall()
        return {str(query): LastBatch(int(batch), str(identity)) for query, batch, identity in found}

    def has_table(self, table: Table) -> bool:
        return bool(self.database.execute(f"PRAGMA table_info({table.quoted})").fetchall())

    def delete_batch(self, query: str, table: str) -> None:
        self._make_offsets()
        self.database.execute(f"DELETE FROM {LEDGER_TABLE} WHERE query = ? AND sink = ?", (query, table))  # noqa: S608
        self.database.execute(f"DELETE FROM {OFFSETS_TABLE} WHERE query = ?", (query,))  # noqa: S608

    def count(self, table: Table) -> int:
        """The number of rows; 0 if the table does not exist."""
        if not self.has_table(table):
            return 0
        return int(self.database.execute(f"SELECT count(*) FROM {table.quoted}").fetchone()[0])  # noqa: S608

    def clear(self, table: Table) -> None:
        if self.count(table):
            self.database.execute(f"DELETE FROM {table.quoted}")  # noqa: S608

    def store_batch(self, query: str, table: str, recorded: LastBatch) -> None:
        statement = f"INSERT OR REPLACE INTO {LEDGER_TABLE} (query, sink, batch, identity) VALUES (?, ?, ?, ?)"  # noqa: S608
        self.database.execute(statement, (query, table, *recorded))

    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        if table.mode == "replace":
            self.database.execute(f"DELETE FROM {table.quoted}")  # noqa: S608
        statement = insert_statement(table, columns)
        places = [index for index, column in enumerate(columns) if column.name in table.key]
        count = 0
        for batch in batches:
            rows = row_values(batch, columns)
            count += len(rows)
            if table.delete_by:
                rows = self._delete(
                    table, places, columns, zip(rows, batch.column(len(columns)).to_pylist(), strict=True)
                )
            whole = [row for row in rows if all(row[place] is not None for place in places)]
            self._run_many(table, statement, whole)
            if len(whole) < len(rows):
                without = [row for row in rows if any(row[place] is None for place in places)]
                self._replace(table, columns, {tuple(row[place] for place in places): row for row in without})
        return count

    def _delete(
        self, table: Table, places: list[int], columns: list[TableColumn], rows: Iterable[tuple[tuple[Any, ...], bool]]
    ) -> list[tuple[Any, ...]]:
        """Delete keys whose last row has the delete flag; return the other rows. The last row of a key wins."""
        last = {tuple(row[place] for place in places): (row, is_deleted) for row, is_deleted in rows}
        same = " AND ".join(f"{quoted(columns[place].name)} = ?" for place in places)
        statement = f"DELETE FROM {table.quoted} WHERE {same}"  # noqa: S608
        self._run_many(table, statement, (key for key, (_, is_deleted) in last.items() if is_deleted))
        return [row for row, is_deleted in last.values() if not is_deleted]

    def _replace(
        self, table: Table, columns: list[TableColumn], rows: Mapping[tuple[Any, ...], tuple[Any, ...]]
    ) -> None:
        """NULLs never conflict: a stored row with NULL in its key is deleted, unless it is newer, and inserted again.
        `rows` are keyed by their key."""
        key = [column.name for column in columns if column.name in table.key]
        same = " AND ".join(f"{STORED_ALIAS}.{quoted(name)} IS given.{quoted(name)}" for name in key)
        names = quoted_list([column.name for column in columns])
        given = f"WITH given ({names}) AS (VALUES ({', '.join('?' * len(columns))}))"
        stays = (
            f" AND NOT {is_newer(STORED_ALIAS, 'given', table, columns, COMPARISON_CASTS)}" if table.newest_by else ""
        )
        stored = f"{table.quoted} AS {STORED_ALIAS}"
        delete = f"{given} DELETE FROM {stored} WHERE EXISTS (SELECT 1 FROM given WHERE {same}{stays})"  # noqa: S608
        absent = f"NOT EXISTS (SELECT 1 FROM {stored} WHERE {same})"  # noqa: S608
        insert = f"{given} INSERT INTO {table.quoted} ({names}) SELECT * FROM given WHERE {absent}"  # noqa: S608
        for statement in (delete, insert):
            self._run_many(table, statement, rows.values())

    def _run_many(self, table: Table, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        try:
            self.database.executemany(statement, rows)
        except sqlite3.Error as problem:
            raise SinkError(f"table {table.name} accepts no row: {problem}") from problem

    def offsets(self, query: str) -> Offsets:
        self._make_offsets()
        statement = f"SELECT topic, partition, next_offset FROM {OFFSETS_TABLE} WHERE query = ?"  # noqa: S608
        return offsets_from_rows(self.database.execute(statement, (query,)).fetchall())

    def store_offsets(self, query: str, offsets: Offsets) -> None:
        self._make_offsets()
        names = "(query, topic, partition, next_offset)"
        statement = f"INSERT OR REPLACE INTO {OFFSETS_TABLE} {names} VALUES (?, ?, ?, ?)"  # noqa: S608
        self.database.executemany(statement, offsets_to_rows(query, offsets))

    def _make_offsets(self) -> None:
        self.database.execute(
            f"CREATE TABLE IF NOT EXISTS {OFFSETS_TABLE} (query TEXT, topic TEXT, partition INTEGER,"
            " next_offset INTEGER, UNIQUE (query, topic, partition))"
        )

    def commit(self) -> None:
        try:
            self.database.execute("COMMIT")
        except sqlite3.Error as problem:
            raise SinkError(f"{self.path}: {problem}") from problem


def insert_statement(table: Table, columns: list[TableColumn]) -> str:
    names = quoted_list([column.name for column in columns])
    conflict = conflict_clause(table, columns, COMPARISON_CASTS) if table.mode == "upsert" else ""
    return f"INSERT INTO {table.quoted} AS {STORED_ALIAS} ({names}) VALUES ({', '.join('?' * len(columns))}) {conflict}"  # noqa: S608


def sortable_decimal(text: Any) -> str | None:
    """A decimal as digits in sort order."""
    if text is None:
        return None
    zero = 10 ** (2 * DECIMAL_DIGITS)
    scaled = int(Decimal(text).scaleb(DECIMAL_DIGITS, Context(prec=3 * DECIMAL_DIGITS)))
    return f"{zero + scaled:0{2 * DECIMAL_DIGITS + 1}d}"

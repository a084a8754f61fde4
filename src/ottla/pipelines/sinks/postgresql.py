"""A transaction with PostgreSQL through psycopg 3.

Rows are sent with COPY as CSV that Arrow writes, several times faster than one statement per row; upserts copy into a
temporary table first. PostgreSQL text cannot contain U+0000: it becomes U+FFFD, because one such character would stop
the query permanently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

from ottla.pipelines.sinks.batch import SinkError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE, Offsets, offsets_from_rows, offsets_to_rows
from ottla.pipelines.sinks.sql_tables import (
    LEDGER_TABLE,
    ORDERED_KINDS,
    STORED_ALIAS,
    ColumnKind,
    Table,
    TableColumn,
    conflict_clause,
    create_statement,
    is_newer,
    quoted,
    quoted_list,
    timestamp_text,
)

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 10
STAGING_TABLE = "ottla_rows"
POSITION_COLUMN = "ottla_place"
IS_DELETED = "ottla_is_deleted"
TYPES: Mapping[ColumnKind, str] = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "float": "DOUBLE PRECISION",
    "decimal": "NUMERIC",
    "text": "TEXT",
    "json": "JSONB",
    "binary": "BYTEA",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "local_timestamp": "TIMESTAMP",
}
# An existing column may have another type; PostgreSQL sorts NaN last, but here it counts as null.
COMPARISON_CASTS: Mapping[ColumnKind, str] = {
    **{kind: f"CAST({{}} AS {TYPES[kind]})" for kind in ORDERED_KINDS},
    "float": "NULLIF(CAST({} AS DOUBLE PRECISION), 'NaN')",
}
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
UNIQUE_KEYS = """
SELECT array_agg(attname::text ORDER BY attname) FROM pg_index JOIN pg_attribute ON attrelid = indrelid
WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND attnum = ANY(indkey) GROUP BY indexrelid
"""


class PostgresSession:
    """Connected for one batch."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self._database: psycopg.Connection[Any] | None = None

    def __repr__(self) -> str:
        return f"PostgresSession({'open' if self._database else 'closed'})"

    @property
    def RETRIABLE_ERRORS(self) -> tuple[type[Exception], ...]:  # # noqa: N802 (named like the constant of the other sessions)
        import psycopg  # # noqa: PLC0415 (optional dependency)

        broken = (psycopg.OperationalError, psycopg.InterfaceError)
        # another query created the table
        return (*broken, psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable)

    def __enter__(self) -> Self:
        import psycopg  # noqa: PLC0415

        self._database = psycopg.connect(self._connection, connect_timeout=CONNECT_SECONDS)
        return self

    def __exit__(self, *problem: object) -> None:
        assert self._database is not None
        self._database.close()  # uncommitted changes are rolled back

    @property
    def database(self) -> psycopg.Connection[Any]:
        assert self._database is not None
        return self._database

    def prepare(self, table: Table, columns: list[TableColumn]) -> None:
        self._make_ledger()
        existing = dict(self.database.execute(COLUMNS, (table.quoted,)).fetchall())
        if existing:
            table.check_existing(columns, existing, TYPES)
        elif table.create:
            self._run(create_statement(table, columns, TYPES))
        else:
            raise SinkError(f"there is no table {table.name}: create it, or let it be created (create: true)")
        if table.key and existing:
            self._check_key(table)

    def _make_ledger(self) -> None:
        self._run(
            f"CREATE TABLE IF NOT EXISTS {LEDGER_TABLE} (query TEXT, sink TEXT, batch BIGINT, identity TEXT,"
            " PRIMARY KEY (query, sink))"
        )

    def _check_key(self, table: Table) -> None:
        keys = [row[0] for row in self.database.execute(UNIQUE_KEYS, (table.quoted,)).fetchall()]
        if sorted(table.key) not in keys:
            raise SinkError(
                f"table {table.name} has no unique index on {', '.join(table.key)}, which upsert needs:"
                f" CREATE UNIQUE INDEX ON {table.quoted} ({quoted_list(table.key)})"
            )

    def last_batch(self, query: str, table: str) -> LastBatch | None:
        """The advisory lock holds until the transaction ends: a concurrent driver waits and then reads the new
        entry."""
        self.database.execute("SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", (query, table))
        statement = f"SELECT batch, identity FROM {LEDGER_TABLE} WHERE query = %s AND sink = %s"  # noqa: S608
        row = self.database.execute(statement, (query, table)).fetchone()
        return None if row is None else LastBatch(int(row[0]), str(row[1]))

    def last_batches(self, table: str) -> dict[str, LastBatch]:
        self._make_ledger()
        statement = f"SELECT query, batch, identity FROM {LEDGER_TABLE} WHERE sink = %s"  # noqa: S608
        found = self.database.execute(statement, (table,)).fetchall()
        return {str(query): LastBatch(int(batch), str(identity)) for query, batch, identity in found}

    def has_table(self, table: Table) -> bool:
        return bool(self.database.execute(COLUMNS, (table.quoted,)).fetchall())

    def delete_batch(self, query: str, table: str) -> None:
        self._make_offsets()
        self.database.execute(f"DELETE FROM {LEDGER_TABLE} WHERE query = %s AND sink = %s", (query, table))  # noqa: S608
        self.database.execute(f"DELETE FROM {OFFSETS_TABLE} WHERE query = %s", (query,))  # noqa: S608

    def count(self, table: Table) -> int:
        """The number of rows; 0 if the table does not exist."""
        if not self.has_table(table):
            return 0
        found = self.database.execute(f"SELECT count(*) FROM {table.quoted}").fetchone()  # noqa: S608
        return int(found[0]) if found else 0

    def clear(self, table: Table) -> None:
        if self.count(table):
            self._run(f"DELETE FROM {table.quoted}")  # noqa: S608

    def store_batch(self, query: str, table: str, recorded: LastBatch) -> None:
        statement = (
            f"INSERT INTO {LEDGER_TABLE} (query, sink, batch, identity) VALUES (%s, %s, %s, %s)"  # noqa: S608
            " ON CONFLICT (query, sink) DO UPDATE SET batch = excluded.batch, identity = excluded.identity"
        )
        self.database.execute(statement, (query, table, *recorded))

    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        import psycopg  # noqa: PLC0415

        try:
            if table.mode == "upsert":
                return self._upsert(table, columns, batches)
            if table.mode == "replace":
                self._run(f"DELETE FROM {table.quoted}")  # noqa: S608
            return self._copy(table.quoted, columns, batches)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as problem:
            words = " ".join(str(problem).split())
            raise SinkError(f"table {table.name} accepts no row: {words}") from problem

    def _copy(self, target: str, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        count = 0
        names = quoted_list([column.name for column in columns])
        statement = f"COPY {target} ({names}) FROM STDIN (FORMAT csv)"
        with self.database.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in batches:
                copy.write(csv_text(batch, columns))
                count += batch.num_rows
        return count

    def _upsert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        """The last row of a key wins. NULLs never conflict: rows with NULL in the key are deleted and inserted
        again."""
        names, keys = quoted_list([column.name for column in columns]), quoted_list(table.key)
        self._run(
            f"CREATE TEMPORARY TABLE {STAGING_TABLE} ON COMMIT DROP AS SELECT {names} FROM {table.quoted} WHERE false;"  # noqa: S608
            f" ALTER TABLE {STAGING_TABLE} ADD COLUMN {POSITION_COLUMN} BIGSERIAL, ADD COLUMN {IS_DELETED} BOOLEAN"
        )
        flag = [TableColumn(IS_DELETED, "boolean")] if table.delete_by else []
        count = self._copy(STAGING_TABLE, [*columns, *flag], batches)
        same = " AND ".join(f"t.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)}" for name in table.key)
        with_null = " OR ".join(f"s.{quoted(name)} IS NULL" for name in table.key)
        same = f"({with_null}) AND {same}"
        if table.newest_by:
            newer = is_newer("t", "s", table, columns, COMPARISON_CASTS)
            self._run(f"DELETE FROM {STAGING_TABLE} s USING {table.quoted} t WHERE {same} AND {newer}")  # noqa: S608
        self._run(f"DELETE FROM {table.quoted} t USING {STAGING_TABLE} s WHERE {same}")  # noqa: S608
        last = f"(SELECT DISTINCT ON ({keys}) * FROM {STAGING_TABLE} ORDER BY {keys}, {POSITION_COLUMN} DESC) s"  # noqa: S608
        if table.delete_by:  # these have no NULL in the key
            equal = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in table.key)
            self._run(f"DELETE FROM {table.quoted} t USING {last} WHERE {IS_DELETED} AND {equal}")  # noqa: S608
        self._run(
            f"INSERT INTO {table.quoted} AS {STORED_ALIAS} ({names}) SELECT {names} FROM {last}"  # noqa: S608
            f" WHERE {IS_DELETED} IS NOT TRUE {conflict_clause(table, columns, COMPARISON_CASTS)}"
        )
        return count

    def offsets(self, query: str) -> Offsets:
        self._make_offsets()
        statement = f"SELECT topic, partition, next_offset FROM {OFFSETS_TABLE} WHERE query = %s"  # noqa: S608
        return offsets_from_rows(self.database.execute(statement, (query,)).fetchall())

    def store_offsets(self, query: str, offsets: Offsets) -> None:
        self._make_offsets()
        statement = (
            f"INSERT INTO {OFFSETS_TABLE} (query, topic, partition, next_offset) VALUES (%s, %s, %s, %s)"  # noqa: S608
            " ON CONFLICT (query, topic, partition) DO UPDATE SET next_offset = excluded.next_offset"
        )
        with self.database.cursor() as cursor:
            cursor.executemany(statement, offsets_to_rows(query, offsets))

    def _make_offsets(self) -> None:
        self._run(
            f"CREATE TABLE IF NOT EXISTS {OFFSETS_TABLE} (query TEXT, topic TEXT, partition INT, next_offset BIGINT,"
            " PRIMARY KEY (query, topic, partition))"
        )

    def commit(self) -> None:
        self.database.commit()

    def _run(self, statement: str) -> None:
        self.database.execute(statement)


def csv_text(batch: Any, columns: list[TableColumn]) -> bytes:
    """Values are quoted and NULL is unquoted and empty, so an empty text stays one."""
    import pyarrow as pa  # noqa: PLC0415 (this package is imported without Arrow)
    from pyarrow import csv  # noqa: PLC0415

    arrays = [_text(batch.column(index), column.kind) for index, column in enumerate(columns)]
    table = pa.table(arrays, names=[column.name for column in columns])
    buffer = BytesIO()
    csv.write_csv(table, buffer, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return buffer.getvalue()


def _text(array: Any, kind: ColumnKind) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if kind == "binary":
        return pa.array([None if each is None else f"\\x{each.hex()}" for each in array.to_pylist()], pa.string())
    if kind in ("text", "json"):
        return pc.replace_substring(array.cast(pa.string()), "\0", "\ufffd")
    if kind == "timestamp":
        return timestamp_text(array)
    return array.cast(pa.string())

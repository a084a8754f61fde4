"""A transaction with any database that SQLAlchemy supports: MySQL, MariaDB, Oracle, SQL Server and many more.

All dialects use the same statements, because not every database can be tested:
  upsert     per row UPDATE, else INSERT: no dialect-specific SQL, other columns keep their values, and foreign keys
             never see a deleted row
  ledger     an entry is updated only if it still has the value that was read: of two concurrent drivers, the second
             changes nothing and retries

Bookkeeping tables are created before the first row, because in some databases CREATE TABLE commits.

Values: times are UTC, nested values are JSON text, NaN is NULL (most databases have none), and so is infinity where it
does not exist. A database without exact decimals is rejected for decimal columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from ottla.pipelines.sinks.batch import SinkError, TransactionLostError
from ottla.pipelines.sinks.batch_ledger import LastBatch
from ottla.pipelines.sinks.database import DatabaseSink, Session
from ottla.pipelines.sinks.external_offsets import OFFSETS_TABLE, Offsets, offsets_from_rows, offsets_to_rows
from ottla.pipelines.sinks.sql_tables import LEDGER_TABLE, ColumnKind, Table, TableColumn

if TYPE_CHECKING:
    import sqlalchemy as sa


# Oversized or non-numeric values fail the batch instead of being truncated; times are UTC in columns without a zone.
MYSQL_SESSION_STATEMENTS = (
    "SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',STRICT_ALL_TABLES')",
    "SET SESSION time_zone = '+00:00'",
)
SESSION_STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "mysql": MYSQL_SESSION_STATEMENTS,
    "mariadb": MYSQL_SESSION_STATEMENTS,
    "postgresql": ("SET TIME ZONE 'UTC'",),
}
NON_TRANSACTIONAL_ENGINES = ("myisam", "aria", "memory", "csv", "archive")  # MySQL engines

INSTALL = "install SQLAlchemy (pip install 'ottla[databases]') and the driver of your database"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEY_CHARACTERS_MAX = 255  # several databases cannot index unbounded text
WITHOUT_INFINITY = ("mysql", "mariadb", "mssql")
# Case-sensitive keys.
MYSQL_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}


@dataclass(frozen=True)
class SqlAlchemySink(DatabaseSink):
    """A table in a database; `url` is a SQLAlchemy URL and is never shown."""

    url: str = field(default="", repr=False)

    def session(self) -> Session:
        return SqlAlchemySession(self.url)


class SqlAlchemySession:
    """Connected for one batch."""

    RETRIABLE_ERRORS: tuple[type[Exception], ...] = (TransactionLostError,)

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: sa.Connection | None = None
        self._subject = "the database"
        self._last_batch: LastBatch | None = None

    def __repr__(self) -> str:
        return f"SqlAlchemySession({'open' if self._connection else 'closed'})"

    def __enter__(self) -> Self:
        import sqlalchemy as sa  # noqa: PLC0415 (installed where it is used)

        with self._translate_errors():
            engine = sa.create_engine(self._url, poolclass=sa.NullPool, hide_parameters=True)
            self._connection = engine.connect()
            for statement in SESSION_STATEMENTS.get(self.dialect, ()):
                self._connection.exec_driver_sql(statement)
        return self

    def __exit__(self, *problem: object) -> None:
        if self._connection is not None:
            with self._translate_errors():
                self._connection.close()  # uncommitted changes are rolled back

    @property
    def connection(self) -> sa.Connection:
        assert self._connection is not None
        return self._connection

    @property
    def dialect(self) -> str:
        return str(self.connection.dialect.name)

    def prepare(self, table: Table, columns: list[TableColumn]) -> None:
        self._subject = f"table {table.name}"
        with self._translate_errors():
            for each in bookkeeping_tables().values():
                self._create_table(each)
            target = target_table(table, columns, self.connection.dialect)
            if not self._table_exists(target):
                if not table.create:
                    raise SinkError(f"there is no table {table.name}: create it, or let it be created (create: true)")
                self._create_table(target)
                return
            self._check_existing(table, columns, target)

    def _create_table(self, target: sa.Table) -> None:
        from sqlalchemy import exc  # noqa: PLC0415

        if self._table_exists(target):
            return
        try:
            target.create(self.connection)
            self.connection.commit()
        except exc.DBAPIError as problem:
            self.connection.rollback()
            if self._table_exists(target):
                raise TransactionLostError(f"table {target.name} was created concurrently") from problem
            raise SinkError(f"table {target.name} cannot be created: {driver_error_text(problem)}") from problem

    def _table_exists(self, target: sa.Table) -> bool:
        import sqlalchemy as sa  # noqa: PLC0415

        return bool(sa.inspect(self.connection).has_table(target.name, target.schema))

    def _check_existing(self, table: Table, columns: list[TableColumn], target: sa.Table) -> None:
        import sqlalchemy as sa  # noqa: PLC0415

        found = sa.inspect(self.connection)
        where = (target.name, target.schema)
        existing = {each["name"]: str(each["type"]) for each in found.get_columns(*where)}
        made = {column.kind: target.c[column.name].type.compile(self.connection.dialect) for column in columns}
        table.check_existing(columns, existing, made)
        if self.dialect in ("mysql", "mariadb"):
            engine = str(found.get_table_options(*where).get(f"{self.dialect}_engine", ""))
            if engine.lower() in NON_TRANSACTIONAL_ENGINES:
                raise SinkError(f"table {table.name} has the engine {engine}, without transactions: use InnoDB")
        if not table.key:
            return
        keys: list[list[Any]] = [found.get_pk_constraint(*where)["constrained_columns"]]
        keys += [each["column_names"] for each in found.get_unique_constraints(*where)]
        keys += [each["column_names"] for each in found.get_indexes(*where) if each["unique"]]
        if set(table.key) not in [set(key) for key in keys]:
            raise SinkError(
                f"table {table.name} has no unique index on {', '.join(table.key)}, which upsert needs: create one"
            )

    def last_batch(self, query: str, table: str) -> LastBatch | None:
        self._last_batch = self.last_batches(table).get(query)
        return self._last_batch

    def last_batches(self, table: str) -> dict[str, LastBatch]:
        """The newest batches by query name."""
        import sqlalchemy as sa  # noqa: PLC0415

        ledger = bookkeeping_tables()[LEDGER_TABLE]
        with self._translate_errors():
            if not self._table_exists(ledger):
                return {}
            wanted = sa.select(ledger.c.query, ledger.c.batch, ledger.c.identity).where(ledger.c.sink == table)
            rows = self.connection.execute(wanted).fetchall()
        return {str(query): LastBatch(int(batch), str(identity)) for query, batch, identity in rows}

    def store_batch(self, query: str, table: str, recorded: LastBatch) -> None:
        """Update the entry only if it still has the value that `recorded` returned."""
        ledger, before = bookkeeping_tables()[LEDGER_TABLE], self._last_batch
        key = {"query": query, "sink": table}
        new = {"batch": recorded.batch_id, "identity": recorded.identity}
        with self._translate_errors(is_race=True):
            if before is None:
                self.connection.execute(ledger.insert().values(**key, **new))
                return
            old = {**key, "batch": before.batch_id, "identity": before.identity}
            changed = self.connection.execute(ledger.update().values(**new).filter_by(**old))
        if changed.rowcount != 1:
            raise TransactionLostError("a concurrent transaction wrote this batch")

    def has_table(self, table: Table) -> bool:
        with self._translate_errors():
            return self._table_exists(target_table(table, [], self.connection.dialect))

    def delete_batch(self, query: str, table: str) -> None:
        known = bookkeeping_tables()
        with self._translate_errors():
            if self._table_exists(known[LEDGER_TABLE]):
                self.connection.execute(known[LEDGER_TABLE].delete().filter_by(query=query, sink=table))
            if self._table_exists(known[OFFSETS_TABLE]):
                self.connection.execute(known[OFFSETS_TABLE].delete().filter_by(query=query))

    def count(self, table: Table) -> int:
        """The number of rows; 0 if the table does not exist."""
        import sqlalchemy as sa  # noqa: PLC0415

        target = target_table(table, [], self.connection.dialect)
        with self._translate_errors():
            if not self._table_exists(target):
                return 0
            return int(self.connection.execute(sa.select(sa.func.count()).select_from(target)).scalar_one())

    def clear(self, table: Table) -> None:
        if self.count(table):
            with self._translate_errors():
                self.connection.execute(target_table(table, [], self.connection.dialect).delete())

    def insert(self, table: Table, columns: list[TableColumn], batches: Iterator[Any]) -> int:
        target = target_table(table, columns, self.connection.dialect)
        count = 0
        with self._translate_errors():
            if table.mode == "replace":
                self.connection.execute(target.delete())
            for batch in batches:
                rows = row_values(batch, columns, self.dialect)
                if table.mode == "upsert":
                    gone = batch.column(len(columns)).to_pylist() if table.delete_by else [False] * len(rows)
                    for row, is_deleted in zip(rows, gone, strict=True):
                        change = delete_row if is_deleted else upsert_row
                        change(self.connection, target, table, row)
                elif rows:
                    self.connection.execute(target.insert(), rows)
                count += len(rows)
        return count

    def offsets(self, query: str) -> Offsets:
        import sqlalchemy as sa  # noqa: PLC0415

        kept = bookkeeping_tables()[OFFSETS_TABLE]
        with self._translate_errors():
            if not self._table_exists(kept):
                return {}
            wanted = sa.select(kept.c.topic, kept.c.partition, kept.c.next_offset).where(kept.c.query == query)
            return offsets_from_rows([tuple(row) for row in self.connection.execute(wanted)])

    def store_offsets(self, query: str, offsets: Offsets) -> None:
        kept = bookkeeping_tables()[OFFSETS_TABLE]
        rows = [dict(zip(kept.c.keys(), row, strict=True)) for row in offsets_to_rows(query, offsets)]
        with self._translate_errors():
            for row in rows:
                upsert_row(self.connection, kept, Table(OFFSETS_TABLE, "upsert", ("query", "topic", "partition")), row)

    def commit(self) -> None:
        with self._translate_errors():
            self.connection.commit()

    @contextmanager
    def _translate_errors(self, is_race: bool = False) -> Iterator[None]:
        """Translate SQLAlchemy errors. `is_race`: a duplicate key means a concurrent writer. Raises LostError,
        SinkError."""
        from sqlalchemy import exc  # noqa: PLC0415

        try:
            yield
        except exc.DBAPIError as problem:
            is_lost = problem.connection_invalidated or isinstance(problem, exc.OperationalError | exc.InterfaceError)
            if is_lost or (is_race and isinstance(problem, exc.IntegrityError)):
                raise TransactionLostError(driver_error_text(problem)) from problem
            raise SinkError(f"{self._subject} accepts no row: {driver_error_text(problem)}") from problem
        except exc.SQLAlchemyError as problem:
            raise SinkError(f"{self._subject} cannot be used: {driver_error_text(problem)}") from problem


def upsert_row(connection: sa.Connection, target: sa.Table, table: Table, row: Mapping[str, Any]) -> None:
    """Update the row with this key, unless the stored one is newer; insert it if there is none."""
    import sqlalchemy as sa  # noqa: PLC0415

    same = same_key(target, table, row)
    others = {name: value for name, value in row.items() if name not in table.key}
    if others:
        changed = connection.execute(
            target.update().where(same, stored_is_not_newer(target, table, row)).values(others)
        )
        if changed.rowcount > 0:
            return
    if connection.execute(sa.select(sa.literal(1)).select_from(target).where(same).limit(1)).first() is None:
        connection.execute(target.insert().values(dict(row)))


def delete_row(connection: sa.Connection, target: sa.Table, table: Table, row: Mapping[str, Any]) -> None:
    connection.execute(target.delete().where(same_key(target, table, row)))


def same_key(target: sa.Table, table: Table, row: Mapping[str, Any]) -> Any:
    import sqlalchemy as sa  # noqa: PLC0415

    return sa.and_(
        *(target.c[name].is_(None) if row[name] is None else target.c[name] == row[name] for name in table.key)
    )


def stored_is_not_newer(target: sa.Table, table: Table, row: Mapping[str, Any]) -> Any:
    """Null is older than any value."""
    import sqlalchemy as sa  # noqa: PLC0415

    if table.newest_by is None:
        return sa.true()
    stored, given = target.c[table.newest_by], row[table.newest_by]
    return stored.is_(None) if given is None else sa.or_(stored.is_(None), stored <= given)


def driver_error_text(problem: Exception) -> str:
    """The message of the database, without our statement."""
    said = getattr(problem, "orig", None) or problem
    return " ".join(str(said).split())


def target_table(table: Table, columns: list[TableColumn], dialect: Any) -> sa.Table:
    """The table as it is, or would be created. Raises SinkError for a column that the database cannot store."""
    import sqlalchemy as sa  # noqa: PLC0415

    for column in columns:
        if column.kind == "decimal" and not has_decimals(dialect):
            raise SinkError(f"table {table.name}: {dialect.name} has no exact decimals: cast {column.name!r} before")
    schema, _, name = table.name.rpartition(".")
    made = [sa.Column(each.name, column_type(each, is_key=each.name in table.key)) for each in columns]
    unique = [sa.UniqueConstraint(*table.key)] if table.key and columns else []
    return sa.Table(name, sa.MetaData(), *made, *unique, schema=schema or None, **options_of_mysql())


def has_decimals(dialect: Any) -> bool:
    """Some dialects convert decimals to floating-point numbers."""
    import sqlalchemy as sa  # noqa: PLC0415

    process = sa.Numeric().dialect_impl(dialect).bind_processor(dialect)
    return process is None or not isinstance(process(Decimal("0.1")), float)


def bookkeeping_tables() -> dict[str, sa.Table]:
    import sqlalchemy as sa  # noqa: PLC0415

    def text(name: str) -> Any:
        return sa.Column(name, sa.Unicode(KEY_CHARACTERS_MAX), primary_key=True)

    return {
        LEDGER_TABLE: sa.Table(
            LEDGER_TABLE,
            sa.MetaData(),
            *(text("query"), text("sink"), sa.Column("batch", sa.BigInteger)),
            sa.Column("identity", sa.Unicode(KEY_CHARACTERS_MAX)),
            **options_of_mysql(),
        ),
        OFFSETS_TABLE: sa.Table(
            OFFSETS_TABLE,
            sa.MetaData(),
            *(text("query"), text("topic"), sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False)),
            sa.Column("next_offset", sa.BigInteger),
            **options_of_mysql(),
        ),
    }


def options_of_mysql() -> dict[str, Any]:
    return {f"{name}_{key}": value for name in ("mysql", "mariadb") for key, value in MYSQL_OPTIONS.items()}


def column_type(column: TableColumn, is_key: bool) -> Any:
    """MySQL types where the generic ones hold only 64 kB or whole seconds."""
    import sqlalchemy as sa  # noqa: PLC0415
    from sqlalchemy.dialects import mysql  # noqa: PLC0415

    family = ("mysql", "mariadb")
    if column.kind == "decimal":
        precision, _, scale = column.detail.partition(",")
        return sa.Numeric(int(precision), int(scale or 0))
    if column.kind in ("text", "json") and is_key:
        return sa.Unicode(KEY_CHARACTERS_MAX)
    types: Mapping[ColumnKind, Any] = {
        "boolean": sa.Boolean(),
        "integer": sa.BigInteger(),
        "float": sa.Double(),
        "text": sa.UnicodeText().with_variant(mysql.LONGTEXT(), *family),
        "json": sa.UnicodeText().with_variant(mysql.LONGTEXT(), *family),
        "binary": sa.LargeBinary().with_variant(mysql.LONGBLOB(), *family),
        "date": sa.Date(),
        "timestamp": sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), *family),
        "local_timestamp": sa.DateTime().with_variant(mysql.DATETIME(fsp=6), *family),
    }
    return types[column.kind]


def row_values(batch: Any, columns: list[TableColumn], dialect: str) -> list[dict[str, Any]]:
    """Raises SinkError for a date or time outside Python's range."""
    try:
        values = [_values(batch.column(index).to_pylist(), each.kind, dialect) for index, each in enumerate(columns)]
    except (OverflowError, ValueError) as problem:
        raise SinkError(f"a date or time is out of range, years 1 to 9999: {problem}") from problem
    names = [column.name for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _values(values: list[Any], kind: ColumnKind, dialect: str) -> list[Any]:
    if kind == "timestamp":
        return [None if each is None else EPOCH + timedelta(microseconds=each) for each in values]
    if kind == "float":
        is_no_number = math.isnan if dialect not in WITHOUT_INFINITY else lambda each: not math.isfinite(each)
        return [None if each is None or is_no_number(each) else each for each in values]
    if kind in ("text", "json") and dialect == "postgresql":  # PostgreSQL text cannot contain U+0000
        return [None if each is None else each.replace("\0", "\ufffd") for each in values]
    return values


def check_url(url: str) -> str:
    """Return the dialect name. Raises SinkError if the driver is missing or unsuitable."""
    try:
        import sqlalchemy as sa  # noqa: PLC0415
    except ImportError:
        raise SinkError(f"SQLAlchemy is not installed: {INSTALL}") from None
    try:
        found = sa.make_url(url)
        dialect = found.get_dialect()
        dialect.import_dbapi()
    except sa.exc.NoSuchModuleError:
        raise SinkError(f"SQLAlchemy has no dialect {url.partition(':')[0]}: {INSTALL}") from None
    except (sa.exc.ArgumentError, ValueError):
        raise SinkError("is not a SQLAlchemy URL: mysql+pymysql://user:${PASSWORD}@host/database") from None
    except ImportError as problem:
        raise SinkError(f"{found.drivername} needs the Python package {problem.name}: pip install it") from None
    if not dialect.supports_sane_rowcount:
        raise SinkError(f"{found.drivername} does not report the number of changed rows: use another driver")
    if dialect.is_async:
        raise SinkError(f"{found.drivername} is asynchronous: use another driver")
    if found.get_backend_name() == "sqlite" and found.database in (None, "", ":memory:"):
        raise SinkError("an in-memory database is lost after the batch: use a file")
    return str(found.get_backend_name())
